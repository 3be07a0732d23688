"""Speed bars of the rollout engine, on one thread: equal tokens on all sides, and the sides measured alternately.

    python benchmarks/rollouts.py [REPEATS] [--only a,b,split,floor,linear,trl] [--small]

(default: 2 repeats, half as many of b: under ten minutes; the last line is one JSON object; `--small` only checks that
it runs)

a, b     episodes/s against the per-turn loop (`per_turn.py`): 8 prompts of 144 image tokens x 8, and 4 of 576 x 16
split    what each part of the engine is worth, on half of case a: without shared prefill, without kept keys and values,
         without vision reuse, with all sequences waiting for each other, and without all four (`leave_out.py`). What
         then still differs from the loop is `generate` itself, which builds a new cache for every token
floor    share of the engine's time inside model forwards, and those forwards against a plain cache (`plain_cache.py`)
linear   seconds of N and of 2N episodes in the same slots; memory after N and after 4N
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

from looks import Looks, PlayCase, Stage  # first: it asks for one thread

# ruff: isort: split
import psutil
import torch
from leave_out import VARIANTS
from per_turn import per_turn
from plain_cache import Beside, Clock
from trl_loop import against_trl

CASES = {"a": PlayCase(8, 8, 12, 8), "b": PlayCase(4, 16, 24, 12)}
SPLIT = PlayCase(4, 8, 12, 8)
LINEAR = PlayCase(8, 8, 4, 4)  # text, mostly: nothing that is paid once
SLOTS = 8  # of `linear`
SMALL = PlayCase(1, 2, 2, 2)
BARS = {"a": 3.0, "b": 5.0, "in_forwards": 0.85, "over_floor": 1.15, "linear": 0.1, "memory": 0.02}


def timed(play: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = play()
    return time.perf_counter() - started, found


def against_the_loop(case: PlayCase, bar: float, repeats: int) -> dict[str, Any]:
    stage = Stage(case)
    generator = stage.engine()
    seconds: dict[str, list[float]] = {"engine": [], "per_turn": []}
    for _ in range(repeats):
        generator.vision_cache.clear()
        spent, count = timed(partial(stage.play, generator))
        seconds["engine"].append(spent)
        spent, same = timed(partial(per_turn, stage))
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


def split(case: PlayCase, repeats: int) -> dict[str, Any]:
    stage = Stage(case)
    seconds: dict[str, list[float]] = {name: [] for name in [*VARIANTS, "per_turn"]}
    count = stage.play(stage.engine())  # opens pictures: none of the sides does it alone
    for _ in range(repeats):
        for name, variant in VARIANTS.items():
            env, generator = variant.env(stage), variant.generator(stage)
            spent, same = timed(partial(stage.play, generator, env))
            assert same == count
            seconds[name].append(spent)
        seconds["per_turn"].append(timed(partial(per_turn, stage))[0])
    best = {name: min(found) for name, found in seconds.items()}
    return {"seconds": best, "ratio": {name: spent / best["engine"] for name, spent in best.items()}}


def floor(case: PlayCase, repeats: int) -> dict[str, Any]:
    stage = Stage(case)
    beside, tower = Beside(stage.model), Clock(stage.tokens.architecture.get_vision_tower(stage.model))
    plain, doubled = stage.engine(), stage.engine(model=beside)
    for generator in (plain, doubled):  # caches grow
        stage.play(generator)
    grown, before = plain.cache.bytes_copied, replace(plain.stats)
    beside.restart()
    tower.seconds = 0.0
    for _ in range(repeats):
        plain.vision_cache.clear()
        stage.play(plain)
        stage.play(doubled)  # its features are known
    spent = plain.stats.busy_seconds - before.busy_seconds
    share, over = (plain.stats.forward_seconds - before.forward_seconds) / spent, beside.ratio()
    steps = plain.stats.steps - before.steps
    return {
        "in_forwards": share,
        "bar": BARS["in_forwards"],
        "met": share >= BARS["in_forwards"],
        "in_vision_tower": tower.seconds / spent,  # not in the share above
        "over_floor": over,
        "over_floor_bar": BARS["over_floor"],
        "over_floor_met": over <= BARS["over_floor"],
        "over_floor_prefill": beside.ratio("prefill"),
        "over_floor_decode": beside.ratio("decode"),
        "seconds": {kind: dict(zip(("engine", "plain"), two, strict=True)) for kind, two in beside.seconds.items()},
        "kv_bytes_copied_per_step": (plain.cache.bytes_copied - grown) / max(1, steps),
        "kv_bytes_copied_per_step_while_it_grows": grown / max(1, before.steps),
        "steps": steps / repeats,
    }


def linear(case: PlayCase, slots: int, repeats: int) -> dict[str, Any]:
    """Each block of N episodes uses the same images and replies; the prompts differ."""
    cases = {n: PlayCase(case.prompts * n, case.group, case.side, case.tool_side, case.prompts) for n in (1, 2, 4)}
    envs, stage = {n: Looks(one) for n, one in cases.items()}, Stage(case)
    generator, process = stage.engine(slots=slots), psutil.Process()
    seconds: dict[int, list[float]] = {1: [], 2: []}

    def held() -> dict[str, float]:
        return {"mb": process.memory_info().rss / 2**20, "columns": generator.cache.index.capacity}

    stage.play(generator, envs[1])  # pictures are opened, the cache grows
    for _ in range(repeats):
        for n, spent in seconds.items():
            spent.append(timed(partial(stage.play, generator, envs[n]))[0])
    after_n = held()
    stage.play(generator, envs[4])
    after_4n = held()
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


def sections(small: bool) -> dict[str, Callable[[int], dict[str, Any]]]:
    """The parts that `--only` selects, by name."""
    a, b, half, line = (SMALL,) * 4 if small else (CASES["a"], CASES["b"], SPLIT, LINEAR)
    return {
        "a": lambda repeats: against_the_loop(a, BARS["a"], repeats),
        "b": lambda repeats: against_the_loop(b, BARS["b"], max(1, repeats // 2)),  # a loop of minutes
        "split": lambda repeats: split(half, repeats),
        "floor": lambda repeats: floor(a, repeats),
        "linear": lambda repeats: linear(line, 4 if small else SLOTS, repeats),
        "trl": lambda repeats: against_trl(half, repeats),
    }


def main(arguments: Sequence[str]) -> None:
    torch.set_num_threads(1)
    names = list(sections(False))
    parser = argparse.ArgumentParser(description="The rollout engine's bars.")
    parser.add_argument("repeats", nargs="?", type=int, default=2)
    parser.add_argument("--only", default=",".join(names), help=f"some of {','.join(names)}")
    parser.add_argument("--small", action="store_true", help="tiny cases: does it work at all")
    given = parser.parse_args(arguments)
    chosen = given.only.split(",")
    if unknown := set(chosen) - set(names):
        parser.error(f"--only: {', '.join(sorted(unknown))}; allowed: {', '.join(names)}")
    figures = {}
    for name in chosen:
        figures[name] = sections(given.small)[name](given.repeats)
        print(name, json.dumps(figures[name], indent=2), flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
