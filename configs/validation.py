"""Describes in words what a setting accepts, for error messages and for the documentation.

pydantic checks the settings, but its messages are for programmers. This file words the same annotations for users, so
that error messages and `docs/configuration.md` agree.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ByteSize, ValidationError
from pydantic.fields import FieldInfo

from ..errors import describe_unknown, suggest_nearest

_TYPE_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "text",
    NoneType: "null",
    Any: "anything",
    ByteSize: "bytes (a whole number, or text such as 2GiB or 500MB)",
    dict: "a mapping",
    list: "a list",
}
_PLURALS = {"a whole number": "whole numbers", "a number": "numbers", "anything": "anything"}
_SWITCHES = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}  # of YAML 1.1
DATA_LIMITS = ("restricted", "evaluation_only")  # of a block `data`: an override can add to them only
_LIMITS = {
    "ge": "of at least {:.10g}",
    "gt": "above {:.10g}",
    "le": "of at most {:.10g}",
    "lt": "below {:.10g}",
    "min_length": "that is not empty",
}


def describe_type(annotation: object, metadata: Iterable[object] = ()) -> str:
    """Return the values a field of this type accepts, in words.

    >>> from pydantic import Field
    >>> describe_type(Annotated[float, Field(ge=0, lt=1)])
    'a number of at least 0 and below 1'
    >>> describe_type(Literal["grpo", "sft"]), describe_type(list[str] | None)
    ("'grpo' or 'sft'", 'a list of text or null')
    """
    annotation, limits = _strip_annotated(annotation, metadata)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " or ".join(describe_type(one) for one in sorted(inner, key=lambda one: one is NoneType))
    if origin is Literal:
        *others, last = (repr(word) for word in inner)
        return f"{', '.join(others)} or {last}" if others else last
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"a list of {len(inner)} {_pluralize(inner[0])}"
    if origin in (list, tuple, Sequence):
        return f"a list of {_pluralize(inner[0])}"
    if origin in (dict, Mapping):
        return "a mapping" if inner[1] is Any else f"a mapping whose values are {_pluralize(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with the keys {', '.join(annotation.model_fields)}"
    words = _TYPE_WORDS.get(annotation, str(getattr(annotation, "__name__", annotation)))
    return " ".join([words, " and ".join(limits)]) if limits else words


class Problem(NamedTuple):
    """One mistake: `key` is the path of the setting, `text` the sentence without it."""

    key: str
    text: str

    def __str__(self) -> str:
        joint = " " if self.text.startswith("=") or not self.key else ": "
        return f"{self.key}{joint}{self.text}".strip()


def describe_errors(error: ValidationError, expected: object, given: object, path: str = "") -> list[Problem]:
    """Return every mistake that pydantic found in `given`, in words; only the first one of a key. `path` is where it
    stands."""
    problems: dict[str, Problem] = {}
    for detail in sorted(error.errors(), key=lambda detail: detail["type"] != "value_error"):  # our own words first
        problem = _describe_error(expected, detail, given)
        problems.setdefault(problem.key, problem._replace(key=f"{path}.{problem.key}".strip(".")))
    return list(problems.values())


def _describe_error(expected: Any, detail: Any, given: Any) -> Problem:
    kind, loc, value = detail["type"], detail["loc"], detail["input"]
    if kind in ("extra_forbidden", "refused_key"):
        path, annotation, _ = _follow(expected, loc[:-1], given)
        key = ".".join([*path, str(loc[-1])])
        if kind == "refused_key":
            return Problem(key, detail["msg"])
        keys = getattr(get_section_model(annotation), "model_fields", {})
        return Problem(key, describe_unknown("key", str(loc[-1]), keys))
    path, annotation, metadata = _follow(expected, loc, given)
    if kind in ("invalid_key", "string_type") and loc and not path and isinstance(given, Mapping):
        return Problem(str(loc[0]), "a key that is not text; allowed: text")
    key, allowed = ".".join(path), describe_type(annotation, metadata)
    match kind:
        case "missing":
            return Problem(key, f"is missing; allowed: {allowed}")
        case "value_error" | "assertion_error":
            reason = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            return Problem(key, reason if isinstance(value, Mapping) else f"= {value!r:.80}: {reason}")
        case "finite_number":
            allowed = allowed.replace("a number", "a finite number")
        case "string_type" if isinstance(value, int | float):  # 58899e0 is a commit to a person, and a number in YAML
            allowed = allowed.replace("text", "text (write a number in quotes)", 1)
    is_switch = bool in (annotation, *get_args(annotation))
    near = suggest_switch(value) if is_switch else suggest_nearest(value, _list_choices(annotation))
    return Problem(key, f"= {value!r:.80}; allowed: {allowed}{near}")


def suggest_switch(value: object) -> str:
    """Return " (did you mean true?)" for a text that YAML 1.1 reads as true or false, else ""."""
    meant = _SWITCHES.get(str(value).lower())
    return f" (did you mean {meant}?)" if meant else ""


def _follow(annotation: Any, loc: Sequence[Any], given: Any) -> tuple[list[str], Any, Any]:
    """Return the key path of a pydantic location, without the names of union members, and the type and limits at its
    end."""
    path: list[str] = []
    metadata: Any = ()
    for segment in loc:
        step = _step_into(annotation, segment, given)
        if step is None:
            continue
        path.append(str(segment))
        annotation, metadata = step
        inside = isinstance(given, Mapping) and segment in given
        indexed = isinstance(given, list | tuple) and isinstance(segment, int) and segment < len(given)
        given = given[segment] if inside or indexed else None
        find_class = getattr(annotation, "find_class", None)  # a section whose keys depend on its values
        annotation = annotation if find_class is None else find_class(given)
    return path, annotation, metadata


def _step_into(annotation: Any, part: Any, given: Any) -> tuple[Any, Any] | None:
    """Return the type and limits of one key or item of a type; None if it has none of that name."""
    annotation, _ = _strip_annotated(annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return next((step for choice in inner if (step := _step_into(choice, part, given)) is not None), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return None if field is None else (field.annotation, field.metadata)
    if is_dataclass(annotation):
        hints = get_type_hints(annotation, include_extras=True)
        return (hints[part], ()) if part in hints else None
    if origin in (dict, Mapping) and isinstance(given, Mapping) and part in given:
        return inner[1], ()
    if origin in (list, tuple, Sequence) and isinstance(part, int):
        return (inner[part] if origin is tuple and part < len(inner) and inner[-1] is not Ellipsis else inner[0]), ()
    return None


def _strip_annotated(annotation: Any, metadata: Iterable[Any] = ()) -> tuple[Any, list[str]]:
    """Return a type without its `Annotated` wrapper, and its limits in words."""
    marks = list(metadata)
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        marks = [*more, *marks]
    flat = [one for mark in marks for one in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
    limits = [text.format(getattr(one, name)) for one in flat for name, text in _LIMITS.items() if hasattr(one, name)]
    return annotation, limits


def get_section_model(annotation: object) -> object:
    """Return the pydantic model of a field that holds a section; None if the field is not a section."""
    options = [annotation, *get_args(annotation)]
    return next((option for option in options if isinstance(option, type) and issubclass(option, BaseModel)), None)


def _list_choices(annotation: Any) -> list[str]:
    annotation, _ = _strip_annotated(annotation)
    if get_origin(annotation) is Literal:
        return [one for one in get_args(annotation) if isinstance(one, str)]
    return [name for one in get_args(annotation) if get_origin(one) is Literal for name in _list_choices(one)]


def _pluralize(annotation: Any) -> str:
    words = describe_type(annotation)
    return _PLURALS.get(words, words.replace("a whole number of", "whole numbers of"))
