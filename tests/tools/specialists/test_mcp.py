"""`kind: mcp` with a real server of the official library: over stdio and HTTP, declared, prepared, called and ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from tests.support.refusals import check_refusal
from tests.support.servers import flood_body, make_response, make_script, serve
from tests.support.tables import each
from tests.support.ward import SIZE, ClosedWard, Ward, ask, get_result, make_tasks, play
from viewbox.errors import ConfigError

pytest.importorskip("mcp")

SERVER = str(Path(__file__).parents[2] / "support/mcp_server.py")
PICTURE = {"image": {"x-kind": "picture"}}
MEASURED = {"properties": {**PICTURE, "box": {"x-kind": "box"}, "part": {"type": "string"}}, "required": ["image"]}
TOOLS = {
    "measure_heart": {
        "description": "Measures.", "parameters": MEASURED, "returns": {"boxes": ["findings[].box"]},
    },
    "say": {"parameters": {"properties": {"text": {"type": "string"}}, "required": ["text"]}},
    "draw": {"parameters": {"properties": PICTURE, "required": ["image"]}},
    "environ": {},
    "fail": {"parameters": {"properties": {"how": {"type": "string"}}, "required": ["how"]}},
}  # fmt: skip


def make_env(*more, cls=Ward, name="hospital", **settings):
    command = {} if "url" in settings else {"command": [sys.executable, SERVER, *more]}
    settings = {"kind": "mcp", **command, "tools": TOOLS, "timeout": 60, **settings}
    return cls(specialists={name: settings}, tool_timeout=600)


@pytest.fixture(scope="module", params=["stdio", "http"])
def env(request):
    if request.param == "stdio":
        yield make_env()
        return
    from tests.support.mcp_server import serve_mcp

    with serve_mcp() as url:
        yield make_env(url=url)


def test_its_tools_are_tools_with_pictures_and_boxes(env):
    assert env.tools[1:] == (
        "hospital_measure_heart", "hospital_say", "hospital_draw", "hospital_environ", "hospital_fail",
    )  # fmt: skip
    result = ask(env, "hospital_measure_heart", image="image_1", box=[0, 0, 0.5, 1])
    places = {"given": (0.0, 0.0, 0.5, 1.0), "findings": ({"box": (0.25, 0.5, 0.75, 1.0)},)}
    assert result.facts == {"part": "heart", "size": SIZE, **places}


def test_text_facts_and_pictures_are_read_errors_are_the_server_s_words_and_episodes_share_it(env):
    said = ask(env, "hospital_say", text="normal")
    assert (said.description, said.facts) == ("normal", {})
    drawn = ask(env, "hospital_draw", image="image_1").image
    assert (np.asarray(drawn.open()) == 255 - 42).all()
    found = ask(env, "hospital_environ")
    assert (found.description, sorted(found.facts)) == ("found", ["names", "process"])
    assert "the film is upside down" in ask(env, "hospital_fail", how="raise").error
    assert ask(env, "hospital_say").error == 'hospital_say: argument "text" is missing'
    episodes = play(env, make_tasks(*[("hospital_say", {"text": f"film {number}"}) for number in range(40)]))
    assert [get_result(one).description for one in episodes] == [f"film {number}" for number in range(40)]


def test_a_tool_that_the_server_drops_later_costs_its_calls():
    env = make_env("/dev/null")  # a process of its own
    assert ask(env, "hospital_fail", how="forget a tool").error is None
    assert "say" in ask(env, "hospital_say", text="x").error
    assert ask(env, "hospital_environ").error is None


def test_it_is_started_once_a_process_and_ends_with_it(tmp_path):
    pids = tmp_path / "pids"
    code = f"""
from tests.tools.specialists.test_mcp import ask, make_env
first, second = make_env({str(pids)!r}), make_env({str(pids)!r}, name="clinic")
for env, name in ((first, "hospital"), (second, "clinic"), (first, "hospital")):
    env.prepare()
    assert ask(env, name + "_say", text="x").description == "x"
"""
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, cwd=root, env=environment)
    (pid,) = pids.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_making_an_environment_starts_nothing_and_names_need_no_prefix_and_no_odd_characters(tmp_path):
    pids = tmp_path / "pids"
    env = make_env(str(pids))
    assert len(env.tool_schemas) == 6
    assert env.build_system_prompt(make_tasks(("hospital_environ", {}))[0])
    assert not pids.exists()
    assert make_env(prefix="", tools={"list.films/all": {}}).tools[1:] == ("list_films_all",)


def test_the_program_sees_harmless_variables_and_those_that_are_named_and_the_key_is_sent_to_the_address(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789abcdef0123456789")
    monkeypatch.setenv("HOSPITAL_TOKEN", "sesame-4711-open-door")
    names = ask(make_env(variables=["HOSPITAL_TOKEN"]), "hospital_environ").facts["names"].split()
    assert "HOSPITAL_TOKEN" in names
    assert "PATH" in names
    assert "OPENAI_API_KEY" not in names
    monkeypatch.setenv("WARD_API_KEY", "sesame-4711-open-door")
    with serve(make_script(make_response(500, "no"))) as server, pytest.raises(ConfigError):
        make_env(url=server.url, api_key_env="WARD_API_KEY").prepare()
    assert {request["headers"]["Authorization"] for request in server.requests} == {"Bearer sesame-4711-open-door"}


def test_faults_over_http_cost_their_calls():
    from tests.support.mcp_server import serve_mcp

    with serve_mcp() as url:
        env = make_env(url=url, max_reply=2**20, timeout=8)
        calls = [("hospital_say", {"text": str(number)}) for number in range(6)]
        calls[2], calls[4] = ("hospital_fail", {"how": "100 MB"}), ("hospital_fail", {"how": "no reply"})
        results = [get_result(episode) for episode in play(env, make_tasks(*calls))]
    assert [results[number].description for number in (0, 1, 3, 5)] == ["0", "1", "3", "5"]
    assert "larger than 1048576 bytes" in results[2].error
    assert "gave no result within 8 s" in results[4].error


@each("answer", [
    make_response(200, "<html>", Content_Type="text/html"), make_response(500, "no"), flood_body,
    make_response(307, Location="http://127.0.0.1:9/mcp"), make_response(200, [1], Content_Type="application/json"),
    make_response(200, "xx", Content_Type="application/json", Content_Encoding="gzip"),
    lambda handler: setattr(handler, "close_connection", True),
])  # fmt: skip
def test_an_address_that_is_no_mcp_server_ends_the_run_at_its_start(answer):
    with serve(make_script(answer)) as server:
        env = make_env(url=server.url, max_reply=2**20)
        check_refusal(env.prepare, "specialists.hospital", "the MCP server http://")
    assert not server.drained


@each("settings, key, says", [
    ({"command": []}, "", "needs either command or url"),
    ({"command": ["a"], "url": "https://example.org"}, "", "needs either command or url"),
    ({"url": "http://example.org/mcp"}, "url", "allowed: https, or an address on localhost"),
    ({"url": "stdio"}, "url", "cannot be used; allowed: http(s)://host"),
    ({"url": "https://example.org", "api_key_env": "HF_TOKEN"}, "api_key_env", "only a variable whose name ends"),
    ({"command": ["a"], "api_key_env": "A_API_KEY"}, "", "a program gets its key by `variables`"),
    ({"tools": ["a", "b"]}, "tools", "allowed: a mapping whose values are a mapping with the keys description"),
    ({"tools": {}}, "tools", "allowed: a mapping whose values are"),
    ({"tools": {"a": {"parameters": {"type": "array"}}}}, "tools.a.parameters", "allowed: object"),
    ({"tools": {"a": {"parametres": {}}}}, "tools.a.parametres", "did you mean 'parameters'?"),
    ({"tools": {"a": {"returns": {"boxes": ["b"]}}}}, "tools.a", "returns names a box, point or mask in no picture"),
    ({"description": "Tools."}, "", "description belongs to each of `tools`"),
    ({"tools": {"x" * 80: {}}}, "", "is not a tool name"),
])  # fmt: skip
def test_a_mistake_is_named_with_what_is_allowed(settings, key, says):
    given = settings if "url" in settings else {"command": ["server"], **settings}
    check_refusal(lambda: make_env(**given), ".".join(filter(None, ["specialists.hospital", key])), says)


def test_a_missing_program_or_package_is_named_and_restricted_pictures_go_to_this_machine_only(monkeypatch):
    assert ask(make_env(cls=ClosedWard), "hospital_measure_heart", image="image_1").error is None
    with pytest.raises(ConfigError, match=r"specialists\.hospital sends pictures to https://models\.example"):
        make_env(cls=ClosedWard, url="https://models.example/mcp")
    with pytest.raises(ConfigError, match=r"specialists\.hospital\.command: there is no program 'no-such-server'"):
        make_env(command=["no-such-server"]).prepare()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package mcp; install it with pip install 'viewbox\[mcp\]'"):
        make_env().prepare()


def test_what_the_command_prints_is_a_config_and_its_mistakes_are_those_of_the_config():
    from viewbox.cli.app import app

    printed = CliRunner().invoke(app, ["tools", "mcp", "--picture", "image", sys.executable, SERVER])
    assert printed.exit_code == 0, printed.output
    (spec,) = yaml.safe_load(printed.output)["specialists"].values()
    assert spec["command"] == [sys.executable, SERVER]
    assert spec["tools"]["measure_heart"]["description"] == "Measures the heart in a chest film."
    assert spec["tools"]["measure_heart"]["parameters"]["properties"] == {
        "image": {"x-kind": "picture"},
        "box": {"type": "array", "items": {"type": "number"}},
        "part": {"type": "string", "default": "heart"},
    }
    env = Ward(specialists={"hospital": spec})
    env.prepare()
    assert json.loads(json.dumps(ask(env, "hospital_say", text="x").description)) == "x"
    found = CliRunner().invoke(app, ["tools", "mcp"])
    assert isinstance(found.exception, ConfigError)
    assert "needs either command or url" in str(found.exception)
