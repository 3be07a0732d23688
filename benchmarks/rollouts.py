"""Measures the rollout engine on one thread. All sides sample equal tokens, and are timed in turns.

    python benchmarks/rollouts.py [REPEATS] [--only a,b,split,floor,linear,trl] [--small] [--family gemma3,llava]

(default: 2 repeats, half as many of b: under ten minutes; `--small` only checks that it runs. The last line is one JSON
object with an entry for each section; `met` says whether it reached its `bar`.)

a, b     episodes/s against the per-turn loop (`per_turn.py`). a: 8 prompts of 144 image tokens, 8 episodes each;
         b: 4 prompts of 576 image tokens, 16 episodes each
split    how much slower the engine is without one of its parts, on half of case a: shared prefill, kept keys and
         values, reused vision features, continuous batching; and without all four (`ablations.py`)
floor    the share of the engine's time in forwards, and these forwards against a plain cache (`plain_cache.py`)
linear   the seconds of N and of 2N episodes in the same slots; the memory after N and after 4N episodes
trl      sampled tokens/s against TRL's own loop (`trl_loop.py`)
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from scripted_case import CaseSize, LooksEnv, Stage  # first: it asks for one thread

# ruff: isort: split
import psutil
import torch
from ablations import VARIANTS
from forward_timer import ForwardTimer
from per_turn import play_per_turn
from plain_cache import PairedModel
from trl_loop import compare_with_trl

CASES = {"a": CaseSize(8, 8, 12, 8), "b": CaseSize(4, 16, 24, 12)}
SPLIT = CaseSize(4, 8, 12, 8)
LINEAR = CaseSize(8, 8, 4, 4)  # mostly text, so that one-time costs are small
SLOTS = 8  # of `linear`
SMALL = CaseSize(1, 2, 2, 2)
BARS = {"a": 3.0, "b": 5.0, "in_forwards": 0.85, "over_floor": 1.15, "linear": 0.1, "memory": 0.02}


def time_call(play: Callable[[], Any]) -> tuple[float, Any]:
    """(seconds, result) of one call."""
    started = time.perf_counter()
    found = play()
    return time.perf_counter() - started, found


def compare_with_per_turn(case: CaseSize, bar: float, repeats: int, family: str | None = None) -> dict[str, Any]:
    """Episodes/s of the engine over those of the per-turn loop: the best of `repeats` plays each."""
    stage = Stage(case, family)
    generator = stage.build_engine()
    seconds: dict[str, list[float]] = {"engine": [], "per_turn": []}
    for _ in range(repeats):
        generator.vision_cache.clear()
        spent, count = time_call(partial(stage.play, generator))
        seconds["engine"].append(spent)
        spent, same = time_call(partial(play_per_turn, stage))
        assert same == count
        seconds["per_turn"].append(spent)
    best = {side: min(found) for side, found in seconds.items()}
    ratio = best["per_turn"] / best["engine"]
    stats = generator.stats
    return {
        "ratio": ratio,
        "bar": bar,
        "met": ratio >= bar,
        "seconds": best,
        "episodes_per_second": {side: case.episodes / spent for side, spent in best.items()},
        "in_forwards": stats.forward_seconds / stats.busy_seconds,
        "steps": stats.steps / repeats,
        "prefills": stats.prefills / repeats,
        "tokens": count,
    }


def measure_ablations(case: CaseSize, repeats: int) -> dict[str, Any]:
    """Seconds of each variant and of the per-turn loop, and their ratio to the whole engine."""
    stage = Stage(case)
    seconds: dict[str, list[float]] = {name: [] for name in [*VARIANTS, "per_turn"]}
    count = stage.play(stage.build_engine())  # opens the images, so that no side has to
    for _ in range(repeats):
        for name, variant in VARIANTS.items():
            env, generator = variant.build_env(stage), variant.build_engine(stage)
            spent, same = time_call(partial(stage.play, generator, env))
            assert same == count
            seconds[name].append(spent)
        seconds["per_turn"].append(time_call(partial(play_per_turn, stage))[0])
    best = {name: min(found) for name, found in seconds.items()}
    return {"seconds": best, "ratio": {name: spent / best["engine"] for name, spent in best.items()}}


def measure_floor(case: CaseSize, repeats: int) -> dict[str, Any]:
    """Return the share of the engine's time in forwards, and the ratio of these to forwards on a plain cache."""
    stage = Stage(case)
    paired = PairedModel(stage.model)
    plain, doubled = stage.build_engine(), stage.build_engine(model=paired)
    for generator in (plain, doubled):  # the caches grow to their size
        stage.play(generator)
    grown, before = plain.cache.bytes_copied, replace(plain.stats)
    paired.reset()
    tower = ForwardTimer(stage.tokens.architecture.get_vision_tower(stage.model))
    for _ in range(repeats):
        plain.vision_cache.clear()
        stage.play(plain)
        stage.play(doubled)  # its vision cache is full, so the tower does not run
    spent = plain.stats.busy_seconds - before.busy_seconds
    share, over = (plain.stats.forward_seconds - before.forward_seconds) / spent, paired.compute_ratio()
    steps = plain.stats.steps - before.steps
    return {
        "in_forwards": share,
        "bar": BARS["in_forwards"],
        "met": share >= BARS["in_forwards"],
        "in_vision_tower": tower.stop() / spent,  # not part of in_forwards
        "over_floor": over,
        "over_floor_bar": BARS["over_floor"],
        "over_floor_met": over <= BARS["over_floor"],
        "over_floor_prefill": paired.compute_ratio("prefill"),
        "over_floor_decode": paired.compute_ratio("decode"),
        "seconds": {kind: dict(zip(("engine", "plain"), two, strict=True)) for kind, two in paired.seconds.items()},
        "kv_bytes_copied_per_step": (plain.cache.bytes_copied - grown) / max(1, steps),
        "kv_bytes_copied_per_step_while_it_grows": grown / max(1, before.steps),
        "steps": steps / repeats,
    }


def measure_growth(case: CaseSize, slots: int, repeats: int) -> dict[str, Any]:
    """Seconds and memory of N, 2N and 4N episodes. Each N use the same images and replies; the prompts differ."""
    cases = {n: CaseSize(case.prompts * n, case.group, case.side, case.tool_side, case.prompts) for n in (1, 2, 4)}
    envs, stage = {n: LooksEnv(one) for n, one in cases.items()}, Stage(case)
    generator, process = stage.build_engine(slots=slots), psutil.Process()
    seconds: dict[int, list[float]] = {1: [], 2: []}

    def read_memory() -> dict[str, float]:
        return {"mb": process.memory_info().rss / 2**20, "columns": generator.cache.index.capacity}

    stage.play(generator, envs[1])  # opens the images, and the cache grows
    for _ in range(repeats):
        for n, spent in seconds.items():
            spent.append(time_call(partial(stage.play, generator, envs[n]))[0])
    after_n = read_memory()
    stage.play(generator, envs[4])
    after_4n = read_memory()
    once, twice = (min(seconds[n]) for n in (1, 2))
    doubled, growth = twice / (2 * once), after_4n["mb"] / after_n["mb"] - 1
    return {
        "doubled": doubled,
        "bar": BARS["linear"],
        "met": abs(doubled - 1) <= BARS["linear"],
        "episodes": case.episodes,
        "slots": slots,
        "seconds": {"N": once, "2N": twice},
        "memory_growth": growth,
        "memory_growth_bar": BARS["memory"],
        "memory_growth_met": growth <= BARS["memory"],
        "held": {"N": after_n, "4N": after_4n},
    }


def list_sections(small: bool) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Return the parts that `--only` selects, by name."""
    a, b, half, growth = (SMALL,) * 4 if small else (CASES["a"], CASES["b"], SPLIT, LINEAR)
    return {
        "a": lambda repeats: compare_with_per_turn(a, BARS["a"], repeats),
        "b": lambda repeats: compare_with_per_turn(b, BARS["b"], max(1, repeats // 2)),  # its loop takes minutes
        "split": lambda repeats: measure_ablations(half, repeats),
        "floor": lambda repeats: measure_floor(a, repeats),
        "linear": lambda repeats: measure_growth(growth, 4 if small else SLOTS, repeats),
        "trl": lambda repeats: compare_with_trl(half, repeats),
    }


def main(arguments: Sequence[str]) -> None:
    torch.set_num_threads(1)
    names = list(list_sections(False))
    parser = argparse.ArgumentParser(description="Measures the rollout engine.")
    parser.add_argument("repeats", nargs="?", type=int, default=2)
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--small", action="store_true", help="tiny cases, only to see that it runs")
    parser.add_argument("--family", help="case a with tiny models of these families of the tests instead")
    given = parser.parse_args(arguments)
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"--only: {', '.join(sorted(unknown))}; allowed: {', '.join(names)}")
    figures = {}
    sections = list_sections(given.small)
    if given.family:
        chosen = given.family.split(",")
        case = SMALL if given.small else CASES["a"]
        sections = {name: partial(compare_with_per_turn, case, BARS["a"], family=name) for name in chosen}
    for name in chosen:
        figures[name] = sections[name](given.repeats)
        print(name, json.dumps(figures[name], indent=2), flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
