"""Checks a model's answer against the schema and converts its boxes to fractions of the original image.

The model writes boxes in the frame of the whole first image. If the environment has a `view_field`, the answer may name
a view by number instead; its boxes are then mapped back exactly, through every operation that led to that view. If it
has a `place` (`places.py`), boxes may lie on any image, plane and slice of the task.
"""

import cmath
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from ..errors import ToolError
from ..images.coordinates import to_unit
from ..images.source import Source
from ..images.task_images import TaskImages, is_same_stack
from ..images.view import View
from ..utils.box_paths import convert_at, has_box
from ..utils.frozen import thaw
from ..utils.json_schema import find_violation
from . import places
from .answer_model import hides_numbers
from .parsing.coercion import coerce
from .state import PlayableEnv


def convert_answer(
    env: PlayableEnv, value: Mapping[str, Any], views: Sequence[View], images: TaskImages | None = None
) -> dict[str, Any]:
    """The answer with its boxes as fractions (x1, y1, x2, y2) of the original image, or of the slice it names.

    Args:
        env: defines the answer schema, the box fields and the coordinates.
        value: the model's object, without `continue`.
        views: the views shown so far, by number; the first is the overview of the first image.
        images: of the task; needed if the environment has a `place` or `boxes_3d`.

    Raises:
        ToolError: the answer does not fit the schema, holds a number that is not finite, or a box is invalid; the
            message is written for the model.
    """
    answer = _fit_schema(env, places.read_image_name(thaw(value), env.place, images))
    view = _find_view(answer.get(env.view_field), env.view_field, views) if env.view_field else None
    source = None
    if env.place or env.boxes_3d:
        source = places.settle_place(answer, env.place, view, images)
    elif view is not None and not is_same_image(view, views[0]):
        number = int(answer[env.view_field])  # type: ignore[index]
        raise ToolError(f"{env.view_field}: view {number} shows another image; boxes must refer to image_1")
    for path in [path for path in env.boxes if has_box(answer, path)]:
        first = views[0] if views else None
        frame = view or (first if source is None else show_whole(env, source, views))
        convert = partial(convert_box, env, frame=frame, is_whole=view is None or view is views[0])
        answer = convert_at(answer, path, convert)
    for path in [path for path in env.boxes_3d if has_box(answer, path)]:
        size = get_axial_size(env, source, views)
        answer = convert_at(answer, path, partial(_read_box_3d, env, source=source, size=size))
    return answer


def convert_box(env: PlayableEnv, value: Any, name: str, *, frame: View | None, is_whole: bool) -> list[float]:
    """A box that a model wrote, as fractions of the original that `frame` shows; raises `ToolError`.

    `is_whole` says that the frame shows all of it, so that nothing is to be mapped back.
    """
    if not _is_box(value):
        raise ToolError(f"{name}: a box is 4 numbers [x1, y1, x2, y2]")
    x1, y1, x2, y2 = to_unit(value, env.coordinates, frame.size if frame else (1, 1), name)
    if x1 >= x2 or y1 >= y2:
        raise ToolError(f"{name}: needs x1 < x2 and y1 < y2")
    if frame is None or is_whole:
        return [x1, y1, x2, y2]
    return [min(1.0, max(0.0, side)) for side in frame.box_to_original((x1, y1, x2, y2))]


def _read_box_3d(env: PlayableEnv, value: Any, name: str, *, source: Source | None, size: tuple[int, int]) -> Any:
    return places.read_box_3d(value, source, env.coordinates, size, name)


def show_whole(env: PlayableEnv, source: Source, views: Sequence[View]) -> View:
    """The whole of a source, on the grid that the views of its episode have."""
    max_pixels = views[0].max_pixels if views else env.max_pixels
    return View.of(source, max_pixels=max_pixels, multiple=env.pixel_multiple)


def get_axial_size(env: PlayableEnv, source: Source | None, views: Sequence[View]) -> tuple[int, int]:
    """The size of an axial slice of a source's volume as it is shown; (1, 1) without a volume."""
    volume = None if source is None else source.volume
    return (1, 1) if volume is None else show_whole(env, volume.get_slice(0), views).size


def check_finite(value: Any) -> None:
    """Raise `ToolError` with the field of a number that is not finite: no file can hold it."""
    path = find_non_finite(value)
    if path is not None:
        raise ToolError(f"{path[:120]}: must be a finite number")


def _fit_schema(env: PlayableEnv, answer: dict[str, Any]) -> dict[str, Any]:
    if env.answer_schema is not None:
        answer = coerce(answer, env.answer_schema)
    if isinstance(env.answer, type):
        return _fit_model(env.answer, answer)
    problem = None if env.answer is None else find_violation(answer, env.answer)
    if problem is not None:
        raise ToolError(problem)
    check_finite(answer)
    return answer


def _fit_model(model: type[BaseModel], answer: dict[str, Any]) -> dict[str, Any]:
    try:
        checked = model.model_validate_json(json.dumps(answer), strict=True)  # it converts nothing: see `coerce`
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ToolError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except RecursionError as error:
        raise ToolError("the answer is nested too deep") from error
    except UnicodeError as error:
        raise ToolError(f"the answer is not Unicode: {error}") from error
    try:
        written = checked.model_dump(mode="json")
        values = checked.model_dump() if hides_numbers(model) else written  # as JSON, a NaN may have become text
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the answer cannot be written as JSON: {error}") from error
    if not isinstance(written, dict):
        raise ToolError("the answer must be an object")
    for value in (values, written):
        check_finite(value)
    return written


def _find_view(number: Any, field: str, views: Sequence[View]) -> View | None:
    """The view that an answer names; None if it names none."""
    if number is None:
        return None
    last = max(0, len(views) - 1)
    if not isinstance(number, int | float) or isinstance(number, bool) or number not in range(last + 1):
        allowed = f"0 to {last}" if last else "0"
        raise ToolError(f"{field}: unknown view {str(number)[:20]}; allowed: {allowed}")
    if not views:
        return None
    return views[int(number)]


def is_same_image(first_view: View, second_view: View) -> bool:
    """Whether two views show the same image, or slices of one plane of the same volume."""
    first, second = first_view.source, second_view.source
    if first.volume is not None and second.volume is not None:
        return is_same_stack(first, second) and first.volume.plane == second.volume.plane
    return first is second


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 4
        and all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    )


_PLAIN = (str, bool, bytes, type(None))
_NUMBERS = (int, float, complex, Decimal, np.generic, np.ndarray)
_MAX = 2**1023


def find_non_finite(value: Any) -> str | None:
    """The path of the first number that is not finite, at any depth; None if all are finite.

    A number of more than 308 digits counts as infinite. Also looked into: sets, tuples, dataclasses, models, arrays.

    >>> find_non_finite({"label": "x", "boxes": [{"score": float("nan")}]})
    'boxes.0.score'
    """
    try:
        if _is_plain_and_finite(value):
            return None
    except RecursionError:  # a container may hold itself
        pass
    pending: list[tuple[str, Any]] = [("", value)]
    seen: set[int] = set()
    while pending:
        path, item = pending.pop()
        if isinstance(item, _PLAIN):
            continue
        if isinstance(item, Enum):
            item = item.value
        if not isinstance(item, _NUMBERS):
            if id(item) not in seen:
                seen.add(id(item))
                pending += [(f"{path}.{key}".removeprefix("."), inner) for key, inner in reversed(_list_parts(item))]
        elif not _is_finite(item):
            return path
    return None


def _is_plain_and_finite(value: Any) -> bool:
    """Whether a value of JSON's own types is finite; most answers are, and this is the fastest way to know."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is float:
        return math.isfinite(value)
    if kind is int:
        return bool(-_MAX < value < _MAX)
    if kind is dict:
        return all(map(_is_plain_and_finite, value.values())) and all(type(key) is str for key in value)
    return kind is list and all(map(_is_plain_and_finite, value))


def _is_finite(value: Any) -> bool:
    try:
        if not isinstance(value, np.generic | np.ndarray):
            return cmath.isfinite(value)
        if value.dtype.kind == "O":
            return find_non_finite(value.tolist()) is None
        return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())
    except (OverflowError, ValueError):  # a number of more than 308 digits; a Decimal that signals
        return False


def _list_parts(value: Any) -> list[tuple[str, Any]]:
    """What a container holds, by key or place; the keys themselves are looked at, too."""
    if isinstance(value, Mapping):
        return [(str(key)[:80], part) for key, item in value.items() for part in (key, item)]
    if isinstance(value, list | tuple | set | frozenset):
        return [(str(place), item) for place, item in enumerate(value)]
    if isinstance(value, BaseModel):
        return [*value]
    if is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    return []
