"""Whether the held-out tasks of a run are held out."""

import time
from collections.abc import Iterator
from itertools import islice

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...records import Task

MAX_COMPARED = 5000  # tasks of each environment
MAX_SECONDS = 2.0  # in which an environment's tasks are made; fewer are compared if each takes long to draw


def describe_overlap(config: Config, env: BaseMultiTurnEnv, held_out: BaseMultiTurnEnv) -> str | None:
    """A warning if tasks that measure the policy are also trained on; None if there are none, or nothing is measured.

    Only the first tasks of each environment are compared, as many as are made in `MAX_SECONDS`, and tasks are equal if
    all their fields are.
    """
    count = min(config.log.eval_tasks, MAX_COMPARED)
    if not count:
        return None
    trained = {task.id: task for task in _make_tasks(env, MAX_COMPARED)}
    measured = list(_make_tasks(held_out, count))
    same = sum(trained.get(task.id) == task for task in measured)
    if not same:
        return None
    way_out = "env.eval is empty: set it, e.g. {split: test}" if not config.env.eval else "see env.eval"
    return (
        f"warning: {same} of {len(measured)} held-out tasks are also trained on, so their figures do not show what the "
        f"policy does on new tasks; {way_out}, or set log.eval_tasks: 0"
    )


def _make_tasks(env: BaseMultiTurnEnv, count: int) -> Iterator[Task]:
    """The first `count` tasks, or fewer once the time is over."""
    end = time.monotonic() + MAX_SECONDS
    for task in islice(to_sequence(env.tasks, env.name), count):
        yield task
        if time.monotonic() > end:
            return
