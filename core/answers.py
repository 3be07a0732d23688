"""The answer of a model, checked against what the environment declares, with boxes as fractions of the original.

The model writes boxes in the frame of the whole first image. If the environment has a `view_field`, the answer may name
a view by number instead; its boxes are then mapped back exactly, through every operation that led to that view. If it
has a `place` (`places.py`), boxes may lie on any image, plane and slice of the task.

A declaration is checked, too: pydantic checks an answer in one call that nothing can interrupt, so a model that lets
the time grow without bounds is refused. The right answer of a task is written here as a model writes it.
"""

import cmath
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from functools import cache, partial
from re import Pattern
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from ..errors import ConfigError, ToolError
from ..images.coordinates import from_unit, needs_size, to_unit
from ..images.source import Source
from ..images.task_images import TaskImages, is_same_stack, name_image
from ..images.view import View
from ..records import Task
from ..utils.box_paths import convert_at, has_box
from ..utils.frozen import thaw
from ..utils.json_schema import check_schema, find_violation
from . import places
from .contract import AuthoredEnv
from .parsing.coercion import coerce
from .places import Part


def check_answer(
    env: AuthoredEnv,
    value: Mapping[str, Any],
    task: Task,
    views: Sequence[View] | None = None,
    images: TaskImages | None = None,
) -> tuple[dict[str, Any], str | None]:
    """Return an answer with its boxes as fractions of the original, and what is wrong with it (None: nothing).

    `views` are those that the episode has shown (`EpisodeState.views`); the default is the overview alone. `images`
    (`EpisodeState.images`) are opened again by default, if boxes may lie on any of them.
    """
    if images is None and (env.place or env.boxes_3d):
        images = open_images(env, task)
    if views is None:  # only boxes in pixels need an image
        views = env._overviews.get(task).views if env.boxes and needs_size(env.coordinates) else ()
    try:
        answer = convert_answer(env, value, views, images)
        problem = env.validate_answer(answer, task)
        check_finite(answer if env._checks_in_thread else {})  # an author's code may have changed it
        return answer, problem
    except ToolError as error:
        return {}, str(error)


def open_images(env: AuthoredEnv, task: Task) -> TaskImages | None:
    """Return a task's images, each opened when first used; None if it has none."""
    overview = env._overviews.get(task)
    opened = [view.source for view in overview.views]
    return TaskImages(opened, overview.count, lambda: env.images(task)) if opened else None


def convert_answer(
    env: AuthoredEnv, value: Mapping[str, Any], views: Sequence[View], images: TaskImages | None = None
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


def convert_box(env: AuthoredEnv, value: Any, name: str, *, frame: View | None, is_whole: bool) -> list[float]:
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


def _read_box_3d(env: AuthoredEnv, value: Any, name: str, *, source: Source | None, size: tuple[int, int]) -> Any:
    return places.read_box_3d(value, source, env.coordinates, size, name)


def show_whole(env: AuthoredEnv, source: Source, views: Sequence[View]) -> View:
    """The whole of a source, on the grid that the views of its episode have."""
    max_pixels = views[0].max_pixels if views else env.max_pixels
    return View.of(source, max_pixels=max_pixels, multiple=env.pixel_multiple)


def get_axial_size(env: AuthoredEnv, source: Source | None, views: Sequence[View]) -> tuple[int, int]:
    """The size of an axial slice of a source's volume as it is shown; (1, 1) without a volume."""
    volume = None if source is None else source.volume
    return (1, 1) if volume is None else show_whole(env, volume.get_slice(0), views).size


def check_finite(value: Any) -> None:
    """Raise `ToolError` with the field of a number that is not finite: no file can hold it."""
    path = find_non_finite(value)
    if path is not None:
        raise ToolError(f"{path[:120]}: must be a finite number")


def _fit_schema(env: AuthoredEnv, answer: dict[str, Any]) -> dict[str, Any]:
    if env.answer_format.schema is not None:
        answer = coerce(answer, env.answer_format.schema)
    if isinstance(env.answer, type):
        return _fit_model(env.answer, answer)
    problem = None if env.answer is None else find_violation(answer, env.answer)
    if problem is not None:
        raise ToolError(str(problem))
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


def find_non_finite(value: Any) -> str | None:
    """The path of the first number that is not finite, at any depth; None if all are finite.

    A number of more than 308 digits counts as infinite. Also looked into: sets, tuples, dataclasses, models, arrays.

    >>> find_non_finite({"label": "x", "boxes": [{"score": float("nan")}]})
    'boxes.0.score'
    """
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


# ---------------------------------------------------------------------- what an environment declares
# Parts of a pydantic core schema whose JSON shows every number as a number.
_OPEN = {
    "bool", "default", "definition-ref", "definitions", "float", "int", "list", "literal", "model", "model-field",
    "model-fields", "none", "nullable", "str", "tagged-union", "union",
}  # fmt: skip


def check_declaration(answer: type[BaseModel] | Mapping[str, Any] | None) -> None:
    """Raise `ConfigError` for an answer that takes unbounded time to check, or a schema that cannot be used."""
    if isinstance(answer, type):
        _check_model(answer)
    elif answer is not None:
        check_schema(answer)


@cache
def runs_code(env: Any) -> bool:
    """Whether an author's code sees an answer: `validate_answer`, a validator, or a serializer."""
    replaced: bool = env.validate_answer is not AuthoredEnv.validate_answer
    answer: Any = env.answer
    return replaced or (isinstance(answer, type) and any(map(_is_code, _iter_core_parts(_get_core_schema(answer)))))


@cache
def hides_numbers(model: type[BaseModel]) -> bool:
    """Whether a number of the model may be text in its JSON: a Decimal, a key, or what an author's code makes."""
    kinds = {part.get("type") for part in _iter_core_parts(_get_core_schema(model))}
    return any(isinstance(kind, str) and kind not in _OPEN for kind in kinds)


@cache
def _check_model(model: type[BaseModel]) -> None:
    if any(map(_is_backtracking, _iter_core_parts(_get_core_schema(model)))):
        raise ConfigError(
            f"{model.__name__}: a pattern is matched by Python's `re`, which may never end; allowed: a pattern given "
            "as text, without regex_engine='python-re'",
            key="answer",
        )
    for part in _iter_core_parts(_get_core_schema(model)):
        if isinstance(part.get("pattern"), str):
            check_schema({"pattern": part["pattern"]})
    definitions = model.model_json_schema().get("$defs", {})
    for name, part in definitions.items():
        if any(_branches_into(name, union, definitions) for union in _iter_unions(part)):
            raise ConfigError(
                f"{model.__name__}: two members of a union in {name} hold {name} again, so the time to check an answer "
                "doubles with each level; allowed: Field(discriminator=...), or one such member",
                key="answer",
            )


def _get_core_schema(model: type) -> Any:
    model.model_json_schema()  # type: ignore[attr-defined]  # completes a model with forward references
    return model.__pydantic_core_schema__  # type: ignore[attr-defined]


def _iter_core_parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every part of a pydantic core schema."""
    if isinstance(schema, Mapping):
        yield schema
        for key, item in schema.items():
            if key not in ("metadata", "config"):
                yield from _iter_core_parts(item)
    elif isinstance(schema, list | tuple):
        for item in schema:
            yield from _iter_core_parts(item)


def _is_backtracking(part: Mapping[str, Any]) -> bool:
    config = part.get("config")
    by_config = isinstance(config, Mapping) and config.get("regex_engine") == "python-re"
    return by_config or part.get("regex_engine") == "python-re" or isinstance(part.get("pattern"), Pattern)


def _is_code(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    is_function = isinstance(kind, str) and kind.startswith("function-")
    return is_function or any(part.get(key) for key in ("custom_init", "post_init", "computed_fields"))


def _iter_unions(schema: Any) -> Iterator[list[Any]]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("anyOf"), list):
            yield schema["anyOf"]
        for item in schema.values():
            yield from _iter_unions(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from _iter_unions(item)


def _branches_into(name: str, union: list[Any], definitions: Mapping[str, Any]) -> bool:
    """Whether an answer can be read as two members of the union that both hold `name`: two objects, or two lists."""
    kinds = Counter(_get_kind(member, definitions) for member in union if name in _find_references(member, definitions))
    return any(count > 1 for count in kinds.values())


def _get_kind(member: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    seen: set[str] = set()
    while isinstance(member.get("$ref"), str) and member["$ref"] not in seen:
        seen.add(member["$ref"])
        member = definitions.get(member["$ref"].rpartition("/")[2], {})
    return str(member.get("type", "object"))


def _find_references(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    """The definitions that a part reaches."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        elif isinstance(item, Mapping):
            pending += item.values()
            reference = item.get("$ref")
            name = reference.rpartition("/")[2] if isinstance(reference, str) else None
            if name is not None and name not in found:
                found.add(name)
                pending.append(definitions.get(name))
    return found


# ---------------------------------------------------------------------- the right answer
def write_box(
    env: AuthoredEnv, box: Sequence[float], task: Task, place: Mapping[Part, Any] | None = None
) -> list[float]:
    """Return a box (fractions) in the coordinates that the model writes; one of 6 numbers is a box of a volume."""
    overview = env._overviews.get(task) if len(box) == 6 or needs_size(env.coordinates) else None
    views = () if overview is None else overview.views
    if len(box) == 6:
        source = _find_slice(env, task, {"image": (place or {}).get("image")})
        return places.write_box_3d(box, source, env.coordinates, get_axial_size(env, source, views))
    frame = next(iter(views), None)
    if frame is not None and place and (source := _find_slice(env, task, place)) is not None:
        frame = frame.show(source)
    return list(from_unit(tuple(box), env.coordinates, frame.size if frame else (1, 1)))


def _find_slice(env: AuthoredEnv, task: Task, place: Mapping[Part, Any]) -> Source | None:
    images = open_images(env, task)
    return None if images is None else places.find_slice(place, {part: part for part in place}, images)


def write_gold_answer(env: AuthoredEnv, task: Task) -> str:
    """The right answer as JSON text, boxes in the coordinates that the model writes.

    It is `env.gold_answer(task)` if the environment has that method, which then writes its boxes itself (`write_box`).
    Otherwise it is made of those fields that the answer has of `env.perfect_answer(task)`, whose boxes are fractions,
    or without that method of `task.reference`.

    Raises:
        ConfigError: the reference lacks a field that the answer requires, or has none of its fields.
    """
    own = getattr(env, "gold_answer", None)
    return json.dumps(thaw(_build_from_reference(env, task) if own is None else own(task)))


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
