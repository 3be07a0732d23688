"""The verifiers adapter, through verifiers' own commands: the same messages, ends and scores as our own driver."""

import asyncio
import importlib.metadata
import importlib.util
import inspect
import json
import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import pytest

from tests.support import verifiers_server as scripted
from tests.support.publishing import leave_out_check
from tests.support.servers import make_completion, make_response, make_script, serve
from tests.support.verifiers_command import read_traces, run_command
from viewbox.core.messages import to_openai_messages
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.images.ref import ImageRef
from viewbox.publish import publish
from viewbox.records import Episode
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.play import play_many
from viewbox.rollouts.store.reader import load

say = scripted.make_reply

SETTINGS = {"split": "test", "num_tasks": 9, "max_turns": 7}
ENV = Digits(**SETTINGS)
LOOK = json.dumps({"factor": 4, "center": [500, 500]})


def right(number):
    return viewer.write_answer(ENV, ENV.tasks[number])


# What the model says to each task, by its number, and how that has to end; `everywhere.py` has many more.
FAULTY = (("a", "zoom", LOOK), ("b", "zom", LOOK), ("c", "zoom", "{not JSON"), ("d", "zoom", "{}"))
CALL = ("a", "zoom", LOOK)
SCRIPTS = {
    "looks, then answers right": (lambda n: [say(None, CALL), say(right(n))], "answered"),
    "calls several tools at once": (lambda n: [say("So:", *FAULTY), say(right(n))], "answered"),
    "is malformed to the end": (lambda n: [say("no")] * 5, "malformed"),
    "calls a tool on the last turn": (lambda n: [say("", (f"c{i}", "zoom", LOOK)) for i in range(7)], "max_turns"),
    "is cut off, then answers": (lambda n: [say('{"label": "tw', finish_reason="length"), say(right(n))], "answered"),
    "answers at once and wrong": (lambda n: [say('{"label": "one", "bbox": [0, 0, 400, 500]}')], "answered"),
    "reasons in a field of its own": (
        lambda n: [say("", CALL, reasoning_content="Hm."), say(right(n), reasoning_content="Ah.")], "answered"),
    "has an endpoint that is busy once": (
        lambda n: [say("", CALL), scripted.make_error(503), say(right(n))], "answered"),
    "has an endpoint that refuses": (lambda n: [say("", CALL), scripted.make_error(400), say("")], "error"),
}  # fmt: skip
NUMBERS = dict(zip(SCRIPTS, count()))
PLAYED = [name for name, (_, end) in SCRIPTS.items() if end != "error"]


def scripts(env=ENV):
    """First image → replies, for every script."""
    return {overview(env, number): SCRIPTS[name][0](number) for name, number in NUMBERS.items()}


def overview(env, number):
    return scripted.get_first_image(to_openai_messages(env.reset(env.tasks[number], seed=0).messages))


def play(env, tool_images="tool"):
    """The episodes of our own driver by task number, and the bodies its own client sent for each first image."""

    async def all_of_them():
        generator = OpenAIGenerator(server.url, "scripted", tool_images=tool_images, first_pause=0.01)
        episodes = [one async for one in play_many(env, [env.tasks[number] for number in NUMBERS.values()], generator)]
        await generator.close()
        return {episode.info["index"]: episode for episode in episodes}

    with scripted.serve(scripts(env)) as server:
        return asyncio.run(all_of_them()), server.requests


def evaluate(package, server, out, *arguments):
    """One `vf-eval`; the traces by task number."""
    limits = ["--no-push", "--no-rich", "-n", len(SCRIPTS), "-o", out]
    given = ["viewbox-digits", "--model", "scripted", "--client.base-url", server.url, *limits, *arguments]
    run_command("vf-eval", *given, path=package, cwd=out.parent)
    return traces(out)


def traces(out):
    return {trace["task"]["data"]["number"]: trace for trace in read_traces(out)}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published") / "out"
    with pytest.MonkeyPatch.context() as patch:  # the trial in a process of its own takes seconds
        leave_out_check(patch)
        publish("digits", folder, settings=SETTINGS)
    yield folder
    sys.modules.pop("viewbox_digits", None)


@pytest.fixture(scope="module")
def run(package, tmp_path_factory):
    """vf-eval and our own driver on the same scripts: (traces, requests, our episodes, our requests, folder)."""
    out = tmp_path_factory.mktemp("run") / "eval"
    with scripted.serve(scripts()) as server:
        found = evaluate(package, server, out)
    episodes, sent = play(ENV)
    return found, server.requests, episodes, sent, out


def as_sent(bodies):
    return [(body["messages"], body.get("tools", [])) for body in bodies]


def without_reasoning(sent):
    return [([{k: v for k, v in one.items() if "reasoning" not in k} for one in said], tools) for said, tools in sent]


def test_the_endpoint_receives_what_our_own_driver_sends(run):
    _, requests, _, sent, _ = run
    for name in SCRIPTS:
        received = as_sent(requests[overview(ENV, NUMBERS[name])])
        assert without_reasoning(received) == as_sent(sent[overview(ENV, NUMBERS[name])]), name
        reasons = any("reasoning" in key for said, _ in received for one in said for key in one)
        assert reasons == ("reasons" in name), name
    bodies = requests[overview(ENV, NUMBERS["calls a tool on the last turn"])]
    assert [bool(body.get("tools")) for body in bodies] == [True] * 7  # also on the last turn


def test_ends_and_scores_are_those_of_our_own_driver(run):
    found, _, episodes, _, _ = run
    for name in PLAYED:
        trace, ours = found[NUMBERS[name]], episodes[NUMBERS[name]]
        theirs = Episode.from_dict(trace["info"]["viewbox"])
        assert trace["stop_condition"] == theirs.end_reason == ours.end_reason == SCRIPTS[name][1], name
        assert (theirs.answer, theirs.flags, theirs.turns) == (ours.answer, ours.flags, ours.turns), name
        assert (theirs.terminated, theirs.truncated) == (ours.terminated, ours.truncated), name
        assert trace["rewards"] == {"total": {"score": ours.scores.total, "weight": 1.0}}, name
        assert trace["metrics"] == ours.scores.components, name
        assert theirs.scores == ours.scores, name
    assert len({round(trace["rewards"]["total"]["score"], 3) for trace in found.values() if trace["ok"]}) > 2
    assert len({trace["info"]["viewbox"]["run_config"]["seed"] for trace in found.values()}) == len(found)


def test_a_trace_is_one_conversation_but_where_the_request_itself_changed_and_a_refusal_ends_its_own(run):
    found, _, episodes, _, _ = run
    for name, number in NUMBERS.items():
        nodes = found[number]["nodes"]
        line = [node.get("parent") for node in nodes] == [None, *range(len(nodes) - 1)]
        assert line == (name != "calls several tools at once"), name  # arguments that are no JSON are mended
    assert "data:image" in json.dumps(found[0]["nodes"])
    assert not any("data:image" in json.dumps([trace["task"], trace["info"]]) for trace in found.values())
    number = NUMBERS["has an endpoint that refuses"]
    assert not found[number]["ok"]
    assert found[number]["errors"][-1]["type"] == "ProviderError"
    assert found[number]["info"]["viewbox"]["end_reason"] == episodes[number].end_reason == "error"
    assert sum(trace["ok"] for trace in found.values()) == len(PLAYED)


def test_what_vf_eval_wrote_is_imported_with_its_pixels_and_scores(run, tmp_path):
    found, _, episodes, _, out = run
    (saved,) = out.rglob("traces.jsonl")
    report = import_file(saved, "verifiers", tmp_path / "run")
    assert (report.kept, report.broken) == (len(found), {})
    imported = {episode.task.id: episode for episode in load(tmp_path / "run")}
    for name in PLAYED:
        ours, theirs = episodes[NUMBERS[name]], imported[ENV.tasks[NUMBERS[name]].id]
        shown = [[ImageRef.of(image.open()).hash for image in turn.images] for turn in theirs.turns]
        assert shown == [[image.hash for image in turn.images] for turn in ours.turns], name
        assert (theirs.scores, theirs.answer) == (ours.scores, ours.answer), name


def test_settings_and_the_place_of_tool_images_can_be_changed_at_run_time(package, tmp_path):
    env = Digits(**SETTINGS | {"max_turns": 6})
    with scripted.serve(scripts(env)) as server:
        changed = ["--env.tool-images", "user", "--env.taskset.settings", '{"max_turns": 6}']
        found = evaluate(package, server, tmp_path / "eval", *changed, "--env.agent.max-turns", "5")
    episodes, sent = play(env, "user")
    several, endless = NUMBERS["calls several tools at once"], NUMBERS["calls a tool on the last turn"]
    received = as_sent(server.requests[overview(env, several)])
    assert received == as_sent(sent[overview(env, several)])
    assert [one["role"] for one in received[-1][0]][-6:] == ["assistant", *["tool"] * 4, "user"]
    assert found[several]["rewards"]["total"]["score"] == episodes[several].scores.total
    # verifiers' own limit came first: it is named as ours would be, and what was said so far is scored
    assert len(server.requests[overview(env, endless)]) == 5
    assert found[endless]["info"]["viewbox"]["end_reason"] == found[endless]["stop_condition"] == "max_turns"
    assert found[endless]["rewards"]["total"]["score"] == 0.0


def test_the_pin_of_verifiers_has_not_moved_and_without_it_the_adapter_says_what_to_install():
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import message_to_wire, parse_message
    from verifiers.v1.harness import Harness, HarnessSession

    assert importlib.metadata.version("verifiers").split(".")[:2] == ["0", "4"]
    handed = ["ctx", "trace", "runtime", "endpoint", "secret", "mcp_urls", "data", "tool_interception_url"]
    for function, names in (
        (Harness.session, handed), (HarnessSession.__init__, ["harness", *handed]), (HarnessSession._run, ["messages"]),
    ):  # fmt: skip
        assert list(inspect.signature(function).parameters) == ["self", *names]
    assert issubclass(vf.SingleAgentEnv, vf.Env)
    assert {"info", "state", "stop_condition", "calls", "errors"} <= set(vf.Trace.model_fields)
    for message in to_openai_messages(ENV.reset(ENV.tasks[0], seed=0).messages):
        assert message_to_wire(parse_message(message)) == message
    code = (
        "import viewbox, viewbox.cli, viewbox.envs.digits, viewbox.publish, sys; print('verifiers' in sys.modules)\n"
        "from importlib import metadata; whole = metadata.version\n"
        "metadata.version = lambda name: whole('no-verifiers' if name == 'verifiers' else name)\n"
        "import viewbox.integrations.verifiers"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n"
    assert "ConfigError: verifiers 0.4 is needed: pip install 'verifiers>=0.4,<0.5'" in done.stderr


def test_an_environment_that_breaks_leaves_a_named_end_in_the_trace():
    from viewbox.integrations import verifiers as adapter

    data = adapter.ViewboxData(environment="digits", settings={"num_tasks": 3}, number=7)
    interaction = type("Interaction", (), {"trace": adapter.vf.Trace.model_construct(id="ab" * 16, info={})})()
    config = adapter.vf.AgentConfig(sampling=adapter.vf.SamplingConfig())
    interaction.trace.agent = type("Agent", (), {"config": config})
    with pytest.raises(IndexError):
        asyncio.run(adapter._play(data, interaction, "tool"))
    assert interaction.trace.info["viewbox"]["end_reason"] == "error"
    assert interaction.trace.info["viewbox"]["info"]["error"] == "IndexError: task 7 of 3"


def test_data_do_not_follow_a_redirect_of_the_endpoint():
    import aiohttp

    from viewbox.integrations.verifiers import ViewboxHarness, ViewboxHarnessConfig, ViewboxSession

    async def ask(endpoint):
        harness = ViewboxHarness(ViewboxHarnessConfig())
        ctx, trace = SimpleNamespace(model="m"), SimpleNamespace(state=SimpleNamespace(tools=[]))
        session = ViewboxSession.__new__(ViewboxSession)
        vars(session).update(harness=harness, ctx=ctx, trace=trace, endpoint=endpoint, secret="s", messages=[])
        async with aiohttp.ClientSession() as session.http:
            return await session._ask(harness.config)

    with serve(make_script(make_completion("ok"))) as other:
        moved = make_response(307, {}, Location=f"{other.url}/chat/completions")
        with serve(make_script(moved)) as server:
            assert asyncio.run(ask(server.url)) == (None, "HTTP 307: {}")
    assert (len(server.requests), other.requests) == (1, [])
