"""One command on a machine with a GPU and a real checkpoint: is the engine exact there, and how fast is it?

    python benchmarks/gpu_check.py --model Qwen/Qwen3-VL-2B-Instruct --dtype bfloat16

Conversations come in groups of 8 that share a prompt image; after every reply the model gets another image. Replies are
sampled and all of one length (end tokens are never drawn), so every side does the same work. It prints the machine,
parity of log-probs with plain forwards, greedy tokens against `generate`, speed against the per-turn `generate` loop
and vLLM (if it is installed), memory, the share of time in forwards, and how often a step makes the host wait. Without
CUDA the shipped tiny model plays in float32. The last line is one JSON object; the exit code is 1 if a bar is missed.
"""

import argparse
import gc
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import transformers
from gpu_sides import FIRST, ROOM, Plan, engine, greedy, parity, per_turn, vllm_speed
from PIL import Image

from viewbox.configs.schema import ModelSection
from viewbox.images.ref import ImageRef
from viewbox.rollouts.engine import loading
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.engine.engine import HFGenerator
from viewbox.rollouts.engine.kv_cache import compute_bytes_per_token

BAR = 2.0  # times what padding alone does: plain forwards of batch 1 against batch N
EXACT = 1e-5  # a mismatch that is none


# ---------------------------------------------------------------------- where the time goes
class Clock:
    """Seconds in the forwards of modules; on CUDA measured with events, because launching returns at once."""

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
        for hook in self.hooks:
            hook.remove()
        pairs = list(zip(self.marks[::2], self.marks[1::2], strict=True))
        if not self.cuda:
            return sum(end - start for start, end in pairs)
        torch.cuda.synchronize()
        return sum(start.elapsed_time(end) for start, end in pairs) / 1000


def waits(run: Callable[[], Any]) -> int:
    """How often the host waits for the GPU during `run`, as far as torch detects it."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(one.message) for one in told)


# ---------------------------------------------------------------------- the report
class Report:
    """Prints lines with a verdict each, and collects them as one JSON object."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.missed: list[str] = []

    def line(self, name: str, found: Any, fine: bool | None = None, bar: str = "") -> None:
        """`fine` None: a figure without a bar."""
        verdict = {None: "    ", True: "ok  ", False: "MISS"}[fine]
        self.figures[name] = found
        if fine is False:
            self.missed.append(name)
        print(f"{verdict}  {name}: {shown(found)}{f'   (bar: {bar})' if bar else ''}", flush=True)


def shown(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{key} {shown(value)}" for key, value in found.items())
    return f"{found:.4g}" if isinstance(found, float) else str(found)


def machine(device: torch.device) -> dict[str, str]:
    """The machine and the versions."""
    cuda = device.type == "cuda"
    name = torch.cuda.get_device_name(device) if cuda else platform.processor() or "CPU"
    if cuda:
        name += f", {torch.cuda.get_device_properties(device).total_memory / 2**30:.0f} GiB"
    return {
        "device": name,
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "transformers": transformers.__version__,
    }


def exactness(report: Report, model: Any, tokens: ChatTokens, plan: Plan, slots: int) -> None:
    few = replace(plan, episodes=min(plan.episodes, 16))
    noise = 0.0
    for temperature in (1.0, 0.7):
        found = parity(model, tokens, few, slots, temperature)
        ours, yardstick = found["engine"], found["padding"]
        if model.dtype == torch.float32:
            fine, bar = (
                ours["max"] <= max(EXACT, BAR * yardstick["max"]),
                f"max {EXACT:g}, or {BAR:g} x that of padding",
            )
        else:
            fine, bar = ours["mean"] <= BAR * yardstick["mean"], f"mean {BAR:g} x that of padding"
        report.line(f"parity, T = {temperature}", found, fine, bar)
        noise = max(noise, EXACT, ours["max"], yardstick["max"])
    found = greedy(model, tokens, replace(plan, episodes=min(plan.episodes, 8)), slots)
    fine = found["largest margin"] <= 2 * BAR * noise
    report.line("greedy as generate says", found, fine, f"different only at ties closer than {2 * BAR * noise:.1e}")


def speed(report: Report, model: Any, tokens: ChatTokens, plan: Plan, slots: int, repeats: int) -> float:
    """Measures engine and per-turn loop alternately; returns the best seconds of the engine."""
    cuda = model.device.type == "cuda"
    settings = {"max_reply_tokens": plan.reply, "max_completion_tokens": ROOM}
    generator = HFGenerator(model, tokens, slots=slots, **settings)
    sides = {"engine": lambda: engine(generator, plan), "per turn": lambda: per_turn(model, tokens, plan, slots)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    memory: dict[str, float] = {}
    for play in sides.values():
        play()  # kernels are chosen, memory is had, pictures are preprocessed
    for _ in range(repeats):
        for name, play in sides.items():
            generator.vision_cache.clear()
            if cuda:
                torch.cuda.reset_peak_memory_stats(model.device)
            started = time.perf_counter()
            play()
            seconds[name].append(time.perf_counter() - started)
            if cuda:
                memory[name] = torch.cuda.max_memory_allocated(model.device) / 2**30
    best = {name: min(found) for name, found in seconds.items()}
    for name, found in best.items():
        report.line(f"speed, {name}", rates(plan, found))
    ratio = best["per turn"] / best["engine"]
    report.line("engine, times the per-turn loop", ratio, ratio >= 1.0, "at least 1")
    report.line("peak memory, GiB", memory or "only on CUDA")
    report.line(
        "keys and values",
        {
            "bytes a token": compute_bytes_per_token(model),
            "bytes copied a step": generator.cache.bytes_copied / generator.stats.steps,
        },
    )
    generator.vision_cache.clear()
    clock = Clock(model, tokens.architecture.get_vision_tower(model))
    busy, steps = generator.stats.busy_seconds, generator.stats.steps
    engine(generator, plan)
    busy = generator.stats.busy_seconds - busy
    report.line("share of the engine's time in forwards", clock.stop() / busy)
    report.line("milliseconds a step", 1000 * busy / (generator.stats.steps - steps))
    steps = generator.stats.steps
    told: Any = waits(lambda: engine(generator, plan)) if cuda else None
    report.line("host waits for the GPU, a step", told / (generator.stats.steps - steps) if cuda else "only on CUDA")
    return best["engine"]


def rates(plan: Plan, seconds: float) -> dict[str, float]:
    sampled = plan.episodes * plan.turns * plan.reply
    return {"tokens/s": sampled / seconds, "episodes/s": plan.episodes / seconds, "seconds": seconds}


def opened(given: argparse.Namespace) -> tuple[Any, ChatTokens, Plan]:
    """The model, its tokens (end tokens are never drawn), and the plan."""
    section = ModelSection(name=given.model, dtype=given.dtype, attention=given.attention)
    _, processor = loading.load_processor(section)
    images = processor.image_processor
    unit = images.patch_size * images.merge_size
    loading.set_max_pixels(processor, (2 * FIRST * unit) ** 2)
    model = loading.load_model(section).to(given.device).eval()
    tokens = ChatTokens(processor, model.config, model.generation_config)
    tokens.never_sampled = tuple(sorted({*tokens.never_sampled, *tokens.stop_ids}))
    picture = ImageRef.of(Image.open(given.image).convert("RGB")) if given.image else None
    return model, tokens, Plan(given.episodes, given.turns, given.reply_tokens, unit, picture)


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-VL-2B-Instruct" if cuda else "package:tiny_viewer")
    parser.add_argument(
        "--dtype", default="bfloat16" if cuda else "float32", choices=["float32", "bfloat16", "float16"]
    )
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--device", default="auto", help="auto: the first GPU, where there is one")
    parser.add_argument("--episodes", type=int, default=64 if cuda else 16)
    parser.add_argument("--slots", type=int, default=None, help="default: as many as episodes")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--reply-tokens", type=int, default=64 if cuda else 16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--image", help="a file, as the picture of every prompt; default: drawn ones")
    found = parser.parse_args(given)
    found.device = torch.device(("cuda" if cuda else "cpu") if found.device == "auto" else found.device)
    found.slots = found.slots or found.episodes
    return found


def check(report: Report, given: argparse.Namespace) -> tuple[Plan, float]:
    model, tokens, plan = opened(given)
    report.line("machine", machine(given.device))
    report.line("run", {name: str(value) for name, value in vars(given).items()})
    exactness(report, model, tokens, plan, given.slots)
    return plan, speed(report, model, tokens, plan, given.slots, given.repeats)


def main() -> int:
    given, report = arguments(), Report()
    plan, seconds = check(report, given)
    gc.collect()
    torch.cuda.empty_cache()  # vLLM needs the room
    try:
        found = vllm_speed(loading.resolve_model_path(given.model), given.dtype, plan, given.slots)
    except Exception as error:  # whatever it is, what was measured is to be told
        found = {"skipped": f"vllm failed: {type(error).__name__}: {error}"}
    if "seconds" in found:
        found = {**rates(plan, found["seconds"]), "times as fast as the engine": seconds / found["seconds"]}
    report.line("speed, vLLM", found)
    print(f"{len(report.missed)} bars missed" + f": {', '.join(report.missed)}" * bool(report.missed))
    print(json.dumps(report.figures))
    return bool(report.missed)


if __name__ == "__main__":
    sys.exit(main())
