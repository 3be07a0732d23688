"""`chest_xray` through every front door but training: the driver, `viewbox rollout` with its companions, verifiers."""

import json

import pytest

from tests.support import verifiers_server as scripted
from tests.support.front_doors import evaluate_package, map_overviews, roll_out
from tests.support.publishing import leave_out_check
from tests.support.servers import make_completion
from viewbox import make
from viewbox.publish import publish

SETTINGS = {"questions": ["which", "compare", "place"], "split": "test", "num_tasks": 3, "coordinates": "per_mille"}
ENV = make("chest_xray", **SETTINGS)
SPECIALISTS = """
from viewbox.tools import Picture

def mean(image: Picture) -> dict:
    "Mean brightness."
    return {"mean": round(float(image.to_gray().mean()), 2)}
"""


TASKS = map_overviews(ENV)


def asks_then_answers(body, number):
    """Three calls in one reply, then the right answer."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return make_completion(ENV.write_answer(TASKS[scripted.get_first_image(body["messages"])]))
    image = json.dumps({"image": "image_1"})
    return make_completion("", ("a", "first", image), ("b", "second", image), ("c", "zoom", json.dumps({"factor": 2})))


def test_rollout_against_an_endpoint_both_pages_and_scores_from_the_record(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SPECIALISTS)
    tools = {name: {"kind": "function", "function": f"{tmp_path}/mine.py:mean"} for name in ("first", "second")}
    env = {"name": "chest_xray", **SETTINGS, "specialists": tools, "tool_bonus": 0.1, "bearing": {"all": ["first"]}}
    episodes, shown = roll_out(viewbox, tmp_path, env, asks_then_answers)
    for episode in episodes:
        assert [one.tool_name for one in episode.turns[2].tool_results] == ["first", "second", "zoom"]
        assert episode.turns[2].tool_results[0].facts == episode.turns[2].tool_results[1].facts
        assert episode.scores.total == pytest.approx(1.0)
    assert "What has become of" in shown
    assert len(shown) > 20_000  # with its images


@pytest.mark.slow
def test_the_published_package_is_played_by_verifiers(tmp_path, monkeypatch):
    package = tmp_path / "out"
    leave_out_check(monkeypatch)  # verifiers tries it below
    publish("chest_xray", package, settings=SETTINGS)
    scripts = {}
    for overview, task in TASKS.items():
        look = json.dumps({"factor": 2, "center": [500, 500]})
        answer = scripted.make_reply(ENV.write_answer(task))
        scripts[overview] = [scripted.make_reply("", ("a", "zoom", look)), answer]
    evaluate_package(package, "viewbox-chest-xray", scripts, tmp_path)
