"""Sequences of tasks, and the pictures that are shown of a task at the start."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Any, overload
from weakref import WeakKeyDictionary, WeakValueDictionary

from cachetools import LRUCache, cached

from ..errors import ConfigError
from ..images.ref import ImageRef
from ..images.resample import fit_size
from ..images.task_images import TaskImage, TaskImages, open_source
from ..images.view import View
from ..records import Task

MAX_SHOWN = 16  # images of a task that are shown at the start; `open_image` shows later ones
SHARED = 4  # times `max_pixels`: what the pictures at the start may have together
OVERVIEW_BYTES = 2**29  # bytes kept by the overviews of an environment; the least recently used are dropped


def to_sequence(tasks: Iterable[Task], owner: str, key: str = "tasks") -> Sequence[Task]:
    """`tasks` as a sequence. Any class with `__len__` and `__getitem__` will do.

    >>> to_sequence(iter(()), "my_env")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: my_env: its tasks are a tuple_iterator; allowed: a sequence (__len__ and __getitem__)
    """
    if isinstance(tasks, Sequence) and not isinstance(tasks, str):
        return tasks
    numbered: Any = tasks
    if isinstance(tasks, Mapping | str) or not (hasattr(tasks, "__len__") and hasattr(tasks, "__getitem__")):
        allowed = "a sequence (__len__ and __getitem__)"
        raise ConfigError(f"{owner}: its tasks are a {type(tasks).__name__}; allowed: {allowed}", key=key)
    return ProceduralTasks(len(numbered), numbered.__getitem__)


class ProceduralTasks(Sequence[Task]):
    """`count` tasks, each made from its number when it is accessed; nothing is stored.

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
    def __getitem__(self, index: int | slice) -> "Task | ProceduralTasks":
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step != 1:
                raise ValueError(f"step {step}: only steps of 1 are allowed")
            return ProceduralTasks(max(0, stop - start), self._make, self._start + start)
        if not -self._count <= index < self._count:
            raise IndexError(f"task {index} of {self._count}")
        return self._make(self._start + index % self._count)


@dataclass(frozen=True)
class Overview:
    """What is shown of a task at the start: views of its first images, and their pictures.
    `count` is the number of all its images. `reduced` says that a picture is smaller than it would be alone."""

    views: tuple[View, ...]
    pictures: tuple[ImageRef, ...]
    count: int
    reduced: bool


class OverviewCache:
    """The overviews of the tasks in use: the episodes of a group share one. It is safe to use from many threads.

    The pictures of a task have `SHARED` times `max_pixels` together. So up to four have `max_pixels` each, as one alone
    has, and more share it equally. All views of a task's images are made on that grid: a whole image has one size in
    an episode."""

    def __init__(self, get_images: Callable[[Task], Sequence[TaskImage]], max_pixels: int, multiple: int) -> None:
        self._get_images, self._max_pixels, self._multiple = get_images, max_pixels, multiple
        self.max_shown = min(MAX_SHOWN, SHARED * max_pixels // multiple**2)
        self._views: WeakValueDictionary[tuple[int, int], View] = WeakValueDictionary()  # by source's id and size
        overviews: LRUCache[Any, Overview] = LRUCache(OVERVIEW_BYTES, getsizeof=_count_bytes)
        self.get = cached(overviews, condition=Condition())(self._open)  # Task -> Overview
        self.counts: WeakKeyDictionary[Task, int] = WeakKeyDictionary()  # images of tasks that were opened

    def open_images(self, task: Task) -> TaskImages | None:
        """Return a task's images, each opened when first used; None if it has none."""
        overview = self.get(task)
        opened = [view.source for view in overview.views]
        return TaskImages(opened, overview.count, lambda: self._get_images(task)) if opened else None

    def _open(self, task: Task) -> Overview:
        images = self._get_images(task)
        self.counts[task] = len(images)
        shown = images[: self.max_shown]
        budget = min(self._max_pixels, SHARED * self._max_pixels // max(1, len(shown)))
        views, reduced = [], False
        for source in map(open_source, shown):
            view = View.of(source, max_pixels=budget, multiple=self._multiple)
            views.append(self._views.setdefault((id(source), budget), view))
            reduced |= view.size != fit_size(*source.extent, self._max_pixels, self._multiple)
        return Overview(tuple(views), tuple(view.to_ref() for view in views), len(images), reduced)


def _count_bytes(overview: Overview) -> int:
    """Return the memory an overview keeps: native pixels (of the whole volume, if there is one) and the pictures."""
    pixels = [
        view.source.pixels if view.source.volume is None else view.source.volume.all_voxels for view in overview.views
    ]
    shown = sum(picture.width * picture.height * 3 for picture in overview.pictures)
    return max(1, sum(array.nbytes for array in pixels) + shown)
