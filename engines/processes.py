"""How many threads PyTorch computes with in a process, and what one of several processes does for all of them.

On a busy machine threads wait for each other: two can be 100 times slower than one, so the number is measured where a
model is loaded.
"""

import os
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ..errors import ViewboxError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
SECONDS = 1.0  # spent on measuring, if two rounds take no longer
OPERATIONS = 1e9  # multiplications of a measured forward
MARGIN = 0.9  # more threads are taken if they need less than this part of the time


def choose_threads(model: "PreTrainedModel", given: int | None = None) -> str | None:
    """Set the threads of this process: `given`, OMP_NUM_THREADS, or the fastest number that is measured; return what
    was chosen, None if nothing was to choose, as on a GPU."""
    most = torch.get_num_threads()
    if model.device.type != "cpu":
        return None
    if given is not None:
        torch.set_num_threads(given)
        return f"{given}, as given"
    if most == 1 or "OMP_NUM_THREADS" in os.environ:
        return None
    counts = [1 << power for power in range(most.bit_length()) if 1 << power < most] + [most]
    seconds = measure_forwards(model, counts)
    best = counts[0]
    for count in counts:
        if seconds[count] < MARGIN * seconds[best]:
            best = count
    torch.set_num_threads(best)
    measured = ", ".join(f"{1000 * seconds[count]:.0f} ms with {count}" for count in counts)
    return f"{best} of {most}: a forward takes {measured}; model.threads sets them"


@torch.inference_mode()
def measure_forwards(model: "PreTrainedModel", counts: list[int]) -> dict[int, float]:
    """Return the median seconds of a forward of text by number of threads, the numbers taken in turn."""
    parameters = sum(weight.numel() for weight in model.parameters())
    tokens = torch.zeros((1, min(512, max(1, int(OPERATIONS / parameters)))), dtype=torch.long)
    torch.set_num_threads(1)
    model(input_ids=tokens)  # the first one is slower
    taken: dict[int, list[float]] = {count: [] for count in counts}
    started = time.perf_counter()
    while len(taken[counts[-1]]) < 2 or time.perf_counter() - started < SECONDS:
        for count in counts:
            torch.set_num_threads(count)
            before = time.perf_counter()
            model(input_ids=tokens)
            taken[count].append(time.perf_counter() - before)
    return {count: median(times) for count, times in taken.items()}


def do_once(work: Callable[[], T]) -> T:
    """Return what the work returns on the first process, on all of them; its `ViewboxError` is raised on all."""
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    shared: list[Any] = [None]
    if PartialState().is_main_process:
        try:
            shared = [work()]
        except ViewboxError as error:
            shared = [error]
    broadcast_object_list(shared)
    if isinstance(shared[0], ViewboxError):
        raise shared[0]
    result: T = shared[0]
    return result
