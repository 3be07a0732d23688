"""The OpenEnv adapter over a real WebSocket on 127.0.0.1, and what a hostile client cannot do."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("openenv", reason="`make test-adapters` has an environment with it")

import openenv.core
from openenv.cli._validation import validate_multi_mode_deployment, validate_running_environment
from websockets.sync.client import connect

from tests.support.everywhere import serve_app
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.integrations import openenv as adapter
from viewbox.integrations.openenv import ViewboxAction, ViewboxClient, build_app
from viewbox.integrations.session import check_installed
from viewbox.publish.openenv import write_openenv

SETTINGS = {"num_tasks": 8, "max_turns": 4}
ENV = Digits(**SETTINGS)
ZOOM = {"id": "a", "type": "function", "function": {"name": "zoom", "arguments": '{"factor": 2}'}}


class Kept(Digits):
    name = "kept"
    restricted = True


class Breaks(Digits):
    def on_answer(self, state, answer):
        raise ValueError("the author's bug")


@pytest.fixture(scope="module")
def url():
    with serve_app(build_app("digits", SETTINGS, max_sessions=12)) as address:
        yield address


def test_openenvs_own_validation_passes_and_it_has_what_the_adapter_overrides(url):
    report = validate_running_environment(url)
    assert report["passed"], report
    request = urllib.request.Request(f"{url}/reset", b'{"seed": 3}', {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        shown = json.load(response)
    assert [message["role"] for message in shown["observation"]["messages"]] == ["system", "user"]
    for name in adapter.PRIVATE_NAMES:
        owner, _, method = name.partition(".")
        assert getattr(getattr(openenv.core, owner), method).__isabstractmethod__


def test_an_episode_with_images_over_a_websocket(url):
    with ViewboxClient(url).sync() as client:
        first = client.reset(task=3, seed=1)
        assert first.observation.messages[1]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
        assert first.observation.tools[0]["function"]["name"] == "zoom"
        assert (first.reward, first.done) == (None, False)
        looked = client.step(ViewboxAction(tool_calls=[ZOOM]))
        assert [message["role"] for message in looked.observation.messages] == ["assistant", "tool"]
        assert looked.observation.messages[1]["tool_call_id"] == "a"
        assert any(part["type"] == "image_url" for part in looked.observation.messages[1]["content"])
        last = client.step(ENV.write_answer(ENV.tasks[3]))
        assert last.done
        assert last.observation.end_reason == "answered"
        assert last.reward > 0.9
        assert set(last.observation.scores) == {"label", "box"}
        state = client.state()
        assert (state.step_count, state.task, state.end_reason) == (2, ENV.tasks[3].id, "answered")


def test_a_seed_fixes_the_task_and_sessions_play_at_the_same_time_and_do_not_mix(url):
    with ViewboxClient(url).sync() as client:
        tasks = []
        for seed in (1, 1, 2, 3, 4, 5):
            client.reset(seed=seed)
            tasks.append(client.state().task)
    assert tasks[0] == tasks[1]
    assert len(set(tasks)) > 2

    async def play(number):
        async with ViewboxClient(url) as client:
            await client.reset(task=number)
            await client.step(ENV.oracle(ENV.tasks[number])[0])
            return await client.step(ENV.write_answer(ENV.tasks[number]))

    async def gather():
        return await asyncio.gather(*(play(number) for number in range(8)))

    assert all(result.reward > 0.9 for result in asyncio.run(gather()))


HOSTILE = [
    {"type": "shutdown"}, {"type": "step", "data": {"text": "a"}}, {"type": "step", "data": {"text": 3}},
    {"type": "step", "data": {"text": "a", "reward": 1}},
    *({"type": "reset", "data": data} for data in (
        {"task": "../../etc/passwd"}, {"task": 8}, {"task": -1}, {"task": 0, "seed": "x"})),
]  # fmt: skip


def test_a_hostile_message_is_an_error_and_the_session_goes_on_and_holds_no_right_answer(url):
    box = json.dumps(list(ENV.tasks[3].reference["bbox"]))
    with connect(url.replace("http", "ws") + "/ws") as raw:
        for message in ("{", *map(json.dumps, HOSTILE)):  # the step stands before a reset
            raw.send(message)
            assert json.loads(raw.recv())["type"] == "error", message
        for message, kind in (({"type": "reset", "data": {"task": 3}}, "observation"), ({"type": "state"}, "state")):
            raw.send(json.dumps(message))
            received = raw.recv()
            assert json.loads(received)["type"] == kind
            assert "reference" not in received
            assert box not in received
    with ViewboxClient(url).sync() as client:
        for calls in ([{}], [{"function": 3}], [{"id": 1, "function": {"name": None}}], [ZOOM] * 200):
            client.reset(task=0)
            result = client.step(ViewboxAction(tool_calls=calls))
            assert result.observation.messages or result.done


def test_a_bug_of_the_environment_costs_its_episode_and_more_sessions_than_allowed_are_refused_in_words():
    app = build_app(f"{__file__}:Breaks", SETTINGS, max_sessions=1)
    with serve_app(app) as address, ViewboxClient(address).sync() as client:
        client.reset(task=0)
        with connect(address.replace("http", "ws") + "/ws") as second:
            assert json.loads(second.recv())["data"]["code"] == "CAPACITY_REACHED"
        result = client.step(ENV.write_answer(ENV.tasks[0]))
        assert (result.done, result.reward, result.observation.end_reason) == (True, None, "error")
        assert "the author's bug" in result.observation.problem
        assert client.reset(task=1).observation.messages


def test_restricted_data_are_not_served_and_the_package_under_its_former_name_is_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="kept: its data is restricted to this machine"):
        build_app(f"{__file__}:Kept")
    about = tmp_path / "openenv_core-0.3.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: openenv-core\nVersion: 0.3.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"openenv-core 0\.3\.0 is installed.*pip uninstall -y openenv-core openenv"):
        check_installed("openenv", "viewbox[openenv]", "0.10", replaces="openenv-core")


def test_the_written_folder_serves_and_openenv_finds_its_files(tmp_path):
    folder = tmp_path / "server"
    write_openenv("digits", folder, SETTINGS)
    _, issues = validate_multi_mode_deployment(folder)
    assert issues == ["Missing uv.lock - run 'uv lock' to generate it"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, cwd=folder, env=os.environ, stderr=subprocess.PIPE)
    try:
        for _ in range(300):
            time.sleep(0.1)
            assert server.poll() is None, server.stderr.read()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        with ViewboxClient(f"http://127.0.0.1:{port}").sync() as client:
            client.reset(task=2)
            assert client.step(ENV.write_answer(ENV.tasks[2])).reward > 0.9
    finally:
        server.terminate()
        server.wait(20)
