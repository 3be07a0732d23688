"""Run folders as a stranger may have made them: what is damaged costs itself, or the run is refused in words."""

import json
import math
import random
import re
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from tests.fuzz.mutate import ODD_TEXTS, mutate_bytes, mutate_text, mutate_value
from viewbox.envs.digits import Digits
from viewbox.errors import ImageError, ViewboxError
from viewbox.records import EpisodeTokens
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.summary import summarize
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

CPU_SECONDS = 10.0
PROCESSES = True  # pictures are decoded in others
LINES, CONFIG = "episodes/episodes.jsonl", "config.yaml"
_TOKENS = re.compile(r"[0-9a-f]{32}\.bin")
REWARDS: tuple[Any, ...] = (
    None,
    {"type": "exact_match", "field": "label"},
    {"type": "combined", "components": {"a": {"type": "iou", "field": "bbox", "weight": 1.0}}},
    {"type": "judge", "endpoint": "http://192.0.2.1/v1", "model": "m", "api_key_env": "HOME"},
    {"type": "python", "function": "helper.py:score"},
)


@cache
def get_run() -> dict[str, bytes]:
    """The files of a good run, by their path in it."""
    env = Digits()
    with tempfile.TemporaryDirectory() as folder:
        with EpisodeWriter(Path(folder) / "episodes") as writer:
            for number, task in enumerate(env.tasks[:3]):
                replies = iter([*env.demonstration(task, number), "?", "?", "?"])
                episode = env.play(task, lambda messages, replies=replies: next(replies))
                tokens = EpisodeTokens((1, 2), (3, 4), (1, 0), (-0.5, 0.0))
                writer.append(replace(episode, tokens=tokens))
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    for number, name in enumerate(sorted(set(_TOKENS.findall(files[LINES].decode())))):  # new in each process
        files[f"episodes/tokens/{number}.bin"] = files.pop(f"episodes/tokens/{name}")
        files[LINES] = files[LINES].replace(name.encode(), f"{number}.bin".encode())
    return dict(sorted(files.items()))


def make_case(chance: random.Random) -> bytes:
    files = dict(get_run())
    config: Any = {"env": {"name": "digits", "noise": 3}, "reward": chance.choice(REWARDS)}
    if chance.random() < 0.4:
        config = mutate_value(chance, config)
    text = _write_yaml(config)
    files[CONFIG] = (mutate_text(chance, text, ODD_TEXTS) if chance.random() < 0.2 else text).encode("utf-8", "replace")
    if chance.random() < 0.8:
        lines = files[LINES].splitlines()
        for _ in range(chance.choice([1, 1, 3])):
            number = chance.randrange(len(lines))
            lines[number] = _mutate_line(chance, lines[number])
        files[LINES] = b"\n".join(lines) + chance.choice([b"\n", b""])
    if chance.random() < 0.3:
        name = chance.choice(sorted(files))
        files[name] = mutate_bytes(chance, files[name], tuple(files.values()))
    return json.dumps({name: content.decode("latin-1") for name, content in files.items()}).encode()


def _mutate_line(chance: random.Random, line: bytes) -> bytes:
    if chance.random() < 0.2:
        return mutate_bytes(chance, line, [line])
    try:
        return json.dumps(mutate_value(chance, json.loads(line))).encode()
    except (ValueError, RecursionError):
        return line + line


def _write_yaml(value: Any) -> str:
    try:
        return yaml.safe_dump(value)
    except (yaml.YAMLError, RecursionError):
        return "a: " + "[" * 500


def check_case(content: bytes, folder: Path) -> None:
    run = folder / "run"
    for name, text in json.loads(content).items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(text.encode("latin-1"))
    try:
        episodes = list(load(run, tokens=True, errors="skip"))
    except ViewboxError:
        return
    for image in [image for episode in episodes for image in episode.task.images]:
        with suppress(ImageError):
            image.open()
    with suppress(ViewboxError):
        str(summarize(load(run, errors="skip"), resamples=5))
    for number, reward in enumerate((None, ExactMatchReward("label"))):
        with suppress(ViewboxError):
            report = score_run(run, reward=reward, name=f"c{number}", resamples=5)
            json.dumps(report.to_dict())
            for part in (report.total, *report.components.values()):
                assert part.new is None or (math.isfinite(part.new.mean) and 0 <= part.new.mean <= 1), part
            (run / "episodes" / "scores" / f"c{number}.jsonl").read_bytes().decode("utf-8")
