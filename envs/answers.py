"""A model's answer, checked: it fits the schema, and its boxes become fractions of the original image.

Boxes are written about the whole first image, or (where an environment has a `view_field`) about a picture that was
shown, whose number the answer gives; they are then mapped back exactly, through whatever was done to get there.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from viewbox.envs.parsing import reply
from viewbox.errors import ToolError
from viewbox.frozen import thaw
from viewbox.images.coordinates import to_unit
from viewbox.images.view import View

if TYPE_CHECKING:
    from viewbox.envs.base import BaseMultiTurnEnv


def check(env: "BaseMultiTurnEnv", value: Mapping[str, Any], views: Sequence[View]) -> dict[str, Any]:
    """The answer with its boxes as fractions of the original; raises `ToolError` with what is wrong, in words.

    `views` are those that were shown, by number; the first shows the whole of the first image. Without any, only that
    one is known.
    """
    answer = _fitting(env, thaw(value))
    boxes = [name for name in env.boxes if answer.get(name) is not None]
    view = _seen_in(answer.get(env.view_field), env.view_field, views) if env.view_field else None
    view = view or (views[0] if views else None)
    for name in boxes:
        if not _is_box(answer[name]):
            raise ToolError(f"{name}: a box is 4 numbers [x1, y1, x2, y2]")
        x1, y1, x2, y2 = to_unit(answer[name], env.coordinates, view.size if view else (1, 1), name)
        if x1 >= x2 or y1 >= y2:
            raise ToolError(f"{name}: needs x1 < x2 and y1 < y2")
        answer[name] = [x1, y1, x2, y2]
        if view is not None and view is not views[0]:
            answer[name] = [min(1.0, max(0.0, side)) for side in view.box_to_original((x1, y1, x2, y2))]
    return answer


def _fitting(env: "BaseMultiTurnEnv", answer: dict[str, Any]) -> dict[str, Any]:
    if isinstance(env.answer, type):
        try:
            return env.answer.model_validate(answer).model_dump(mode="json")
        except ValidationError as error:
            first = error.errors()[0]
            raise ToolError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    problem = None if env.answer is None else reply.find_violation(answer, env.answer)
    if problem is not None:
        raise ToolError(problem)
    return answer


def _seen_in(number: Any, field: str, views: Sequence[View]) -> View | None:
    """The view an answer names; None where it names none."""
    if number is None:
        return None
    last = max(0, len(views) - 1)
    if not isinstance(number, int | float) or isinstance(number, bool) or number not in range(last + 1):
        allowed = f"0 to {last}" if last else "0"
        raise ToolError(f"{field}: there is no view {str(number)[:20]}; allowed: {allowed}")
    if not views:
        return None
    view = views[int(number)]
    if not same_image(view, views[0]):
        raise ToolError(f"{field}: view {int(number)} shows another image; boxes are of image 0")
    return view


def same_image(one: View, other: View) -> bool:
    """Whether two views show the same image, or slices of one plane of the same volume."""
    first, second = one.source, other.source
    if first.volume is not None and second.volume is not None:
        return first.volume.voxels is second.volume.voxels and first.volume.plane == second.volume.plane
    return first is second


def _is_box(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 4
        and all(isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    )
