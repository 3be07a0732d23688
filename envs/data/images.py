"""The images of a row, opened when they are shown."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, overload
from weakref import WeakValueDictionary

from ...errors import BadRow, ImageError
from ...images.files import open_image
from ...images.files.paths import split_series
from ...images.source import Source
from ...utils.terminal import describe_error

FLAT = (".png", ".jpg", ".jpeg", ".bmp", ".webp")  # pictures that are never a stack of slices
FLAT_CONTENT = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"RIFF")
_BYTES = (bytes, bytearray, memoryview)
Refuse = Callable[[object, str], BadRow]  # (given, expected) -> the error that names the row


class RowImages(Sequence[Source]):
    """The images of a row. Opening one that cannot be shown raises `BadRow`.

    Args:
        values: paths, bytes, or what the library `datasets` stores of an image: {"bytes", "path"}.
        folder: in which paths must lie; None: there are no paths.
        opened: the open images of all rows, so that rows with the same image share it.
        refuse: makes the error.
        unit: of images whose file names none.
    """

    def __init__(
        self,
        values: Sequence[Any],
        folder: Path | None,
        opened: "WeakValueDictionary[tuple[str, str], Source]",
        refuse: Refuse,
        unit: Literal["HU"] | None = None,
    ) -> None:
        self._values, self._folder, self._opened, self._refuse = values, folder, opened, refuse
        self._unit = unit

    def __len__(self) -> int:
        return len(self._values)

    def may_hold_volumes(self) -> bool:
        """Whether any image may be a stack of slices, by its name or its first bytes; nothing is opened."""
        for where in map(get_location, self._values):
            if isinstance(where, bytes):
                is_flat = where.startswith(FLAT_CONTENT)
            else:
                is_flat = where is None or where.lower().endswith(FLAT) or where.startswith("data:image/")
            if not is_flat:
                return True
        return False

    def is_volume(self, index: int) -> bool:
        """Whether the name of an image says that it is a volume: a NIfTI file, or a folder."""
        where = get_location(self._values[index]) if index < len(self) else None
        if not isinstance(where, str) or self._folder is None or _is_data_url(where):
            return False
        path = self._folder / str(split_series(where)[0])
        return path.name.lower().endswith((".nii", ".nii.gz")) or path.is_dir()

    @overload
    def __getitem__(self, index: int) -> Source: ...
    @overload
    def __getitem__(self, index: slice) -> list[Source]: ...
    def __getitem__(self, index: int | slice) -> Source | list[Source]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        where = get_location(self._values[index])
        if where is None:
            raise self._refuse(self._values[index], "a path, or the bytes of an image")
        key = (str(self._folder), where) if isinstance(where, str) else ("", hashlib.sha256(where).hexdigest())
        source = self._opened.get(key)
        if source is None:
            source = self._opened[key] = self._open(where)
        return source

    def _open(self, where: str | bytes) -> Source:
        problem = check_path(where, self._folder)
        if problem is None:
            try:
                source = open_image(where, None if isinstance(where, bytes) or _is_data_url(where) else self._folder)
                return Source.of(source, unit=self._unit) if self._unit and source.unit is None else source
            except ImageError as error:
                problem = f"an image that can be opened ({error})"
            except (OSError, ValueError) as error:  # a name that no file can have
                problem = f"an image that can be opened ({describe_error(error, 200)})"
        raise self._refuse(where, problem)


def list_images(value: Any) -> list[Any]:
    """The images of a mapped value: one, or several in lists."""
    if isinstance(value, list | tuple):
        return [image for item in value for image in list_images(item)]
    return [] if value is None or value == "" else [value]


def get_location(value: Any) -> str | bytes | None:
    """Where `open_image` finds an image; None if the value is no image."""
    if isinstance(value, dict):
        content = value.get("bytes")
        return get_location(content) if isinstance(content, _BYTES) and content else _get_path(value.get("path"))
    return bytes(value) if isinstance(value, _BYTES) else _get_path(value)


def _get_path(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def check_path(where: str | bytes, folder: Path | None, *, exists: bool = False) -> str | None:
    """What was expected of a path that cannot be used; None if it can, or if it is none."""
    if isinstance(where, bytes) or _is_data_url(where):
        return None
    if "://" in where[:20]:
        return "a path on this machine, because nothing is downloaded"
    if folder is None:
        return "the bytes of an image, or a path in the folder that data.images names"
    try:
        found = not exists or (folder / str(split_series(where)[0])).exists()
    except (OSError, ValueError):  # a name that no file can have
        found = False
    if not found:
        return f"a file in {folder} (data.images names another folder)"
    return None


def _is_data_url(where: str) -> bool:
    return where[:5].lower() == "data:"
