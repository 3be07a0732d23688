"""What a setting takes, in words: for messages about wrong values and for the documentation.

pydantic checks; what it says about a mistake is for programrs. Here the same annotations are read out for people, so
that a message and `docs/configuration.md` say the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ByteSize, ValidationError
from pydantic.fields import FieldInfo

from viewbox.errors import hint, unknown

_PLAIN: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    NoneType: "null",
    Any: "anything",
    ByteSize: "bytes (a whole number, or text such as 2GiB or 500MB)",
    dict: "a mapping",
    list: "a list",
}
_MANY = {
    "a whole number": "whole numbers",
    "a number": "numbers",
    "anything": "anything",
    "a mapping by its `type`": "mappings by their `type`",
}
_LIMITS = {
    "ge": "of at least {:g}",
    "gt": "above {:g}",
    "le": "of at most {:g}",
    "lt": "below {:g}",
    "min_length": "that is not empty",
}


def takes(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """What a field of this type takes.

    >>> from pydantic import Field
    >>> takes(Annotated[float, Field(ge=0, lt=1)]), takes(Literal["grpo", "sft"]), takes(list[str] | None)
    ('a number of at least 0 and below 1', "'grpo' or 'sft'", 'a list of text or null')
    """
    annotation, limits = _bare(annotation, metadata)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        if all(isinstance(one, type) and issubclass(one, BaseModel) for one in inner):
            return "a mapping by its `type`"
        return " or ".join(takes(one) for one in sorted(inner, key=lambda one: one is NoneType))
    if origin is Literal:
        return _either([repr(one) for one in inner])
    if origin is tuple and inner[-1] is not Ellipsis:
        return f"a list of {len(inner)} {_many(inner[0])}"
    if origin in (list, tuple, Sequence):
        return f"a list of {_many(inner[0])}"
    if origin in (dict, Mapping):
        return "a mapping" if inner[1] is Any else f"a mapping whose values are {_many(inner[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping with the keys {', '.join(annotation.model_fields)}"
    words = _PLAIN.get(annotation, str(getattr(annotation, "__name__", annotation)))
    return " ".join([words, " and ".join(limits)]) if limits else words


def problems(model: type[BaseModel], error: ValidationError, given: Any) -> list[tuple[str, str]]:
    """What is wrong with `given`, as (key path, sentence without the path), each key once.

    >>> class Size(BaseModel):
    ...     width: int
    >>> try:
    ...     Size.model_validate({"width": "wide"})
    ... except ValidationError as error:
    ...     problems(Size, error, {"width": "wide"})
    [('width', "= 'wide': allowed: a whole number")]
    """
    found: dict[str, str] = {}
    for one in error.errors():
        path, sentence = _problem(model, one, given)
        found.setdefault(path, sentence)
    return list(found.items())


def sentence(path: str, words: str) -> str:
    """A key path and what is wrong with it, joined."""
    return f"{path} {words}" if words.startswith("=") else f"{path}: {words}"


def _problem(model: type[BaseModel], error: Any, given: Any) -> tuple[str, str]:
    kind, loc = error["type"], error["loc"]
    if kind == "extra_forbidden":
        path, annotation, _ = _walk(model, loc[:-1], given)
        names = getattr(model_in(annotation), "model_fields", {})
        return ".".join([*path, str(loc[-1])]), unknown("key", str(loc[-1]), names)
    path, annotation, metadata = _walk(model, loc, given)
    if kind in ("invalid_key", "string_type") and loc and not path:
        return str(loc[0]), "allowed: a key that is text"
    where, value = ".".join(path), error["input"]
    if kind == "missing":
        return where, f"is missing; allowed: {takes(annotation, metadata)}"
    if kind == "value_error":
        return where, f"= {value!r:.80}: {error['msg'].removeprefix('Value error, ')}"
    return where, f"= {value!r:.80}: allowed: {takes(annotation, metadata)}{hint(value, _choices(annotation))}"


def _walk(annotation: Any, loc: Sequence[Any], given: Any) -> tuple[list[str], Any, Any]:
    """The keys of pydantic's location, which also names the members of unions, and the type that stands there."""
    path: list[str] = []
    metadata: Any = ()
    for part in loc:
        step = _step(annotation, part, given)
        if step is None:
            continue
        path.append(str(part))
        annotation, metadata = step
        inside = isinstance(given, Mapping) and part in given
        indexed = isinstance(given, list | tuple) and isinstance(part, int) and part < len(given)
        given = given[part] if inside or indexed else None
    return path, annotation, metadata


def _step(annotation: Any, part: Any, given: Any) -> tuple[Any, Any] | None:
    """The type of one key or item of a type; None where it has none of that name."""
    annotation, _ = _bare(annotation)
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return next((step for one in inner if (step := _step(one, part, given)) is not None), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        field = annotation.model_fields.get(str(part))
        return None if field is None else (field.annotation, field.metadata)
    if origin in (dict, Mapping) and isinstance(given, Mapping) and part in given:
        return inner[1], ()
    if origin in (list, tuple, Sequence) and isinstance(part, int):
        return (inner[part] if origin is tuple and part < len(inner) and inner[-1] is not Ellipsis else inner[0]), ()
    return None


def _bare(annotation: Any, metadata: Iterable[Any] = ()) -> tuple[Any, list[str]]:
    """A type without its `Annotated`, and its limits in words."""
    marks = list(metadata)
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        marks = [*more, *marks]
    flat = [one for mark in marks for one in (mark.metadata if isinstance(mark, FieldInfo) else [mark])]
    limits = [text.format(getattr(one, name)) for one in flat for name, text in _LIMITS.items() if hasattr(one, name)]
    return annotation, limits


def model_in(annotation: Any) -> Any:
    """The pydantic model of a field that takes a section; None where it takes none."""
    options = [annotation, *get_args(annotation)]
    return next((one for one in options if isinstance(one, type) and issubclass(one, BaseModel)), None)


def _choices(annotation: Any) -> list[str]:
    annotation, _ = _bare(annotation)
    if get_origin(annotation) is Literal:
        return [one for one in get_args(annotation) if isinstance(one, str)]
    return [name for one in get_args(annotation) if get_origin(one) is Literal for name in _choices(one)]


def _many(annotation: Any) -> str:
    words = takes(annotation)
    return _MANY.get(words, words.replace("a whole number of", "whole numbers of"))


def _either(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
