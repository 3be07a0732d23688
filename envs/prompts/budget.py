"""The budget of a template: the characters that its operations read and write, counted before a result is made."""

import re
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.sandbox import SecurityError
from jinja2.utils import Namespace

MAX_VALUE = 200_000  # characters of one value; each item of a list counts as one more
MAX_WORK = 5_000_000  # characters that all operations of one rendering read and write
STEP = 500  # characters that an operation counts as, however small its values are: 10,000 operations in all
MAX_COUNT = 10_000  # of an argument that is a width or a count
MAX_DIGITS = 100  # of a whole number

_LONG_NUMBER = re.compile(r"\d{4}|%[^a-zA-Z%]*\*|\{[^{}]*\{")  # a width of thousands, or one from an argument


class TemplateLimitError(SecurityError):
    """A template that computes more than a text for a model needs."""


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_WORK


_budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limit_work() -> Iterator[None]:
    """Give the templates that are compiled or rendered inside the block one budget."""
    token = _budget.set(_Budget())
    try:
        yield
    finally:
        _budget.reset(token)


def spend(size: int, step: int = STEP) -> None:
    """Take one operation on values of `size` characters from the budget."""
    budget = _budget.get()
    if budget is None:
        return
    budget.left -= step + size
    if budget.left < 0:
        raise TemplateLimitError(f"more work than a text needs; allowed: {MAX_WORK:,} characters in all operations")


def measure(value: Any) -> int:
    """The characters of a value, with everything inside it; raises `TemplateLimitError` if they are too many."""
    size, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        size += 1
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, int):
            _check_bits(item.bit_length())
            size += item.bit_length() // 3
        elif isinstance(item, Mapping):
            waiting += item.keys()
            waiting += item.values()
        elif isinstance(item, Sequence | set | frozenset | KeysView | ValuesView | ItemsView):
            waiting.extend(iter(item))
        elif isinstance(item, Namespace):
            waiting.append(item._Namespace__attrs)
        if size + len(waiting) > MAX_VALUE:
            raise TemplateLimitError(f"a value of more than {MAX_VALUE:,} characters")
    return size


def spend_value(value: Any) -> Any:
    """The value itself, after its size was taken from the budget."""
    kind = type(value)
    if kind is str and len(value) < MAX_VALUE:
        spend(len(value))
    elif value is None or kind is bool or (kind is int and -MAX_VALUE < value < MAX_VALUE):
        spend(1)
    else:
        spend(measure(value))
    return value


def spend_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Take a filter or method with its arguments, and the longest result that it can have, from the budget."""
    if name not in ("d", "default", "test"):
        for value in (*args[1:], *kwargs.values()):
            if isinstance(value, int | float) and not abs(value) <= MAX_COUNT:
                raise TemplateLimitError(f"{name}: {value!r:.20} as an argument; allowed: at most {MAX_COUNT:,}")
    size = measure(args) + measure(kwargs)
    result = _predict_result(name, args, kwargs, size)
    if result > MAX_VALUE:
        raise TemplateLimitError(f"{name}: a text of {result:,} characters; allowed: {MAX_VALUE:,}")
    spend(size + result)


def predict_operator(operator: str, left: Any, right: Any) -> int:
    """The characters of `left operator right` beyond those of both; raises `TemplateLimitError` for long numbers."""
    if operator == "%" and isinstance(left, str):
        return _check_result(_predict_format(left, measure(left) + measure(right)))
    if operator == "*":
        repeated = _split_repetition(left, right)
        if repeated is not None:
            return _check_result(measure(repeated[0]) * max(0, repeated[1]))
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))
    return 0


def _predict_result(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], size: int) -> int:
    """The characters that a result can have beyond those of the arguments, where it can be much longer than they."""
    texts = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
    counts = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, int)]
    if name == "join":
        return max(map(len, texts), default=0) * max(map(_get_length, (*args, *kwargs.values())), default=0)
    if name in ("replace", "wordwrap"):
        others = [len(text) for text in (*texts[1:], *([texts[0]] if name == "wordwrap" and not args else ()))]
        return _count_places(name, args, texts) * max(others, default=1)
    if name in ("indent", "tojson"):
        lines = measure(args[0]) if name == "tojson" else str(args[0]).count("\n") + 1
        return lines * max([*counts, *map(len, texts[1:]), 1])
    if name in ("format", "format_map"):
        return _predict_format(str(args[0]), size)
    return 0


def _count_places(name: str, args: Sequence[Any], texts: Sequence[str]) -> int:
    if name == "wordwrap":
        return len(texts[0]) + 1 if texts else 1
    if len(args) > 1 and isinstance(args[1], str) and args[1]:
        return str(args[0]).count(args[1])
    return len(str(args[0])) + 1


def _predict_format(pattern: str, size: int) -> int:
    if _LONG_NUMBER.search(pattern):
        raise TemplateLimitError("a format with a width of thousands, or a width that is an argument")
    return (pattern.count("%") + pattern.count("{")) * (size + 1000)


def _split_repetition(left: Any, right: Any) -> tuple[Any, int] | None:
    """The sequence and the number of `sequence * number`, in either order."""
    for sequence, number in ((left, right), (right, left)):
        if isinstance(sequence, Sequence) and isinstance(number, int):
            return sequence, number
    return None


def _check_result(size: int) -> int:
    if size > MAX_VALUE:
        raise TemplateLimitError(f"a value of {size:,} characters; allowed: {MAX_VALUE:,}")
    return size


def _check_bits(bits: int) -> None:
    if bits > 4 * MAX_DIGITS:
        raise TemplateLimitError(f"a number of more than {MAX_DIGITS} digits")


def _get_length(value: Any) -> int:
    return len(value) if isinstance(value, Sequence | Mapping | set | frozenset) else 1
