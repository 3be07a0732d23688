"""Templates of somebody else, limited in what they compute: Jinja's sandbox keeps them from attributes, not from work.

Each operation of a template (a loop's round, a call, a filter, an operator, a piece of output) spends the characters of
its values from a budget, before its result is made. Lists are measured with everything inside them, so that no value
can grow unseen. What is left out (`striptags`, `lipsum`, recursive loops, …) cannot be measured beforehand.
"""

import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

MAX_SOURCE = 100_000  # characters of a template
MAX_VALUE = 200_000  # characters of one value; each item of a list counts as one more
MAX_WORK = 5_000_000  # characters that all operations of one rendering read and write
STEP = 500  # characters that an operation counts as, however small its values are: 10,000 operations in all
MAX_COUNT = 10_000  # of an argument that is a width or a count
MAX_DIGITS = 100  # of a whole number

# Filters and methods whose result is at most a few times as long as their arguments, or which `_predict` measures.
_FILTER_NAMES = (
    "abs batch capitalize center count d default dictsort e escape first float format indent int items join last "
    "length list lower map max min reject rejectattr replace reverse round safe select selectattr slice sort string "
    "title tojson trim truncate unique upper urlencode wordcount wordwrap "
)
_TEXT_METHODS = (
    "capitalize casefold center count endswith find format format_map index isalnum isalpha isascii isdecimal "
    "isdigit islower isnumeric isspace istitle isupper join ljust lower lstrip partition removeprefix removesuffix "
    "replace rjust rstrip split splitlines startswith strip swapcase title upper "
    "zfill "
)
FILTERS = frozenset(_FILTER_NAMES.split())
METHODS = {
    str: frozenset(_TEXT_METHODS.split()),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    Mapping: frozenset(("get", "items", "keys", "values")),
}
_LONG_TESTS = frozenset("== eq equalto != ne < lt lessthan <= le > gt greaterthan >= ge in lower upper".split())  # noqa: SIM905
_CALLABLE = (Macro, Joiner, LoopContext, Cycler)
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


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates that can be rendered inside `limit_work`.

    >>> with limit_work():
    ...     BoundedEnvironment().from_string("{{ 9 ** 999 }}").render()
    Traceback (most recent call last):
    viewbox.envs.prompts.sandbox.TemplateLimitError: a number of more than 100 digits
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, optimized=False, finalize=_sized
        )
        self.filters = {name: _bound(name, value) for name, value in self.filters.items() if name in FILTERS}
        self.filters |= {"_sized": _sized, "_each": _each, "_concat": _concat}
        self.tests = {n: _bound("test", test) if n in _LONG_TESTS else test for n, test in self.tests.items()}
        self.globals = {"range": _count, "dict": dict, "cycler": Cycler, "joiner": Joiner, "namespace": Namespace}
        self.__dict__["concat"] = _concat  # a class attribute of Jinja's, not a method

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE:
            raise TemplateLimitError(f"{len(source):,} characters; allowed: {MAX_SOURCE:,}")
        parsed: nodes.Template = _Measured(self).visit(super()._parse(source, name, filename))
        return parsed

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _spend(_measure(left) + _measure(right) + _predict_operator(operator, left, right))
        return _sized(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(argument, str | int):
            _spend(_measure(argument))
        return super().getitem(obj, argument)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # `str.format` comes wrapped by Jinja
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if not (isinstance(__obj, _CALLABLE) or isinstance(owner, _CALLABLE) or __obj in __self.globals.values()):
            kind = next((kind for kind in METHODS if isinstance(owner, kind)), None)
            if kind is None or name not in METHODS[kind]:
                raise SecurityError(f"{name or type(__obj).__name__} cannot be called in a template")
            _spend_call(name, (owner, *args), kwargs)
        else:
            _spend(_measure(args) + _measure(kwargs))
        return _sized(super().call(__context, __obj, *args, **kwargs))


class _Measured(NodeTransformer):
    """Puts a filter that measures around what Jinja computes without asking its environment."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self.environment = environment

    def _filter(self, node: nodes.Node, name: str) -> nodes.Filter:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=self.environment)

    def visit_For(self, node: nodes.For) -> nodes.For:
        if node.recursive:
            raise TemplateSyntaxError("recursive loops are not allowed in a template", node.lineno)
        self.generic_visit(node)
        node.iter = self._filter(node.iter, "_each")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return self._filter(nodes.List(node.nodes, lineno=node.lineno, environment=self.environment), "_concat")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = self._filter(node.expr, "_sized")
        for operand in node.ops:
            operand.expr = self._filter(operand.expr, "_sized")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_sized") if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_sized")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_sized")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_sized") if node.ctx == "load" else node


# ---------------------------------------------------------------------- measuring
def _spend(size: int) -> None:
    """Take one operation on values of `size` characters from the budget."""
    budget = _budget.get()
    if budget is None:
        return
    budget.left -= STEP + size
    if budget.left < 0:
        raise TemplateLimitError(f"more work than a text needs; allowed: {MAX_WORK:,} characters in all operations")


def _measure(value: Any) -> int:
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


def _sized(value: Any) -> Any:
    """The value itself, after its size was taken from the budget."""
    kind = type(value)
    if kind is str and len(value) < MAX_VALUE:
        _spend(len(value))
    elif value is None or kind is bool or (kind is int and -MAX_VALUE < value < MAX_VALUE):
        _spend(1)
    else:
        _spend(_measure(value))
    return value


def _each(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        _spend(0)
        yield value


def _concat(pieces: Iterable[Any]) -> str:
    """The pieces of output as one text. A piece is no operation of its own: what made it was counted."""
    budget, texts = _budget.get(), []
    for piece in pieces:
        text = str(piece)
        texts.append(text)
        if budget is not None:
            budget.left -= len(text) + 1
            if budget.left < 0:
                _spend(0)  # raises
    return "".join(texts)


def _count(*numbers: int) -> Sequence[int]:
    counted = range(*numbers)
    if len(counted) > MAX_COUNT:
        raise TemplateLimitError(f"a range of {len(counted):,} numbers; allowed: {MAX_COUNT:,}")
    return _sized(counted)  # type: ignore[no-any-return]


def _bound(name: str, function: Any) -> Callable[..., Any]:
    """A filter, test or global that pays for its arguments and its result."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
        given = args[1:] if hasattr(function, "jinja_pass_arg") else args
        _spend_call(name, given, kwargs)
        return _sized(function(*args, **kwargs))

    return call


def _spend_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Take a filter or method with its arguments, and the longest result that it can have, from the budget."""
    if name not in ("d", "default", "test"):
        for value in (*args[1:], *kwargs.values()):
            if isinstance(value, int | float) and not abs(value) <= MAX_COUNT:
                raise TemplateLimitError(f"{name}: {value!r:.20} as an argument; allowed: at most {MAX_COUNT:,}")
    size = _measure(args) + _measure(kwargs)
    result = _predict(name, args, kwargs, size)
    if result > MAX_VALUE:
        raise TemplateLimitError(f"{name}: a text of {result:,} characters; allowed: {MAX_VALUE:,}")
    _spend(size + result)


def _predict(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], size: int) -> int:
    """The characters that a result can have beyond those of the arguments, where it can be much longer than they."""
    texts = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
    counts = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, int)]
    if name == "join":
        return max(map(len, texts), default=0) * max(map(_get_length, (*args, *kwargs.values())), default=0)
    if name in ("replace", "wordwrap"):
        others = [len(text) for text in (*texts[1:], *([texts[0]] if name == "wordwrap" and not args else ()))]
        return _count_places(name, args, texts) * max(others, default=1)
    if name in ("indent", "tojson"):
        lines = _measure(args[0]) if name == "tojson" else str(args[0]).count("\n") + 1
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


def _predict_operator(operator: str, left: Any, right: Any) -> int:
    """The characters of `left operator right` beyond those of both; raises `TemplateLimitError` for long numbers."""
    if operator == "%" and isinstance(left, str):
        return _check_result(_predict_format(left, _measure(left) + _measure(right)))
    if operator == "*":
        repeated = _split_repetition(left, right)
        if repeated is not None:
            return _check_result(_measure(repeated[0]) * max(0, repeated[1]))
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * abs(right))
    return 0


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
