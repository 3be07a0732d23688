"""Episodes that hang end at their time limit, and nothing is left behind when the caller stops reading."""

import asyncio
import contextlib
import itertools
import signal
import threading

import pytest

from tests.support.digits_play import ENV, Says, script, tasks
from tests.support.tables import each
from viewbox import ToolOutput, View, play_many
from viewbox.core.messages import write_call
from viewbox.envs.digits import Digits, viewer


async def forever(*_):
    await asyncio.sleep(3600)


def block(*_):
    GATE.wait(3600)


GATE = threading.Event()  # what hangs in a thread hangs on this; set when the tests are over


@pytest.fixture(scope="module", autouse=True)
def _no_thread_hangs_on():
    yield
    GATE.set()


async def ask(question: str) -> str:
    """Never answers."""
    await forever()


def wait(question: str) -> str:
    """Never answers, in a thread."""
    block()


def stare(view: View) -> ToolOutput:
    """Never sees anything."""
    block()


QUESTION = {"question": "?"}
CALL = {name: write_call(name, given) for name, given in (("ask", QUESTION), ("wait", QUESTION), ("stare", {}))}


class Hangs(Digits):
    """Hangs on the task with index 1, wherever `where` says; in a tool where that is the name of one."""

    tools = (*Digits.tools, ask, wait, stare)
    where: str = "reset"

    def _hangs(self, where, task):
        return self.where == where and task.id == ENV.tasks[1].id

    def reset(self, task, *, seed):
        if self._hangs("reset", task):
            block()
        return super().reset(task, seed=seed)

    def on_answer(self, state, answer):
        return forever() if self._hangs("on_answer", state.task) else None


def hanging(where):
    """A generator whose episode 1 hangs at `where`, and its environment."""
    env = Hangs(where=where)

    def said(conversation):
        if conversation.index == 1 and where == "reply":
            return 3600.0
        if conversation.index == 1 and where in CALL:
            return CALL[where]
        return viewer.write_answer(env, conversation.task)

    return env, Says(said)


PLACES = ("reset", "reply", "ask", "wait", "stare", "on_answer")


@each("where", [*PLACES])
def test_the_time_limit_ends_an_episode_wherever_it_hangs(play, where):
    env, generator = hanging(where)
    episodes = play(env, tasks(4), generator, concurrency=2, timeout=1.5)
    assert [episode.end_reason for episode in episodes] == ["answered", "timeout", "answered", "answered"]
    assert (episodes[1].truncated, episodes[1].terminated) == (True, False)
    assert episodes[1].num_turns == (where not in ("reset", "reply"))  # what was played is kept
    assert generator.inside == 0


def test_every_episode_has_the_whole_time_limit_however_late_it_begins(play):
    generator = Says(lambda c: 0.5 if len(c.messages) == 2 else viewer.write_answer(ENV, c.task))
    episodes = play(ENV, tasks(4), generator, concurrency=1, timeout=1.9)  # 2 seconds in all
    assert {episode.end_reason for episode in episodes} == {"answered"}


async def listen(env, generator, found):
    async for episode in play_many(env, tasks(6), generator, concurrency=4):
        found.append(episode)


async def listen_to_five(env, generator, found):
    """A listener that has heard all episodes but the one that hangs."""
    listener = asyncio.create_task(listen(env, generator, found))
    while len(found) < 5:
        await asyncio.sleep(0.001)
    return listener


@each("where", [*PLACES])
def test_cancelling_the_listener_or_closing_the_iterator_leaves_no_task_and_no_conversation_behind(where):
    found = []

    async def stopped(env, generator):
        listener = await listen_to_five(env, generator, found)
        listener.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listener
        return asyncio.all_tasks() - {asyncio.current_task()}  # at once: nothing is left to itself

    async def closed(env, generator):
        async with contextlib.aclosing(play_many(env, tasks(6), generator, concurrency=4)) as episodes:
            await anext(episodes)
        return asyncio.all_tasks() - {asyncio.current_task()}

    for end in (stopped, closed):
        env, generator = hanging(where)
        assert not asyncio.run(end(env, generator))
        assert generator.inside == 0
    assert {episode.end_reason for episode in found} == {"answered"}


def test_ctrl_c_ends_the_run_and_leaves_no_conversation_behind():
    env, generator = hanging("reply")
    found = []

    async def interrupted():
        listener = await listen_to_five(env, generator, found)
        signal.raise_signal(signal.SIGINT)
        await listener

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(interrupted())
    assert len(found) == 5
    assert generator.inside == 0


def test_a_policy_that_swallows_a_cancellation_does_not_play_on():
    asked = []

    async def stubborn(messages):
        asked.append(len(messages))
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        return script(messages)

    async def closed():
        episodes = play_many(ENV, tasks(9), stubborn, concurrency=3)
        taken = asyncio.ensure_future(anext(episodes))
        while len(asked) < 3:
            await asyncio.sleep(0)
        taken.cancel()
        await asyncio.gather(taken, return_exceptions=True)
        await episodes.aclose()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert not asyncio.run(closed())
    assert max(asked) <= 4  # it goes on for a step, until it is cancelled once more
    assert asked.count(2) == 3  # and no other episode begins


def test_a_slow_reader_bounds_the_tasks_that_are_drawn_and_what_is_finished_and_waiting():
    generator, drawn = Says(), itertools.count()

    async def read():
        rows = (ENV.tasks[number] for number in drawn)
        async with contextlib.aclosing(play_many(ENV, rows, generator, concurrency=3)) as episodes:
            for _ in range(4):
                await anext(episodes)
                for _ in range(50):  # time to play many more
                    await asyncio.sleep(0.001)

    asyncio.run(read())
    most = 4 + 2 * 3 + 2 * 3  # the queue, what waits to get into it, and what is being played
    assert generator.joined <= next(drawn) <= most
