"""Saved runs to score: real episodes of digits, small ones without pictures, and an environment with metrics."""

import json
import sys

import pytest
import yaml
from msgspec.structs import replace

from viewbox.envs.digits import Digits, viewer
from viewbox.records import Episode, Scores, Task, Turn
from viewbox.rewards import CombinedReward, ExactMatchReward, IoUReward
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

SETTINGS = {"max_turns": 6, "canvas": 160}
SPEC = {
    "type": "combined",
    "components": {
        "label": {"type": "exact_match", "field": "label", "weight": 0.2},
        "box": {"type": "iou", "field": "bbox", "weight": 0.8},
    },
}


def play(env, number, *replies):
    said = iter(replies)
    return env.play(env.tasks[number], lambda messages: next(said), seed=number)


def plays(env):
    """Right, wrong, after a look, malformed and mended, malformed to the end, looks only, a box that is none."""
    found = []
    for n in range(3):
        task = env.tasks[n]
        right, wrong = viewer.write_answer(env, task), viewer.write_answer(env, task, "two")
        look = viewer.write_gold_look(env, task)
        found += [
            play(env, n, right),
            play(env, n, wrong),
            play(env, n, look, right),
            play(env, n, "Hmm.", '{"label": "eleven"}', right),
            play(env, n, *["not JSON"] * 5),
            play(env, n, *[look] * 6),
            play(env, n, '{"label": "one", "bbox": [9, 9, 3, 3]}', wrong),
        ]
    return found


def written(folder, *episodes):
    with EpisodeWriter(folder) as writer:
        for episode in episodes:
            writer.append(episode)
    return folder


def without_uris(text):
    """The JSON of an episode without the files in which its images are."""
    return json.loads(text, object_hook=lambda found: {name: value for name, value in found.items() if name != "uri"})


def scored(folder, **options):
    return [episode.scores for episode in load(folder, **options)]


@pytest.fixture
def run(tmp_path):
    """A run folder as training leaves it, with real episodes."""
    (tmp_path / "run").mkdir()
    config = {"env": {"name": "digits", "eval": {"split": "test"}, **SETTINGS}, "reward": SPEC}
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(config))
    env = Digits(reward=CombinedReward({"label": (ExactMatchReward(), 0.2), "box": (IoUReward(), 0.8)}), **SETTINGS)
    written(tmp_path / "run" / "episodes", *plays(env))
    return tmp_path / "run"


def made(number, **changes):
    """An episode without pictures, whose stored total says its number is even."""
    even = float(number % 2 == 0)
    plain = Episode(
        Task(f"t{number // 4}", reference={"label": "a"}, metadata={"number": number}),
        (Turn("assistant", "{}"),),
        {"label": "ab"[number % 2]},
        scores=Scores(even, {"label": even}),
        environment="digits",
    )
    return replace(plain, **changes)


@pytest.fixture
def store(tmp_path):
    """Forty small episodes of ten tasks."""
    return written(tmp_path / "store", *map(made, range(40)))


DOTS = """
import viewbox
from viewbox.rewards.metrics import Accuracy, MacroF1
class Dots(viewbox.BaseMultiTurnEnv):
    name = 'dots'
    metrics = {'label': Accuracy('label'), 'labels': MacroF1('label')}
    def default_reward(self):
        return viewbox.ExactMatchReward('label')
"""


@pytest.fixture
def dots(tmp_path, monkeypatch):
    """A run of an environment of one's own that declares metrics: forty episodes of ten tasks, half of them right."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "metric_dots", raising=False)
    (tmp_path / "metric_dots.py").write_text(DOTS)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("env: {name: 'metric_dots:Dots'}")
    written(tmp_path / "run" / "episodes", *(made(n, environment="dots") for n in range(40)))
    return tmp_path / "run"
