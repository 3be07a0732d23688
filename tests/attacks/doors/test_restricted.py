"""Data of a restricted environment, sent in every way there is: nothing of it arrives at another machine.

0.0.0.0, and a name that resolves to 127.0.0.1, stand for another machine: what is sent there arrives at a server here.
Each way is also tried with an environment that is not restricted, to show that its data do arrive.
"""

import asyncio
import functools
import json
import os
import re
import socket
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import yaml
from msgspec.structs import replace

from tests.support.saved_episodes import written
from tests.support.servers import make_completion, serve
from tests.support.tables import each
from tests.support.verifiers_command import run_command
from viewbox.configs.sections import LogSection
from viewbox.engines.generator import Conversation
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.envs import make
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError, ToolFault
from viewbox.network.data_policy import check_may_leave, check_sending, guard_sending, keep_on_this_machine
from viewbox.publish import publish
from viewbox.publish.model import publish_model
from viewbox.records import Episode, Message, Reply, Task, ToolCall
from viewbox.registry import ENVIRONMENTS
from viewbox.rewards import BrierReward, CombinedReward, ExactMatchReward
from viewbox.rewards.declare import AnswerFunction, EpisodeFunction
from viewbox.rollouts.exchange.export import check_push, export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.judge.reward import JudgeReward
from viewbox.rollouts.play import play_many
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.saved_run import SavedRun
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.tools import Tool
from viewbox.training.reporting import tracking
from viewbox.utils.frozen import FrozenDict


class Scans(Digits):
    name = "scans"
    restricted = True


class Free(Digits):
    name = "free"


ENV = Digits()
RIGHT = viewer.write_answer(ENV, ENV.tasks[0])
VERDICT = make_completion('{"score": 1}')
BOTH = each("cls", [Scans, Free])


@pytest.fixture
def elsewhere(monkeypatch):
    """A server whose `url` is that of another machine; it replies with an answer that is a verdict, too."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host, *args, **kwargs):
        given = host.decode() if isinstance(host, bytes) else host
        return resolve("127.0.0.1" if str(given).endswith(("evil.com", "example")) else host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    reply = {**json.loads(RIGHT), "score": 1}
    said = make_completion(json.dumps(reply))
    with serve(lambda body, number: VERDICT if "judge" in body["model"] else said) as server:
        server.away = server.url.replace("127.0.0.1", "0.0.0.0")
        yield server


def judge(elsewhere, **more):
    return JudgeReward("label", endpoint=elsewhere.away, model="judge", attempts=1, **more)


def arrives(server, cls):
    """What has to hold for what the server received since: nothing of a restricted environment."""
    assert bool(server.requests) == (not cls.restricted)
    assert not (cls.restricted and server.connections)
    server.requests.clear(), server.connections.clear()


def play(env, policy, many=True):
    async def run():
        return [episode async for episode in play_many(env, env.tasks[:1], policy)]

    return asyncio.run(run()) if many else env.play(env.tasks[0], policy)


def attempt(function, *args, **kwargs):
    """Whether the function raised a `ConfigError` about restricted data; nothing else may be raised."""
    try:
        function(*args, **kwargs)
    except ConfigError as error:
        if "its data is restricted to this machine" not in str(error):
            raise
        return True
    return False


# ---------------------------------------------------------------------- the endpoint of a rollout
SPELLINGS = [  # how a URL is read is in test_hosts.py
    "http://0.0.0.0:{port}/v1", "http://localhost.evil.com:{port}/v1", "http://127.0.0.1@evil.com:{port}/v1",
]  # fmt: skip


@pytest.fixture
def hospital(tmp_path, monkeypatch):
    """Modules `hospital` and `open_house`, each with the class `Env`."""
    for name, cls in (("hospital", "Scans"), ("open_house", "Free")):
        code = f"from viewbox.envs.digits import Digits\n\n\nclass Env(Digits):\n    restricted = {cls == 'Scans'}\n"
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("hospital", "open_house"):
        sys.modules.pop(name, None)


def test_a_rollout_sends_no_image_elsewhere_and_one_of_another_environment_does(viewbox, hospital, elsewhere):
    given = ("rollout", "--model", "m", "--tasks", 1, "--endpoint")
    for url in SPELLINGS:
        code, _, err = viewbox(*given, url.format(port=elsewhere.server_port), "--env", "hospital:Env")
        assert code == 2
        assert "restricted to this machine" in err or "allowed: http(s)://host" in err
        assert elsewhere.connections == []
    assert viewbox(*given, elsewhere.away, "--env", "open_house:Env")[0] == 0
    assert "data:image/png" in json.dumps(elsewhere.bodies)


@BOTH
def test_a_policy_that_asks_elsewhere_is_stopped(cls, elsewhere):
    async def policy(messages):
        generator = OpenAIGenerator(elsewhere.away, "m")
        try:
            return await generator.reply(Conversation(list(messages), (), 0, 0, reply_format="native"))
        finally:
            await generator.close()

    env = cls()
    assert attempt(env.play, env.tasks[0], policy) == cls.restricted
    arrives(elsewhere, cls)


# ---------------------------------------------------------------------- judges, wherever they hide
class Hides:
    name = "hides"

    def __init__(self, one):
        self.one = one

    def __call__(self, answer, reference):
        return self.one(answer, reference)

    of_it = __call__


JUDGES = {
    "alone": lambda one: one,
    "combined": lambda one: CombinedReward({"a": (one, 0.5), "b": (ExactMatchReward("label"), 0.5)}),
    "combined twice": lambda one: CombinedReward({"c": (CombinedReward({"a": (one, 1.0)}), 1.0)}),
    "with weight 0": lambda one: CombinedReward({"a": (one, 0.0), "b": (ExactMatchReward("label"), 1.0)}),
    "asked by brier": lambda one: BrierReward(of=one), "as a function": lambda one: AnswerFunction(one, "mine"),
    "its method": lambda one: AnswerFunction(one.__call__, "mine"),
    "in a closure": lambda one: lambda answer, reference: one(answer, reference),
    "in a partial": lambda one: functools.partial(lambda other, answer, reference: other(answer, reference), one),
    "in an object": lambda one: Hides(one), "in a method of an object": lambda one: Hides(one).of_it,
    "of an episode": lambda one: EpisodeFunction(lambda episode: one(episode.answer, episode.task.reference), "whole"),
    "in a lambda in brier": lambda one: BrierReward(of=AnswerFunction(lambda a, r: one(a, r), "b")),
    "in a wrapped function": lambda one: functools.wraps(len)(lambda answer, reference: one(answer, reference)),
}  # fmt: skip


def policy(messages):
    """Answers with a confidence, for those who read it."""
    return json.dumps({**json.loads(RIGHT), "confidence": 0.5})


@BOTH
@each("hide, many", [*((hide, True) for hide in JUDGES.values()), (JUDGES["in a closure"], False)])
def test_a_judge_elsewhere_is_not_asked(cls, hide, many, elsewhere):
    attempt(lambda: play(cls(reward=hide(judge(elsewhere))), policy, many))
    arrives(elsewhere, cls)


@BOTH
@each("hide", [JUDGES["combined"], JUDGES["of an episode"]])
def test_saved_episodes_are_not_sent_elsewhere(cls, hide, elsewhere, tmp_path, monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, cls.name, f"{__name__}:{cls.__name__}")
    monkeypatch.setattr("viewbox.rollouts.scoring.saved_run.make_environment", lambda name, *_, **__: cls())
    env = cls()
    written(tmp_path / "run", env.play(env.tasks[0], policy))
    attempt(score_run, tmp_path / "run", reward=hide(judge(elsewhere)))
    arrives(elsewhere, cls)


def test_an_episode_is_not_sent_because_the_config_names_another_environment(elsewhere, tmp_path, monkeypatch):
    monkeypatch.setattr(Digits, "restricted", True)
    env = Digits()
    written(tmp_path / "run" / "episodes", env.play(env.tasks[0], policy))
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({"env": {"name": "open_house:Env"}}))
    found = {"digits": Digits(reward=ExactMatchReward())}
    made = "viewbox.rollouts.scoring.saved_run.make_environment"
    monkeypatch.setattr(made, lambda name, *_, **__: found.get(name) or Free())
    assert attempt(score_run, tmp_path / "run", reward=judge(elsewhere))
    assert elsewhere.connections == []


def test_a_config_cannot_lift_the_restriction(viewbox, hospital, elsewhere):
    declared = (hospital / "hospital.py").read_text().replace("restricted =", "restricted: bool =")
    (hospital / "hospital.py").write_text(declared)
    given = ("rollout", "--model", "m", "--tasks", 1, "--endpoint", elsewhere.away, "--env", "hospital:Env")
    for more in ("env.restricted=false", "env={name: hospital:Env, restricted: false}"):
        assert viewbox(*given, more)[0] == 2
        assert elsewhere.connections == []


# ---------------------------------------------------------------------- runs as scripts and other tools leave them
CSV = "id,question,answer,kind\n1,What?,one,open\n"
ROWS = {"source": "rows.csv", "columns": {"question": "question", "answer": "answer"}}
MIXED = {"part": {"name": "vqa", "data": {**ROWS, "restricted": True}}, "digits": {}}
HELD_OUT = {"name": "vqa", "data": ROWS, "eval": {"data": {"restricted": True}}}
HELD_OUT_PART = {"digits": {"data": {"restricted": 1}}}
FREE = "env: {name: digits}\n"
# of a run whose data nothing but the config or its lines declares restricted
CONFIGS = [None, "", "log: {}\n", "- env\n", FREE, "env: {max_turns: 3}\n"]
MIXTURE = {"name": "mixture", "environments": MIXED}
DECLARED = [  # of a run of digits
    MIXTURE, {"name": "digits", "eval": {"data": {"restricted": True}}}, {"name": "digits", "eval": ["data"]},
    *({"environments": {"digits": {}}, "eval": {"environments": parts}} for parts in (HELD_OUT_PART, MIXED)),
]  # fmt: skip


def store(folder, *episodes, config=None):
    written(folder / "episodes", *episodes)
    if config is not None:
        (folder / "config.yaml").write_text(config if isinstance(config, str) else yaml.safe_dump({"env": config}))
    return folder


def list_refusals(run):
    """Which of the ways out of this machine are refused."""
    folder = run / "episodes"
    first = next(iter(load(folder)))
    ways = {
        "push": lambda: check_push(run, folder, "me/x"),
        "judge": lambda: SavedRun(run, folder).check_sending(first, "https://judge.example/v1"),
        "weights": lambda: publish_model(run, run.with_suffix(".out"), to="dir", id="m"),
    }
    refused = set()
    for name, way in ways.items():
        try:
            way()
        except ConfigError as error:
            refused |= {name} if re.search("(is|be) restricted", str(error)) else set()
    return refused


@pytest.fixture
def played(tmp_path, monkeypatch):
    """Episodes by how their data are declared, and one of each that no longer says it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(CSV)
    monkeypatch.setattr("viewbox.publish.model.find_weights", lambda path: (path, path))
    monkeypatch.setattr("viewbox.rollouts.exchange.export.import_hub", lambda extra: None)

    def play_first(env):
        return env.play(env.tasks[0], lambda messages: '{"answer": "one"}')

    free, restricted = (play_first(make("vqa", data={**ROWS, "restricted": one})) for one in (False, True))
    mixed = play_first(make("mixture", environments=MIXED))
    mute = replace(free, info={name: value for name, value in free.info.items() if name != "restricted"})
    digits, own, kept = map(play_first, (Digits(), Free(), Scans()))  # the last two are registered nowhere
    episodes = {"free": free, "restricted": restricted, "mixed": mixed, "mute": mute, "digits": digits, "own": own}
    return SimpleNamespace(**episodes, kept=kept, imported=Episode(Task("a")))


ALL = {"push", "judge", "weights"}


@each("config", CONFIGS)
def test_a_run_that_is_restricted_or_may_be_leaves_by_no_door(played, config, tmp_path):
    for name in ("restricted", "mixed", "mute", "kept", *(["imported"] if config != FREE else [])):
        assert list_refusals(store(tmp_path / name, getattr(played, name), config=config)) == ALL, name
    both = store(tmp_path / "both", played.free, played.digits, config=config)
    written(both / "episodes", played.restricted)  # another writer, later
    assert list_refusals(both) >= {"push", "weights"}
    for name in ("free", "digits", "own"):
        assert list_refusals(store(tmp_path / name, getattr(played, name), config=config)) == set(), name


def test_a_class_that_is_restricted_now_keeps_the_episodes_that_it_played_before(played, tmp_path, monkeypatch):
    run = store(tmp_path / "run", played.digits)
    assert list_refusals(run) == set()
    monkeypatch.setattr(Digits, "restricted", True)
    assert list_refusals(run) == ALL


@each("section", DECLARED)
def test_what_any_part_of_a_config_declares_counts(played, section, tmp_path):
    assert list_refusals(store(tmp_path / "run", played.digits, config=section)) == ALL


@each("form", ["openai", "inspect", "parquet"])
def test_a_run_that_is_exported_and_imported_says_the_same(played, form, tmp_path):
    for name, expected in (("restricted", ALL), ("free", set()), ("mute", ALL)):
        run = store(tmp_path / name, getattr(played, name), config={"name": "vqa", "data": {"source": "rows.csv"}})
        export_run(run, form, tmp_path / f"{name}.{form}")
        import_file(tmp_path / f"{name}.{form}", form, tmp_path / f"{name}-again")
        assert list_refusals(tmp_path / f"{name}-again") == expected, name


def test_what_cannot_be_stored_or_was_held_out_says_it_too(played, tmp_path):
    run = store(tmp_path / "run", config={"name": "digits"})
    with EpisodeWriter(run / "episodes") as writer:
        writer.append_or_error(replace(played.restricted, answer={"a": object()}))
    assert list_refusals(run) == ALL
    run = store(tmp_path / "held", played.free, config={"name": "vqa"})
    store(run / "held_out" / "4", played.restricted)
    os.rename(run / "held_out" / "4" / "episodes", run / "held_out" / "5")
    assert list_refusals(run) >= {"push", "weights"}


# ---------------------------------------------------------------------- tools and simulated users that ask a model
def ask(elsewhere, text):
    async def reply():
        generator = OpenAIGenerator(elsewhere.away, "m")
        try:
            messages = [Message("user", (text,))]
            return (await generator.reply(Conversation(messages, (), 0, 0, reply_format="native"))).text
        finally:
            await generator.close()

    return reply()


def make_asking(cls, elsewhere):
    """Environments of which one part asks elsewhere."""

    class Asks(cls):
        async def on_answer(self, state, answer):
            return await ask(elsewhere, f"The answer is {answer}.")

    class Blocks(cls):
        def on_answer(self, state, answer):
            return judge(elsewhere).explain(answer, {"label": "one"})

    class Checks(cls):
        def validate_answer(self, answer, task):
            return judge(elsewhere).explain(answer, {"label": "one"}) and None

    def second_opinion(question: str) -> str:
        """Ask a colleague."""
        return asyncio.run(ask(elsewhere, question))

    async def ask_second(question: str) -> str:
        """Ask a colleague."""
        return await ask(elsewhere, question)

    tools = (second_opinion, Tool.from_function(ask_second, name="second_opinion"))
    asking = (Asks, Blocks, Checks, *(functools.partial(cls, tools=[tool]) for tool in tools))
    return dict(zip(ASKING, asking, strict=True))


ASKING = ("a user", "a blocking user", "a check", "a tool", "an async tool")


@BOTH
@each("part, many", [*((part, True) for part in ASKING), ("a tool", False)])
def test_no_other_part_of_an_environment_sends_elsewhere(cls, part, many, elsewhere, caplog):
    env = make_asking(cls, elsewhere)[part](on_tool_fault="end")
    call = Reply("", (ToolCall("a", "second_opinion", FrozenDict({"question": "?"})),), "tool_calls")
    said = iter([*([call] if "tool" in part else []), *[RIGHT] * 9])
    caplog.clear()
    if cls.restricted and part == "a tool" and not many:  # the fault names the type; the log has the reason
        with pytest.raises(ToolFault, match=r"^second_opinion failed \(ConfigError\)$"):
            env.play(env.tasks[0], lambda messages: next(said))
        assert "its data is restricted to this machine" in caplog.text
    else:
        attempt(play, env, lambda messages: next(said), many)
    arrives(elsewhere, cls)


# ---------------------------------------------------------------------- verifiers
TASKSET = """
from viewbox.integrations.verifiers import ViewboxEnv, ViewboxHarness, ViewboxTaskset


class WardTaskset(ViewboxTaskset):
    environment = "{module}:Env"
    settings = {{"num_tasks": 1}}


__all__ = ["WardTaskset", "ViewboxEnv", "ViewboxHarness"]
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["hospital", "open_house"])
def test_verifiers_sends_no_image_elsewhere(monkeypatch, hospital, elsewhere, module):
    pytest.importorskip("verifiers")
    name = f"ward_{module}"
    (hospital / f"{name}.py").write_text(TASKSET.format(module=module))
    push = [] if module == "hospital" else ["--no-push"]  # it is on by default
    given = [name.replace("_", "-"), "--model", "m", "--client.base-url", elsewhere.away, "--no-rich", "-n", "1", *push]
    monkeypatch.delenv("PRIME_RUNS_MODE", raising=False)  # the adapter sets it
    run_command("vf-eval", *given, "-o", hospital / "out", path=hospital, cwd=hospital)
    (saved,) = (hospital / "out").rglob("traces.jsonl")
    if module == "hospital":
        assert os.environ["PRIME_RUNS_MODE"] == "disabled"
        assert elsewhere.connections == []
        assert "verifiers sends its images to http://0.0.0.0" in saved.read_text()
    else:
        assert "data:image/png" in json.dumps(elsewhere.bodies)


@pytest.mark.slow
def test_verifiers_sends_no_image_into_a_remote_runtime():
    pytest.importorskip("verifiers")
    from viewbox.integrations.verifiers import check_agent, vf

    here = vf.EvalClientConfig(base_url="http://127.0.0.1:1/v1")
    check_agent(Scans(), vf.AgentConfig(client=here, runtime=vf.SubprocessConfig()))
    check_agent(Free(), vf.AgentConfig(client=here))
    for agent in (
        vf.AgentConfig(client=here),
        vf.AgentConfig(client=vf.EvalClientConfig(), runtime=vf.SubprocessConfig()),
        vf.AgentConfig(client=vf.TrainClientConfig(base_url="http://0.0.0.0:1"), runtime=vf.SubprocessConfig()),
    ):
        with pytest.raises(ConfigError, match="restricted to this machine"):
            check_agent(Scans(), agent)


# ---------------------------------------------------------------------- trackers, the hub, packages
def make_arguments(**given):
    return SimpleNamespace(**{"push_to_hub": False, **given})


@each("arguments, log, variables", [
    ({"push_to_hub": True}, {}, {}), ({}, {"report_to": ["wandb"], "send_images": True}, {}),
    ({}, {"report_to": ["wandb"]}, {"WANDB_LOG_MODEL": "checkpoint"}),
    ({}, {"report_to": ["mlflow"]}, {"HF_MLFLOW_LOG_ARTIFACTS": "1"}), ({}, {"report_to": ["clearml"]}, {}),
    ({}, {"report_to": ["tensorboard", "dvclive"]}, {"HF_DVCLIVE_LOG_MODEL": "True"}),
])  # fmt: skip
def test_training_uploads_figures_only(arguments, log, variables):
    with mock.patch.dict(os.environ, variables):
        assert attempt(tracking.check_uploads, LogSection(**log), Scans(), make_arguments(**arguments))
        tracking.check_uploads(LogSection(**log), Free(), make_arguments(**arguments))


def test_what_is_held_out_or_learned_from_counts_as_what_is_trained_on(tmp_path):
    kept = store(tmp_path / "kept", Scans().play(Scans().tasks[0], lambda messages: RIGHT))
    free = store(tmp_path / "free", ENV.play(ENV.tasks[0], lambda messages: RIGHT))
    for saved, envs, expected in (
        (None, (Free(), Free()), [False, False]), (None, (Free(), Scans()), [False, True]),
        (free, (Free(), Free()), [False, False]), (kept, (Free(), Free()), [False, False, True]),
        (free / "no such", (Free(),), [False]),
    ):  # fmt: skip
        config = SimpleNamespace(train=SimpleNamespace(episodes=saved and str(saved)))
        found = tracking.list_sources(config, *envs)
        assert [bool(source.restricted) for source in found] == expected
        given = make_arguments(push_to_hub=True)
        refused = [attempt(tracking.check_uploads, LogSection(), one, given) for one in found]
        assert refused == expected


def test_figures_may_be_tracked_but_not_what_is_printed(monkeypatch):
    monkeypatch.setenv("WANDB_CONSOLE", "auto")
    tracking.check_uploads(LogSection(report_to=["wandb"]), Free(), make_arguments())
    assert os.environ["WANDB_CONSOLE"] == "auto"
    tracking.check_uploads(LogSection(report_to=["wandb"]), Scans(), make_arguments())
    assert os.environ["WANDB_CONSOLE"] == "off"


def test_the_command_to_train_says_so_before_anything_is_loaded(viewbox, hospital):
    (hospital / "rows.csv").write_text(CSV)
    raw = {"model": {"name": "package:tiny_viewer"}, "env": HELD_OUT, "train": {"push_to_hub": True}}
    (hospital / "run.yaml").write_text(yaml.safe_dump(raw))
    given = ("rollout.max_completion_tokens=2000", "train.use_cpu=true", "train.bf16=false")
    code, _, err = viewbox("train", "run.yaml", "--dry-run", *given)
    assert (code, "its data is restricted to this machine" in err) == (2, True)


def test_it_is_not_published(hospital):
    assert attempt(publish, "hospital:Env", hospital / "out")
    assert attempt(publish, "hospital:Env", hospital / "out", dry_run=True)
    (hospital / "rows.csv").write_text(CSV)
    for section in (HELD_OUT, {**HELD_OUT, "data": {**ROWS, "restricted": True}}, MIXTURE):
        (hospital / "study.yaml").write_text(yaml.safe_dump({"model": {"name": "m"}, "env": section}))
        assert attempt(publish, "study.yaml", hospital / "out")
    assert not (hospital / "out").exists()


# ---------------------------------------------------------------------- the check itself
def test_whatever_is_true_restricts_and_what_is_not_clearly_here_is_elsewhere(monkeypatch):
    for to in ("W&B", "", "localhost", "http://localhost@evil.com", "http://localhost.evil.com", "?"):
        with pytest.raises(ConfigError):
            check_may_leave(Scans(), to, action="sent to", allowed="nothing")
    for value in (1, "yes", object()):
        monkeypatch.setattr(Scans, "restricted", value)
        with pytest.raises(ConfigError):
            check_may_leave(Scans(), "https://evil.com", action="sent to", allowed="nothing")


def test_blocks_add_up_and_end():
    seen = []
    check_sending("https://evil.com")
    with keep_on_this_machine(Scans()):
        with keep_on_this_machine(Free()), guard_sending(seen.append), pytest.raises(ConfigError):
            check_sending("https://evil.com")
        with pytest.raises(ConfigError):
            check_sending("https://evil.com")
        check_sending("http://localhost")
    check_sending("https://evil.com")
    assert seen == ["https://evil.com"]
