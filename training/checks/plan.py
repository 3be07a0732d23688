"""What a run will do: tasks, episodes, updates and steps (none: refused), and whether held-out tasks are held out."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...errors import ConfigError
from ...records import Task

MAX_COMPARED = 5000  # tasks of each environment
MAX_SECONDS = 2.0  # in which an environment's tasks are made; fewer are compared if each takes long to draw


@dataclass(frozen=True)
class Plan:
    """The steps of a GRPO run.

    Args:
        processes: processes that train together.
        tasks: tasks of the environment.
        group: episodes of one task that are compared.
        episodes: episodes that are played together by all processes: a generation.
        updates: optimizer steps that learn from a generation.
        steps_per_epoch: steps until every task was played once; tasks that fill no generation are left out.
        steps: steps of the whole run.
    """

    processes: int
    tasks: int
    group: int
    episodes: int
    updates: float
    steps_per_epoch: float
    steps: int

    def describe(self) -> str:
        """The plan in one line.

        >>> Plan(1, 100, 8, 64, 1, 12, 300).describe()
        '1 process, 100 tasks; 64 episodes (8 tasks x 8) for 1 update; 12 steps an epoch, 300 steps (25 epochs)'
        """
        processes = f"{self.processes} process{'es' * (self.processes > 1)}"
        return (
            f"{processes}, {self.tasks} tasks; {self.episodes} episodes ({self.episodes // self.group} tasks x "
            f"{self.group}) for {self.updates:g} update{'s' * (self.updates != 1)}; {self.steps_per_epoch:g} steps an "
            f"epoch, {self.steps} steps ({self.steps / self.steps_per_epoch:.2g} epochs)"
        )


def build_plan(num_tasks: int, arguments: Any) -> Plan:
    """The plan of a GRPO run.

    Args:
        num_tasks: tasks of the environment.
        arguments: the run's `GRPOConfig`.

    Raises:
        ConfigError: there are fewer tasks than one generation needs, so that no step would be trained.
    """
    episodes, group = arguments.generation_batch_size, arguments.num_generations
    tasks_per_generation = episodes // group
    generations = num_tasks // tasks_per_generation
    if generations == 0:
        raise ConfigError(
            f"env: has {num_tasks} tasks, fewer than the {tasks_per_generation} of one generation ({episodes} episodes "
            f"in groups of {group}): no step would be trained; allowed: more tasks, or a smaller "
            "train.per_device_train_batch_size",
            key="train.per_device_train_batch_size",
        )
    updates = arguments.steps_per_generation * arguments.num_iterations / arguments.gradient_accumulation_steps
    steps_per_epoch = generations * updates
    steps = arguments.max_steps if arguments.max_steps > 0 else math.ceil(arguments.num_train_epochs * steps_per_epoch)
    processes = episodes // (arguments.per_device_train_batch_size * arguments.steps_per_generation)
    return Plan(max(1, processes), num_tasks, group, episodes, updates, steps_per_epoch, steps)


def check_trained(step: int) -> None:
    """Raises `ConfigError` if training ended at step 0: the saved model would be the one it began with."""
    if step == 0:
        raise ConfigError(
            "no step was trained: there are fewer episodes than one batch needs; allowed: a smaller "
            "train.per_device_train_batch_size, more episodes, or no train.dataloader_drop_last",
            key="train.per_device_train_batch_size",
        )


def describe_finished(checkpoint: Path) -> str:
    """What is said if a run is resumed that has no step left.

    >>> describe_finished(Path("runs/x/checkpoints/checkpoint-100"))
    'warning: checkpoint-100 is at the last step: nothing is trained; a larger train.max_steps trains on'
    """
    return f"warning: {checkpoint.name} is at the last step: nothing is trained; a larger train.max_steps trains on"


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
