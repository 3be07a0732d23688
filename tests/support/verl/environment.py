"""Digits that make trouble: a zoom that sleeps and at some places fails, and data that must stay on this machine."""

import functools
import os
import time

from viewbox.envs.digits.env import Digits
from viewbox.records import Episode
from viewbox.tools.builtin.geometry import zoom as look

PLAYED = []  # (start, end) of each call


@functools.wraps(look)
def zoom(view, factor=2.0, center=(0.5, 0.5)):
    started = time.monotonic()
    time.sleep(0.3)
    PLAYED.append((started, time.monotonic()))
    if center and round(1000 * center[0]) % 8 == 1:
        raise RuntimeError("the disk is away")  # the episode ends as `error`
    return look(view, factor, center)


class Slow(Digits):
    name = "slow"
    tools = (zoom,)

    def images(self, task):
        if task.id == "digits-test-3" and "VERL_RECORD" in os.environ:  # was there when it was exported
            raise RuntimeError("the picture is away")
        return super().images(task)


class Restricted(Digits):
    name = "restricted"
    restricted = True


def count_letters(episode: Episode):
    """The share of letters in the first reply: a reward in which also models that know nothing differ."""
    reply = next(turn.content for turn in episode.turns if turn.role == "assistant")
    return sum(map(str.isalpha, reply)) / max(1, len(reply))
