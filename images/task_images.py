"""The images of one task, and their names."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import overload
from weakref import WeakValueDictionary

import numpy as np
from PIL import Image

from ..errors import ArgumentError, show_json
from .files import open_image
from .ref import NATIVE, ImageRef
from .source import Source

TaskImage = ImageRef | Image.Image | np.ndarray | Source  # what `BaseMultiTurnEnv.images` may return


def name_image(number: int) -> str:
    """Return what the model calls an image of its task; `number` counts from 0.

    >>> name_image(0), name_image(1)
    ('image_1', 'image_2')
    """
    return f"image_{number + 1}"


def list_names(count: int) -> str:
    """Return the names of the first `count` images, as a sentence lists them.

    >>> list_names(1), list_names(2), list_names(9)
    ('image_1', 'image_1 and image_2', 'image_1 to image_9')
    """
    names = [name_image(number) for number in range(count)]
    return (" and " if count < 3 else " to ").join(dict.fromkeys([*names[:1], *names[-1:]])) or "none"


def find_named(name: str, count: int) -> int:
    """Return the number (from 0) of the image that the model names, of `count`. Raise `ArgumentError`.

    >>> find_named(" Image_2", 2)
    1
    """
    match = re.fullmatch("image_([1-9][0-9]{0,8})", name.strip().lower())
    if match is None or int(match[1]) > count:
        raise ArgumentError(f"unknown image {show_json(name[:40])}; allowed: {list_names(count)}")
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
        self.opened: dict[int, Source] = dict(enumerate(opened))
        self._found: list[Source] = []
        self._count, self._get_all = count, get_all

    @cached_property
    def _all(self) -> Sequence[TaskImage]:
        return self._get_all()

    def __len__(self) -> int:
        return self._count + len(self._found)

    def count_own(self) -> int:
        """Return the number of the task's own images, which come first."""
        return self._count

    def add(self, found: Iterable[Source]) -> int:
        """Add images that a tool found; return the number of the first of them."""
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
        if place not in self.opened:
            self.opened[place] = open_source(self._all[place])
        return self.opened[place]


def to_references(images: object) -> tuple[ImageRef, ...]:
    """Return what a task holds of images that may be given in any form; files are opened, once.

    >>> [ref.mode for ref in to_references(np.zeros((2, 2), np.uint16))]
    ['native']
    """
    alone = isinstance(images, str | bytes | os.PathLike | ImageRef | Image.Image | np.ndarray | Source)
    if not alone and (isinstance(images, Mapping) or not isinstance(images, Iterable)):
        raise TypeError(f"images is {type(images).__name__}; allowed: {_FORMS}, or several of them")
    return tuple(map(_to_reference, [images] if alone else images))  # type: ignore[call-overload]


_FORMS = "a path, the bytes of a file, a Pillow image, an array, an ImageRef, or what viewbox.open_image returns"


def _to_reference(image: object) -> ImageRef:
    if isinstance(image, ImageRef):
        return image
    if isinstance(image, str | bytes | os.PathLike):
        return ImageRef.of(open_image(image))
    if not isinstance(image, Image.Image | np.ndarray | Source):
        raise TypeError(f"an image is {type(image).__name__}; allowed: {_FORMS}")
    return ImageRef.of(Source.of(image))


def match_slice(source: Source, like: Source) -> Source:
    """Return the slice of a source's volume that lies where `like` lies in its own; a single picture as it is."""
    if source.volume is None or like.volume is None:
        return source
    plane = like.volume.plane
    count = source.volume.count_slices(plane)
    return source.volume.get_slice(like.volume.index * count // like.volume.count_slices(plane), plane)


def find_number(images: Sequence[Source], source: Source) -> int | None:
    """Return the number of the image that a source is, is a slice of, or has the pixels of, among those that are open;
    None if it is none of them.

    >>> source = Source.of(np.zeros((2, 2), np.uint16))
    >>> find_number([Source.of(np.ones((2, 2))), source], Source.of(source, display=(0.0, 9.0)))
    1
    """
    opened = images.opened if isinstance(images, TaskImages) else dict(enumerate(images))
    same = [number for number, other in opened.items() if other is source or other.is_same_stack(source)]
    same += [number for number, other in opened.items() if np.may_share_memory(other.pixels, source.pixels)]
    return same[0] if same else None


# Open sources: tasks and episodes that show the same image share one.
_OPEN: WeakValueDictionary[tuple[str, str | None], Source] = WeakValueDictionary()


def open_source(image: TaskImage) -> Source:
    """Return the source of an image in any form that `BaseMultiTurnEnv.images` may return; references to the same image
    give the same `Source` as long as it is in use."""
    if not isinstance(image, ImageRef):
        return Source.of(image)
    key = image.hash, image.uri
    source = _OPEN.get(key)
    if source is None:
        in_memory = image.pixels is not None or image.uri is None or image.folder is not None
        # A file may have deeper pixels than a Pillow image.
        source = image.load() if in_memory or image.mode == NATIVE else open_image(str(image.uri))
        source = _OPEN.setdefault(key, source)
    return source
