"""Sequences of tasks; the images of one task, their names, and the pictures that are shown of them at the start."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Condition
from typing import Any, Protocol, overload, runtime_checkable
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from cachetools import LRUCache, cached
from PIL import Image

from viewbox.errors import ArgumentError, ConfigError
from viewbox.images.files import open_image
from viewbox.images.ref import ImageRef
from viewbox.images.resample import fit_size
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import Task

MAX_SHOWN = 16  # images of a task that are shown at the start; `open_image` shows later ones
SHARED = 4  # times `max_pixels`: what the pictures at the start may have together
OVERVIEW_BYTES = 2**29  # bytes kept by the overviews of an environment; the least recently used are dropped
TaskImage = ImageRef | Image.Image | np.ndarray | Source  # what `BaseMultiTurnEnv.images` may return


@runtime_checkable
class _Numbered(Protocol):
    """A class whose tasks are accessed by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Task: ...


def to_sequence(tasks: Iterable[Task], owner: str, key: str = "tasks") -> Sequence[Task]:
    """`tasks` as a sequence. Any class with `__len__` and `__getitem__` will do.

    Raises:
        ConfigError: the tasks have no length or cannot be accessed by number; the message begins with `owner`.

    >>> to_sequence(iter(()), "my_env")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: my_env: its tasks are a tuple_iterator; allowed: a sequence (__len__ and __getitem__)
    """
    if isinstance(tasks, Sequence) and not isinstance(tasks, str):
        return tasks
    if isinstance(tasks, Mapping | str) or not isinstance(tasks, _Numbered):
        allowed = "a sequence (__len__ and __getitem__)"
        raise ConfigError(f"{owner}: its tasks are a {type(tasks).__name__}; allowed: {allowed}", key=key)
    return ProceduralTasks(len(tasks), tasks.__getitem__)


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


def name_image(number: int) -> str:
    """What the model calls an image of its task; `number` counts from 0.

    >>> name_image(0), name_image(1)
    ('image_1', 'image_2')
    """
    return f"image_{number + 1}"


def list_names(count: int) -> str:
    """The names of the first `count` images, as a sentence lists them.

    >>> list_names(1), list_names(2), list_names(9)
    ('image_1', 'image_1 and image_2', 'image_1 to image_9')
    """
    names = [name_image(number) for number in range(count)]
    return (" and " if count < 3 else " to ").join(dict.fromkeys([*names[:1], *names[-1:]])) or "none"


def find_named(name: str, count: int) -> int:
    """The number (from 0) of the image that the model names, of `count`. Raises `ArgumentError`.

    >>> find_named(" Image_2", 2)
    1
    """
    match = re.fullmatch("image_([1-9][0-9]{0,8})", name.strip().lower())
    if match is None or int(match[1]) > count:
        raise ArgumentError(f"unknown image {name[:40]!r}; allowed: {list_names(count)}")
    return int(match[1]) - 1


class TaskImages(Sequence[Source]):
    """The images of one task as sources, each opened when it is first used, and after them those that tools found.

    Those in `opened`, the first ones, are already open; `get_all` returns all (as `BaseMultiTurnEnv.images` does).

    >>> import numpy as np
    >>> gray = [np.full((2, 2), shade, np.uint8) for shade in (0, 9)]
    >>> images = TaskImages([Source.of(gray[0])], len(gray), lambda: gray)
    >>> len(images), int(images[1].pixels[0, 0])
    (2, 9)
    >>> images.add([Source.of(gray[1])]), len(images), images.count_own()
    (2, 3, 2)
    """

    def __init__(self, opened: Iterable[Source], count: int, get_all: Callable[[], Sequence[TaskImage]]) -> None:
        self._open: dict[int, Source] = dict(enumerate(opened))
        self._found: list[Source] = []
        self._count, self._get_all = count, get_all

    @cached_property
    def _all(self) -> Sequence[TaskImage]:
        return self._get_all()

    def __len__(self) -> int:
        return self._count + len(self._found)

    def count_own(self) -> int:
        """The number of the task's own images, which come first."""
        return self._count

    def add(self, found: Iterable[Source]) -> int:
        """Add images that a tool found; returns the number of the first of them."""
        first = len(self)
        self._found += found
        return first

    @overload
    def __getitem__(self, index: int) -> Source: ...
    @overload
    def __getitem__(self, index: slice) -> list[Source]: ...
    def __getitem__(self, index: int | slice) -> Source | list[Source]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if place >= self._count:
            return self._found[place - self._count]
        if place not in self._open:
            self._open[place] = open_source(self._all[place])
        return self._open[place]

    def find(self, source: Source) -> int | None:
        """The number of the task's own image that a source is, or a slice of; only opened images are looked at."""
        for number, image in self._open.items():
            if image is source or is_same_stack(image, source):
                return number
        return None

    def __iter__(self) -> Iterator[Source]:
        return (self[i] for i in range(len(self)))


def is_same_stack(first: Source, second: Source) -> bool:
    """Whether two sources are slices of one volume."""
    if first.volume is None or second.volume is None:
        return False
    return first.volume.is_same_stack(second.volume)


def find_number(images: Sequence[Source], source: Source) -> int | None:
    """The number of the image that a source is, or a slice of; None if it is none of them."""
    if isinstance(images, TaskImages):
        return images.find(source)
    return next((number for number, one in enumerate(images) if one is source or is_same_stack(one, source)), None)


# Open sources: tasks and episodes that show the same image share one.
_OPEN: WeakValueDictionary[tuple[str, str | None], Source] = WeakValueDictionary()


def open_source(image: TaskImage) -> Source:
    """The source of an image in any form that `BaseMultiTurnEnv.images` may return.

    References to the same image give the same `Source` object as long as it is in use.
    """
    if not isinstance(image, ImageRef):
        return Source.of(image)
    key = image.hash, image.uri
    source = _OPEN.get(key)
    if source is None:
        in_memory = image.pixels is not None or image.uri is None or image.folder is not None
        # A file may have deeper pixels than a Pillow image.
        source = Source.of(image.open()) if in_memory else open_image(str(image.uri))
        source = _OPEN.setdefault(key, source)
    return source


@dataclass(frozen=True)
class Overview:
    """What is shown of a task at the start: views of its first images, and their pictures.

    `count` is the number of all its images. `reduced` says that a picture is smaller than it would be alone.
    """

    views: tuple[View, ...]
    pictures: tuple[ImageRef, ...]
    count: int
    reduced: bool


class OverviewCache:
    """The overviews of the tasks in use: the episodes of a group share one. It is safe to use from many threads.

    The pictures of a task have `SHARED` times `max_pixels` together. So up to four have `max_pixels` each, as one alone
    has, and more share it equally. All views of a task's images are made on that grid: a whole image has one size in
    an episode.
    """

    def __init__(self, get_images: Callable[[Task], Sequence[TaskImage]], max_pixels: int, multiple: int) -> None:
        self._get_images, self._max_pixels, self._multiple = get_images, max_pixels, multiple
        self.max_shown = min(MAX_SHOWN, SHARED * max_pixels // multiple**2)
        self._views: WeakValueDictionary[tuple[int, int], View] = WeakValueDictionary()  # by source's id and size
        overviews: LRUCache[Any, Overview] = LRUCache(OVERVIEW_BYTES, getsizeof=_count_bytes)
        self.get = cached(overviews, condition=Condition())(self._open)  # Task -> Overview
        self.counts: WeakKeyDictionary[Task, int] = WeakKeyDictionary()  # images of tasks that were opened

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
    """The memory an overview keeps: native pixels (of the whole volume, if there is one) and the pictures."""
    pixels = [
        view.source.pixels if view.source.volume is None else view.source.volume.all_voxels for view in overview.views
    ]
    shown = sum(picture.width * picture.height * 3 for picture in overview.pictures)
    return max(1, sum(one.nbytes for one in pixels) + shown)
