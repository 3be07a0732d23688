"""Where a box of an answer lies: on which image of the task, in which plane, on which slice.

An environment declares the answer's fields in `place`, as {"image": "image", "plane": "plane", "slice": "slice"} or a
part of it. The model writes them, an image by its name (`image_2`; records hold the number 1), or names a picture by
number (`view_field`), which says the same. Boxes of 3-D fields (`boxes_3d`) are [x1, y1, z1, x2, y2, z2]: x and
y in axial slices, z1 and z2 the numbers of the first and last slice.
"""

from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Literal

from ..errors import ImageError, ToolError, describe_unknown
from ..images.coordinates import Coordinates, from_unit, to_unit
from ..images.source import Source
from ..images.task_images import TaskImages, find_named, list_names, name_image
from ..images.view import View

Part = Literal["image", "plane", "slice"]
PARTS: tuple[Part, ...] = ("image", "plane", "slice")


def settle_place(
    answer: MutableMapping[str, Any], fields: Mapping[Part, str], view: View | None, images: TaskImages | None
) -> Source | None:
    """Check the place that an answer names, and fill in what the view it names says.

    Args:
        answer: changed in place.
        fields: the answer's field for each part of a place.
        view: the view that the answer names by number; None if it names none.
        images: of the task; None if it has none.

    Returns:
        The picture that the answer's boxes lie on, or a slice of its volume; None without images.

    Raises:
        ToolError: there is no such image, plane or slice, or the view shows another; written for the model.
    """
    if images is None:
        return None
    known = {} if view is None else _get_place(view.source, images)
    shown_image = known.get("image")
    first = _get_place(images[shown_image or 0 if "image" in fields else 0], images)
    for part, shown in known.items():
        field = fields.get(part)
        given = first.get(part) if field is None else answer.get(field)
        if shown is None or (part != "slice" and field is None and shown != given):
            raise ToolError("the view you name shows another image; boxes must refer to image_1, in its own plane")
        if field is not None and given is not None and given != shown:
            given, seen = (name_image(given), name_image(shown)) if part == "image" else (given, f"{part} {shown}")
            raise ToolError(f"{field} = {str(given)[:20]}: the view you name shows {seen}")
        if field is not None:
            answer[field] = shown
    return find_slice(answer, fields, images)


def read_image_name(answer: dict[str, Any], fields: Mapping[Part, str], images: TaskImages | None) -> dict[str, Any]:
    """The answer with the number (from 0, as records hold it) of the image that it names; a number stays.

    Raises:
        ToolError: there is no such image; the message is written for the model.
    """
    field = fields.get("image")
    name = None if field is None else answer.get(field)
    if field is None or images is None or not isinstance(name, str):
        return answer
    try:
        return {**answer, field: find_named(name, images.count_own())}
    except ToolError as error:
        raise ToolError(f"{field}: {error}") from None


def _get_place(source: Source, images: TaskImages) -> dict[Part, Any]:
    """The image (its number), plane and slice that a source is; the image is None if it is none of the task's."""
    number, volume = images.find(source), source.volume
    return {"image": number} if volume is None else {"image": number, "plane": volume.plane, "slice": volume.index}


def find_slice(answer: Mapping[Any, Any], fields: Mapping[Part, str], images: TaskImages) -> Source:
    """The picture that an answer's place names; parts it does not name are those of the task's first picture.

    Raises:
        ToolError: there is no such picture; the message is written for the model.
    """
    given = {part: answer.get(field) for part, field in fields.items()}
    image = given.get("image")
    if not _is_number_of(image, images.count_own()):
        raise ToolError(f"{fields['image']} = {str(image)[:20]}; allowed: {list_names(images.count_own())}")
    image = int(image or 0)
    try:
        source = images[image]
    except ImageError as error:  # its message names the file, which the model must not learn
        raise ToolError(f"{name_image(image)} cannot be opened") from error
    volume, plane, index = source.volume, given.get("plane"), given.get("slice")
    if volume is None:
        for part in ("plane", "slice"):
            if given.get(part) is not None:
                raise ToolError(f"{fields[part]}: {name_image(image)} is a single picture; allowed: null")
        return source
    plane = volume.plane if plane is None else plane
    if plane not in volume.allowed_planes:
        raise ToolError(f"{fields['plane']}: {describe_unknown('plane', str(plane)[:40], volume.allowed_planes)}")
    index = _check_number(fields.get("slice", "slice"), index, volume.count_slices(plane))
    if index is None:
        index = volume.index if plane == volume.plane else volume.count_slices(plane) // 2
    return volume.get_slice(index, plane)


def _check_number(field: str, value: Any, count: int) -> int | None:
    if value is None:
        return None
    if not _is_number_of(value, count):
        allowed = f"0 to {count - 1}" if count > 1 else "0"
        raise ToolError(f"{field} = {str(value)[:20]}; allowed: {allowed}")
    return int(value)


def _is_number_of(value: Any, count: int) -> bool:
    """Whether a value counts one of so many things, from 0; None does."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value in range(count))


# ---------------------------------------------------------------------- boxes in a volume
def read_box_3d(value: Any, source: Source | None, coordinates: Coordinates, size: tuple[int, int], name: str) -> Any:
    """A box that a model wrote, as fractions (x1, y1, z1, x2, y2, z2) of the volume; z counts axial slices.

    Args:
        value: [x1, y1, z1, x2, y2, z2] with the numbers of the first and last slice.
        source: a slice of the volume.
        coordinates: of x and y.
        size: of an axial slice as it is shown.
        name: of the field, for messages.

    Raises:
        ToolError: it is no such box; the message is written for the model.
    """
    count = _count_axial(source, name)
    numbers = isinstance(value, list | tuple) and len(value) == 6
    if not numbers or not all(isinstance(item, int | float) and not isinstance(item, bool) for item in value):
        raise ToolError(f"{name}: a box in a volume is 6 numbers [x1, y1, z1, x2, y2, z2]")
    x1, y1, x2, y2 = to_unit((value[0], value[1], value[3], value[4]), coordinates, size, name)
    first, last = (_check_number(f"{name}: z", value[i], count) for i in (2, 5))
    assert first is not None and last is not None  # noqa: PT018
    if x1 >= x2 or y1 >= y2 or first > last:
        raise ToolError(f"{name}: needs x1 < x2, y1 < y2 and z1 <= z2")
    return [x1, y1, first / count, x2, y2, (last + 1) / count]


def write_box_3d(
    box: Sequence[float], source: Source | None, coordinates: Coordinates, size: tuple[int, int]
) -> list[float]:
    """A box of a volume (fractions) as a model writes it: the slices that it reaches at least half into."""
    count = _count_axial(source, "box")
    x1, y1, x2, y2 = from_unit((box[0], box[1], box[3], box[4]), coordinates, size)
    first = min(count - 1, round(box[2] * count))
    return [x1, y1, first, x2, y2, max(first, round(box[5] * count) - 1)]


def _count_axial(source: Source | None, name: str) -> int:
    if source is None or source.volume is None:
        raise ToolError(f"{name}: this image is a single picture, not a volume")
    return source.volume.count_slices()
