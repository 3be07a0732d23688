"""Faults put into one of many episodes in flight: it ends or goes on by the rules, the others never notice.

Of every other episode the record and all that its policy was shown are byte for byte those of a run without the fault.
"""

import asyncio
import json
import random
import sys
import threading
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel

from tests.support.replies import call
from tests.support.tables import each
from viewbox import BaseMultiTurnEnv, ExactMatchReward, ImageRef, Reply, RunConfig, Task, ToolError, View, play_many
from viewbox.core.messages import to_openai_messages
from viewbox.core.tasks import ProceduralTasks
from viewbox.envs.digits import Digits
from viewbox.integrations.session import EpisodeSession
from viewbox.tools import Picture, Tool, ToolOutput
from viewbox.utils.concurrency import ForeignError

COUNT, FAULTY = 16, 7  # episodes in flight, and which of them has the fault
LIMIT = 4.0  # seconds a tool may take where one hangs: time enough for the others, however busy the machine is
MB = 1_000_000
OVER = threading.Event()  # what hangs in a thread hangs on this


@pytest.fixture(scope="module", autouse=True)
def _no_thread_hangs_on():
    yield
    OVER.set()


# ---- tools, good and bad
async def search(query: str) -> str:
    """Finds things in no fixed time."""
    await asyncio.sleep(random.random() / 100)
    return f"nothing is known of {query}"


def mean(image: Picture) -> dict:
    """The mean gray value of a picture, in no fixed time."""
    OVER.wait(random.random() / 100)
    return {"mean": float(image.to_gray().mean())}


def enumerate_all(query: str) -> dict:
    """Finds 100 MB of numbers."""
    return {"numbers": np.zeros(100 * MB // 8)}


def fail(error):
    raise error


def on_view(name, work):
    def tool(view: View) -> ToolOutput:
        return work()

    return Tool.from_function(tool, name, "Works on the view.")


def in_thread(name, work):
    def tool(query: str) -> ToolOutput:
        return work()

    return Tool.from_function(tool, name, "Works in a thread.")


def awaited(name, work):
    async def tool(query: str) -> str:
        found = work()
        return await found if asyncio.iscoroutine(found) else found

    return Tool.from_function(tool, name, "Works while it is awaited.")


BAD = (
    # raise, and want to end the program
    on_view("trip", lambda: fail(KeyError("no such row"))), in_thread("fall", lambda: fail(KeyError("no such row"))),
    on_view("leave", lambda: sys.exit(3)), awaited("cancel", lambda: fail(asyncio.CancelledError())),
    # hang
    on_view("stare", OVER.wait), awaited("muse", lambda: asyncio.sleep(3600)),
    # say 100 MB
    on_view("shout", lambda: ToolOutput("x" * (100 * MB))),
    in_thread("complain", lambda: fail(ToolError("x" * (100 * MB)))),
    # give a picture of no pixels, and a path for one
    on_view("smear", lambda: ToolOutput("smeared", image=np.zeros((0, 5), np.uint8))),
    in_thread("point_to", lambda: ToolOutput("there", image="/etc/hostname")),
)  # fmt: skip
OWN = {tool.name: tool for tool in (*map(Tool.from_function, (search, mean, enumerate_all)), *BAD)}


def bad(name):
    return call(name, **({} if OWN[name].stateful else {"query": "x"}))


def answer(label="left", **fields):
    return json.dumps({"label": label, **fields})


# ---- the environment, its faults, and a run
class Finding(BaseModel):
    label: str


class Ward(BaseMultiTurnEnv):
    """Has the fault named `fault` on one task alone."""

    name = "ward"
    answer: ClassVar = Finding
    tools = ("zoom", "invert", "reset", *OWN.values())
    tool_timeout: float | None = 60.0
    fault: str = ""

    def _fault(self, where, task):
        if self.fault == where and task.id == str(FAULTY):
            raise KeyError("no such row")

    def default_reward(self):
        return Half()

    def system_prompt(self, task):
        return self._fault("system_prompt", task) or super().system_prompt(task)

    def user_message(self, task):
        return self._fault("user_message", task) or super().user_message(task)

    def images(self, task):
        return self._fault("images", task) or super().images(task)

    def hidden_arguments(self, task, tool):
        return self._fault("hidden_arguments", task) or {}

    def validate_answer(self, answer, task):
        return self._fault("validate_answer", task)

    def on_answer(self, state, answer):
        self._fault("on_answer", state.task)
        if state.task.id == str(FAULTY) and self.fault in USERS:
            return USERS[self.fault]()
        return "Are you sure?" if answer["label"] == "?" else None


async def fails_later():
    raise KeyError("no such row")


async def waits_for_something_cancelled():
    elsewhere = asyncio.get_running_loop().create_future()
    elsewhere.cancel()
    await elsewhere


USERS = {"later": fails_later, "cancelled": waits_for_something_cancelled, "says 3": lambda: 3}


class Half(ExactMatchReward):
    """Raises where the answer says so."""

    def __init__(self):
        super().__init__("label")

    def score(self, answer, reference, episode=None):
        if answer and answer["label"] == "raise":
            raise KeyError("no such row")
        return super().score(answer, reference, episode)


def picture(number):
    return Image.linear_gradient("L").resize((40 + number, 64))


TASKS = [Task(str(i), (ImageRef.of(picture(i)),), {"question": f"{i}?"}, {"label": "left"}) for i in range(COUNT)]
USUAL = (
    call("zoom", factor=2.0) + call("search", query="left") + call("mean", image="view_0") + call("invert"),
    "I think it is on the left.", call("zoom", factor=9.0), answer(**{"continue": True}), answer("?"), answer()
)  # fmt: skip


class Script:
    """Says the usual replies, but `said` in the faulty episode; keeps what each episode was shown."""

    run_config = RunConfig("script")

    def __init__(self, said=USUAL):
        self.said, self.shown, self.inside = said, {}, 0

    def join(self, conversation):
        self.inside += 1

    def leave(self, conversation):
        self.inside -= 1

    async def reply(self, conversation):
        await asyncio.sleep(random.random() / 200)
        self.shown[conversation.index] = json.dumps(to_openai_messages(conversation.messages))
        replies = self.said if conversation.index == FAULTY else USUAL
        said = sum(message.role == "assistant" for message in conversation.messages)
        return Reply(replies[said])

    async def close(self): ...


def run(env, script):
    """The episodes by index, all in flight at once."""

    async def gather():
        episodes = play_many(env, TASKS, script, concurrency=COUNT)
        found = {episode.info["index"]: episode async for episode in episodes}
        return found, asyncio.all_tasks() - {asyncio.current_task()}

    found, left = asyncio.run(gather())
    assert not left
    assert script.inside == 0
    return found


@pytest.fixture(scope="module")
def clean():
    """Every record and everything shown, of a run without a fault."""
    script = Script()
    episodes = run(Ward(), script)
    assert {episode.end_reason for episode in episodes.values()} == {"answered"}
    assert {episode.num_turns for episode in episodes.values()} == {len(USUAL)}
    return {index: episode.to_json() for index, episode in episodes.items()}, script.shown


@pytest.fixture
def faulty(clean):
    """Runs with the fault, holds every other episode against the clean run, and returns the faulty one."""

    def play(*said, fault="", **settings):
        script = Script((*said, answer()))
        episodes = run(Ward(fault=fault, **settings), script)
        records, shown = clean
        assert len(episodes) == COUNT
        for index in set(range(COUNT)) - {FAULTY}:
            assert episodes[index].to_json() == records[index]
            assert script.shown[index] == shown[index]
        return episodes[FAULTY]

    return play


def test_without_a_fault_two_runs_are_the_same_and_a_reward_that_raises_scores_nothing(faulty, clean):
    assert faulty(*USUAL).to_json() == clean[0][FAULTY]
    episode = faulty(answer("raise"))
    assert (episode.end_reason, episode.answer, episode.scores.total) == ("answered", {"label": "raise"}, 0.0)


# ---- a tool fails: that ends its episode as a fault
WRONG = {  # what a tool does: those that do
    "failed (KeyError)": ("trip", "fall"), "failed (SystemExit)": ("leave",), "failed (CancelledError)": ("cancel",),
    "took longer than 4 seconds": ("stare", "muse"), "returned an image that cannot be shown": ("smear",),
    "returned an image that cannot be shown (str is not an image)": ("point_to",),
}  # fmt: skip


@each("name, does", [(name, does) for does, names in WRONG.items() for name in names])
def test_a_tool_that_raises_ends_its_episode_as_a_fault_without_a_score(faulty, name, does):
    limit = {"tool_timeout": LIMIT} if "longer" in does else {}
    episode = faulty(bad(name) + call("search", query="left"), **limit)
    (told,) = [turn for turn in episode.turns if turn.role == "tool_result"]
    assert [result.success for result in told.tool_results] == [False, True]  # the call beside it is run
    assert told.tool_results[0].error.startswith(f"{name} {does}")
    assert (episode.end_reason, episode.is_fault, episode.scores.total) == ("error", True, None)
    assert f"ToolFault: {name} {does}" in episode.info["error"]


MEGABYTES = ["{" * (3 * MB), '{"a":' * 12_000, "<tool_call>{" * 5000, "[" * 60_000]


@each("said", [*map(bad, ("shout", "enumerate_all", "complain")), *MEGABYTES])
def test_megabytes_of_a_tool_are_cut_those_of_a_reply_malformed_and_the_episode_goes_on(faulty, said):
    episode = faulty(said)
    assert (episode.end_reason, episode.scores.total) == ("answered", 1.0)
    if said in MEGABYTES:
        assert episode.info["malformed"] == 1
        assert len(episode.turns[2].content) < 2000  # what it is told does not repeat them
    else:
        assert len(episode.turns[2].content) < 8000 + 200  # and the marks around it
        assert len(episode.to_json()) < 30_000


# ---- what the author wrote, and what the data holds
NO_ROW = "KeyError: 'no such row'"


@each("fault, turns, says", [
    # what raises, or what a user does that fails; the turns that are kept, and the error
    ("system_prompt", 0, NO_ROW), ("user_message", 0, NO_ROW), ("images", 0, NO_ROW), ("hidden_arguments", 1, NO_ROW),
    ("validate_answer", 2, NO_ROW), ("on_answer", 2, NO_ROW), ("later", 2, NO_ROW), ("says 3", 2, "on_answer"),
    ("cancelled", 2, "ForeignError: CancelledError: "),
])  # fmt: skip
def test_an_environment_that_raises_ends_that_episode_as_error_and_what_was_said_is_kept(faulty, fault, turns, says):
    episode = faulty(call("zoom", factor=2.0) if fault == "hidden_arguments" else "hm", fault=fault)
    assert (episode.end_reason, episode.num_turns) == ("error", turns)
    assert says in episode.info["error"]
    assert not turns or (episode.truncated, episode.scores.total) == (True, None)


# ---- an author's code that wants to end the process
ENV = Digits()


class Gone(BaseException):
    """No exception that an event loop expects."""


def absent(place, error):
    """An environment that raises in a part of the play."""

    async def step(*_):
        raise error

    env = Digits()
    vars(env)[place] = step if place == "step" else lambda *_, **__: fail(error)
    return env


def play_absent(place, error):
    """Play two tasks of an environment that raises where a task is made (`tasks`), or in a part of the play."""
    env = ENV if place == "tasks" else absent(place, error)

    def make(number):
        return fail(error) if number and place == "tasks" else ENV.make_drawn(number)

    async def run():
        answer, tasks = ENV.write_answer(ENV.make_drawn(0)), ProceduralTasks(2, make)
        async with asyncio.timeout(20):
            return [one async for one in play_many(env, tasks, lambda messages: answer, concurrency=2)]

    return asyncio.run(run())


ABSENT = [SystemExit(0), Gone(), asyncio.CancelledError(), GeneratorExit()]
PLACES = ("reset", "step", "on_answer", "score")


@each("place, error", [(place, error) for place in PLACES for error in ABSENT])
def test_whatever_an_environment_raises_in_a_play_ends_its_episode(place, error):
    episodes = play_absent(place, error)
    assert [one.end_reason for one in episodes] == ["error", "error"]
    assert all(f"ForeignError: {type(error).__name__}" in one.info["error"] for one in episodes)


def test_sys_exit_of_an_environment_ends_the_episode_of_every_adapter_and_that_of_a_reward_is_its_fault():
    session = EpisodeSession(absent("step", SystemExit(3)))
    session.open(session.env.tasks[0], seed=0)
    assert session.step("hm").end_reason == "error"
    assert "SystemExit: 3" in session.build_episode().info["error"]
    env = Digits(reward=lambda answer, reference: sys.exit(3))
    scores = env.play(env.tasks[0], lambda messages: env.write_answer(env.tasks[0])).scores
    assert (scores.total, ["SystemExit: 3" in reason for reason in scores.faults.values()]) == (None, [True])


@each("place, error", [(place, error) for place in ("tasks", "for_task") for error in ABSENT])
def test_whatever_an_environment_raises_for_a_task_ends_the_run_and_does_not_hold_it_up(place, error):
    with pytest.raises(ForeignError) as caught:
        play_absent(place, error)
    assert caught.value.__cause__ is error
