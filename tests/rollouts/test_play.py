"""Many episodes at once: each ends for its own reason, and none takes the others with it."""

import asyncio
import contextlib
import signal
import threading

import pytest
from PIL import Image

from viewbox.envs.digits import Digits, viewer
from viewbox.envs.tools import ToolOutput
from viewbox.errors import ModelError
from viewbox.images.ref import ImageRef
from viewbox.images.view import View
from viewbox.records import Reply, RunConfig, Task
from viewbox.rollouts.play import play_many, sample_seed
from viewbox.rollouts.scripted import ScriptedGenerator, ScriptedPolicy

ENV = Digits()


class Says:
    """A generator of text alone: `reply_to(conversation)` is the reply, an exception to raise, or seconds to sleep."""

    def __init__(self, reply_to=lambda conversation: viewer.write_answer(ENV, conversation.task)):
        self.reply_to, self.run_config = reply_to, RunConfig("says", temperature=0.5, max_tokens=99)
        self.inside, self.most, self.joined = 0, 0, 0

    def join(self, conversation):
        self.inside, self.joined = self.inside + 1, self.joined + 1
        self.most = max(self.most, self.inside)

    def leave(self, conversation):
        self.inside -= 1

    async def reply(self, conversation):
        await asyncio.sleep(0)
        said = self.reply_to(conversation)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, float):
            await asyncio.sleep(said)
        return Reply(str(said))

    async def close(self): ...


def tasks(count):
    return [ENV.tasks[i] for i in range(count)]


def test_every_episode_says_which_task_and_which_sample_it_is(play):
    episodes = play(ENV, tasks(3), Says(), group=2)
    assert [(e.info["index"], e.info["sample"]) for e in episodes] == [(i, k) for i in range(3) for k in range(2)]
    assert [e.task.id for e in episodes] == [task.id for task in tasks(3) for _ in range(2)]
    assert {e.end_reason for e in episodes} == {"answered"}
    assert all(e.scores.components["label"] == 1.0 for e in episodes)  # each got its own task's answer


def test_every_sample_has_its_own_recorded_seed_and_the_run_can_be_repeated(play):
    first, again, other = ([e.run_config for e in play(ENV, tasks(3), Says(), group=4, seed=s)] for s in (7, 7, 8))
    assert [config.seed for config in first] == [sample_seed(7, number) for number in range(12)]
    assert first == again
    assert len({config.seed for config in first + other}) == 24
    assert first[0] == RunConfig("says", 0.5, sample_seed(7, 0), max_tokens=99, max_turns=ENV.max_turns)


def test_more_tasks_than_places_all_finish_and_never_more_are_in_flight(play):
    generator = Says()
    assert len(play(ENV, tasks(20), generator, concurrency=3)) == 20
    assert (generator.most, generator.joined, generator.inside) == (3, 20, 0)


def test_no_tasks_is_no_episodes(play):
    assert play(ENV, [], Says()) == []


def test_tasks_are_drawn_only_as_places_become_free():
    drawn = []

    def endless():
        while True:
            drawn.append(ENV.tasks[len(drawn)])
            yield drawn[-1]

    async def first():
        episodes = play_many(ENV, endless(), Says(), concurrency=2)
        try:
            return await anext(episodes)
        finally:
            await episodes.aclose()

    assert asyncio.run(first()).end_reason == "answered"
    assert len(drawn) < 10


class Breaks(Digits):
    """An author's bug in one of the environment's methods, on the second task alone."""

    where = "validate_answer"

    def _maybe(self, place, task):
        if self.where == place and task.id == ENV.tasks[1].id:
            raise KeyError("no such row")

    def user_message(self, task):
        self._maybe("user_message", task)
        return super().user_message(task)

    def validate_answer(self, answer, task):
        self._maybe("validate_answer", task)


class BreaksAtOnce(Breaks):
    where = "user_message"


@pytest.mark.parametrize("env", [Breaks(), BreaksAtOnce()])
def test_an_environment_that_raises_ends_that_episode_and_the_rest_go_on(play, env):
    generator = Says()
    episodes = play(env, tasks(4), generator, concurrency=2)
    assert [episode.end_reason for episode in episodes] == ["answered", "error", "answered", "answered"]
    assert episodes[1].truncated
    assert not episodes[1].terminated
    assert episodes[1].info["error"] == "KeyError: 'no such row'"
    assert generator.inside == 0


class Photos(Digits):
    """Digits on the task's own photograph."""

    def images(self, task):
        return [ref.open() for ref in task.images]


def test_an_image_that_cannot_be_opened_ends_that_episode_and_the_rest_go_on(play, tmp_path):
    good = ImageRef.of(Image.new("L", (64, 64)))
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    gone = ImageRef("0" * 64, 64, 64, "L", uri=str(tmp_path / "gone.png"))
    broken = ImageRef("1" * 64, 64, 64, "L", uri=str(tmp_path / "broken.png"))
    rows = [Task(str(i), (ref,), reference=ENV.tasks[0].reference) for i, ref in enumerate([good, gone, broken, good])]
    episodes = play(Photos(), rows, Says())
    assert [episode.end_reason for episode in episodes] == ["answered", "error", "error", "answered"]
    for episode, name in zip(episodes[1:3], ("gone.png", "broken.png"), strict=True):
        assert episode.info["error"].startswith("ImageError: ")
        assert name in episode.info["error"]
        assert episode.tokens is None


def test_a_view_the_models_image_processor_refuses_ends_that_episode_and_the_rest_go_on(play, qwen3):
    env = Photos(tools=("crop",), max_turns=2)
    long = ImageRef.of(Image.new("L", (4000, 64)))
    rows = [Task(str(i), (long,), reference=ENV.tasks[0].reference) for i in range(4)]
    thin = '<tool_call>{"name": "crop", "arguments": {"box": [0, 0, 1000, 170]}}</tool_call>'

    def script(conversation):
        looks = conversation.task.id == "1" and len(conversation.messages) == 2
        return thin if looks else viewer.write_answer(env, conversation.task)

    episodes = play(env, rows, ScriptedGenerator(qwen3.tokens, script))
    assert [episode.end_reason for episode in episodes] == ["answered", "error", "answered", "answered"]
    assert "aspect ratio" in episodes[1].info["error"]
    assert len(episodes[1].tokens.images) == 1  # the record is as it was before that view


def test_an_episode_over_its_time_limit_ends_as_timeout_and_the_rest_go_on(play):
    generator = Says(lambda c: 30.0 if c.index == 1 else viewer.write_answer(ENV, c.task))
    episodes = play(ENV, tasks(4), generator, concurrency=2, timeout=0.3)
    assert [episode.end_reason for episode in episodes] == ["answered", "timeout", "answered", "answered"]
    assert episodes[1].truncated
    assert generator.inside == 0


def test_a_failure_of_the_generator_ends_the_run_and_is_raised(play):
    generator = Says(lambda c: ModelError("the endpoint is gone") if c.index == 2 else viewer.write_answer(ENV, c.task))
    with pytest.raises(ModelError, match="the endpoint is gone"):
        play(ENV, tasks(8), generator, concurrency=2)
    assert generator.inside == 0


def test_a_failure_inside_the_model_ends_the_run_and_is_raised(play, qwen3):
    model = qwen3.model()
    model.register_forward_pre_hook(lambda module, args: (_ for _ in ()).throw(RuntimeError("out of memory")))
    generator = qwen3.generator(model)
    with pytest.raises(RuntimeError, match="out of memory"):
        play(ENV, tasks(6), generator)
    assert generator.cache.num_used == 0


@pytest.mark.parametrize("after", [0, 1, 3])  # episodes taken before closing
def test_closing_early_leaves_no_task_behind_and_no_slot_taken(qwen3, after):
    generator = qwen3.generator(max_reply_tokens=3)

    async def some():
        episodes = play_many(ENV, tasks(9), generator, group=2, concurrency=4)
        taken = asyncio.ensure_future(anext(episodes))
        await asyncio.sleep(0)  # everything has begun
        found = [await taken] + [await anext(episodes) for _ in range(after - 1)] if after else []
        taken.cancel()
        await asyncio.gather(taken, return_exceptions=True)
        await episodes.aclose()
        for _ in range(5):  # the engine ends by itself
            await asyncio.sleep(0)
        return found, asyncio.all_tasks() - {asyncio.current_task()}

    found, left = asyncio.run(some())
    assert len(found) == after
    assert not left
    assert generator.cache.num_used == 0
    assert not generator.sequences
    assert not generator.running


def test_after_closing_early_the_same_generator_plays_as_a_new_one(qwen3, play):
    used, fresh = (qwen3.generator(max_reply_tokens=6) for _ in range(2))

    async def one():
        episodes = play_many(ENV, tasks(6), used, concurrency=4)
        await anext(episodes)
        await episodes.aclose()

    asyncio.run(one())
    before, after = (play(ENV, tasks(3), generator) for generator in (fresh, used))
    assert [e.tokens.completion_ids for e in before] == [e.tokens.completion_ids for e in after]


# ---- plain functions as policies


def script(messages):
    """Looks once, then answers; a plain function of the messages."""
    return LOOK if len(messages) == 2 else ANSWER


ANSWER = viewer.write_answer(ENV, ENV.tasks[0])
LOOK = '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>'


async def slow_script(messages):
    await asyncio.sleep(0.001)
    return script(messages)


class Asked:
    """An object that is called, as a policy."""

    async def __call__(self, messages):
        return Reply(script(messages))


@pytest.mark.parametrize("policy", [script, slow_script, Asked(), ScriptedPolicy([LOOK, ANSWER])])
def test_a_function_of_the_messages_plays_many_episodes(play, policy):
    episodes = play(ENV, tasks(3), policy, group=2)
    assert [(episode.end_reason, episode.num_turns) for episode in episodes] == [("answered", 2)] * 6
    assert episodes[0].run_config.model_name in ("script", "slow_script", "Asked", "ScriptedPolicy")


def test_a_policy_plays_the_same_episodes_in_the_driver_and_alone(play):
    (driven,) = play(ENV, tasks(1), script, seed=5)
    alone = ENV.play(tasks(1)[0], script, seed=sample_seed(5, 0))
    assert driven.turns == alone.turns
    assert driven.scores == alone.scores


def test_a_policy_that_raises_ends_the_run(play):
    with pytest.raises(IndexError, match="the script has 1 replies"):
        play(ENV, tasks(2), ScriptedPolicy([LOOK]))


def test_a_policy_whose_own_request_times_out_ends_the_run_instead_of_the_episode(play):
    def policy(messages):
        raise TimeoutError("the socket")

    with pytest.raises(TimeoutError, match="the socket"):
        play(ENV, tasks(2), policy, timeout=60.0)


def test_a_policy_that_waits_for_something_cancelled_ends_the_run(play):
    async def policy(messages):
        elsewhere = asyncio.get_running_loop().create_future()
        elsewhere.cancel()
        await elsewhere

    with pytest.raises(RuntimeError, match="a task that was awaited was cancelled"):
        play(ENV, tasks(2), policy)


def test_never_more_policies_are_asked_at_once_than_episodes_are_in_flight(play):
    inside, most = 0, 0

    async def policy(messages):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.002)
        inside -= 1
        return script(messages)

    play(ENV, tasks(12), policy, concurrency=5)
    assert most == 5


# ---- time limits


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


CALL = {name: f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>' for name, arguments in
        {"ask": '{"question": "?"}', "wait": '{"question": "?"}', "stare": "{}"}.items()}  # fmt: skip


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


@pytest.mark.parametrize("where", PLACES)
def test_the_time_limit_ends_an_episode_wherever_it_hangs(play, where):
    env, generator = hanging(where)
    episodes = play(env, tasks(4), generator, concurrency=2, timeout=0.3)
    assert [episode.end_reason for episode in episodes] == ["answered", "timeout", "answered", "answered"]
    assert (episodes[1].truncated, episodes[1].terminated) == (True, False)
    assert generator.inside == 0


def test_every_episode_has_the_whole_time_limit_however_late_it_begins(play):
    generator = Says(lambda c: 0.25 if len(c.messages) == 2 else viewer.write_answer(ENV, c.task))
    episodes = play(ENV, tasks(4), generator, concurrency=1, timeout=0.9)  # 1 second in all
    assert {episode.end_reason for episode in episodes} == {"answered"}


# ---- whoever stops listening leaves nothing behind


async def settled():
    """The tasks beside this one that are still there after a moment for what was cancelled to end."""
    for _ in range(100):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if not left:
            break
        await asyncio.sleep(0.01)
    return left


async def listen(env, generator, found, **settings):
    async for episode in play_many(env, tasks(6), generator, **{"concurrency": 4} | settings):
        found.append(episode)


@pytest.mark.parametrize("where", PLACES)
def test_cancelling_the_listener_leaves_no_task_and_no_conversation_behind(where):
    env, generator = hanging(where)
    found = []

    async def stopped():
        listener = asyncio.create_task(listen(env, generator, found))
        while len(found) < 5:  # all but the one that hangs
            await asyncio.sleep(0.001)
        listener.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listener
        return asyncio.all_tasks() - {asyncio.current_task()}  # at once: nothing is left to itself

    assert not asyncio.run(stopped())
    assert generator.inside == 0
    assert {episode.end_reason for episode in found} == {"answered"}


@pytest.mark.parametrize("where", PLACES)
def test_closing_the_iterator_leaves_no_task_and_no_conversation_behind(where):
    env, generator = hanging(where)

    async def closed():
        episodes = play_many(env, tasks(6), generator, concurrency=4)
        await anext(episodes)
        await episodes.aclose()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert not asyncio.run(closed())
    assert generator.inside == 0


def test_breaking_out_of_the_loop_leaves_no_task_and_no_conversation_behind():
    env, generator = hanging("reply")

    async def broken_off():
        async for _ in play_many(env, tasks(6), generator, concurrency=4):
            break
        return await settled()

    assert not asyncio.run(broken_off())
    assert generator.inside == 0


def test_an_error_in_the_listener_leaves_no_task_and_no_conversation_behind():
    env, generator = hanging("ask")

    async def fails():
        async with contextlib.aclosing(play_many(env, tasks(6), generator, concurrency=4)) as episodes:
            async for _ in episodes:
                raise ZeroDivisionError

    async def failed():
        with pytest.raises(ZeroDivisionError):
            await fails()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert not asyncio.run(failed())
    assert generator.inside == 0


def test_ctrl_c_ends_the_run_and_leaves_no_conversation_behind():
    env, generator = hanging("reply")
    found = []

    async def interrupted():
        listener = asyncio.create_task(listen(env, generator, found))
        while len(found) < 5:
            await asyncio.sleep(0.001)
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


def test_a_slow_reader_bounds_what_is_finished_and_waiting():
    generator = Says()

    async def read():
        episodes = play_many(ENV, (ENV.tasks[i] for i in range(1000)), generator, concurrency=3)
        taken = 0
        async for _ in episodes:
            taken += 1
            for _ in range(50):  # time to play many more
                await asyncio.sleep(0.001)
            if taken == 4:
                break
        await episodes.aclose()
        return taken

    taken = asyncio.run(read())
    assert generator.joined <= taken + 2 * 3 + 2 * 3  # the queue, what waits to get into it, and what is being played
