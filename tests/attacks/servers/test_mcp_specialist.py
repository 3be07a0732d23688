"""An MCP server that fails: each fault costs its call, and those in progress, or is a clear error at the start of the
run. Episodes whose calls go to the same server one at a time do not change by a byte.
"""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.support.waiting import wait_until
from tests.support.ward import Ward, get_result, make_tasks, play
from viewbox.errors import ConfigError
from viewbox.network import background
from viewbox.tools.specialists import mcp_server as servers

pytest.importorskip("mcp")

RUDE = "tests/support/rude_mcp_server.py"
HOW = {"parameters": {"properties": {"how": {"type": "string"}}, "required": ["how"]}}
LOST = "h_fail: ended its server during the call"
LATE = "h_fail: gave no result within 4 s"


@pytest.fixture(autouse=True)
def here(request, monkeypatch):
    """In the repository, with servers that may be started again at once."""
    monkeypatch.chdir(request.config.rootpath)
    monkeypatch.setattr(servers, "COOLDOWN", 0.0)


def make_env(*mode, **settings):
    settings = {"command": [sys.executable, RUDE, *mode], "timeout": 60, "tools": {"say": HOW, "fail": HOW}, **settings}
    return Ward(specialists={"h": {"kind": "mcp", **settings}}, tool_timeout=600)


def make_calls(third):
    return make_tasks(*[third if number == 3 else ("h_say", {"how": f"fine {number}"}) for number in range(8)])


def wait_for_end(env):
    """Until the end of a server is seen: a call that is sent before is one in progress."""
    wait_until(servers._servers[background.get_loop()][env.specialists["h"].server]._session.ended.is_set)


@pytest.fixture(scope="module")
def clean(request):
    """The episodes of a run without a fault."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(request.config.rootpath)
        return [one.to_json() for one in play(make_env(), make_calls(("h_say", {"how": "fine 3"})))]


FAULTS = {
    **dict.fromkeys(("its death", "half a message"), LOST), "a result of another shape": "h_fail: ",
    **dict.fromkeys(("rubbish without end", "messages without end", "errors without end"), LATE),
    **dict.fromkeys(("no reply", "no reply, and no end"), LATE), "an error": "h_fail: out of film",
    "a picture that is none": "h_fail gave a result that cannot be used: its picture is a picture of another format",
}  # fmt: skip
HARMLESS = [
    "JSON 100,000 deep", "a question", "a reply twice", "a result that is a list", "rubbish before the reply",
    "the reply of nobody",
]  # fmt: skip


@pytest.mark.parametrize("how", FAULTS)
def test_a_fault_costs_its_episode(how, clean):
    env = make_env(timeout=4 if FAULTS[how] == LATE else 60, concurrency=1)
    episodes = play(env, make_calls(("h_fail", {"how": how})))
    faulty = episodes.pop(3)
    assert [one.to_json() for one in episodes] == clean[:3] + clean[4:]
    assert FAULTS[how] in get_result(faulty).error
    assert (faulty.end_reason, faulty.scores.total, bool(get_result(faulty).raised)) == ("error", None, True)


def test_what_a_server_says_beside_its_replies_costs_nothing(clean):
    calls = [("h_fail", {"how": how}) for how in HARMLESS]
    fine = [("h_say", {"how": f"fine {number}"}) for number in range(8)]
    episodes = play(make_env(concurrency=1), make_tasks(*fine, *calls))
    assert [one.to_json() for one in episodes[:8]] == clean
    assert [get_result(one).description for one in episodes[8:]] == HARMLESS


def test_words_in_structure_or_in_a_resource_and_numbers_that_json_does_not_have_are_read():
    refused, embedded, odd = [get_result(one) for one in play(make_env(), make_tasks(*(
        ("h_fail", {"how": how}) for how in ("a refusal in structure", "an embedded text", "NaN"))))]  # fmt: skip
    assert (refused.success, "RATE_LIMITED" in refused.error) == (False, True)
    assert embedded.description == "a nodule of 7 mm"
    assert odd.facts == {"ratio": "nan", "more": ("-inf",)}


def test_after_its_death_it_is_started_again_and_calls_in_progress_are_faults(clean):
    env = make_env()
    for _ in range(2):
        episodes = play(env, make_calls(("h_fail", {"how": "its death"})))
        assert get_result(episodes[3]).error == LOST
        for episode in episodes:
            result = get_result(episode)
            assert result.error in (None, LOST, LOST.replace("h_fail", "h_say"))
            ended = ("answered", False) if result.success else ("error", True)
            assert (episode.end_reason, episode.is_fault) == ended
            assert (episode.scores.total is None) == episode.is_fault
    assert get_result(play(env, make_tasks(("h_fail", {"how": "a reply, then its death"})))[0]).error is None
    wait_for_end(env)
    assert [one.to_json() for one in play(env, make_calls(("h_say", {"how": "fine 3"})))] == clean


START = {
    "ends": r"the MCP server .*: it ended: no licence was found",
    **dict.fromkeys(("hangs", "rubbish without end", "errors without end"), r"no answer within 1 s"),
    "another version": r"Unsupported protocol version", "tools of another shape": r"validation error",
    **dict.fromkeys(("too many tools", "endless pages"), r"it lists more than 512 tools"),
    "a hostile schema": r"tools\.fail: of the server: reference 'http://127\.0\.0\.1:9/s'; allowed: one inside",
    "another schema": r"the server needs the argument 'why', which is not required here; `viewbox tools mcp` prints",
    "another argument": r"unknown argument at the server 'how'; allowed: wow",
    "no tool": r"unknown tool of the server 'fail'; allowed: say",
}  # fmt: skip


@pytest.mark.parametrize("mode", START)
def test_a_server_that_cannot_be_used_ends_the_run_before_its_first_episode(mode):
    env = make_env(mode, start_timeout=1 if "within 1 s" in START[mode] else 60)
    with pytest.raises(ConfigError, match=START[mode]) as caught:
        play(env, make_calls(("h_say", {"how": "fine"})))
    assert caught.value.key.startswith("specialists.h")
    assert len(str(caught.value)) < 600


def test_a_server_that_cannot_be_started_again_ends_the_episodes_that_ask_it(tmp_path):
    script = tmp_path / "server.py"
    script.write_text(Path(RUDE).read_text())
    env = make_env(command=[sys.executable, str(script)])
    env.prepare()
    script.write_text("raise SystemExit('moved')")
    for episode in play(env, make_calls(("h_fail", {"how": "its death"}))):
        said = get_result(episode).error
        assert said is None or "ended its server" in said or "has no server at the moment" in said
        assert episode.end_reason == ("answered" if said is None else "error")
    with pytest.raises(ConfigError, match="it ended: moved"):
        play(env, make_tasks(("h_say", {"how": "x"})))


@pytest.mark.parametrize("closed", [0, 1], ids=["its pipe breaks", "its output ends"])
def test_either_end_of_a_connection_ends_the_session(closed):
    """The library says "Connection closed" for both, and a server may say it of its own."""

    async def use():
        session = servers.McpSession(servers.McpSettings(command=("true",)))
        (send, input_of_server), (output_of_server, read) = (anyio.create_memory_object_stream(1) for _ in range(2))

        @asynccontextmanager
        async def connect():
            yield read, send

        async with session._watch(connect()) as (receiver, sender):
            (input_of_server, output_of_server)[closed].close()
            with pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
                await (receiver.receive() if closed else sender.send("a call"))
        return session.ended.is_set()

    assert asyncio.run(use())
