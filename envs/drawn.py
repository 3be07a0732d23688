"""What the environments of drawn tasks share: a seed for each task, two splits, and scripted guesses."""

from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from ..core.base import BaseMultiTurnEnv
from ..core.tasks import ProceduralTasks
from ..errors import ConfigError, describe_unknown
from ..images.task_images import TaskImage
from ..records import Task

Split = Literal["train", "test"]
TEST_SEEDS = 2**31  # seeds of the split test begin here


class DrawnEnv(BaseMultiTurnEnv):
    """Tasks without end, each drawn from its seed, which is in its metadata; others are somebody's own.

    An environment overrides `make_drawn` and `draw_images`.
    """

    habits: ClassVar[tuple[str, ...]] = ("guess",)  # of demonstrations
    kinds: ClassVar[Sequence[str]] = ("",)  # of questions, in turn

    split: Annotated[Split, Field("train", description="the two splits share no task")]
    num_tasks: Annotated[int, Field(100_000, ge=1, description="number of tasks")]
    first_seed: Annotated[int, Field(0, ge=0, lt=TEST_SEEDS, description="seed of the first task; the next adds 1")]

    @property
    def tasks(self) -> Sequence[Task]:
        first = self.first_seed + (TEST_SEEDS if self.split == "test" else 0)
        return ProceduralTasks(self.num_tasks, self.make_drawn, first)

    def make_drawn(self, seed: int) -> Task:
        """Return the task of a seed."""
        raise NotImplementedError

    def draw_images(self, task: Task) -> Sequence[TaskImage]:
        """Return the images of a drawn task."""
        raise NotImplementedError

    def is_drawn(self, task: Task) -> bool:
        return "seed" in task.metadata

    def count_images(self, task: Task) -> int:
        return 1 if self.is_drawn(task) else super().count_images(task)

    def images(self, task: Task) -> Sequence[TaskImage]:
        return self.draw_images(task) if self.is_drawn(task) else super().images(task)

    def check_habits(self, habits: Iterable[str]) -> None:
        for name in habits:
            if name not in self.habits:
                raise ConfigError(f"{self.name}: {describe_unknown('habit', name, self.habits)}", key=name)

    def demonstration(self, task: Task, seed: int, *, guess: float = 0.0, **unknown: float) -> list[str]:
        """Return the oracle's looks and the right answer; of a share `guess` no look and the right answer of another
        task."""
        self.check_habits(unknown)
        rng = np.random.default_rng([seed, 2])
        if rng.random() >= guess:
            return [*self.oracle(task), self.write_answer(task)]
        return [self.write_answer(self.draw_other(task, rng))]

    def draw_other(self, task: Task, rng: np.random.Generator) -> Task:
        """Return another task with the same question."""
        return self.make_drawn(task.metadata["seed"] + len(self.kinds) * int(rng.integers(1, 1000)))
