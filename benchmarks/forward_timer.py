"""Times the forwards of modules, on a CPU or a GPU."""

import time
from typing import Any

import torch


class ForwardTimer:
    """Sums the seconds of all forwards of `modules` from now until `stop`.

    On CUDA it uses events, because a kernel launch returns before the kernel has run.
    """

    def __init__(self, *modules: Any) -> None:
        self.cuda, self.marks = modules[0].device.type == "cuda", list[Any]()
        hooks = [(one.register_forward_pre_hook, one.register_forward_hook) for one in modules]
        self.hooks = [register(lambda *_: self.mark()) for pair in hooks for register in pair]

    def mark(self) -> None:
        if self.cuda:
            self.marks.append(torch.cuda.Event(enable_timing=True))
            self.marks[-1].record()
        else:
            self.marks.append(time.perf_counter())

    def stop(self) -> float:
        """Remove the hooks and return the seconds."""
        for hook in self.hooks:
            hook.remove()
        pairs = list(zip(self.marks[::2], self.marks[1::2], strict=True))
        if not self.cuda:
            return sum(end - start for start, end in pairs)
        torch.cuda.synchronize()
        return sum(start.elapsed_time(end) for start, end in pairs) / 1000
