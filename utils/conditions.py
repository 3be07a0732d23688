"""Conditions on named fields, `field op value`: the language of `viewbox score --where` and of a data block's `where`.

`=` and `!=` compare with each of the values between `|` (write `==` if the value itself begins with `=`); a value may
stand in quotes. `>`, `>=`, `<`, `<=` compare numbers. `~` searches for a regular expression and ignores case. A list
matches if any of its items does. A missing field is `null`, which is neither greater nor less than any number.
"""

import json
import math
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ConfigError
from .frozen import thaw

_FORM = re.compile(r"\s*([^\s=!<>~]+)\s*(==|!=|>=|<=|=|>|<|~)\s*(.*?)\s*", re.DOTALL)
_ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class Condition(NamedTuple):
    """A field, and the test that its value must pass."""

    field: str
    test: Callable[[Any], bool]


def parse_condition(text: str, source: str, example: str) -> Condition:
    """Parse `field op value`; whether the field exists is for the caller to check.

    Args:
        text: the condition.
        source: the option or key that holds it, for errors.
        example: a condition that would be right, for errors.

    Raises:
        ConfigError: another form, a number that is none, or a regular expression that does not compile.

    >>> field, test = parse_condition("modality == 'CT'|MR", "where", "split=train")
    >>> field, test("CT"), test("MR"), test("XR")
    ('modality', True, True, False)
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise ConfigError(
            f"{source} {text!r}; allowed: field op value, with one of = != > >= < <= ~ (such as {example})"
        )
    field, op, value = form.groups()
    try:
        return Condition(field, _build_test(op, value))
    except ConfigError as error:
        raise ConfigError(f"{source} {text!r}: {error}") from error


def format_value(value: object) -> str:
    """Write a value as in a filter: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(thaw(value), ensure_ascii=False)


def sort_key(value: str) -> tuple[bool, float, str]:
    """Sort formatted values: numbers by their size, then text.

    >>> sorted(["10", "b", "2", "-1.5", "a"], key=sort_key)
    ['-1.5', '2', '10', 'a', 'b']
    """
    number = _parse_number(value)
    return number is None, number or 0.0, value


def _build_test(op: str, operand: str) -> Callable[[Any], bool]:
    if op == "~":
        try:
            search = re.compile(operand, re.IGNORECASE).search
        except re.error as error:
            raise ConfigError(f"{operand!r} is not a regular expression: {error}") from error
        return lambda value: any(search(format_value(item)) is not None for item in _list_items(value))
    if op in _ORDER:
        limit = _parse_number(operand)
        if limit is None:
            raise ConfigError(f"{op} compares numbers; given {operand!r}")
        compare = _ORDER[op]
        return lambda value: any(_is_number(item) and compare(item, limit) for item in _list_items(value))
    allowed = [(text.strip(), _parse_number(text)) for text in operand.split("|")]

    def is_equal(value: object) -> bool:
        return any(_is_equal(item, text, number) for item in _list_items(value) for text, number in allowed)

    return (lambda value: not is_equal(value)) if op == "!=" else is_equal


def _strip_quotes(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _list_items(value: Any) -> list[Any]:
    """Return the items of a list or set. Any other value, and an empty list, counts as one item."""
    return list(value) if isinstance(value, tuple | frozenset | set) and value else [value]


def _is_equal(item: Any, text: str, number: float | None) -> bool:
    return format_value(item) in (text, _strip_quotes(text)) or (
        number is not None and _is_number(item) and item == number
    )


def _is_number(item: Any) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
