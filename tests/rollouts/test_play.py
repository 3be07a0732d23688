"""Many episodes at once, also of plain functions: each ends for its own reason, and none takes the others with it."""

import asyncio

import pytest
from PIL import Image

from tests.support.digits_play import ANSWER, ENV, LOOK, Says, script, tasks
from tests.support.tables import each
from viewbox import ImageRef, ModelError, Reply, RunConfig, Task
from viewbox.engines.scripted import ScriptedGenerator, ScriptedPolicy
from viewbox.envs.digits import Digits, viewer
from viewbox.rollouts.play import MAX_FAILURES, play_many, sample_seed


def test_every_episode_says_which_task_and_which_sample_it_is_and_its_seed_so_that_the_run_can_be_repeated(play):
    episodes = play(ENV, tasks(3), Says(), group=2)
    assert [(e.info["index"], e.info["sample"]) for e in episodes] == [(i, k) for i in range(3) for k in range(2)]
    assert [e.task.id for e in episodes] == [task.id for task in tasks(3) for _ in range(2)]
    assert {e.end_reason for e in episodes} == {"answered"}
    assert all(e.scores.components["label"] == 1.0 for e in episodes)  # each got its own task's answer
    first, again, other = ([e.run_config for e in play(ENV, tasks(3), Says(), group=4, seed=s)] for s in (7, 7, 8))
    assert [config.seed for config in first] == [sample_seed(7, number) for number in range(12)]
    assert first == again
    assert len({config.seed for config in first + other}) == 24
    assert first[0] == RunConfig("says", 0.5, sample_seed(7, 0), max_tokens=99, max_turns=ENV.max_turns)


def test_more_tasks_than_places_all_finish_and_never_more_are_in_flight(play):
    generator = Says()
    assert len(play(ENV, tasks(20), generator, concurrency=3)) == 20
    assert (generator.most, generator.joined, generator.inside) == (3, 20, 0)


class Photos(Digits):
    """Digits on the task's own photograph."""

    def images(self, task):
        return [ref.open() for ref in task.images]


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


def test_a_failure_of_the_generator_or_inside_the_model_ends_the_run_and_is_raised(play, qwen3):
    generator = Says(lambda c: ModelError("the endpoint is gone") if c.index == 2 else viewer.write_answer(ENV, c.task))
    with pytest.raises(ModelError, match="the endpoint is gone"):
        play(ENV, tasks(8), generator, concurrency=2)
    assert generator.inside == 0
    model = qwen3.model()
    model.register_forward_pre_hook(lambda module, args: (_ for _ in ()).throw(RuntimeError("out of memory")))
    generator = qwen3.generator(model)
    with pytest.raises(RuntimeError, match="out of memory"):
        play(ENV, tasks(6), generator)
    assert generator.cache.num_used == 0


@pytest.mark.parametrize("after", [0, 3])  # episodes taken before closing
def test_closing_early_leaves_no_task_behind_no_slot_taken_and_a_generator_like_a_new_one(qwen3, play, after):
    generator, fresh = (qwen3.generator(max_reply_tokens=6) for _ in range(2))

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
    assert (len(found), left, generator.cache.num_used) == (after, set(), 0)
    assert (generator.sequences, generator.running) == (fresh.sequences, fresh.running)
    again, first = (play(ENV, tasks(3), one) for one in (generator, fresh))
    assert [e.tokens.completion_ids for e in again] == [e.tokens.completion_ids for e in first]


async def slow_script(messages):
    await asyncio.sleep(0.001)
    return script(messages)


class Asked:
    """An object that is called, as a policy."""

    async def __call__(self, messages):
        return Reply(script(messages))


@each("policy", [script, slow_script, Asked(), ScriptedPolicy([LOOK, ANSWER])])
def test_a_function_of_the_messages_plays_many_episodes_which_are_the_same_alone(play, policy):
    episodes = play(ENV, tasks(3), policy, group=2, seed=5)
    assert [(episode.end_reason, episode.num_turns) for episode in episodes] == [("answered", 2)] * 6
    assert episodes[0].run_config.model_name in ("script", "slow_script", "Asked", "ScriptedPolicy")
    alone = ENV.play(tasks(1)[0], policy, seed=sample_seed(5, 0))
    assert (episodes[0].turns, episodes[0].scores) == (alone.turns, alone.scores)


def test_a_policy_that_raises_ends_that_episode(play):
    first, second = play(ENV, tasks(2), ScriptedPolicy([LOOK]))
    assert (first.end_reason, second.end_reason, first.num_turns) == ("error", "error", 1)
    assert first.info["error"] == "IndexError: the script has 1 replies; the episode asks for number 2"

    def time_out(messages):
        raise TimeoutError("the socket")

    (episode,) = play(ENV, tasks(1), time_out, timeout=60.0)
    assert (episode.end_reason, episode.info["error"]) == ("error", "TimeoutError: the socket")


def test_a_policy_that_never_gave_a_reply_ends_the_run_soon_and_one_that_did_ends_no_run(play):
    asked, good = [], 0

    def policy(messages):
        asked.append(1)
        if len(asked) > good:
            raise NameError("no such name")
        return script(messages)

    with pytest.raises(NameError, match="no such name"):
        play(ENV, tasks(40), policy, concurrency=2)
    assert len(asked) <= MAX_FAILURES + 2
    asked, good = [], 2
    episodes = play(ENV, tasks(20), policy, concurrency=1)
    assert [episode.end_reason for episode in episodes] == ["answered"] + ["error"] * 19
