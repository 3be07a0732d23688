"""What viewbox does, written down as JSON, so that a move or a deletion can be compared with what was before.

    python -m tests.freeze build/before               # write it: four minutes; with --quickstart two more
    python -m tests.freeze build/after --against build/before

One file a part: twenty scripted episodes of every environment, `--help` of every command, the page of all settings and
that of all tools, tokens, log-probs and gradients of the shipped model, every figure that is printed of ten saved runs,
and the quickstart's curve. Numbers are compared to 1e-6, all else exactly. It ends with status 1 if something differs.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TERM", "dumb")

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

import viewbox
from viewbox.cli.commands import COMMANDS
from viewbox.registry import ENVIRONMENTS

TOLERANCE = 1e-6
ROW = {"id": "a", "image": "a.png", "answer": "yes", "box": [3, 2, 20, 14], "report": "A square in the middle."}
ROW |= {"question": "Is there a square?", "patient_info": {"pain": "none"}, "physical_exams": {"pulse": "60"}}


def make_settings(folder: Path) -> dict[str, dict]:
    """Settings with which every environment has tasks without a network."""
    pixels = np.zeros((24, 36), np.uint8)
    pixels[4:14, 8:20] = 200
    Image.fromarray(pixels).save(folder / "a.png")
    (folder / "rows.jsonl").write_text("".join(json.dumps(ROW | {"id": f"r{n}"}) + "\n" for n in range(4)))

    def read(**columns: str) -> dict:
        return {"data": {"source": str(folder / "rows.jsonl"), "columns": {"id": "id", "image": "image"} | columns}}

    return {
        "vqa": read(question="question", answer="answer"),
        "grounding": read(question="question", boxes="box"),
        "report": read(report="report"),
        "consultation": read(
            question="question", answers="answer", patient_info="patient_info", physical_exams="physical_exams"
        ),
        "mixture": {"environments": {"digits": {"weight": 2}, "phantom": {"weight": 1}}},
    }


def fill_in(schema: dict) -> object:
    """A value that fits a parameter's schema."""
    if "enum" in schema:
        return schema["enum"][0]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return fill_in(schema[key][0])
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = kind[0]
    if kind == "array":
        low = schema.get("minItems", 1)
        places = [0.25, 0.25, 0.75, 0.75, 0.5, 0.5]
        inner = schema.get("items", {})
        numbers = inner.get("type") in ("number", "integer")
        return [places[n % 6] if numbers else fill_in(inner) for n in range(low)]
    if kind in ("number", "integer"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 1))
        return low + 1
    return {"boolean": True, "object": {}}.get(kind, "left lung")


def write_call(name: str, arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def list_scripts(env: viewbox.BaseMultiTurnEnv, task: viewbox.Task) -> list[list[str]]:
    """Twenty ways in which a model may reply, each ending with the right answer for as long as it is asked."""
    env = env.for_task(task)
    right = env.write_answer(task)
    schemas = [one["function"] for one in env.tool_schemas]
    looks = []
    for one in schemas:
        parameters = dict(one["parameters"])["properties"]
        looks.append(write_call(one["name"], {name: fill_in(dict(part)) for name, part in parameters.items()}))
    looks = looks or [write_call("zoom", {"factor": 2, "center": [0.5, 0.5]})]
    bare = [write_call(one["name"], {}) for one in schemas] or [write_call("zoom", {})]
    scripts = [
        [right],
        ["It is a square.", right],
        ["", right],
        ["no", "no", "no", "no"],
        ["{}", right],
        [f"I think that {right} is right."],
        [f"<think>A square?</think>{right}"],
        [write_call("zom", {"factor": 2}), right],
        ["".join(looks[:2]), right],
        ["".join(looks), right],
        [bare[0], bare[-1], right],
        [write_call("zoom", {"factor": "four", "center": [5000, 5000]}), right],
        [looks[0][: len(looks[0]) // 2], right],
        ["I think. " * 9000 + right],
        [right[: len(right) // 2], right],
        [f"{looks[0]}\n{right}", right],
    ]
    scripts += [[*[looks[(number * 3 + step) % len(looks)] for step in range(3)], right] for number in range(4)]
    return [[*replies, *[right] * 30] for replies in scripts]


def freeze_episodes(folder: Path) -> dict:
    settings = make_settings(folder)
    found: dict[str, list] = {}
    for name in sorted(ENVIRONMENTS):
        env = viewbox.make(name, **settings.get(name, {}))
        tasks = [env.tasks[n] for n in range(4)]
        with viewbox.EpisodeWriter(folder / name) as writer:
            for number in range(20):
                task = tasks[number % 4]
                writer.append(env.play(task, viewbox.ScriptedPolicy(list_scripts(env, task)[number]), seed=number))
        found[name] = [json.loads(line) for line in (folder / name / "episodes.jsonl").read_text().splitlines()]
    return found


def call_viewbox(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "120", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "viewbox", *arguments],
        capture_output=True, text=True, cwd=folder, env=environment, check=False,
    )  # fmt: skip


def run_command(*arguments: str, folder: Path) -> str:
    done = call_viewbox(*arguments, folder=folder)
    if done.returncode:
        raise SystemExit(f"viewbox {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def freeze_figures(folder: Path) -> dict:
    """What `score`, `compare` and `runs` print of a run of each environment: all of stdout, the exit status."""
    settings = make_settings(folder)
    figures: dict[str, object] = {}
    for name in sorted(ENVIRONMENTS):
        config = folder / f"{name}.yaml"
        config.write_text(
            json.dumps({"model": {"name": "package:tiny_viewer"}, "env": {"name": name, **settings.get(name, {})}})
        )
        env = viewbox.make(name, **settings.get(name, {}))
        for run, shift in (("first", 0), ("second", 7)):
            with viewbox.EpisodeWriter(folder / "runs" / f"{name}-{run}") as writer:
                for number in range(20):
                    task = env.tasks[number % 4]
                    script = ["no"] * 40 if shift and number % 3 else list_scripts(env, task)[(number + shift) % 20]
                    writer.append(env.play(task, viewbox.ScriptedPolicy(script), seed=number))
        first, second = (str(folder / "runs" / f"{name}-{run}") for run in ("first", "second"))
        asked = {
            "score": ["score", first, "--env", str(config), "--format", "json"],
            "table": ["score", first, "--env", str(config), "--group-by", "end_reason", "--bootstrap", "100"],
            "answered": ["score", first, "--env", str(config), "--where", "end_reason=answered", "--format", "csv"],
            "its own": ["score", first, "--format", "json"],
            "compare": ["compare", first, second, "--format", "json"],
        }
        figures[name] = {key: ask_command(*arguments, folder=folder) for key, arguments in asked.items()}
    listed = ask_command("runs", "list", str(folder / "runs"), "--format", "json", folder=folder)
    return figures | {"runs": listed}


def ask_command(*arguments: str, folder: Path) -> dict:
    """What a command prints, and its exit status. Seconds and dates are left out."""
    done = call_viewbox(*arguments, folder=folder)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?|\d+(\.\d+)? (s|seconds)\b", "TIME", done.stdout)
    try:
        return {"status": done.returncode, "stdout": json.loads(text)}
    except ValueError:
        return {"status": done.returncode, "stdout": text}


def freeze_texts(folder: Path) -> dict:
    commands = {name: run_command(name, "--help", folder=folder) for name in COMMANDS}
    pages = {"config": run_command("config", folder=folder), "tools": run_command("tools", folder=folder)}
    return {"help": commands, **pages}


def freeze_model(folder: Path) -> dict:
    """Tokens and log-probs of the shipped model, the figures of its stored run, and two steps of GRPO."""
    run = folder / "run"
    play = ["rollout", "--config", "quickstart", "--model", "package:tiny_viewer", "--tasks", "24", "--out", str(run)]
    run_command(*play, "model.threads=1", folder=folder)
    episodes = sorted(viewbox.load(run), key=lambda one: one.task.id)
    tokens = [
        {"ids": list(one.tokens.completion_ids), "logprobs": list(one.tokens.logprobs), "mask": list(one.tokens.mask)}
        for one in episodes
        if one.tokens
    ]
    scores = json.loads(run_command("score", str(run), "--format", "json", folder=folder))
    compared = run_command("compare", str(run), str(run), folder=folder)
    steps = train(folder, 2, "two-steps")
    weights = load_file(next((folder / "two-steps" / "model").glob("*.safetensors")))
    norms = {name: float(np.linalg.norm(weight.astype(np.float64))) for name, weight in weights.items()}
    return {"tokens": tokens, "scores": scores, "compare": compared, "steps": steps, "weights": norms}


def train(folder: Path, steps: int, name: str) -> list[dict]:
    given = [f"train.max_steps={steps}", f"log.dir={folder}", f"log.name={name}", "model.threads=1"]
    run_command("train", "quickstart", *given, folder=folder)
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    unclear = re.compile(r"time|second|memory|speed|per_s|wall|tokens/s")  # what differs from run to run
    return [{key: value for key, value in line.items() if not unclear.search(key)} for line in lines]


def list_differences(old: object, new: object, path: str = "$") -> list[str]:
    if isinstance(old, list) and isinstance(new, list):
        old, new = dict(enumerate(old)), dict(enumerate(new))
    if isinstance(old, dict) and isinstance(new, dict):
        found = [f"{path}.{key}: only in one" for key in sorted(old.keys() ^ new.keys())]
        for key in old.keys() & new.keys():
            found += list_differences(old[key], new[key], f"{path}.{key}")
        return found
    numbers = isinstance(old, int | float) and isinstance(new, int | float)
    if numbers and math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        return []
    return [] if old == new else [f"{path}: {str(old)[:300]!r} and {str(new)[:300]!r}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--against", type=Path, help="a folder written before, to compare with")
    parser.add_argument("--quickstart", action="store_true", help="the curve of a whole quickstart, too")
    parser.add_argument(
        "--part", choices=("episodes", "figures", "texts", "model"), action="append", help="only this part"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    parts = {"episodes": freeze_episodes, "figures": freeze_figures, "texts": freeze_texts, "model": freeze_model}
    wanted = {name: parts[name] for name in given.part or parts}
    if given.quickstart:
        wanted["quickstart"] = lambda folder: {"curve": train(folder, 100, "curve")}
    different = 0
    for name, freeze in wanted.items():
        with tempfile.TemporaryDirectory() as temporary:
            found = json.loads(json.dumps(freeze(Path(temporary))).replace(temporary, "FOLDER"))
        (given.folder / f"{name}.json").write_text(json.dumps(found, indent=1))
        before = given.against / f"{name}.json" if given.against else None
        lines = list_differences(json.loads(before.read_text()), found) if before and before.is_file() else []
        print(f"{name}: {len(lines)} differences" if before else f"{name}: written")
        print("".join(f"  {line}\n" for line in lines[:30]), end="")
        different += len(lines)
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
