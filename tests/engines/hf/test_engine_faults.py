"""Faults in the engine: whoever has one ends, of the others nothing changes, and nothing is left behind.

Most tests talk to the engine without a driver, so that a fault can be put at an exact moment: in front of a certain
forward of the model. Of everybody else the tokens are those of a run without the fault.
"""

import asyncio
import random
import threading
from contextlib import suppress

import pytest

from tests.support.tables import each
from viewbox.engines.generator import Conversation
from viewbox.engines.hf.kv_cache import measure_slot
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits
from viewbox.errors import ModelError
from viewbox.images.view import View
from viewbox.records import Message
from viewbox.tools import ToolOutput

ENV = Digits()
COUNT, GROUP, TURNS = 6, 2, 2  # conversations, those with the same prompt, replies of each
LONG = 30.0  # seconds: whoever waits for so long waits for ever
SETTINGS = {"slots": 4, "tool_wait_timeout": 0.05, "max_reply_tokens": 12}


class Talks:
    """`COUNT` conversations with one engine; `pause(index, turn)` is awaited before a reply is asked for."""

    def __init__(self, generator, pause=None):
        self.generator, self.pause = generator, pause
        self.conversations = [self._new(number) for number in range(COUNT)]

    def _new(self, number):
        task = ENV.tasks[number // GROUP]
        state = ENV.reset(task, seed=number)
        taught = {"reply_format": ENV.reply_format, "prompts": ENV.prompts}
        return Conversation(list(state.messages), state.tool_schemas, number, number, task, **taught)

    async def _talk(self, conversation):
        self.generator.join(conversation)
        try:
            for turn in range(TURNS):
                if self.pause:
                    await self.pause(conversation.index, turn)
                said = await self.generator.reply(conversation)
                conversation.messages += [Message("assistant", (said.text,)), Message("user", ("And then?",))]
        finally:
            self.generator.leave(conversation)

    def play(self, meanwhile=None):
        """What became of each conversation: None, or what it raised. Nothing may be left behind."""

        async def run():
            self.tasks = [asyncio.create_task(self._talk(one)) for one in self.conversations]
            beside = asyncio.create_task(meanwhile(self)) if meanwhile else None
            found = await asyncio.wait_for(asyncio.gather(*self.tasks, return_exceptions=True), LONG)
            if beside:
                await asyncio.wait_for(beside, LONG)
            for _ in range(5):  # the engine ends by itself
                await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return found

        found = asyncio.run(run())
        assert_empty(self.generator)
        return found


def assert_empty(generator):
    assert generator.cache.num_used == 0
    assert not generator.sequences
    assert not generator.running


def assert_same(found, expected, but=()):
    for number, pair in enumerate(zip(found.conversations, expected.conversations, strict=True)):
        if number not in but:
            one, same = (conversation.record for conversation in pair)
            assert one.completion_ids == same.completion_ids
            assert one.logprobs == pytest.approx(same.logprobs, rel=0, abs=1e-5)


def before_forwards(model, do):
    return model.register_forward_pre_hook(lambda _, args, given: do(given["input_ids"].shape[1]), with_kwargs=True)


async def wait_for_steps(made, steps):
    while made.generator.stats.steps < steps:
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def model(qwen3):
    return qwen3.model(ends=5.0)


@pytest.fixture(scope="module")
def talks(qwen3, model):
    def new(pause=None, **settings):
        return Talks(qwen3.generator(model, **SETTINGS | settings), pause)

    return new


@pytest.fixture(scope="module")
def clean(talks):
    made = talks()
    assert made.play() == [None] * COUNT
    assert len({len(one.record.completion_ids) for one in made.conversations}) > 3  # they are not in step
    return made


@pytest.fixture(scope="module")
def again(talks, clean):
    """Asserts that a generator plays as a new one does, and that the model is as it was."""

    def check(generator):
        made = talks()
        made.generator = generator
        assert made.play() == [None] * COUNT
        assert_same(made, clean)
        assert not generator.model.training

    return check


# ---------------------------------------------------------------------- an episode that is cancelled
MOMENTS = [  # of a row in the engine, before a forward of that width; and who is cancelled then
    (lambda running, row, width:  # it speaks
        row in running and len(row.output_ids) == 3 and len(row.conversation.messages) > 3, 3),
    (lambda running, row, width: row.future and row.slot is None and len(running) > 2, 5),  # it waits for a slot
    (lambda running, row, width: width > 1 and row.slot is not None and row.length == 0, 0),  # it is prefilled
    (lambda running, row, width: not row.future and row.slot is not None and row not in running, 4),  # it is away
]  # fmt: skip


@each("moment, who", MOMENTS)
def test_an_episode_that_is_cancelled_changes_nothing_for_the_others(talks, clean, again, model, moment, who):
    async def tool(index, turn):
        await asyncio.sleep(0.01 if index == who and turn else 0)

    made, cut = talks(tool), []

    def cancel(width):
        row = made.generator.sequences.get(made.conversations[who])
        if row is not None and not cut and moment(made.generator.running, row, width):
            cut.append(row)
            made.tasks[who].cancel()

    with before_forwards(model, cancel):
        found = made.play()
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [number == who for number in range(COUNT)]
    assert_same(made, clean, but={who})
    again(made.generator)


@each("turn", [0, 1])
def test_an_episode_that_is_cancelled_before_it_asks_changes_nothing_for_the_others(talks, clean, again, turn):
    async def hang(index, at):
        if (index, at) == (2, turn):
            await asyncio.sleep(3600)

    async def cancel(made):
        await wait_for_steps(made, 10)
        made.tasks[2].cancel()

    made = talks(hang)
    assert isinstance(made.play(cancel)[2], asyncio.CancelledError)
    assert_same(made, clean, but={2})
    again(made.generator)


# ---------------------------------------------------------------------- rows that do not come back in time
@each("turn", [0, 1])
def test_a_row_that_comes_back_late_says_what_it_would_have_said(talks, clean, again, turn):
    async def slow(index, at):
        if (index, at) == (1, turn):
            while made.generator.stats.steps < 12:  # the others go on meanwhile
                await asyncio.sleep(0.001)

    made = talks(slow, tool_wait_timeout=0.01)
    assert made.play() == [None] * COUNT
    assert_same(made, clean)
    again(made.generator)


@each("ticks", [0, 2])  # of the event loop, between the two
def test_who_waits_for_the_slot_of_one_that_never_comes_back_gets_it_when_that_one_leaves(talks, ticks):
    made = talks(slots=1, tool_wait_timeout=0.01)
    gone, waits, newcomer = made.conversations[:3]
    generator = made.generator

    async def run():
        generator.join(gone)
        await generator.reply(gone)  # and never again
        generator.join(waits)
        said = asyncio.create_task(generator.reply(waits))
        while not generator.sequences[gone].late:
            await asyncio.sleep(0.001)
        generator.join(newcomer)
        await asyncio.sleep(0.001)
        other = asyncio.create_task(generator.reply(newcomer))
        for _ in range(ticks):
            await asyncio.sleep(0)
        for leaves, answered in ((gone, said), (waits, other)):
            generator.leave(leaves)
            await asyncio.wait_for(answered, 2.0)
        generator.leave(newcomer)
        await asyncio.sleep(0.001)

    asyncio.run(run())
    assert_empty(generator)


# ---------------------------------------------------------------------- a model that fails
def test_a_forward_that_fails_ends_every_episode_with_its_error_and_the_engine_plays_again(talks, again, model, qwen3):
    for number in (0, 6):  # of the forward: a prefill, a decode step
        made, error, forwards = talks(), RuntimeError("out of memory"), []

        def fail(width, number=number, error=error, forwards=forwards):
            forwards.append(width)
            if len(forwards) == number + 1:
                raise error

        with before_forwards(model, fail):
            found = made.play()
        assert found == [error] * COUNT
        again(made.generator)
    made = talks()
    made.generator = qwen3.generator(qwen3.model(bias={5: float("nan")}), **SETTINGS)
    assert all(isinstance(one, ModelError) and "NaN" in str(one) for one in made.play())


# ---------------------------------------------------------------------- closing while under way
@each("steps", [0, 5])
def test_closing_ends_whoever_waits_and_the_engine_plays_again(talks, again, steps):
    async def close(made):
        await wait_for_steps(made, steps)
        await made.generator.close()

    async def work(index, turn):
        await asyncio.sleep(0.001 * index)

    made = talks(work)
    found = made.play(close)
    assert all(isinstance(one, ModelError) and "the engine was closed" in str(one) for one in found)
    again(made.generator)


@each("ticks", range(2))  # of the event loop, between the two
def test_closing_right_after_somebody_asks_ends_the_engine(talks, ticks):
    made = talks()
    generator, conversation = made.generator, made.conversations[0]

    async def run():
        generator.join(conversation)
        await asyncio.sleep(0.01)  # the engine waits for it
        asked = asyncio.create_task(generator.reply(conversation))
        for _ in range(ticks):
            await asyncio.sleep(0)
        await asyncio.wait_for(generator.close(), 2.0)
        with suppress(ModelError):
            await asyncio.wait_for(asked, 2.0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()
    assert_empty(generator)


# ---------------------------------------------------------------------- few slots, and schedules at random
@each("seed", range(2))
def test_whatever_the_schedule_nobody_waits_for_ever_and_nobody_elses_tokens_change(talks, clean, model, seed):
    dice = random.Random(seed)
    victims = set(dice.sample(range(COUNT), dice.randrange(COUNT)))
    prompt = max(len(one.record.prompt_ids) for one in clean.conversations)
    budget = 2 * (prompt + 600) * measure_slot(model)[0] + 10  # for two in the cache

    async def pause(index, turn):
        await asyncio.sleep(dice.choice([0, 0, 0.001, 0.005, 0.02]))

    async def cancel(made):
        for number in victims:
            await asyncio.sleep(dice.random() / 20)
            made.tasks[number].cancel()

    settings = {"slots": dice.randint(1, 6), "tool_wait_timeout": dice.choice([0.0, 0.002, 1.0])}
    made = talks(pause, kv_cache_bytes=dice.choice([None, budget]), **settings)
    found = made.play(cancel)
    cut = {number for number, one in enumerate(found) if isinstance(one, asyncio.CancelledError)}
    assert cut <= victims
    assert [one for number, one in enumerate(found) if number not in cut] == [None] * (COUNT - len(cut))
    assert_same(made, clean, but=cut)
    made = talks(slots=1)
    assert made.play() == [None] * COUNT  # everybody has a turn
    assert_same(made, clean)


# ---------------------------------------------------------------------- tools and times, with the driver
OVER = threading.Event()  # what hangs in a thread hangs on this


@pytest.fixture(scope="module", autouse=True)
def _no_thread_hangs_on():
    yield
    OVER.set()


def glance(view: View) -> ToolOutput:
    """Sees nothing."""
    return ToolOutput("nothing")


def trip(view: View) -> ToolOutput:
    """Raises."""
    raise KeyError("no such row")


def stare(view: View) -> ToolOutput:
    """Hangs."""
    OVER.wait()
    return ToolOutput("too late")


async def muse(query: str) -> str:
    """Hangs."""
    await asyncio.sleep(3600)
    return "never"


class Tools(Digits):
    tools = (glance, trip, stare, muse)
    tool_timeout = 0.3
    max_turns = 3


@pytest.fixture(scope="module")
def calling(qwen3, model, play):
    """Plays `COUNT` episodes of which one calls a tool after the model's first reply."""

    def run(name, arguments):
        def script(conversation):
            called = conversation.index == 2 and len(conversation.messages) == 4
            return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>' if called else None

        env, generator = Tools(), qwen3.generator(model, slots=4, tool_wait_timeout=0.05)
        scripted = ScriptedGenerator(qwen3.tokens, script, generator)
        episodes = play(env, env.tasks[: COUNT // GROUP], scripted, group=GROUP, concurrency=COUNT)
        assert_empty(generator)
        return episodes

    return run


def test_a_tool_that_raises_or_hangs_changes_nothing_for_the_others(calling, model, qwen3, measure_mismatch):
    called = calling("glance", "{}")
    for name, arguments, told in (
        ("trip", "{}", "trip failed (KeyError)"), ("stare", "{}", "0.3 s"), ("muse", '{"query": "x"}', "0.3 s"),
    ):  # fmt: skip
        episodes = calling(name, arguments)
        for number, (one, same) in enumerate(zip(episodes, called, strict=True)):
            if number != 2:
                assert one.tokens.completion_ids == same.tokens.completion_ids
                assert one.tokens.logprobs == pytest.approx(same.tokens.logprobs, rel=0, abs=1e-5)
        results = [result.error for turn in episodes[2].turns for result in turn.tool_results]
        assert [told in result for result in results].count(True) == 1
        assert episodes[2].tokens.mask[-1] == 1  # it had its say afterward
        assert measure_mismatch(model, qwen3, episodes) <= 1e-5


def test_episodes_whose_time_is_up_leave_no_slot_behind_and_the_engine_plays_on_as_a_new_one(qwen3, model, play):
    used, fresh = (qwen3.generator(model, slots=4) for _ in range(2))
    episodes = play(ENV, ENV.tasks[:6], used, group=2, concurrency=8, timeout=0.1)
    assert "timeout" in {episode.end_reason for episode in episodes}
    assert used.cache.num_used == 0
    assert not used.sequences
    before, after = (play(ENV, ENV.tasks[:3], generator) for generator in (fresh, used))
    assert [e.tokens.completion_ids for e in before] == [e.tokens.completion_ids for e in after]
