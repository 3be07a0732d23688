"""A judge in play: beside the event loop, many at once, and none elsewhere for data that must stay."""

import asyncio
import threading

from viewbox.envs.digits import Digits, viewer
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
