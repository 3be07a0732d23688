"""Whether the held-out tasks of a run are held out."""

from itertools import islice

from viewbox.configs.schema import Config
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.tasks import to_sequence

MAX_COMPARED = 5000  # tasks of each environment


def describe_overlap(config: Config, env: BaseMultiTurnEnv, held_out: BaseMultiTurnEnv) -> str | None:
    """A warning if tasks that measure the policy are also trained on; None if there are none, or nothing is measured.

    Only the first tasks of each environment are compared, and tasks are equal if all their fields are.
    """
    count = min(config.log.eval_tasks, MAX_COMPARED)
    if not count:
        return None
    trained = {task.id: task for task in islice(to_sequence(env.tasks, env.name), MAX_COMPARED)}
    measured = list(islice(to_sequence(held_out.tasks, held_out.name), count))
    same = sum(trained.get(task.id) == task for task in measured)
    if not same:
        return None
    way_out = "env.eval is empty: set it, e.g. {split: test}" if not config.env.eval else "see env.eval"
    return (
        f"warning: {same} of {len(measured)} held-out tasks are also trained on, so their figures do not show what the "
        f"policy does on new tasks; {way_out}, or set log.eval_tasks: 0"
    )
