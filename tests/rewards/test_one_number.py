"""The same answer gets the same number in play, from disk and offline; test_verifiers.py has the one of verifiers."""

import json

import yaml

from viewbox.envs.digits import Digits
from viewbox.records import Episode
from viewbox.rewards import build
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
REWARD = build(yaml.safe_load(YAML))
ENV = Digits(reward=REWARD)
ZOOM = '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>'


def replies(number):
    """A right answer, a right one after a look, a wrong one after a look, and none."""
    right = ENV.gold_answer(ENV.tasks[number])
    wrong = right | {"label": "one" if right["label"] != "one" else "two", "bbox": [0, 0, 1000, 1000]}
    return [[json.dumps(right)], [ZOOM, json.dumps(right)], [ZOOM, "Hmm.", json.dumps(wrong)], ["no"] * 9][number]


def test_yaml_disk_and_offline_scoring_give_the_number_of_play(tmp_path):
    episodes = []
    for number in range(4):
        said = iter(replies(number))
        episodes.append(ENV.play(ENV.tasks[number], lambda messages, said=said: next(said)))
    scores = [episode.scores for episode in episodes]
    # else the rest would say little
    assert scores[1].total > scores[0].total > scores[2].total > scores[3].total == 0.0
    assert [one.components["look"] for one in scores[:3]] == [0.0, 1.0, 0.0]
    for episode in episodes:
        again = Episode.from_json(episode.to_json())
        assert REWARD.score(again.answer, again.task.reference, again) == (
            episode.scores.total,
            dict(episode.scores.components),
        )
        assert ENV.score(again) == episode.scores
    with EpisodeWriter(tmp_path / "run") as writer:
        for episode in episodes:
            writer.append(episode)
    (tmp_path / "reward.yaml").write_text(YAML)
    for reward, name in ((REWARD, "python"), (str(tmp_path / "reward.yaml"), "yaml")):
        score_run(tmp_path / "run", reward=reward, name=name, resamples=0)
        assert [episode.scores for episode in load(tmp_path / "run", scores=name)] == scores
