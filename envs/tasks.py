"""Where tasks come from. Here: procedural generators; folders and datasets follow the same `Sequence` contract."""

from collections.abc import Callable, Sequence
from typing import Any, overload

from viewbox.records import Task


class ProceduralTasks(Sequence[Task]):
    """`count` tasks, each made from its number when it is asked for; nothing is kept.

    >>> tasks = ProceduralTasks(3, lambda i: Task(f"t{i}"))
    >>> [task.id for task in tasks], len(tasks[1:])
    (['t0', 't1', 't2'], 2)
    """

    def __init__(self, count: int, make: Callable[[int], Task], start: int = 0) -> None:
        self._count, self._make, self._start = count, make, start

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> "ProceduralTasks": ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step != 1:
                raise ValueError(f"step {step}: only steps of 1 are allowed")
            return ProceduralTasks(max(0, stop - start), self._make, self._start + start)
        if not -self._count <= index < self._count:
            raise IndexError(f"task {index} of {self._count}")
        return self._make(self._start + index % self._count)
