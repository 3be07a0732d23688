"""The answer of a model as its schema wants it, with boxes as fractions of the original.

The model writes boxes in the frame of the whole first image. If the environment has a `view_field`, the answer may name
a view by number instead; its boxes are then mapped back exactly, through every operation that led to that view. See
`places.py` for boxes on other images, planes and slices.

One rule is for values of another JSON type than the answer's. A string that is exactly how JSON writes a number, true,
false or null is that value, where the schema allows the value and no such string: "3.5" is 3.5, while "3.50", "95%" and
"Yes" stay strings. A whole float is an integer where only integers are allowed, and a word in another case the only
choice that it can be. Nothing else is converted: true is no number, and 1 is not true. A key that is not declared is
refused if it is near one that is missing; any other is allowed, and told to the caller.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel, RootModel, ValidationError

from ..errors import ConfigError, ToolError, describe_unknown, find_nearest, show_json
from ..images.coordinates import needs_size, refuse_fractions, to_unit
from ..images.task_images import TaskImages
from ..images.view import View
from ..records import Task
from ..utils.field_paths import BoxPath, convert_at, has_box, is_number_list
from ..utils.frozen import sort_set, thaw
from ..utils.json_schema import Violation, describe_allowed, find_violation, list_options, list_types, write_path
from .contract import AuthoredEnv, list_other_names
from .places import get_axial_size, read_box_3d, read_image_name, settle_place, show_whole

_MAX_OPTIONS = 64  # readings of a value; further ones are not looked at
_MAX_UNKNOWN, _MAX_NAME = 32, 80  # keys of an object that may be misspelt ones, and characters of each
_SCALAR = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]{0,39})(?:[.][0-9]{1,40})?(?:e[-+]?[0-9]{1,3})?")
_TYPES = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}


class ExaminedAnswer(NamedTuple):
    """An answer with its boxes as fractions of the original, what is wrong with it (None: nothing), and whether it has
    a key that nothing reads."""

    answer: dict[str, Any]
    problem: str | None = None
    has_unread: bool = False


Seen = Sequence[View] | None  # the views that an episode has shown


def check_answer(
    env: AuthoredEnv, value: Mapping[str, object], task: Task, views: Seen = None, images: TaskImages | None = None
) -> tuple[dict[str, Any], str | None]:
    """Return the first two of `examine_answer`: the answer, and what is wrong with it (None: nothing)."""
    return examine_answer(env, value, task, views, images)[:2]


def examine_answer(
    env: AuthoredEnv, value: Mapping[str, object], task: Task, views: Seen = None, images: TaskImages | None = None
) -> ExaminedAnswer:
    """Return what is known of an answer.
    `views` are those that the episode has shown (`EpisodeState.views`); the default is the overview alone. `images`
    (`EpisodeState.images`) are opened again by default, if boxes may lie on any of them."""
    if images is None and (env.place or env.boxes_3d):
        images = env._overviews.open_images(task)
    if views is None:  # only boxes in pixels need an image
        views = env._overviews.get(task).views if env.boxes and needs_size(env.coordinates) else ()
    try:
        answer, has_unread = convert_answer(env, value, views, images)
        problem = env.validate_answer(answer, task)
        check_finite(answer if env._checks_in_thread else {})  # an author's code may have changed it
        return ExaminedAnswer(answer, problem, has_unread)
    except ToolError as error:
        return ExaminedAnswer({}, str(error))


def convert_answer(
    env: AuthoredEnv, value: Mapping[str, object], views: Sequence[View], images: TaskImages | None = None
) -> tuple[dict[str, Any], bool]:
    """Return the answer with its boxes as fractions (x1, y1, x2, y2) of the original image, or of the slice it names,
    and whether it has a key that nothing reads.

    Args:
        env: defines the answer schema, the box fields and the coordinates.
        value: the model's object, without `continue`.
        views: the views shown so far, by number; the first is the overview of the first image.
        images: of the task; needed if the environment has a `place` or `boxes_3d`.

    Raises:
        ToolError: the answer does not fit the schema, holds a number that is not finite, or a box is invalid; the
            message is written for the model.
    """
    answer = thaw(value)
    if env.place:
        answer = read_image_name(answer, env.place, images)
    answer, has_unread = fit_schema(env, answer)
    view = _find_view(answer.get(env.view_field), env.view_field, views) if env.view_field else None
    source = None
    if env.place or env.boxes_3d:
        source = settle_place(answer, env.place, view, images)
    elif view is not None and not is_same_image(view, views[0]):
        number = int(answer[env.view_field])  # type: ignore[index]
        raise ToolError(f"{env.view_field}: view {number} shows another image; boxes must refer to image_1")
    for path in [path for path in env.boxes if has_box(answer, path)]:
        first = views[0] if views else None
        frame = view or (first if source is None else show_whole(env, source, views))
        convert = partial(convert_box, env, frame=frame, is_whole=view is None or view is views[0])
        answer = convert_at(answer, path, convert)
    for path in [path for path in env.boxes_3d if has_box(answer, path)]:
        convert = partial(read_box_3d, env, source=source, size=get_axial_size(env, source, views))
        answer = convert_at(answer, path, convert)
    return answer, has_unread


def convert_box(env: AuthoredEnv, value: Any, name: str, *, frame: View | None, is_whole: bool) -> list[float]:
    """Return a box that a model wrote, as fractions of the original that `frame` shows; raise `ToolError`.
    `is_whole` says that the frame shows all of it, so that nothing is to be mapped back."""
    if not is_number_list(value, 4):
        raise ToolError(f"{name} = {show_json(value)}: a box is 4 numbers [x1, y1, x2, y2]")
    size = frame.size if frame else (1, 1)
    refuse_fractions(value, env.coordinates, size, name)
    x1, y1, x2, y2 = to_unit(value, env.coordinates, size, name)
    if x1 >= x2 or y1 >= y2:
        raise ToolError(f"{name} = {show_json(value)}: needs x1 < x2 and y1 < y2")
    if frame is None or is_whole:
        return [x1, y1, x2, y2]
    return [min(1.0, max(0.0, side)) for side in frame.box_to_original((x1, y1, x2, y2))]


def _find_view(number: Any, field: str, views: Sequence[View]) -> View | None:
    """Return the view that an answer names; None if it names none."""
    if number is None:
        return None
    last = max(0, len(views) - 1)
    if not isinstance(number, int | float) or isinstance(number, bool) or number not in range(last + 1):
        allowed = f"0 to {last}" if last else "0"
        raise ToolError(f"{field}: unknown view {show_json(number, 24)}; allowed: {allowed}")
    return None if not views else views[int(number)]


def is_same_image(first_view: View, second_view: View) -> bool:
    """Return whether two views show the same image, or slices of one plane of the same volume."""
    first, second = first_view.source, second_view.source
    if first.volume is not None and second.volume is not None:
        return first.is_same_stack(second) and first.volume.plane == second.volume.plane
    return first is second


def fit_schema(env: AuthoredEnv, answer: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return an answer as the schema wants it, and whether it has a key that nothing reads. Raise `ToolError`, written
    for the model, if it does not fit."""
    schema = env.answer_format.schema
    if schema is None:
        return answer, False
    answer, unknown = env._coercion.convert(_unfold_boxes(env, answer))
    if isinstance(env.answer, type):
        return _fit_model(env.answer, answer, schema), bool(unknown)
    problem = find_violation(answer, schema)
    if problem is not None:
        raise ToolError(str(problem))
    check_finite(answer)
    return answer, bool(unknown - {"confidence"})  # which is kept


def _fit_model(model: type[BaseModel], answer: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    try:
        checked = model.model_validate_json(json.dumps(answer), strict=True)  # it converts nothing: see `Coercion`
    except ValidationError as error:
        raise ToolError(_describe_refusal(error.errors(include_url=False), answer, schema)) from error
    except RecursionError as error:
        raise ToolError("the answer is nested too deep") from error
    except UnicodeError as error:
        raise ToolError(f"the answer is not Unicode: {error}") from error
    try:
        written = _sort_sets(checked, checked.model_dump(mode="json"))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"the answer cannot be written as JSON: {error}") from error
    if not isinstance(written, dict):
        raise ToolError("the answer must be an object")
    check_finite(written)
    return written


def _sort_sets(value: Any, written: Any) -> Any:
    """Return what pydantic wrote of a value with the items of every set in the same order in every process."""
    if isinstance(value, RootModel):
        return _sort_sets(value.root, written)
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        named = {alias: name for name, field in fields for alias in (field.alias, field.serialization_alias) if alias}
        return {name: _sort_sets(getattr(value, named.get(name, name), None), item) for name, item in written.items()}
    if isinstance(written, dict):
        inner = value.values() if isinstance(value, Mapping) else [getattr(value, name, None) for name in written]
        return {name: _sort_sets(schema, item) for (name, item), schema in zip(written.items(), inner, strict=False)}
    if not isinstance(written, list) or not isinstance(value, Sequence | Set):
        return written
    items = list(map(_sort_sets, value, written))
    return sort_set(items) if isinstance(value, Set) else items


def _describe_refusal(problems: Sequence[Any], answer: dict[str, Any], schema: Mapping[str, Any]) -> str:
    """Return what pydantic refuses in the words of the JSON Schema, or else in its own."""
    about_keys = ("missing", "extra_forbidden")
    places = [write_path(one["loc"][:-1] if one["type"] in about_keys else one["loc"]) for one in problems]
    try:
        violation = find_violation(answer, schema)
    except ConfigError:  # a pattern of pydantic's own
        violation = None
    path = None if violation is None else violation.path
    if path is not None and (path in places or (path and any(place.startswith(path) for place in places))):
        return str(violation)
    first = problems[0]
    if first["type"] in ("value_error", "assertion_error"):  # an author's words
        return str(Violation(places[0], "", first["msg"].partition(", ")[2]))
    return str(Violation(places[0], "", first["msg"].replace("Input should be", "must be"), show_json(first["input"])))


def check_finite(value: object, *path: object) -> None:
    """Raise `ToolError` with the field of a number that no file can hold: NaN, an infinity, or too many digits."""
    if isinstance(value, Mapping | list | tuple):
        for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
            check_finite(item, *path, key)
    elif isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        raise ToolError(f"{write_path(path)[:120]}: must be a finite number")


_BOX_KEYS = ("bbox_2d", "bbox", "box", "bounding_box")  # of models, where an answer has another name for its box
_SIDES = (("x1", "y1", "x2", "y2"), ("xmin", "ymin", "xmax", "ymax"), ("x_min", "y_min", "x_max", "y_max"))


def _unfold_boxes(env: AuthoredEnv, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with its boxes as lists of four numbers, if a model wrote them in another form that has one
    reading: under a common name, by the names of the sides, as two corners, or as the only box of a list."""
    names = (env.answer_format.schema or {}).get("properties", {})
    field, is_list, _ = BoxPath.parse(env.boxes[0] if len(env.boxes) == 1 else "[]")
    others = [name for name in _BOX_KEYS if name in answer and name not in names]
    if not is_list and field not in answer and len(others) == 1:
        answer = {field if name == others[0] else name: item for name, item in answer.items()}
    for path in env.boxes:
        with suppress(ToolError):  # the schema says it better
            answer = convert_at(answer, path, lambda box, name: _unfold_box(box))
    return answer


def _unfold_box(box: Any) -> Any:
    if isinstance(box, dict):
        return next(([box[side] for side in sides] for sides in _SIDES if set(sides) == box.keys()), box)
    if isinstance(box, list) and len(box) in (1, 2) and all(is_number_list(corner, 4 // len(box)) for corner in box):
        return [side for corner in box for side in corner]
    return box


class Coercion:
    """Gives an answer's scalars the types that a schema wants, by the rule above; it may still not fit.

    >>> size, sure = {"type": ["number", "null"]}, {"type": "boolean"}
    >>> schema = {"properties": {"size": size, "sure": sure, "names": {"items": {"type": "string"}}}}
    >>> Coercion(schema).convert({"size": "3.5", "sure": "true", "names": ["3"]})
    ({'size': 3.5, 'sure': True, 'names': ['3']}, set())
    >>> Coercion(schema).convert({"size": "3.50"})
    ({'size': '3.50'}, set())
    """

    def __init__(self, root: Mapping[str, Any], declared: object = None) -> None:
        self._root = root
        self._other_names = list_other_names(declared) if isinstance(declared, type) else frozenset()
        self._choices: dict[tuple[int, ...], _Choice] = {}  # by the schemas of which each is made

    def convert(self, value: object) -> tuple[Any, set[str]]:
        """Return a copy of the value as the schema wants it, and the paths of keys that it does not declare.
        Raise `ToolError` for true, false or a number where only the other is allowed, and for a key that is near a
        missing one."""
        unknown: set[str] = set()
        return self._convert(value, [self._root], (), unknown), unknown

    def _convert(self, value: Any, specs: Sequence[object], path: tuple[object, ...], unknown: set[str]) -> Any:
        choice = self._choices.get(key := tuple(map(id, specs)))
        if choice is None:
            options = [option for spec in specs for option in list_options(self._root, spec)][:_MAX_OPTIONS]
            choice = self._choices[key] = _Choice(options)
        if not choice.options:
            return value
        if isinstance(value, dict):
            if choice.names is not None:
                self._check_keys(value, choice, path, unknown)
            return {
                name: self._convert(item, choice.list_fields(name), (*path, name), unknown)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [
                self._convert(item, choice.list_items(place), (*path, place), unknown)
                for place, item in enumerate(value)
            ]
        fits, settled = choice.settle(value)
        if not fits and isinstance(value, str) and _SCALAR.fullmatch(value):
            decoded = json.loads(value)
            if json.dumps(decoded) == value:
                fits, settled = choice.settle(decoded)
        if not fits and value in (0, 1) and choice.settle(int(value) if isinstance(value, bool) else value == 1)[0]:
            allowed = " or ".join(dict.fromkeys(filter(None, map(describe_allowed, choice.options))))
            raise ToolError(str(Violation(write_path(path), "type", f"allowed: {allowed}", show_json(value))))
        return settled if fits else value

    def _check_keys(
        self, value: Mapping[str, Any], choice: "_Choice", path: tuple[object, ...], unknown: set[str]
    ) -> None:
        """Note the keys that no schema declares; raise `ToolError` for one that is near a missing one."""
        names = choice.names or set()
        strange = [key for key in value if key not in names and key not in self._other_names]
        for key in strange[:_MAX_UNKNOWN]:  # of names that are open only another spelling is near
            if find_nearest(key[:_MAX_NAME], names - value.keys(), cutoff=1.0 if choice.is_open else 0.7) is not None:
                problem = describe_unknown("key", key[:_MAX_NAME], names - value.keys(), show_json)
                raise ToolError(str(Violation(write_path(path), "properties", problem)))
        unknown.update(write_path((*path, key)) for key in strange if not choice.is_open)


class _Choice:
    """The schemas of which a value must fit one, and what is asked of them again and again."""

    def __init__(self, options: Sequence[Mapping[str, Any]]) -> None:
        self.options = options
        self._scalars = [
            ([option["const"]] if "const" in option else option.get("enum"), list_types(option)) for option in options
        ]
        objects = [
            option
            for option, (values, kinds) in zip(options, self._scalars, strict=True)
            if values is None and (not kinds or "object" in kinds)
        ]
        is_named = bool(objects) and all("properties" in option for option in objects)
        self.names = {name for option in objects for name in option["properties"]} if is_named else None
        self.is_open = any(option.get("additionalProperties") or "patternProperties" in option for option in objects)

    def list_fields(self, name: str) -> list[Mapping[str, Any]]:
        """Return the schemas of a field."""
        specs = list[Any]()
        for option in self.options:
            specs.append(option.get("properties", {}).get(name, option.get("additionalProperties")))
            specs += option.get("patternProperties", {}).values()
        return [spec for spec in specs if isinstance(spec, Mapping)]

    def list_items(self, place: int) -> list[Mapping[str, Any]]:
        """Return the schemas of an item of a list."""
        first = [option.get("prefixItems", ()) for option in self.options]
        specs = [
            items[place] if place < len(items) else option.get("items")
            for option, items in zip(self.options, first, strict=True)
        ]
        return [spec for spec in specs if isinstance(spec, Mapping)]

    def settle(self, value: Any) -> tuple[bool, Any]:
        """Return whether a scalar fits one of the schemas, and the scalar as that schema writes it."""
        for values, kinds in self._scalars:
            if values is not None:
                for allowed in values if value in values else ():
                    if allowed == value and isinstance(allowed, bool) == isinstance(value, bool):
                        return True, allowed
                continue
            if not kinds:
                return True, value
            for kind in kinds:
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                if kind == "integer" and is_number and value == value // 1 and abs(value) < float("inf"):
                    return True, int(value)
                if (kind == "number" and is_number) or isinstance(value, _TYPES.get(kind, ())):
                    return True, value
        if not isinstance(value, str):
            return False, value
        words = [word for values, _ in self._scalars for word in values or () if isinstance(word, str)]
        same = {word for word in words if word.casefold() == value.casefold()}
        return (True, same.pop()) if len(same) == 1 else (False, value)
