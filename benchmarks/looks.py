"""Where models look: scripted policies of every kind sorted, and what the figures cost.

    python benchmarks/looks.py --tasks 100 --episodes 20000

`sorted` is the share of scripts (never look, look elsewhere, too coarsely, in no window, in another slice or plane, …)
whose verdict is the one they were written for; the volume is a T1 of a head (`--volume`, default: the one among
nibabel's test files), with boxes drawn at random. `cost` is the processor time of scoring stored episodes of digits,
with the looks read and not, in turns in this process; exit code 1 if a bar is missed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
from nibabel.testing import data_path

import viewbox
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.core.messages import write_call
from viewbox.envs.digits import Digits
from viewbox.envs.phantom import Phantom
from viewbox.records import Episode, Task
from viewbox.rewards import looks
from viewbox.rollouts.scoring import rescore, summary
from viewbox.rollouts.store.writer import EpisodeWriter

SORTED, COST = 0.99, 1.3
BACK = "\n".join([write_call("zoom", {"factor": 0.5})] * 2)


def zoom(factor: float, x: float, y: float) -> str:
    return write_call("zoom", {"factor": factor, "center": [round(1000 * x), round(1000 * y)]})


def play(env: BaseMultiTurnEnv, task: Task, *replies: str) -> Episode:
    left = iter(replies)
    return env.play(task, lambda messages: next(left, replies[-1]))


def write_wrong(env: BaseMultiTurnEnv, task: Task, field: str, values: tuple[str, str]) -> str:
    answer = json.loads(env.write_answer(task))
    return json.dumps({**answer, field: values[task.reference[field] == values[0]]})


def list_scripts(env: BaseMultiTurnEnv, task: Task) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield scripts with the verdict that each is written for."""
    is_phantom = isinstance(env, Phantom)
    box = task.metadata["evidence"] if is_phantom else task.reference["bbox"]
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    far = (x + 0.35) % 0.7 + 0.15, (y + 0.35) % 0.7 + 0.15
    right = env.write_answer(task)
    wrong = write_wrong(env, task, *(("lesion", ("yes", "no")) if is_phantom else ("label", ("one", "two"))))
    window = f"{env.oracle(task)[0].partition(chr(10) + '<tool_call>')[0]}\n" if is_phantom else ""
    near, away = f"{window}{zoom(4, x, y)}", f"{window}{zoom(4, *far)}"
    for reply, missed, seen in ((wrong, "search", "decision"), (right, "blind", "seen")):
        yield missed, (reply,)
        yield (
            "recognition" if is_phantom and missed == "search" else missed,
            (away, reply),
        )  # the window shows all of it
        yield missed, (zoom(1, 0.5, 0.5), reply)
        yield seen, (near, reply)
        yield seen, (near, f"{BACK}\n{away}", reply)
    yield "recognition", (f"{window}{zoom(1.5, x, y)}", wrong)
    if is_phantom:
        yield "recognition", (zoom(4, x, y), wrong)
        yield "recognition", (write_call("window_level", {"center": 40, "width": 1500}) + f"\n{zoom(4, x, y)}", wrong)


def make_volumes(file: Path, folder: Path, count: int) -> BaseMultiTurnEnv:
    """Return tasks about boxes of one volume, 5 voxels wide and 3 slices deep."""
    draw, shape = np.random.default_rng(0), nibabel.load(file).shape
    rows = []
    for number in range(count):
        start = [int(draw.integers(2, side - width - 2)) for side, width in zip(shape, (5, 5, 3), strict=True)]
        if abs(start[2] + 1 - shape[2] // 2) < 3:  # the slice that is shown first holds none
            start[2] = 3
        ends = [start[0] + 5, start[1] + 5, start[2] + 3]
        rows.append({"id": str(number), "scan": file.name, "what": "mark", "box": [*start, *ends]})
    (folder / "boxes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {"id": "id", "image": "scan", "label": "what", "boxes": "box"}
    boxes = {"format": "xyzxyz", "frame": "voxel"}
    data = {
        "source": str(folder / "boxes.jsonl"),
        "images": str(file.parent),
        "columns": columns,
        "boxes": boxes,
        "group": "id",
    }
    tools = ["select_slice", "zoom"]
    return viewbox.make("grounding", data=data, tools=tools, max_pixels=24 * 24, max_turns=6, coordinates="per_mille")


def list_volume_scripts(
    env: BaseMultiTurnEnv, task: Task, shape: Sequence[int]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    box = task.reference["boxes"][0]
    x, y, z = ((box[axis] + box[axis + 3]) / 2 for axis in range(3))
    right, empty = env.write_answer(task), json.dumps({**json.loads(env.write_answer(task)), "boxes": []})

    def cut(plane: str, at: float) -> str:
        counts = {"sagittal": shape[0], "coronal": shape[1], "axial": shape[2]}
        return write_call("select_slice", {"index": int(at * counts[plane]), "plane": plane})

    for plane, at, u, v in (("axial", z, x, y), ("coronal", y, x, 1 - z), ("sagittal", x, y, 1 - z)):  # the head is up
        here, away = cut(plane, at), cut(plane, (at + 0.5) % 1)
        for answer, missed, seen in ((empty, "search", "decision"), (right, "blind", "seen")):
            yield missed, (answer,)
            yield missed, (f"{away}\n{zoom(2, u, v)}", answer)
            yield seen, (f"{here}\n{zoom(3, u, v)}", answer)
            yield seen, (f"{here}\n{zoom(3, u, v)}", away, answer)
            yield "recognition" if missed == "search" else missed, (here, answer)


def sort_scripts(env: BaseMultiTurnEnv, count: int, write: Callable[..., Any] = list_scripts) -> dict[str, Any]:
    right, total, missed = 0, 0, []
    for task in (task for task in (env.tasks[number] for number in range(count)) if looks_for(env, task)):
        for number, (verdict, replies) in enumerate(write(env, task)):
            found = looks.read_looks(play(env, task, *replies)).verdict
            right, total = right + (found == verdict), total + 1
            missed += [] if found == verdict else [f"{task.id}, script {number}: {verdict}, found {found}"]
    return {"right": right, "of": total, "share": round(right / max(1, total), 4), "missed": missed[:5]}


def looks_for(env: BaseMultiTurnEnv, task: Task) -> bool:
    return not isinstance(env, Phantom) or "evidence" in task.metadata


def measure_cost(count: int, rounds: int) -> dict[str, float]:
    """Return the processor seconds of scoring with and without looks, the least of some rounds, and their ratio."""
    env = Digits(split="test")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with EpisodeWriter(run / "episodes") as writer:
            for number in range(count):
                task = env.tasks[number]
                scripts = [replies for _, replies in list_scripts(env, task)]
                writer.append(play(env, task, *scripts[number % len(scripts)]))
        nothing = looks.Looks((), (), None, 0)

        def score(read: Callable[..., Any]) -> float:
            modules: Mapping[str, Any] = {
                "summary": summary,
                "metrics": sys.modules[summary.get_episode_values.__module__],
            }
            for module in modules.values():
                module.read_looks = read
            started = time.process_time()
            rescore.score_run(run, reward=None, env="digits")
            return time.process_time() - started

        pairs = [(score(lambda episode, **given: nothing), score(looks.read_looks)) for _ in range(rounds)]
    without, with_looks = (min(one[side] for one in pairs) for side in (0, 1))
    return {"episodes": count, "without_s": without, "with_s": with_looks, "ratio": round(with_looks / without, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=20_000)
    parser.add_argument("--volume", type=Path, default=data_path / "anatomical.nii")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    envs = {
        "digits": viewbox.make("digits", split="test", max_turns=6),
        "phantom kind": Phantom(split="test", question="kind", difficulty=0.0),
        "phantom presence": Phantom(split="test", question="presence", difficulty=0.0),
    }
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {"sorted": {name: sort_scripts(env, options.tasks) for name, env in envs.items()}}
        write = partial(list_volume_scripts, shape=nibabel.load(options.volume).shape)
        volumes = make_volumes(options.volume, Path(folder), options.tasks)
        found["sorted"]["volume"] = sort_scripts(volumes, options.tasks, write)
    for name, one in found["sorted"].items():
        print(f"{name}: {one['right']} of {one['of']} scripts are sorted right ({one['share']:.2%})", *one["missed"])
    found["cost"] = measure_cost(options.episodes, options.rounds)
    print(f"scoring {options.episodes} episodes: {found['cost']['ratio']} times as long with looks")
    found["met"] = all(one["share"] >= SORTED for one in found["sorted"].values()) and found["cost"]["ratio"] <= COST
    print(json.dumps(found))
    return int(not found["met"])


if __name__ == "__main__":
    sys.exit(main())
