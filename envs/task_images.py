"""`Images`: the images of one task, each opened when it is first asked for: what nobody looks at costs nothing."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, overload
from weakref import WeakValueDictionary

from viewbox.images.files import open_image
from viewbox.images.ref import ImageRef
from viewbox.images.source import Source


class Images(Sequence[Source]):
    """Sources by number: `first` is open already, `given` yields all of them (as `BaseMultiTurnEnv.images`).

    >>> import numpy as np
    >>> gray = [np.full((2, 2), shade, np.uint8) for shade in (0, 9)]
    >>> images = Images(Source.of(gray[0]), len(gray), lambda: gray)
    >>> len(images), int(images[1].pixels[0, 0])
    (2, 9)
    """

    def __init__(self, first: Source, count: int, given: Callable[[], Sequence[Any]]) -> None:
        self._open: dict[int, Source] = {0: first}
        self._count, self._give = count, given

    @cached_property
    def _given(self) -> Sequence[Any]:
        return self._give()

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Source: ...
    @overload
    def __getitem__(self, index: slice) -> list[Source]: ...
    def __getitem__(self, index: int | slice) -> Source | list[Source]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if place not in self._open:
            self._open[place] = opened(self._given[place])
        return self._open[place]

    def __iter__(self) -> Iterator[Source]:
        return (self[i] for i in range(len(self)))


# What is open: tasks and episodes that show one image hold it once.
_OPEN: WeakValueDictionary[tuple[str, str | None], Source] = WeakValueDictionary()


def opened(image: Any) -> Source:
    """The source of what an environment calls an image: an `ImageRef`, a PIL image, an array or a `Source`.

    Of a reference to what is open already it is the very same source.
    """
    if not isinstance(image, ImageRef):
        return Source.of(image)
    key = image.hash, image.uri
    source = _OPEN.get(key)
    if source is None:
        in_memory = image.pixels is not None or image.uri is None
        source = Source.of(image.open()) if in_memory else open_image(str(image.uri))  # may be deeper than Pillow's
        source = _OPEN.setdefault(key, source)
    return source
