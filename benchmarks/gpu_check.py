"""Checks the engine on a GPU with a real checkpoint: is it exact there, and how fast is it?

    python benchmarks/gpu_check.py --model Qwen/Qwen3-VL-2B-Instruct --dtype bfloat16

Conversations come in groups of 8 that share a prompt image; after every reply the model gets another image. Replies are
sampled and all of one length (end tokens are never sampled), so every side does the same work. It prints the machine,
parity of log-probs with plain forwards, greedy tokens against `generate`, speed against the per-turn `generate` loop
and vLLM (if it is installed), memory, the share of time in forwards, and how often the host waits for the GPU. Without
CUDA, the shipped tiny model plays in float32. The last line is one JSON object; the exit code is 1 if a bar is missed.
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
from forward_timer import ForwardTimer
from gpu_sides import (
    FIRST_SIDE,
    NO_LIMIT,
    Plan,
    compare_greedy,
    get_unit,
    measure_parity,
    play_per_turn,
    play_with_engine,
    time_vllm,
)
from PIL import Image

from viewbox.assets import resolve_model_path
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf import Settings, loading
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.engine import HFGenerator
from viewbox.engines.hf.kv_cache import measure_slot
from viewbox.images.ref import ImageRef

BAR = 2.0  # times the difference that padding alone makes: plain forwards of batch 1 against batch N
EXACT = 1e-5  # a smaller difference of log-probs counts as none


def count_host_waits(run: Callable[[], Any]) -> int:
    """Return how often the host waits for the GPU during `run`, as far as torch detects it."""
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
    """Prints each figure with a verdict, and collects all figures as one JSON object."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}
        self.missed: list[str] = []

    def add(self, name: str, found: Any, fine: bool | None = None, bar: str = "") -> None:
        """Add a figure; `fine` says whether it meets its bar, None that it has none."""
        verdict = {None: "    ", True: "ok  ", False: "MISS"}[fine]
        self.figures[name] = found
        if fine is False:
            self.missed.append(name)
        print(f"{verdict}  {name}: {format_value(found)}{f'   (bar: {bar})' if bar else ''}", flush=True)


def format_value(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{key} {format_value(value)}" for key, value in found.items())
    return f"{found:.4g}" if isinstance(found, float) else str(found)


def describe_machine(device: torch.device) -> dict[str, str]:
    """Device, threads and versions."""
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


def check_parity(report: Report, model: Any, tokens: ChatTokens, plan: Plan, slots: int) -> None:
    few = replace(plan, episodes=min(plan.episodes, 16))
    noise = 0.0
    for temperature in (1.0, 0.7):
        found = measure_parity(model, tokens, few, slots, temperature)
        engine, padding = found["engine"], found["padding"]
        if model.dtype == torch.float32:
            fine, bar = (
                engine["max"] <= max(EXACT, BAR * padding["max"]),
                f"max {EXACT:g}, or {BAR:g} x that of padding",
            )
        else:
            fine, bar = engine["mean"] <= BAR * padding["mean"], f"mean {BAR:g} x that of padding"
        report.add(f"parity, T = {temperature}", found, fine, bar)
        noise = max(noise, EXACT, engine["max"], padding["max"])
    found = compare_greedy(model, tokens, replace(plan, episodes=min(plan.episodes, 8)), slots)
    fine = found["largest margin"] <= 2 * BAR * noise
    report.add("greedy equals generate", found, fine, f"different only at ties closer than {2 * BAR * noise:.1e}")


def measure_speed(report: Report, model: Any, tokens: ChatTokens, plan: Plan, slots: int, repeats: int) -> float:
    """Measure engine and per-turn loop alternately; return the best seconds of the engine."""
    cuda = model.device.type == "cuda"
    settings = Settings(slots=slots, max_reply_tokens=plan.reply, max_completion_tokens=NO_LIMIT)
    generator = HFGenerator(model, tokens, settings)
    sides = {
        "engine": lambda: play_with_engine(generator, plan),
        "per turn": lambda: play_per_turn(model, tokens, plan, slots),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    memory: dict[str, float] = {}
    for play in sides.values():
        play()  # warms up: chooses kernels, allocates memory, preprocesses images
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
        report.add(f"speed, {name}", compute_rates(plan, found))
    ratio = best["per turn"] / best["engine"]
    report.add("engine, times the per-turn loop", ratio, ratio >= 1.0, "at least 1")
    report.add("peak memory, GiB", memory or "only on CUDA")
    report.add(
        "keys and values",
        {
            "bytes a token": measure_slot(model)[0],
            "bytes copied a step": generator.cache.bytes_copied / generator.stats.steps,
        },
    )
    generator.vision_cache.clear()
    timer = ForwardTimer(model, tokens.architecture.get_vision_tower(model))
    busy, steps = generator.stats.busy_seconds, generator.stats.steps
    play_with_engine(generator, plan)
    busy = generator.stats.busy_seconds - busy
    report.add("share of the engine's time in forwards", timer.stop() / busy)
    report.add("milliseconds a step", 1000 * busy / (generator.stats.steps - steps))
    steps = generator.stats.steps
    told: Any = count_host_waits(lambda: play_with_engine(generator, plan)) if cuda else None
    report.add("host waits for the GPU, a step", told / (generator.stats.steps - steps) if cuda else "only on CUDA")
    return best["engine"]


def compute_rates(plan: Plan, seconds: float) -> dict[str, float]:
    sampled = plan.episodes * plan.turns * plan.reply
    return {"tokens/s": sampled / seconds, "episodes/s": plan.episodes / seconds, "seconds": seconds}


def load_policy(given: argparse.Namespace) -> tuple[Any, ChatTokens, Plan]:
    """Return the model, its tokens (end tokens are never sampled), and the plan."""
    section = ModelSection(name=given.model, dtype=given.dtype, attention=given.attention)
    _, processor = loading.load_processor(section)
    model = loading.load_model(section).to(given.device).eval()
    unit = get_unit(model, processor)
    loading.set_max_pixels(processor, (2 * FIRST_SIDE * unit) ** 2)
    tokens = ChatTokens(processor, model.config, model.generation_config)
    tokens.never_sampled = tuple(sorted({*tokens.never_sampled, *tokens.stop_ids}))
    picture = ImageRef.of(Image.open(given.image).convert("RGB")) if given.image else None
    return model, tokens, Plan(given.episodes, given.turns, given.reply_tokens, unit, picture)


def parse_arguments(given: list[str] | None = None) -> argparse.Namespace:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="Qwen/Qwen3-VL-2B-Instruct" if cuda else "package:tiny_viewer")
    parser.add_argument(
        "--dtype", default="bfloat16" if cuda else "float32", choices=["float32", "bfloat16", "float16"]
    )
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--device", default="auto", help="auto: the first GPU, if there is one")
    parser.add_argument("--episodes", type=int, default=64 if cuda else 16)
    parser.add_argument("--slots", type=int, default=None, help="default: as many as episodes")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--reply-tokens", type=int, default=64 if cuda else 16)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--image", help="an image file that every prompt shows; default: generated images")
    found = parser.parse_args(given)
    found.device = torch.device(("cuda" if cuda else "cpu") if found.device == "auto" else found.device)
    found.slots = found.slots or found.episodes
    return found


def check(report: Report, given: argparse.Namespace) -> tuple[Plan, float]:
    model, tokens, plan = load_policy(given)
    report.add("machine", describe_machine(given.device))
    report.add("run", {name: str(value) for name, value in vars(given).items()})
    check_parity(report, model, tokens, plan, given.slots)
    return plan, measure_speed(report, model, tokens, plan, given.slots, given.repeats)


def main() -> int:
    given, report = parse_arguments(), Report()
    plan, seconds = check(report, given)
    gc.collect()
    torch.cuda.empty_cache()  # vLLM needs the memory
    try:
        found = time_vllm(resolve_model_path(given.model), given.dtype, plan, given.slots)
    except Exception as error:  # the figures measured so far must still be printed
        found = {"skipped": f"vllm failed: {type(error).__name__}: {error}"}
    if "seconds" in found:
        found = {**compute_rates(plan, found["seconds"]), "times as fast as the engine": seconds / found["seconds"]}
    report.add("speed, vLLM", found)
    print(f"{len(report.missed)} bars missed" + f": {', '.join(report.missed)}" * bool(report.missed))
    print(json.dumps(report.figures))
    return bool(report.missed)


if __name__ == "__main__":
    sys.exit(main())
