"""Where a box of an answer lies: on any image, plane and slice of the task; and the right answer, as a model writes it.

If an environment has a `place`, as {"image": "image", "plane": "plane", "slice": "slice"} or a part of it, the model
writes these fields, an image by its name (`image_2`; records hold the number 1), or names a picture by number, which
says the same. Boxes of 3-D fields (`boxes_3d`) are [x1, y1, z1, x2, y2, z2]: x and y in axial slices, z1 and z2 the
numbers of the first and last slice.
"""

import json
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from ..errors import ConfigError, ImageError, ToolError, describe_unknown, show_json
from ..images.coordinates import Coordinates, from_unit, needs_size, refuse_fractions, to_unit
from ..images.source import Source
from ..images.task_images import TaskImages, find_named, find_number, list_names, name_image
from ..images.view import View
from ..records import Task
from ..utils.field_paths import convert_at, is_number_list
from ..utils.frozen import thaw
from .contract import AuthoredEnv, Part


def show_whole(env: AuthoredEnv, source: Source, views: Sequence[View]) -> View:
    """Return the whole of a source, on the grid that the views of its episode have."""
    max_pixels = views[0].max_pixels if views else env.max_pixels
    return View.of(source, max_pixels=max_pixels, multiple=env.pixel_multiple)


def get_axial_size(env: AuthoredEnv, source: Source | None, views: Sequence[View]) -> tuple[int, int]:
    """Return the size of an axial slice of a source's volume as it is shown; (1, 1) without a volume."""
    volume = None if source is None else source.volume
    return (1, 1) if volume is None else show_whole(env, volume.get_slice(0), views).size


def settle_place(
    answer: MutableMapping[str, Any], fields: Mapping[Part, str], view: View | None, images: TaskImages | None
) -> Source | None:
    """Check the place that an answer names, and fill in what the view it names says.

    Returns:
        The picture that the answer's boxes lie on, or a slice of its volume; None without images.
    """
    if images is None:
        return None
    known = {} if view is None else _get_place(view.source, images)
    first = _get_place(images[known.get("image") or 0 if "image" in fields else 0], images)
    for part, shown in known.items():
        field = fields.get(part)
        named = first.get(part) if field is None else answer.get(field)
        if shown is None or (part != "slice" and field is None and shown != named):
            raise ToolError("the view you name shows another image; boxes must refer to image_1, in its own plane")
        if field is not None and named is not None and named != shown:
            named, seen = (name_image(named), name_image(shown)) if part == "image" else (named, f"{part} {shown}")
            raise ToolError(f"{field} = {show_json(named, 24)}: the view you name shows {seen}")
        if field is not None:
            answer[field] = shown
    return find_slice(answer, fields, images)


def read_image_name(answer: dict[str, Any], fields: Mapping[Part, str], images: TaskImages | None) -> dict[str, Any]:
    """Return the answer with the number (from 0, as records hold it) of the image that it names; a number stays."""
    field = fields.get("image")
    name = None if field is None else answer.get(field)
    if field is None or images is None or not isinstance(name, str):
        return answer
    try:
        return {**answer, field: find_named(name, images.count_own())}
    except ToolError as error:
        raise ToolError(f"{field}: {error}") from None


def _get_place(source: Source, images: TaskImages) -> dict[Part, Any]:
    """Return the image (its number), plane and slice that a source is; the image is None if it is none of the
    task's."""
    number, volume = find_number(images, source), source.volume
    return {"image": number} if volume is None else {"image": number, "plane": volume.plane, "slice": volume.index}


def find_slice(answer: Mapping[Any, Any], fields: Mapping[Part, str], images: TaskImages) -> Source:
    """Return the picture that an answer's place names; parts it does not name are those of the task's first picture."""
    named = {part: answer.get(field) for part, field in fields.items()}
    image = named.get("image")
    if not _is_number_of(image, images.count_own()):
        raise ToolError(f"{fields['image']} = {show_json(image, 24)}; allowed: {list_names(images.count_own())}")
    image = int(image or 0)
    try:
        source = images[image]
    except ImageError as error:  # its message names the file, which the model must not learn
        raise ToolError(f"{name_image(image)} cannot be opened") from error
    volume, plane, index = source.volume, named.get("plane"), named.get("slice")
    if volume is None:
        for part in ("plane", "slice"):
            if named.get(part) is not None:
                raise ToolError(f"{fields[part]}: {name_image(image)} is a single picture; allowed: null")
        return source
    plane = volume.plane if plane is None else plane
    if plane not in volume.allowed_planes:
        problem = describe_unknown("plane", str(plane)[:40], volume.allowed_planes, show_json)
        raise ToolError(f"{fields['plane']}: {problem}")
    index = _check_number(fields.get("slice", "slice"), index, volume.count_slices(plane))
    if index is None:
        index = volume.index if plane == volume.plane else volume.count_slices(plane) // 2
    return volume.get_slice(index, plane)


def _check_number(field: str, value: Any, count: int) -> int | None:
    if value is None:
        return None
    if not _is_number_of(value, count):
        allowed = f"0 to {count - 1}" if count > 1 else "0"
        raise ToolError(f"{field} = {show_json(value, 24)}; allowed: {allowed}")
    return int(value)


def _is_number_of(value: Any, count: int) -> bool:
    """Return whether a value counts one of so many things, from 0; None does."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value in range(count))


def read_box_3d(
    env: AuthoredEnv, value: Any, name: str, *, source: Source | None, size: tuple[int, int]
) -> list[float]:
    """Return a box that a model wrote, as fractions (x1, y1, z1, x2, y2, z2) of the volume; z counts axial slices.
    `source` is a slice of the volume, and `size` that of an axial slice as it is shown. Raise `ToolError`."""
    count = _count_axial(source, name)
    if not is_number_list(value, 6):
        raise ToolError(f"{name} = {show_json(value)}: a box in a volume is 6 numbers [x1, y1, z1, x2, y2, z2]")
    sides = (*value[:2], *value[3:5])
    refuse_fractions(sides, env.coordinates, size, name, value)
    x1, y1, x2, y2 = to_unit(sides, env.coordinates, size, name)
    first, last = (_check_number(f"{name}: z", value[i], count) for i in (2, 5))
    assert first is not None and last is not None  # noqa: PT018
    if x1 >= x2 or y1 >= y2 or first > last:
        raise ToolError(f"{name} = {show_json(value)}: needs x1 < x2, y1 < y2 and z1 <= z2")
    return [x1, y1, first / count, x2, y2, (last + 1) / count]


def write_box_3d(
    box: Sequence[float], source: Source | None, coordinates: Coordinates, size: tuple[int, int]
) -> list[float]:
    """Return a box of a volume (fractions) as a model writes it: the slices that it reaches at least half into."""
    count = _count_axial(source, "box")
    x1, y1, x2, y2 = from_unit((box[0], box[1], box[3], box[4]), coordinates, size)
    first = min(count - 1, round(box[2] * count))
    return [x1, y1, first, x2, y2, max(first, round(box[5] * count) - 1)]


def _count_axial(source: Source | None, name: str) -> int:
    if source is None or source.volume is None:
        raise ToolError(f"{name}: this image is a single picture, not a volume")
    return source.volume.count_slices()


def write_box(
    env: AuthoredEnv, box: Sequence[float], task: Task, place: Mapping[Part, object] | None = None
) -> list[float]:
    """Return a box (fractions) in the coordinates that the model writes; one of 6 numbers is a box of a volume."""
    overview = env._overviews.get(task) if len(box) == 6 or needs_size(env.coordinates) else None
    views = () if overview is None else overview.views
    if len(box) == 6:
        source = _find_slice(env, task, {"image": (place or {}).get("image")})
        return write_box_3d(box, source, env.coordinates, get_axial_size(env, source, views))
    frame = next(iter(views), None)
    if frame is not None and place and (source := _find_slice(env, task, place)) is not None:
        frame = frame.show(source)
    return list(from_unit(tuple(box), env.coordinates, frame.size if frame else (1, 1)))


def _find_slice(env: AuthoredEnv, task: Task, place: Mapping[Part, Any]) -> Source | None:
    images = env._overviews.open_images(task)
    return None if images is None else find_slice(place, {part: part for part in place}, images)


def write_gold_answer(env: AuthoredEnv, task: Task) -> str:
    """Return the right answer as JSON text, boxes in the coordinates that the model writes.

    It is `env.gold_answer(task)` if the environment has that method, which then writes its boxes itself (`write_box`).
    Otherwise it is made of those fields that the answer has of `env.perfect_answer(task)`, whose boxes are fractions,
    or without that method of `task.reference`. Raise `ConfigError` if the reference lacks a field that the answer
    requires, or has none of its fields."""
    write_own = getattr(env, "gold_answer", None)
    return json.dumps(thaw(_build_from_reference(env, task) if write_own is None else write_own(task)))


def _build_from_reference(env: AuthoredEnv, task: Task) -> dict[str, Any]:
    schema = env.answer_format.schema or {}
    fields, required = schema.get("properties", {}), schema.get("required", [])
    perfect_answer = getattr(env, "perfect_answer", None)
    right = task.reference if perfect_answer is None else perfect_answer(task)
    answer = {name: right[name] for name in fields if name in right}
    place = {part: answer[field] for part, field in env.place.items() if answer.get(field) is not None}
    if isinstance(place.get("slice"), list | tuple):  # the first and the last slice that count
        answer[env.place["slice"]] = place["slice"] = sum(place["slice"]) // 2
    if "image" in place:
        answer[env.place["image"]] = name_image(place["image"])
    if env.view_field is not None and not place:
        answer[env.view_field] = 0  # boxes of a reference are those of the original image
    missing = [name for name in required if name not in answer]
    if missing or not answer:
        what = f"lacks {', '.join(missing)}" if missing else "has no field of the answer"
        raise ConfigError(
            f"{env.name}: the reference of task {task.id} {what}, so that the right answer cannot be written; "
            "allowed: a method gold_answer(task) of the environment"
        )
    for path in (*env.boxes, *env.boxes_3d):
        answer = convert_at(answer, path, lambda box, name: write_box(env, box, task, place))
    return answer | ({"continue": False} if env.max_turns > 1 else {})  # the form that the prompt states
