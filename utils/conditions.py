"""Conditions on named fields, `field op value`: the language of `viewbox score --where` and of a data block's `where`.

`=` and `!=` compare with each of the values between `|` (write `==` if the value itself begins with `=`); a value may
stand in quotes. They compare names (`identify`): 7, 7.0 and the text 7 are one, so are true and TRUE, but not the texts
1.1 and 1.10. `>`, `>=`, `<`, `<=` compare numbers, also of text that is a number. `~` searches for a regular expression
and ignores case. A list matches if any of its items does. A missing field, NaN and blank text are `null`, which is
neither greater nor less than any number.
"""

import json
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ..errors import ConfigError
from .frozen import thaw, to_plain
from .values import identify, is_null, read_number, to_finite_float

_FORM = re.compile(r"\s*([^\s=!<>~]+)\s*(==|!=|>=|<=|=|>|<|~)\s*(.*?)\s*", re.DOTALL)
_ORDER = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class Condition(NamedTuple):
    """A field, and the test that its value must pass."""

    field: str
    test: Callable[[Any], bool]


def parse_condition(text: str, source: str, example: str) -> Condition:
    """Parse `field op value`; whether the field exists is for the caller to check.

    Raises:
        ConfigError: another form, a number that is none, or a regular expression that does not compile.

    >>> field, test = parse_condition("modality == 'CT'|MR", "where", "split=train")
    >>> field, test("CT"), test("MR"), test("XR")
    ('modality', True, True, False)
    """
    form = _FORM.fullmatch(text)
    if form is None:
        allowed = f"field op value, with one of = != > >= < <= ~ (such as {example})"
        raise ConfigError(f"{source} {text!r}; allowed: {allowed}")
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
    number = read_number(value)
    return number is None, number or 0.0, value


def _build_test(op: str, operand: str) -> Callable[[Any], bool]:
    if op == "~":
        try:
            search = re.compile(operand, re.IGNORECASE).search
        except re.error as error:
            raise ConfigError(f"{operand!r} is not a regular expression: {error}") from error
        return lambda value: any(search(format_value(item)) is not None for item in _list_items(value))
    if op in _ORDER:
        limit = read_number(operand)
        if limit is None:
            raise ConfigError(f"{op} compares numbers; given {operand!r}")
        compare = _ORDER[op]
        return lambda value: any(
            (number := read_number(item)) is not None and compare(number, limit) for item in _list_items(value)
        )
    texts = [text.strip() for text in operand.split("|")]
    names = {_name(_strip_quotes(text)) for text in texts} | {"" for text in texts if text in ("null", "")}
    numbers = {number for number in map(read_number, texts) if number is not None}
    written = {*texts, *map(_strip_quotes, texts)}

    def is_equal(item: Any) -> bool:
        if is_null(item):
            return "" in names
        return _name(item) in names or to_finite_float(item) in numbers or format_value(item) in written

    if op == "!=":
        return lambda value: not any(map(is_equal, _list_items(value)))
    return lambda value: any(map(is_equal, _list_items(value)))


def _name(value: object) -> str:
    """Return what two equal values have in common."""
    text = identify(value)
    return text.lower() if text.lower() in ("true", "false") else text


def _strip_quotes(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _list_items(value: Any) -> list[Any]:
    """Return the items of a list or set. Any other value, and an empty list, counts as one item."""
    plain = to_plain(value)
    return list(plain) if isinstance(plain, list | tuple | frozenset | set) and plain else [plain]
