"""A judge in play: beside the event loop, many at once, and none elsewhere for data that must stay."""

import asyncio
import threading

import pytest

from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.rollouts.judge.reward import JudgeReward
from viewbox.rollouts.play import play_many


class Waits:
    """Scores 1 once four episodes are scored at the same moment."""

    name, blocking = "waits", True

    def __init__(self):
        self.together = threading.Barrier(4, timeout=20)

    def __call__(self, answer, reference):
        self.together.wait()
        return 1.0


def test_a_blocking_reward_is_asked_beside_the_event_loop():
    env = Digits(reward=Waits(), max_turns=1)

    async def played():
        answer = viewer.write_answer(env, env.tasks[0])
        return [episode async for episode in play_many(env, env.tasks[:4], lambda messages: answer, concurrency=4)]

    assert [episode.scores.total for episode in asyncio.run(played())] == [1.0] * 4


def test_a_single_play_does_not_hold_up_the_event_loop():
    reward = Waits()
    env = Digits(reward=reward, max_turns=1)
    answer = viewer.write_answer(env, env.tasks[0])

    async def four():
        return await asyncio.gather(*(env.play_async(env.tasks[n], lambda messages: answer) for n in range(4)))

    assert [episode.scores.total for episode in asyncio.run(four())] == [1.0] * 4


class Scans(Digits):
    restricted = True


def judged_at(endpoint):
    judge = JudgeReward("label", endpoint=endpoint, model="m")
    return CombinedReward({"label": (ExactMatchReward("label"), 0.5), "judge": (judge, 0.5)})


def test_a_restricted_environment_takes_no_judge_elsewhere():
    with pytest.raises(
        ConfigError, match=r"digits: its data is restricted .* sends answers to https://judge\.example/v1"
    ):
        Scans(reward=judged_at("https://judge.example/v1"))


def test_a_restricted_environment_takes_a_judge_on_this_machine():
    assert Scans(reward=judged_at("http://127.0.0.1:9/v1")).reward.components.keys() == {"label", "judge"}
