"""A published `software_adviser` brings its catalogue: the right answers earn 1.0 where viewbox is not installed."""

import json
from pathlib import Path

import pytest

from tests.support.clean_python import run_clean
from viewbox.errors import ConfigError
from viewbox.publish import publish

SETTINGS = {"split": "test", "num_tasks": 12}
PLAY = """
import importlib.util, json
assert importlib.util.find_spec("viewbox") is None
import viewbox_software_adviser as package
import viewbox
from viewbox import make
env = make(package.SoftwareAdviserTaskset.environment, **package.SoftwareAdviserTaskset.settings)
scores = {}
for task in env.tasks:
    replies = iter(env.demonstration(task, 0))
    scores[task.id] = env.play(task, lambda messages: next(replies)).scores.total
urls = [one.repository for one in list(env.software.values())[:3]]
look = json.dumps({"name": "repo_info_batch", "arguments": {"urls": urls}})
replies = iter([f"<tool_call>{look}</tool_call>", '{"explanation": "none", "continue": false}'])
episode = env.play(env.tasks[0], lambda messages: next(replies))
answered = [turn.tool_results[0].facts["answered"] for turn in episode.turns if turn.tool_results]
print(json.dumps({"file": viewbox.__file__, "scores": scores, "software": len(env.software), "answered": answered}))
"""


def test_the_right_answers_earn_everything_in_a_process_without_viewbox(tmp_path, unchecked):
    package = tmp_path / "out"
    publish("software_adviser", package, settings=SETTINGS)
    found = json.loads(run_clean(["-c", PLAY], package, tmp_path).splitlines()[-1])
    assert Path(found["file"]).is_relative_to(package / "viewbox_software_adviser" / "_vendor")
    assert found["scores"] == {name: pytest.approx(1.0) for name in found["scores"]}
    assert len(found["scores"]) == SETTINGS["num_tasks"]
    assert found["software"] > 150
    assert len(found["answered"][0]) == 3, "the snapshot of repositories travels, too"


def test_a_mixture_with_a_catalogue_of_this_machine_is_not_published(tmp_path):
    parts = {"digits": {}, "software_adviser": {"catalogue": str(tmp_path / "mine.jsonl")}}
    with pytest.raises(ConfigError, match="software_adviser: catalogue: a file of this machine"):
        publish("mixture", tmp_path / "out", settings={"environments": parts})
