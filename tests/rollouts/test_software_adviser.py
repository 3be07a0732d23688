"""`software_adviser` through the front doors: the driver, `viewbox rollout` with its companions, verifiers."""

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
from viewbox.envs.software_adviser.looks import write_query
from viewbox.errors import ConfigError
from viewbox.publish import publish
from viewbox.rollouts.play import play_many
from viewbox.rollouts.store.reader import load

SETTINGS = {"split": "test", "num_tasks": 3, "ambiguous": 0.5, "unanswerable": 0, "first_seed": 1}
ENV = make("software_adviser", **SETTINGS)


def get_overview(task):
    return scripted.get_first_image(to_openai_messages(ENV.reset(task, seed=0).messages))


TASKS = {get_overview(task): task for task in ENV.tasks}


def write_calls(task):
    """A search by the facts and one for each name of the best answer, and the repositories, all in one reply."""
    names = [choice["name"] for choice in json.loads(ENV.write_answer(task))["choices"]]
    request = ENV.get_request(task)
    queries = [f"{name} {request.task} {request.modality} {request.dimensions}" for name in names]
    urls = [ENV.software[name].repository for name in names]
    return [
        ("a", "search_tools", json.dumps({"query": write_query(request)})),
        *((f"b{n}", "search_alternative", json.dumps({"query": query})) for n, query in enumerate(queries)),
        ("c", "repo_info_batch", json.dumps({"urls": urls})),
    ]


def test_the_driver_plays_many_at_once_and_each_gets_its_own_scores():
    env = make("software_adviser", num_tasks=24)
    scripts = {task.id: [*env.oracle(task), env.write_answer(task)] for task in env.tasks}

    def reply(conversation):
        said = sum(message.role == "assistant" for message in conversation.messages)
        return scripts[conversation.task.id][said]

    async def run():
        return [one async for one in play_many(env, env.tasks, Says(reply), group=2, concurrency=16)]

    episodes = asyncio.run(run())
    assert len(episodes) == 48
    assert {episode.end_reason for episode in episodes} == {"answered"}
    assert min(episode.scores.total for episode in episodes) == pytest.approx(1.0)
    assert len({episode.turns[0].images[0].hash for episode in episodes}) > 15


def asks_searches_and_answers(body, number):
    """A question where a fact is hidden, then all tools in one reply, then the right answer."""
    task = TASKS[scripted.get_first_image(body["messages"])]
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    asks = [reply for reply in ENV.oracle(task) if "needs_clarification" in reply]
    if turn < len(asks):
        return make_completion(asks[turn])
    if turn == len(asks):
        return make_completion("", *write_calls(task))
    return make_completion(ENV.write_answer(task))


def test_rollout_against_an_endpoint_preview_picture_and_scores_from_the_record(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "adviser.yaml"
    raw = {"model": {"name": "package:tiny_viewer"}, "env": {"name": "software_adviser", **SETTINGS}}
    config.write_text(json.dumps(raw))
    with serve(asks_searches_and_answers) as server:
        code, out, err = viewbox(
            "rollout", "--config", config, "--tasks", 3, "--endpoint", server.url, "--model", "m", "--out", "run"
        )
    assert code == 0, out + err
    episodes = list(load(tmp_path / "run"))
    assert len(episodes) == 3
    assert any(ENV.get_request(episode.task).hidden for episode in episodes)
    for episode in episodes:
        assert {"search_tools", "search_alternative", "repo_info_batch"} == episode.tools_used()
        assert episode.scores.total == pytest.approx(1.0)
        assert ENV.score(episode) == episode.scores
    code, out, err = viewbox("score", "run")
    assert code == 0, out + err
    assert viewbox("picture", "run#2", "--out", "episode.png")[0] == 0
    with Image.open(tmp_path / "episode.png") as picture:
        assert min(picture.size) > 200
    code, out, err = viewbox("preview", config, "--tasks", 3)
    assert code == 0, out + err
    assert "right answer" in out


@pytest.mark.slow
def test_the_published_package_is_played_by_verifiers(tmp_path, monkeypatch):
    package = tmp_path / "out"
    done = publish("software_adviser", package, settings=SETTINGS)  # tries the package in a process of its own
    assert any("a missing answer scores 0.00" in finding for finding in done.findings)
    scripts = {}
    for overview, task in TASKS.items():
        asks = [scripted.make_reply(reply) for reply in ENV.oracle(task) if "needs_clarification" in reply]
        answer = scripted.make_reply(ENV.write_answer(task))
        scripts[overview] = [*asks, scripted.make_reply("", *write_calls(task)), answer]
    [installed] = importlib.metadata.entry_points(group="console_scripts", name="vf-eval")
    for key in [key for key in os.environ if key.startswith("PRIME_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.syspath_prepend(package)
    monkeypatch.chdir(tmp_path)
    with scripted.serve(scripts) as server:
        given = ["--model", "scripted", "--client.base-url", server.url, "--no-push", "--no-rich", "-n", "3", "-o", "e"]
        monkeypatch.setattr(sys, "argv", ["vf-eval", "viewbox-software-adviser", *given])
        installed.load()()
    [saved] = (tmp_path / "e").rglob("traces.jsonl")
    traces = [trace for line in saved.read_text().splitlines() for trace in json.loads(line)["traces"]]
    assert [trace["stop_condition"] for trace in traces] == ["answered"] * 3
    assert all(trace["rewards"]["total"]["score"] > 0.99 for trace in traces)
    sys.modules.pop("viewbox_software_adviser", None)


@pytest.mark.parametrize("key", ["catalogue", "repositories"])
def test_a_file_of_this_machine_is_not_published(tmp_path, key):
    file = tmp_path / "mine.jsonl"
    if key == "catalogue":
        file.write_text("".join(f"{one.model_dump_json()}\n" for one in list(ENV.software.values())[:120]))
    else:
        file.write_text('{"repository": "a/b", "recorded": "2026-11-23", "license": "MIT"}\n')
    given = {"catalogue": str(file)} if key == "catalogue" else {"repositories": {"snapshot": str(file)}}
    with pytest.raises(ConfigError, match=f"{key}.*: a file of this machine, which no package carries"):
        publish("software_adviser", tmp_path / "out", settings={**SETTINGS, **given})
