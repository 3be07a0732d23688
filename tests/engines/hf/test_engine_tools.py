"""Faults around the engine: tools that raise or hang, a model that makes no sense, episodes whose time is up."""

import asyncio
import threading

import pytest

from viewbox.engines.scripted import ScriptedGenerator
from viewbox.envs.digits import Digits
from viewbox.images.view import View
from viewbox.tools import ToolOutput

COUNT, GROUP = 6, 2  # episodes, those of the same task
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
def model(qwen3):
    return qwen3.model(ends=5.0)


@pytest.fixture(scope="module")
def calling(qwen3, model, play):
    """Plays `COUNT` episodes of which one calls a tool after the model's first reply."""

    def run(call):
        def script(conversation):
            return call if conversation.index == 2 and len(conversation.messages) == 4 else None

        env, generator = Tools(), qwen3.generator(model, slots=4, tool_wait_timeout=0.05)
        chosen = [env.tasks[i] for i in range(COUNT // GROUP)]
        episodes = play(env, chosen, ScriptedGenerator(qwen3.tokens, script, generator), group=GROUP, concurrency=COUNT)
        assert generator.cache.num_used == 0
        assert not generator.sequences
        return episodes

    return run


@pytest.fixture(scope="module")
def called(calling):
    return calling('<tool_call>{"name": "glance", "arguments": {}}</tool_call>')


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [("trip", "{}", "trip failed (KeyError)"), ("stare", "{}", "0.3 s"), ("muse", '{"query": "x"}', "0.3 s")],
)
def test_a_tool_that_raises_or_hangs_changes_nothing_for_the_others(
    calling, called, model, qwen3, measure_mismatch, name, arguments, told
):
    episodes = calling(f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>')
    for number, (one, same) in enumerate(zip(episodes, called, strict=True)):
        if number != 2:
            assert one.tokens.completion_ids == same.tokens.completion_ids
            assert one.tokens.logprobs == pytest.approx(same.tokens.logprobs, rel=0, abs=1e-5)
    results = [result.error for turn in episodes[2].turns for result in turn.tool_results]
    assert [told in result for result in results].count(True) == 1
    assert episodes[2].tokens.mask[-1] == 1  # it had its say afterward
    assert measure_mismatch(model, qwen3, episodes) <= 1e-5


def test_a_model_that_emits_only_garbage_plays_every_episode_to_its_named_end(qwen3, play, measure_mismatch):
    env, model = Digits(), qwen3.model(seed=3, ends=-50.0)
    generator = qwen3.generator(model, slots=4, tool_wait_timeout=0.05)
    episodes = play(env, [env.tasks[i] for i in range(2)], generator, group=2, concurrency=4)
    assert len(episodes) == 4
    assert {episode.end_reason for episode in episodes} <= {"malformed", "max_turns"}
    assert all(episode.answer is None and sum(episode.tokens.mask) >= 12 * 2 for episode in episodes)
    assert measure_mismatch(model, qwen3, episodes) <= 1e-5
    assert generator.cache.num_used == 0
    assert not generator.sequences


def test_episodes_whose_time_is_up_leave_no_slot_behind_and_the_engine_plays_on_as_a_new_one(qwen3, model, play):
    env = Digits()
    used, fresh = (qwen3.generator(model, slots=4) for _ in range(2))
    episodes = play(env, [env.tasks[i] for i in range(6)], used, group=2, concurrency=8, timeout=0.1)
    assert "timeout" in {episode.end_reason for episode in episodes}
    assert used.cache.num_used == 0
    assert not used.sequences
    before, after = (play(env, [env.tasks[i] for i in range(3)], generator) for generator in (fresh, used))
    assert [e.tokens.completion_ids for e in before] == [e.tokens.completion_ids for e in after]
