"""The same answer gets the same number in Python, from YAML, through TRL, through verifiers and offline."""

import asyncio
import importlib.util
import json

import pytest
import yaml

from viewbox.envs.digits import Digits
from viewbox.records import Episode
from viewbox.rewards import (
    BrierReward,
    CombinedReward,
    Component,
    ExactMatchReward,
    FormatReward,
    IoUReward,
    TokenF1Reward,
    ToolUseReward,
    build,
)
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

YAML = """
type: combined
components:
  label: {type: exact_match, field: label, weight: 0.4}
  box: {type: iou, field: bbox, area_penalty: 0.5, weight: 0.3}
  words: {type: token_f1, field: label, weight: 0.1}
  sure: {type: brier, of: {type: iou, field: bbox, threshold: 0.5}, weight: 0.05}
  form: {type: format, weight: 0.1}
  look: {type: tool_use, at_least: 1, weight: 0.05, needs: {label: 1.0}}
"""
PYTHON = CombinedReward(
    {
        "label": (ExactMatchReward("label"), 0.4),
        "box": (IoUReward("bbox", area_penalty=0.5), 0.3),
        "words": (TokenF1Reward("label"), 0.1),
        "sure": (BrierReward(of=IoUReward("bbox", threshold=0.5)), 0.05),
        "form": (FormatReward(), 0.1),
        "look": Component(ToolUseReward(at_least=1), 0.05, needs={"label": 1.0}),
    }
)
ENV = Digits(reward=PYTHON)
TASKS = [ENV.tasks[number] for number in range(4)]
ZOOM = '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>'


def replies(number):
    """A right answer, a right one after a look, a wrong one after a look, and none."""
    right = ENV.gold_answer(TASKS[number])
    wrong = right | {"label": "one" if right["label"] != "one" else "two", "bbox": [0, 0, 1000, 1000]}
    return [[json.dumps(right)], [ZOOM, json.dumps(right)], [ZOOM, "Hmm.", json.dumps(wrong)], ["no"] * 9][number]


@pytest.fixture(scope="module")
def episodes():
    found = []
    for number, task in enumerate(TASKS):
        said = iter(replies(number))
        found.append(ENV.play(task, lambda messages, said=said: next(said)))
    return found


def test_the_numbers_are_different_ones(episodes):
    """Else the tests below would say little."""
    first, second, third, last = (episode.scores for episode in episodes)
    assert second.total > first.total > third.total > last.total == 0.0
    assert (first.components["look"], second.components["look"], third.components["look"]) == (0.0, 1.0, 0.0)


def test_a_reward_from_yaml_gives_the_number_of_python(episodes):
    made = build(yaml.safe_load(YAML))
    assert made == PYTHON
    for episode in episodes:
        assert made.score(episode.answer, episode.task.reference, episode) == (
            episode.scores.total,
            dict(episode.scores.components),
        )


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("verifiers") is None, reason="verifiers is not installed")
def test_verifiers_gives_the_number_of_the_episode(episodes):
    from viewbox.integrations.verifiers import ViewboxData, ViewboxTask, vf

    plain = Digits()
    for number, episode in enumerate(episodes):
        task = ViewboxTask(ViewboxData(id=episode.task.id, environment="digits", number=number), vf.TaskConfig())

        class Trace:
            info = {"viewbox": episode.to_dict()}  # noqa: RUF012

        assert asyncio.run(task.total(Trace)) == plain.score(episode).total


def test_offline_scoring_gives_the_number_of_play_from_yaml_and_from_python(episodes, tmp_path):
    with EpisodeWriter(tmp_path / "run") as writer:
        for episode in episodes:
            writer.append(episode)
    (tmp_path / "reward.yaml").write_text(YAML)
    for reward, name in ((PYTHON, "python"), (str(tmp_path / "reward.yaml"), "yaml")):
        score_run(tmp_path / "run", reward=reward, name=name, resamples=0)
        again = [episode.scores for episode in load(tmp_path / "run", scores=name)]
        assert again == [episode.scores for episode in episodes]


def test_an_episode_from_disk_scores_what_it_scored_when_it_was_played(episodes):
    for episode in episodes:
        assert ENV.score(Episode.from_json(episode.to_json())) == episode.scores
