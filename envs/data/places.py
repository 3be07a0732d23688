"""The picture that a row's box lies on: its image, plane and slice, as the fields of `place` name them."""

from collections.abc import Container, Mapping
from typing import Any

from viewbox.envs.data.fields import MappedRow
from viewbox.envs.data.images import RowImages
from viewbox.envs.places import PARTS, Part, find_slice
from viewbox.envs.tasks import TaskImages
from viewbox.errors import ToolError


def measure_picture(
    row: MappedRow, field: str, images: RowImages, place: Mapping[Part, str], known: Container[str]
) -> tuple[int, ...] | None:
    """The sides in pixels of the picture on which a box of the row lies: see `MappedRow.measure_image`.

    A box on a slice of a volume needs its slice, and its plane unless it is that of the first picture. None if boxes
    are no pixels and no image can be a volume: then nothing is opened. `known` are the fields that a mapping may give.
    """
    if not images or (row.boxes.unit != "pixel" and row.boxes.format != "xyzxyz" and not images.may_hold_volumes()):
        return None
    named = _read_place(row, place)
    sources = TaskImages(images[:1], len(images), lambda: images)
    try:
        source = find_slice(named, place, sources)
    except ToolError as error:
        raise row.refuse(field, named, f"a picture of the task ({error})") from error
    if row.boxes.format == "xyzxyz":
        if source.volume is None or not source.volume.planes:
            raise row.refuse(field, row.get(field), "a volume, for a box as xyzxyz")
        return source.volume.voxels.shape[2::-1]
    if source.volume is not None and place.get("slice") not in named:
        raise row.refuse(field, row.get(field), _ask_for_place(field, place, known))
    return source.size


def check_place(
    row: MappedRow, field: str, images: RowImages, place: Mapping[Part, str], known: Container[str]
) -> None:
    """Refuse a box on a volume without a slice as far as that is known before images are opened, by their names."""
    named = _read_place(row, place)
    number = named.get(place.get("image", ""), 0)
    if row.boxes.format != "xyzxyz" and place.get("slice") not in named and images.is_volume(number):
        raise row.refuse(field, row.get(field), _ask_for_place(field, place, known))


def _read_place(row: MappedRow, place: Mapping[Part, str]) -> dict[str, Any]:
    """The place of a row's boxes, by the fields of the answer; of several slices the last."""
    named = {}
    for part, name in place.items():
        value = row.get(name)
        if value is not None and value != "":
            number = value if part == "plane" else row.read_index(name, value)
            named[name] = number[-1] if isinstance(number, list) else number
    return named


def _ask_for_place(field: str, place: Mapping[Part, str], known: Container[str]) -> str:
    plane, index = (place.get(part, part) for part in PARTS[1:])
    if index in known:
        return f"a box whose slice of the volume is named: map data.columns.{plane} and data.columns.{index}"
    ways = f"leave out data.columns.{field}, or use `grounding`, which maps plane and slice"
    return f"no box on a volume, because its slice cannot be named here: {ways} (your own class: `place`)"
