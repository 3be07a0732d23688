"""The tasks of a dataset: a sequence that reads a row when its task is asked for."""

import logging
from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from ...errors import BadRow, ConfigError
from ...records import Task

MAX_CHECKED = 50_000  # rows that are checked when a dataset is opened; of a larger one each when it is played
MAX_NAMED = 3  # bad rows that a warning names
BAD_ROW = "bad_row"  # the metadata of a task whose row is bad

log = logging.getLogger("viewbox.envs")


class DataTasks(Sequence[Task]):
    """Tasks by number, each made from its row.

    Args:
        numbers: the rows of the tasks, in order.
        make: makes the task of a row. Raises `BadRow`.
        skipped: the bad rows that were left out, by number.
        stop: a bad row raises instead of becoming a task that ends as a fault.
    """

    def __init__(
        self, numbers: np.ndarray, make: Callable[[int], Task], skipped: dict[int, BadRow], *, stop: bool = False
    ) -> None:
        self._numbers, self._make, self.skipped, self._stop = numbers, make, skipped, stop

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def numbers(self) -> list[int]:
        """The rows of the tasks, in order."""
        return [int(number) for number in self._numbers]

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "DataTasks": ...
    def __getitem__(self, index: int | slice) -> "Task | DataTasks":
        if isinstance(index, slice):
            return DataTasks(self._numbers[index], self._make, self.skipped, stop=self._stop)
        number = int(self._numbers[index])
        try:
            return self._make(number)
        except BadRow as error:
            if self._stop:
                raise
            return Task(f"row-{number}", metadata={"row": number, BAD_ROW: str(error)})


def check_tasks(
    numbers: np.ndarray,
    check: Callable[[int], object],
    bad: dict[int, BadRow],
    *,
    dataset: str,
    limit: int | None,
    stop: bool,
) -> tuple[np.ndarray, dict[int, BadRow]]:
    """The rows of which a task can be made, at most `limit`, and the bad rows that were left out.

    Of more than `MAX_CHECKED` rows only the known bad ones are left out.

    Args:
        numbers: rows, in order.
        check: reads a row and raises `BadRow`.
        bad: rows that are known to be bad.
        dataset: its name, for the warning.
        limit: how many are wanted; None: all.
        stop: the first bad row is raised.

    Raises:
        ConfigError: no row is left.
    """
    good: list[int] = []
    skipped: dict[int, BadRow] = {}
    every = min(len(numbers), limit or len(numbers)) <= MAX_CHECKED
    for number in map(int, numbers):
        if limit is not None and len(good) == limit:
            break
        error = bad.get(number)
        if error is None and every:
            try:
                check(number)
            except BadRow as found:
                error = found
        if error is None:
            good.append(number)
        elif stop:
            raise error
        else:
            skipped[number] = error
    if skipped:
        text = describe_skipped(dataset, skipped, len(skipped) + len(good))
        if not good:
            raise ConfigError(f"data: {text}; no task is left", key="data")
        log.warning("%s", text)
    return np.array(good, np.int64), skipped


def describe_skipped(dataset: str, skipped: dict[int, BadRow], total: int) -> str:
    """How many rows were left out, and why the first ones."""
    reasons = [str(error).removeprefix(f"{dataset}: ") for error in list(skipped.values())[:MAX_NAMED]]
    more = f"; and {len(skipped) - MAX_NAMED} more" if len(skipped) > MAX_NAMED else ""
    return f"{dataset}: {len(skipped)} of {total} rows are left out: {'; '.join(reasons)}{more}"
