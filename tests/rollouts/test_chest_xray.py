"""`chest_xray` through every front door but training: the driver, `viewbox rollout` with its companions, verifiers."""

import asyncio
import importlib.metadata
import json
import os
import sys

import pytest
from PIL import Image

from tests.support import verifiers_server as scripted
from tests.support.digits_play import Says
from tests.support.servers import make_completion, serve
from viewbox import make
from viewbox.envs.messages import to_openai_messages
from viewbox.publish import publish
from viewbox.rollouts.play import play_many
from viewbox.rollouts.store.reader import load

SETTINGS = {"questions": ["which", "compare", "place"], "split": "test", "num_tasks": 3, "coordinates": "per_mille"}
ENV = make("chest_xray", **SETTINGS)
SPECIALISTS = """
from viewbox.envs.tools import Picture

def mean(image: Picture) -> dict:
    "Mean brightness."
    return {"mean": round(float(image.to_gray().mean()), 2)}
"""


def get_overview(task):
    return scripted.get_first_image(to_openai_messages(ENV.reset(task, seed=0).messages))


GOLDS = {get_overview(task): ENV.write_answer(task) for task in ENV.tasks}


def test_the_driver_plays_many_at_once_and_each_gets_its_own_scores():
    env = make("chest_xray", num_tasks=18)
    scripts = {task.id: [*env.oracle(task), env.write_answer(task)] for task in env.tasks}

    def reply(conversation):
        said = sum(message.role == "assistant" for message in conversation.messages)
        return scripts[conversation.task.id][said]

    async def run():
        return [one async for one in play_many(env, env.tasks, Says(reply), group=3, concurrency=16)]

    episodes = asyncio.run(run())
    assert len(episodes) == 54
    assert {episode.end_reason for episode in episodes} == {"answered"}
    assert min(episode.scores.total for episode in episodes) == pytest.approx(1.0)


def asks_then_answers(body, number):
    """Three calls in one reply, then the right answer."""
    if any(message["role"] == "tool" for message in body["messages"]):
        return make_completion(GOLDS[scripted.get_first_image(body["messages"])])
    image = json.dumps({"image": "image_1"})
    return make_completion("", ("a", "first", image), ("b", "second", image), ("c", "zoom", json.dumps({"factor": 2})))


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A config with two specialists, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SPECIALISTS)
    tools = {name: {"kind": "function", "function": f"{tmp_path}/mine.py:mean"} for name in ("first", "second")}
    env = {"name": "chest_xray", **SETTINGS, "specialists": tools, "tool_bonus": 0.1, "bearing": {"all": ["first"]}}
    path = tmp_path / "chest.yaml"
    path.write_text(json.dumps({"model": {"name": "package:tiny_viewer"}, "env": env}))
    return path


def test_rollout_against_an_endpoint_preview_picture_and_scores_from_the_record(config, viewbox, tmp_path):
    with serve(asks_then_answers) as server:
        code, out, err = viewbox(
            "rollout", "--config", config, "--tasks", 3, "--endpoint", server.url, "--model", "m", "--out", "run"
        )
    assert code == 0, out + err
    episodes = list(load(tmp_path / "run"))
    assert len(episodes) == 3
    for episode in episodes:
        assert [one.tool_name for one in episode.turns[2].tool_results] == ["first", "second", "zoom"]
        assert episode.turns[2].tool_results[0].facts == episode.turns[2].tool_results[1].facts
        assert episode.scores.total == pytest.approx(1.0)
    code, out, err = viewbox("score", "run")
    assert code == 0, out + err
    assert viewbox("picture", "run#2", "--out", "episode.png")[0] == 0
    with Image.open(tmp_path / "episode.png") as picture:
        assert min(picture.size) > 200
    code, out, err = viewbox("preview", config, "--tasks", 3)
    assert code == 0, out + err
    assert "What has become of" in out
    assert "right answer" in out
    assert (tmp_path / "preview.html").stat().st_size > 20_000  # with its images


@pytest.mark.slow
def test_the_published_package_is_played_by_verifiers(tmp_path, monkeypatch):
    package = tmp_path / "out"
    done = publish("chest_xray", package, settings=SETTINGS)  # tries the package in a process of its own
    assert any("a missing answer scores 0.00" in finding for finding in done.findings)
    scripts = {}
    for task in ENV.tasks:
        look = json.dumps({"factor": 2, "center": [500, 500]})
        answer = scripted.make_reply(ENV.write_answer(task))
        scripts[get_overview(task)] = [scripted.make_reply("", ("a", "zoom", look)), answer]
    [installed] = importlib.metadata.entry_points(group="console_scripts", name="vf-eval")
    for key in [key for key in os.environ if key.startswith("PRIME_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.syspath_prepend(package)
    monkeypatch.chdir(tmp_path)
    with scripted.serve(scripts) as server:
        given = ["--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich", "-n", "3", "-o", "e"]
        monkeypatch.setattr(sys, "argv", ["vf-eval", "viewbox-chest-xray", *given])
        installed.load()()
    [saved] = (tmp_path / "e").rglob("traces.jsonl")
    traces = [trace for line in saved.read_text().splitlines() for trace in json.loads(line)["traces"]]
    assert [trace["stop_condition"] for trace in traces] == ["answered"] * 3
    assert all(trace["rewards"]["total"]["score"] > 0.99 for trace in traces)
    sys.modules.pop("viewbox_chest_xray", None)
