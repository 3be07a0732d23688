"""Faults in one episode of many: it ends or goes on by the rules, and every other episode is what it is alone."""

import asyncio
import threading

import numpy as np
import pytest

from tests.support.loop_kit import TASK, Find, write_answer, write_call
from viewbox.images.ref import ImageRef
from viewbox.records import Task
from viewbox.rollouts.play import play_many
from viewbox.tools import ToolOutput

GATE = threading.Event()


@pytest.fixture(autouse=True)
def gate():
    """What hung calls wait for; it is opened when a test is over, so that no thread is left behind."""
    GATE.clear()
    yield
    GATE.set()


def raises(view) -> ToolOutput:
    """Raises."""
    raise RuntimeError("no")


def hangs(view) -> ToolOutput:
    """Hangs."""
    GATE.wait()
    return ToolOutput("late", view=view.zoom(4))


async def sleeps() -> str:
    """Hangs on the event loop."""
    await asyncio.Event().wait()
    return "late"


def floods() -> str:
    """Far too much text."""
    return "x" * 3_000_000


def breaks(view) -> ToolOutput:
    """A broken image."""
    return ToolOutput("here", image=np.zeros((3, 0), np.uint8))


FAULTS = (raises, hangs, sleeps, floods, breaks)


class Faulty(Find):
    tools = (*FAULTS, "zoom", "reset")
    tool_timeout = 1.0


SCRIPTS = {
    **{one.__name__: [write_call(one.__name__), write_call(factor=2), write_answer()] for one in FAULTS},
    "fifty": ["".join([write_call("reset"), write_call("raises")] * 25), write_answer()],
    "megabytes": ["{" * 3_000_000, write_answer()],
    "malformed": ["hm"] * 5,
    "idle": [write_answer(**{"continue": True})] * 4,
    "good": [write_call(factor=2), write_answer()],
}
END = {
    "raises": "error", "hangs": "error", "sleeps": "error", "breaks": "error", "malformed": "malformed",
    "fifty": "error",
}  # fmt: skip
TASKS = [Task(f"{name}-{i}", TASK.images, TASK.prompt, TASK.reference) for i in range(3) for name in SCRIPTS]


class Scripted(Faulty):
    """Says the task's name in the question, so that a policy knows its script."""

    def user_message(self, task):
        return task.id


def policy(messages):
    replies = SCRIPTS[messages[1].text.partition("-")[0]]
    return replies[sum(message.role == "assistant" for message in messages)]


def together(tasks, **settings):
    async def run():
        return [episode async for episode in play_many(Scripted(), tasks, policy, **settings)]

    return {episode.task.id: episode for episode in asyncio.run(run())}


def test_a_tool_that_fails_ends_its_own_episode_and_no_other():
    ends = {name: episode.end_reason for name, episode in together(TASKS, concurrency=16).items()}
    assert ends == {task.id: END.get(task.id.partition("-")[0], "answered") for task in TASKS}


def test_every_episode_is_what_it_is_alone():
    tasks = TASKS[: len(SCRIPTS)]
    many = together(tasks, concurrency=len(tasks))
    for task in tasks:
        if many[task.id].is_fault:
            continue
        beside = many[task.id]
        alone = Scripted().play(task, policy, seed=beside.run_config.seed)
        assert (alone.turns, alone.answer, alone.flags) == (beside.turns, beside.answer, beside.flags)


def test_a_cancelled_episode_leaves_the_others_and_no_task_behind():
    env = Scripted(tool_timeout=None)
    hung = [task for task in TASKS if task.id.startswith(("hangs", "sleeps"))]
    good = [task for task in TASKS if task.id.startswith(("good", "floods"))]

    async def run():
        before = asyncio.all_tasks()
        stuck = [asyncio.create_task(env.play_async(task, policy)) for task in hung]
        others = [asyncio.create_task(env.play_async(task, policy)) for task in good]
        await asyncio.sleep(0.05)
        for one in stuck:
            one.cancel()
        ended = await asyncio.wait_for(asyncio.gather(*others), 30)
        broken = await asyncio.wait_for(asyncio.gather(*stuck, return_exceptions=True), 30)
        return ended, broken, asyncio.all_tasks() - before

    ended, broken, left = asyncio.run(run())
    assert {episode.end_reason for episode in ended} == {"answered"}
    assert {type(error) for error in broken} == {asyncio.CancelledError}
    assert left == set()


def test_an_episode_over_its_time_limit_ends_as_timeout_though_its_tool_hangs():
    tasks = [task for task in TASKS if task.id in ("hangs-0", "sleeps-0", "good-0", "floods-0")]

    async def run():
        env = Scripted(tool_timeout=None)
        return [episode async for episode in play_many(env, tasks, policy, timeout=2.0)]

    ends = {episode.task.id: episode.end_reason for episode in asyncio.run(run())}
    assert ends == {"hangs-0": "timeout", "sleeps-0": "timeout", "good-0": "answered", "floods-0": "answered"}


def test_a_task_that_cannot_be_opened_is_an_error_of_its_own_episode():
    missing = Task("good-missing", (ImageRef("0", 1, 1, uri="nowhere.png"),), TASK.prompt)
    episodes = together([missing, *TASKS[-2:]])
    assert episodes["good-missing"].end_reason == "error"
    assert "nowhere.png" in episodes["good-missing"].info["error"]
    assert {episodes[task.id].end_reason for task in TASKS[-2:]} == {"answered"}
