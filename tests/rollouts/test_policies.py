"""Plain functions of the messages as policies of the driver."""

import asyncio

import pytest

from tests.support.digits_play import ANSWER, ENV, LOOK, script, tasks
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.records import Reply
from viewbox.rollouts.play import MAX_FAILURES, sample_seed


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


def test_a_policy_that_raises_ends_that_episode(play):
    first, second = play(ENV, tasks(2), ScriptedPolicy([LOOK]))
    assert first.end_reason == second.end_reason == "error"
    assert first.info["error"] == "IndexError: the script has 1 replies; the episode asks for number 2"
    assert first.num_turns == 1

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
