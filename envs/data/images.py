"""The images of a row, opened when they are shown."""

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload
from weakref import WeakValueDictionary

from ...core.contract import PARTS, Part
from ...core.places import find_slice
from ...errors import BadRow, ImageError, ToolError
from ...images.files import open_image
from ...images.files.paths import find_path, is_data_url, split_selection
from ...images.source import AXES, Source, Volume
from ...images.task_images import TaskImages
from ...utils.terminal import describe_error
from .fields import BoxFrame, MappedRow

FLAT = (".png", ".jpg", ".jpeg", ".bmp", ".webp")  # pictures that are never a stack of slices
FLAT_CONTENT = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"RIFF")
_BYTES = (bytes, bytearray, memoryview)
IMAGE_FIELDS = ("image", "images")
Place = Mapping[Part, str]  # the fields that say on which picture a box lies
Refuse = Callable[[object, str], BadRow]  # (given, expected) -> the error that names the row


class RowImages(Sequence[Source]):
    """The images of a row: paths in `folder`, bytes, or what the library `datasets` stores of them. Rows with the same
    image share it by `opened`. Opening one that cannot be shown raises `BadRow`."""

    def __init__(
        self,
        values: Sequence[Any],
        folder: Path | None,
        opened: "WeakValueDictionary[tuple[str, str], Source]",
        refuse: Refuse,
        unit: Literal["HU"] | None = None,
    ) -> None:
        self.values, self._folder, self._opened, self._refuse = values, folder, opened, refuse
        self._unit = unit

    def __len__(self) -> int:
        return len(self.values)

    def list_locations(self) -> list[str | bytes | None]:
        """Return where `open_image` finds each image; None for a value that is no image."""
        return [get_location(value) for value in self.values]

    def may_hold_volumes(self) -> bool:
        """Return whether any image may be a stack of slices, by its name or its first bytes; nothing is opened."""
        return not all(map(_is_flat, self.list_locations()))

    def is_volume(self, index: int) -> bool:
        """Return whether the name of an image says that it is a volume: a NIfTI file, or a folder."""
        where = get_location(self.values[index]) if index < len(self) else None
        if not isinstance(where, str) or self._folder is None or is_data_url(where):
            return False
        path = find_path(str(split_selection(where, self._folder)[0]), self._folder)
        return path.name.lower().endswith((".nii", ".nii.gz")) or path.is_dir()

    @overload
    def __getitem__(self, index: int) -> Source: ...
    @overload
    def __getitem__(self, index: slice) -> list[Source]: ...
    def __getitem__(self, index: int | slice) -> Source | list[Source]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        where = get_location(self.values[index])
        if where is None:
            raise self._refuse(self.values[index], "a path, or the bytes of an image")
        key = (str(self._folder), where) if isinstance(where, str) else ("", hashlib.sha256(where).hexdigest())
        source = self._opened.get(key)
        if source is None:
            source = self._opened[key] = self._open(where)
        return source

    def _open(self, where: str | bytes) -> Source:
        problem = check_path(where, self._folder)
        if problem is None:
            try:
                source = open_image(where, None if isinstance(where, bytes) or is_data_url(where) else self._folder)
                return Source.of(source, unit=self._unit) if self._unit and source.unit is None else source
            except ImageError as error:
                problem = f"an image that can be opened ({error})"
            except (OSError, ValueError) as error:  # a name that no file can have
                problem = f"an image that can be opened ({describe_error(error, 200)})"
        raise self._refuse(where, problem)


def _is_flat(where: str | bytes | None) -> bool:
    if isinstance(where, bytes):
        return where.startswith(FLAT_CONTENT)
    return where is None or where.lower().endswith(FLAT) or where.startswith("data:image/")


def list_images(value: object) -> list[object]:
    """Return the images of a mapped value: one, or several in lists."""
    if isinstance(value, list | tuple):
        return [image for item in value for image in list_images(item)]
    return [] if value is None or value == "" else [value]


def get_location(value: object) -> str | bytes | None:
    """Return where `open_image` finds an image; None if the value is no image."""
    if isinstance(value, dict):
        content, path = value.get("bytes"), value.get("path")
        value = content if isinstance(content, _BYTES) and content else path if isinstance(path, str) else None
    return bytes(value) if isinstance(value, _BYTES) else value if isinstance(value, str) and value else None


def check_path(where: str | bytes, folder: Path | None, *, exists: bool = False) -> str | None:
    """Return what was expected of a path that cannot be used; None if it can, or if it is none."""
    if isinstance(where, bytes) or is_data_url(where):
        return None
    if "://" in where[:20]:
        return "a path on this machine, because nothing is downloaded"
    if folder is None:
        return "the bytes of an image, or a path in the folder that data.images names"
    try:
        is_there = not exists or find_path(str(split_selection(where, folder)[0]), folder).exists()
    except (OSError, ValueError):  # a name that no file can have
        is_there = False
    if not is_there:
        return f"a file in {folder} (if it lies elsewhere, set data.images to that folder)"
    return None


def measure_picture(
    row: MappedRow, field: str, images: RowImages | None, place: Place, known: Container[str], *, may_open: bool
) -> BoxFrame | None:
    """Return the frame of the picture on which a box of the row lies: see `MappedRow.measure_image`. None if boxes are
    no pixels and no image can be a volume: then nothing is opened.
    A box on one of several slices of a volume needs its slice, and its plane unless it is that of the first picture or
    of the file. Without `may_open`, what the names of images say is checked; `images` may not be known yet."""
    named, in_volume, in_voxels = _read_place(row, place), row.boxes.format == "xyzxyz", row.boxes.frame == "voxel"
    must_open = in_voxels or row.boxes.unit == "pixel"
    needs_slice = not in_volume and place.get("slice") not in named
    if images and needs_slice and images.is_volume(named.get(place.get("image", ""), 0)):
        raise row.refuse(field, row.get(field), _ask_for_place(field, place, known, in_voxels=in_voxels))
    if not may_open or not images or not (must_open or in_volume or images.may_hold_volumes()):
        return None
    source = _open_picture(row, field, named, images, place)
    volume = source.volume
    if volume is not None and needs_slice and volume.count_slices(volume.plane) > 1:
        raise row.refuse(field, row.get(field), _ask_for_place(field, place, known, in_voxels=in_voxels))
    if volume is None or not (in_volume or in_voxels):
        return BoxFrame(source.size)
    axes: tuple[tuple[int, bool], ...] = volume.stored_axes if in_voxels else Volume.stored_axes
    sides = {axis: side for (axis, _), side in zip(axes, volume.voxels.shape[2::-1], strict=True)}
    if not in_volume:  # z grows toward the top of a picture
        axes = tuple((axis, is_back != (side == 2)) for side, (axis, is_back) in enumerate(axes) if axis != 2)
    return BoxFrame(tuple(sides[axis] for axis in range(len(axes))), axes)


def turn_place(row: MappedRow, reference: Mapping[str, Any], images: RowImages, place: Place) -> dict[str, Any]:
    """Return a reference whose slice along the third axis of the file is that which is shown, with its plane."""
    field = place["slice"]
    volume, index = _open_picture(row, field, reference, images, place).volume, row.read_index(field, reference[field])
    assert volume is not None  # it raises without
    plane, ends = volume.stacked, [index] if isinstance(index, int) else index
    count = volume.count_slices(plane)
    if ends[-1] >= count:
        raise row.refuse(field, index, f"a slice along the third axis of the file, 0 to {count - 1}")
    if "plane" not in place and plane != volume.plane:
        raise row.refuse(field, index, f"a slice of the plane shown first, because `place` names none ({volume.plane})")
    if volume.stored_axes[2 - AXES[plane]][1]:
        ends = [count - 1 - end for end in reversed(ends)]
    shown = {field: ends[0] if isinstance(index, int) else ends}
    return {**reference, **shown, **({place["plane"]: plane} if "plane" in place else {})}


def _open_picture(row: MappedRow, field: str, named: Mapping[str, Any], images: RowImages, place: Place) -> Source:
    """Return the picture that a row names by the fields of its place; in the frame of the file, one of its volume."""
    in_volume, in_voxels = row.boxes.format == "xyzxyz", row.boxes.frame == "voxel"
    parts = {part: name for part, name in place.items() if part == "image" or not in_voxels}
    try:
        source = find_slice(named, parts, TaskImages(images[:1], len(images), lambda: images))
    except ToolError as error:
        wrong = next((name for name in named if name in str(error)), field)  # "slice = 400; allowed: …"
        raise row.refuse(wrong, named.get(wrong, named), f"a picture of the task ({error})") from error
    volume = source.volume
    if (in_volume or in_voxels) and (volume is None or (in_volume and not volume.planes)):
        what = "boxes.frame = voxel" if in_voxels else "a box as xyzxyz"
        raise row.refuse(field, row.get(field), f"a volume, for {what}")
    return source


def _read_place(row: MappedRow, place: Place) -> dict[str, Any]:
    """Return the place of a row's boxes, by the fields of the answer; of several slices the last."""
    named = {}
    for part, name in place.items():
        value = row.get(name)
        if value is not None and value != "":
            number = value if part == "plane" else row.read_index(name, value)
            named[name] = number[-1] if isinstance(number, list) else number
    return named


def _ask_for_place(field: str, place: Place, known: Container[str], *, in_voxels: bool) -> str:
    plane, index = (place.get(part, part) for part in PARTS[1:])
    if index in known:
        both = "" if in_voxels else f"data.columns.{plane} and "
        return f"a box whose slice of the volume is named: map {both}data.columns.{index}"
    ways = f"leave out data.columns.{field}, or use `grounding`, which maps plane and slice"
    return f"no box on a volume, because its slice cannot be named here: {ways} (your own class: `place`)"
