"""Templates of somebody else, with a limit on their work. Jinja's own sandbox limits only what they may access.

Each operation of a template (a loop's round, a call, a filter, an operator, a piece of output) spends the characters of
its values from a budget, before its result is made. Lists are measured with everything inside them, so that no value
can grow unseen. What is left out (`striptags`, `lipsum`, recursive loops, …) cannot be measured beforehand.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.runtime import LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer

from viewbox.envs.prompts.budget import (
    MAX_COUNT,
    TemplateLimitError,
    measure,
    predict_operator,
    spend,
    spend_call,
    spend_value,
)

MAX_SOURCE = 100_000  # characters of a template

# Filters and methods whose result is at most a few times as long as their arguments, or which `budget.py` measures.
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


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates that can be rendered inside `limit_work`.

    >>> from viewbox.envs.prompts.budget import limit_work
    >>> with limit_work():
    ...     BoundedEnvironment().from_string("{{ 9 ** 999 }}").render()
    Traceback (most recent call last):
    viewbox.envs.prompts.budget.TemplateLimitError: a number of more than 100 digits
    """

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "%", "**"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, optimized=False, finalize=spend_value
        )
        self.filters = {name: _limit_function(name, value) for name, value in self.filters.items() if name in FILTERS}
        self.filters |= {"_spend_value": spend_value, "_spend_rounds": _spend_rounds, "_join_pieces": _join_pieces}
        self.tests = {n: _limit_function("test", test) if n in _LONG_TESTS else test for n, test in self.tests.items()}
        self.globals = {"range": _make_range, "dict": dict, "cycler": Cycler, "joiner": Joiner, "namespace": Namespace}
        self.__dict__["concat"] = _join_pieces  # a class attribute of Jinja's, not a method

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MAX_SOURCE:
            raise TemplateLimitError(f"{len(source):,} characters; allowed: {MAX_SOURCE:,}")
        parsed: nodes.Template = _MeasuringTransformer(self).visit(super()._parse(source, name, filename))
        return parsed

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        spend(measure(left) + measure(right) + predict_operator(operator, left, right))
        return spend_value(super().call_binop(context, operator, left, right))

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(argument, str | int):
            spend(measure(argument))
        return super().getitem(obj, argument)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        method = getattr(__obj, "__wrapped__", __obj)  # `str.format` comes wrapped by Jinja
        owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
        if not (isinstance(__obj, _CALLABLE) or isinstance(owner, _CALLABLE) or __obj in __self.globals.values()):
            kind = next((kind for kind in METHODS if isinstance(owner, kind)), None)
            if kind is None or name not in METHODS[kind]:
                raise SecurityError(f"{name or type(__obj).__name__} cannot be called in a template")
            spend_call(name, (owner, *args), kwargs)
        else:
            spend(measure(args) + measure(kwargs))
        return spend_value(super().call(__context, __obj, *args, **kwargs))


class _MeasuringTransformer(NodeTransformer):
    """Adds a filter that measures to each operation that Jinja runs without calling its environment."""

    def __init__(self, environment: BoundedEnvironment) -> None:
        self.environment = environment

    def _filter(self, node: nodes.Node, name: str) -> nodes.Filter:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=self.environment)

    def visit_For(self, node: nodes.For) -> nodes.For:
        if node.recursive:
            raise TemplateSyntaxError("recursive loops are not allowed in a template", node.lineno)
        self.generic_visit(node)
        node.iter = self._filter(node.iter, "_spend_rounds")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return self._filter(nodes.List(node.nodes, lineno=node.lineno, environment=self.environment), "_join_pieces")

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = self._filter(node.expr, "_spend_value")
        for operand in node.ops:
            operand.expr = self._filter(operand.expr, "_spend_value")
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_spend_value") if isinstance(node.arg, nodes.Slice) else node

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_spend_value")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_spend_value")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return self._filter(node, "_spend_value") if node.ctx == "load" else node


def _spend_rounds(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        spend(0)
        yield value


def _join_pieces(pieces: Iterable[Any]) -> str:
    """The pieces of output as one text. A piece is no operation of its own: what made it was counted."""
    texts = []
    for piece in pieces:
        texts.append(str(piece))
        spend(len(texts[-1]), step=1)
    return "".join(texts)


def _make_range(*numbers: int) -> Sequence[int]:
    counted = range(*numbers)
    if len(counted) > MAX_COUNT:
        raise TemplateLimitError(f"a range of {len(counted):,} numbers; allowed: {MAX_COUNT:,}")
    return spend_value(counted)  # type: ignore[no-any-return]


def _limit_function(name: str, function: Any) -> Callable[..., Any]:
    """A filter, test or global that pays for its arguments and its result."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(list(value) if isinstance(value, Iterator) else value for value in args)
        given = args[1:] if hasattr(function, "jinja_pass_arg") else args
        spend_call(name, given, kwargs)
        return spend_value(function(*args, **kwargs))

    return call
