"""Which episodes: `field op value`, the filter of `viewbox score --where`.

    end_reason=answered    answer.label=one|seven    task.metadata.seed>=100    flags=salvaged    scores.total<0.5
    run_config.model_name~qwen.*4b    num_turns>2    tools_used=zoom    answer=null

A field is a dotted path into the episode's JSON, or `num_turns`, `tool_call_count`, `tools_used`. `=` and `!=` compare
with any of the values between `|` (`==` is `=`, for values that begin with one); `>`, `>=`, `<`, `<=` compare numbers;
`~` searches a regular expression without case. Of a list, any item will do. What an episode does not have is `null`,
and is neither greater nor less.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from viewbox.errors import ConfigError, describe_unknown
from viewbox.frozen import Record, thaw
from viewbox.records import Episode, RunConfig, Scores, Task

_FORM = re.compile(r"\s*([^\s=!<>~]+)\s*(==|!=|>=|<=|=|>|<|~)\s*(.*?)\s*", re.DOTALL)
_ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_PROPERTIES = ("num_turns", "tool_call_count", "tools_used")
_INNER: dict[str, type[Record]] = {"task": Task, "scores": Scores, "run_config": RunConfig}


def _names(record: type[Record]) -> list[str]:
    return [item.name for item in fields(record) if not item.metadata.get("beside")]  # type: ignore[arg-type]


def where(text: str) -> Callable[[Episode], bool]:
    """Whether an episode meets one condition; raises `ConfigError` where the text is not one.

    >>> from viewbox.records import Task
    >>> episode = Episode(Task("t1", metadata={"seed": 3}), answer={"label": "one"}, flags={"salvaged"})
    >>> [where(text)(episode) for text in ("answer.label=one|two", "task.metadata.seed > 3", "flags!=x", "task.id~^T")]
    [True, False, True, True]
    >>> where("task.idd=t1")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: --where 'task.idd=t1': unknown field of task 'idd'; allowed: id, images, metadata, \
prompt, reference (did you mean 'id'?)
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise ConfigError(
            f"--where {text!r}: allowed: field op value, with op one of = != > >= < <= ~ (such as end_reason=answered)"
        )
    field, op, value = form.groups()
    try:
        check_field(field)
        test = _test(op, value)
    except ConfigError as error:
        raise ConfigError(f"--where {text!r}: {error}") from error
    return lambda episode: test(value_of(episode, field))


def check_field(field: str) -> None:
    """Raises `ConfigError` where no episode can have the field."""
    first, _, rest = field.partition(".")
    names = [*_names(Episode), *_PROPERTIES]
    if first not in names:
        raise ConfigError(describe_unknown("field", first, names))
    second = rest.partition(".")[0]
    if second and first in _INNER and second not in _names(_INNER[first]):
        raise ConfigError(describe_unknown(f"field of {first}", second, _names(_INNER[first])))


def value_of(episode: Episode, field: str) -> Any:
    """What an episode has at a dotted path; None where it has nothing. Keys may hold dots themselves.

    >>> from viewbox.records import Task
    >>> value_of(Episode(Task("t1", metadata={"boxes": [[0, 1]]})), "task.metadata.boxes.0")
    (0, 1)
    """
    value: Any = episode
    while field:
        if isinstance(value, Mapping) and field in value:
            return value[field]
        part, _, field = field.partition(".")
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, tuple):
            value = value[int(part)] if part.isdecimal() and int(part) < len(value) else None
        elif isinstance(value, Record) and (part in _PROPERTIES or part in _names(type(value))):
            value = getattr(value, part)
            value = value() if callable(value) else value
        else:
            return None
    return value


def words(value: Any) -> str:
    """A value as a filter writes it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)


def _test(op: str, value: str) -> Callable[[Any], bool]:
    if op == "~":
        try:
            search = re.compile(value, re.IGNORECASE).search
        except re.error as error:
            raise ConfigError(f"{value!r} is not a regular expression: {error}") from error
        return lambda found: any(search(words(item)) is not None for item in _items(found))
    if op in _ORDER:
        limit = _number(value)
        if limit is None:
            raise ConfigError(f"{op} compares numbers; given {value!r}")
        compare = _ORDER[op]
        return lambda found: any(_is_number(item) and compare(item, limit) for item in _items(found))
    allowed = [(text.strip(), _number(text)) for text in value.split("|")]

    def equal(found: Any) -> bool:
        return any(_equals(item, text, number) for item in _items(found) for text, number in allowed)

    return (lambda found: not equal(found)) if op == "!=" else equal


def _items(found: Any) -> list[Any]:
    """The items of a list or set; any other value by itself, and so is an empty list."""
    return list(found) if isinstance(found, tuple | frozenset | set) and found else [found]


def _equals(item: Any, text: str, number: float | None) -> bool:
    return words(item) == text or (number is not None and _is_number(item) and item == number)


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
