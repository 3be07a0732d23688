"""Reads YAML and remembers the line of every key, so that error messages can name it. Also reads `key=value`.

Plain values mean what the core schema of YAML 1.2 says (yaml.org/spec/1.2.2, 10.3.2): `010` is ten, `1e-4` a number,
and `no`, `1:30`, `1_000` and `2026-11-25` are text. A key given twice is an error. Somebody else's file can hold more:
aliases of aliases that stand for billions of values, numbers that no type holds, endless nesting. Its size, its depth,
and what it stands for once its aliases are written out are therefore limited.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from numbers import Real
from pathlib import Path
from typing import Any

import yaml

from ..errors import ConfigError
from ..utils.files import read_regular
from ..utils.secrets import mask_override

MAX_BYTES = 2**18  # of a file
MAX_NODES = 20_000  # values and keys with all aliases written out; each 64 characters of a text count as one
MAX_DEPTH = 32  # mappings and lists inside each other, with all aliases written out; also keys of an override
MAX_DIGITS = 100  # characters of a number
_TAG = "tag:yaml.org,2002:"
_NUMBERS = (f"{_TAG}int", f"{_TAG}float")
_CORE = {  # the kinds of a plain scalar, with the characters that it begins with; anything else is text
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?\d+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+.0123456789"),
    "merge": (r"<<", "<"),
}


class _Loader(yaml.SafeLoader):
    """YAML of the core schema that rejects a key given twice, and is limited in what it stands for."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[int, tuple[int, int]] = {}  # (nodes, depth) of every complete node, by its id
        self._open = self._composed = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.events.AliasEvent)
        self._open += 1
        self._composed += 1
        self._check(line, self._composed, self._open)
        node = super().compose_node(parent, index)
        self._open -= 1
        if is_alias and id(node) not in self._sizes:
            raise ConfigError(f"{_format_place(self.name, line)}: an alias of the value that it stands in")
        if not is_alias:
            self._sizes[id(node)] = self._measure(node)
        self._check(line, *self._sizes[id(node)])
        return node

    def _measure(self, node: Any) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            return 1 + len(node.value) // 64, 0
        inner = [child for pair in node.value for child in (pair if isinstance(pair, tuple) else (pair,))]
        sizes = [self._sizes[id(child)] for child in inner]
        return 1 + sum(size for size, _ in sizes), 1 + max((depth for _, depth in sizes), default=0)

    def _check(self, line: int, size: int, depth: int) -> None:
        place = _format_place(self.name, line)
        if size > MAX_NODES:
            raise ConfigError(f"{place}: stands for {size} values with its aliases; allowed: {MAX_NODES}")
        if depth > MAX_DEPTH:
            raise ConfigError(f"{place}: nested {depth} deep; allowed: {MAX_DEPTH}")

    def construct_object(self, node: Any, deep: bool = False) -> object:
        try:
            if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
                raise ValueError(f"a number of {len(node.value)} characters; allowed: {MAX_DIGITS}")
            return _check_value(super().construct_object(node, deep), node)
        except (ConfigError, yaml.YAMLError):
            raise
        except Exception as error:  # PyYAML converts numbers and tagged text without checking them
            place = _format_place(self.name, node.start_mark.line + 1)
            kind = str(node.tag).rpartition(":")[2]
            reason = str(error) or type(error).__name__
            raise ConfigError(f"{place}: {node.value!r:.80} is not a value of the kind {kind!r} ({reason})") from error


def _check_value(value: Any, node: yaml.Node) -> Any:
    """Return the value of a node; raise `ValueError` for text and numbers that YAML can write and nothing else can
    hold."""
    if isinstance(value, str) and not value.isascii():
        value.encode()
    if isinstance(value, float) and math.isinf(value) and "inf" not in node.value.lower():
        raise ValueError("a number that is too large")
    return value


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_TAG}merge":
            continue
        key = loader.construct_object(key_node)
        if key in seen:
            line = key_node.start_mark.line + 1
            raise ConfigError(
                f"{_format_place(loader.name, line)}: the key {key!r} is given twice (first: line {seen[key]}); "
                "allowed: once in a mapping"
            )
        seen[key] = key_node.start_mark.line + 1
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


class _Dumper(yaml.SafeDumper):
    """Quotes a text that YAML 1.1 or 1.2 would read as something else, such as the name 1e5."""


_Loader.yaml_implicit_resolvers, _Loader.yaml_constructors = {}, {None: yaml.SafeLoader.construct_undefined}
for _kind in ("null", "bool", "float", "str", "seq"):
    _Loader.add_constructor(f"{_TAG}{_kind}", yaml.SafeLoader.yaml_constructors[f"{_TAG}{_kind}"])
_Loader.add_constructor(f"{_TAG}int", lambda _, node: int(node.value, 0 if node.value[:2] in ("0o", "0x") else 10))
_Loader.add_constructor(f"{_TAG}map", _construct_mapping)
for _kind, (_pattern, _first) in _CORE.items():
    for _either in (_Loader, _Dumper):
        _either.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(f"^(?:{_pattern})$", re.ASCII), list(_first))


def write(values: object) -> str:
    """Return plain values as YAML, in their order; `read` gives them back."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


@dataclass
class Document:
    """The values of a file with its overrides, and where each key path was written: a line, or an override. Documents
    compare equal, so that configs are compared by their values only."""

    name: str = field(default="config", compare=False)
    values: Any = field(default_factory=dict, compare=False)
    places: dict[str, str] = field(default_factory=dict, compare=False)

    def find_place(self, key: str) -> str:
        """Return where a key path was written, or the nearest section around it, or the file.

        >>> Document("x.yaml", {}, {"train": "x.yaml, line 3"}).find_place("train.seed")
        'x.yaml, line 3'
        """
        parts = key.split(".")
        paths = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        return next((self.places[path] for path in paths if path in self.places), self.name)

    def override(self, text: str) -> None:
        """Set one `key.path=value`; creates the sections on the way that are missing."""
        shown = mask_override(text)
        place = f"{self.name}, override {shown if len(shown) < 80 else shown[:79] + '…'!r}"
        key, value = parse_key_value(text, place)
        for created in set_nested(self.values, key, value, place):
            self.places[created] = place
        self.places = {path: at for path, at in self.places.items() if not path.startswith(f"{key}.")} | {key: place}


def parse_key_value(text: str, origin: str = "") -> tuple[str, Any]:
    """Return the key path and the value, read as YAML, of `key.path=value`; `origin` begins the error message.

    >>> parse_key_value("train.learning_rate=1e-4"), parse_key_value("tools=[zoom, crop]")
    (('train.learning_rate', 0.0001), ('tools', ['zoom', 'crop']))
    """
    key, equals, value = text.partition("=")
    origin = origin or repr(mask_override(text))
    if not equals or not all(segment.strip() for segment in key.split(".")):
        raise ConfigError(f"{origin}: write key.path=value")
    if key.count(".") >= MAX_DEPTH:
        raise ConfigError(f"{origin}: a key path of {key.count('.') + 1} parts; allowed: {MAX_DEPTH}")
    key, parsed = key.strip(), value.strip() if _has_comment(value) else parse(value, origin)[0]
    check_finite(parsed, lambda _: origin, key)
    return key, parsed


def _has_comment(value: str) -> bool:
    """Return whether YAML would leave out the end of a value, or all of it, as a comment: an override has none."""
    if "#" not in value:
        return False
    try:
        node = _Loader(value).get_single_node()
    except yaml.YAMLError:
        return False
    return node is None or "#" in value[node.end_mark.index :]


def parse_key_values(texts: Iterable[str], origin: str = "") -> dict[str, object]:
    """Several `key.path=value` as one mapping; dots in a key lead into inner mappings.

    >>> parse_key_values(["noise=1e-4", "max_calls.zoom=2"])
    {'noise': 0.0001, 'max_calls': {'zoom': 2}}
    """
    values: dict[str, Any] = {}
    for text in texts:
        place = f"{origin} {mask_override(text)!r}".strip()
        set_nested(values, *parse_key_value(text, place), place)
    return values


def set_nested(values: dict[str, Any], key: str, value: object, origin: str = "") -> list[str]:
    """Set the value at a key path in place, and return the paths of the mappings it had to create.

    >>> values = {"a": {"b": 1}}
    >>> set_nested(values, "a.c.d", 2), values
    (['a.c'], {'a': {'b': 1, 'c': {'d': 2}}})
    """
    *parents, last = key.split(".")
    created: list[str] = []
    for depth, segment in enumerate(parents, 1):
        if values.get(segment) is None:
            values[segment] = {}
            created.append(".".join(parents[:depth]))
        values = values[segment]
        if not isinstance(values, dict):
            raise ConfigError(f"{origin or key}: {segment!r} is a value; allowed: a section, which has keys")
    values[last] = value
    return created


def read(path: Path, *, inside: Path | None = None) -> Document:
    """Read a file; raise `ConfigError` with file and line if it is not YAML."""
    try:
        content = _read_pipe(str(path)) if is_pipe(path) else read_regular(path, limit=MAX_BYTES, inside=inside)
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text (byte {error.start} is {error.object[error.start]:#04x})"
        raise ConfigError(f"{path}: {problem}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    values, lines = parse(text, str(path))
    document = Document(str(path), values, {key: f"{path}, line {line}" for key, line in lines.items()})
    check_finite(values, document.find_place)
    return document


def is_pipe(path: Path | str) -> bool:
    """Return whether a name is that of a pipe that a shell opened for this command, as `<(…)` does."""
    return str(path).startswith(("/dev/fd/", "/proc/self/fd/", "/dev/stdin"))


@cache
def _read_pipe(path: str) -> bytes:
    with open(path, "rb") as file:  # ends when it is read, so that it is read once
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: more than {MAX_BYTES:,} bytes")
    return content


def read_shipped(package: str, name: str) -> Any:
    """Return the values of a file of viewbox, which may lie in a zip file."""
    return parse((files(package) / name).read_text(encoding="utf-8"), name)[0]


def check_finite(value: object, find_place: Callable[[str], str], key: str = "") -> None:
    """Raise `ConfigError` for NaN and infinity in nested values; `find_place` returns where a key path was written."""
    if isinstance(value, Real) and (value != value or value in (math.inf, -math.inf)):
        raise ConfigError(f"{find_place(key)}: {key} = {value}; allowed: a finite number", key=key)
    inner: Any = value.items() if isinstance(value, Mapping) else ()
    for name, item in enumerate(value) if isinstance(value, list | tuple) else inner:
        check_finite(item, find_place, f"{key}.{name}" if key else str(name))


def parse(text: str, name: str) -> tuple[Any, dict[str, int]]:
    """Return the values of YAML text and the line of every key path in it; `name` is its source in error messages."""
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{name}: {len(text):,} characters; allowed: {MAX_BYTES:,}")
    try:
        loader = _Loader(text)
        loader.name = name
        node = loader.get_single_node()
        if node is None:
            return None, {}
        return loader.construct_document(node), dict(_find_lines(node))
    except ConfigError:
        raise
    except yaml.YAMLError as error:
        raise ConfigError(_explain_error(error, text, name)) from error
    except (ArithmeticError, LookupError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: not YAML: {type(error).__name__}: {error}") from error


def _find_lines(node: yaml.Node, path: str = "") -> Iterator[tuple[str, int]]:
    """(key path, line) of everything below a node, after merge keys were resolved."""
    pairs: list[tuple[str, int, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        pairs = [(str(key.value), key.start_mark.line + 1, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(str(i), value.start_mark.line + 1, value) for i, value in enumerate(node.value)]
    for key, line, value in pairs:
        inner = f"{path}.{key}" if path else key
        yield inner, line
        yield from _find_lines(value, inner)


def _explain_error(error: yaml.YAMLError, text: str, name: str) -> str:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return f"{_format_place(name, line)}: not YAML: the character {error.character:#04x} is not allowed"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        return f"{name}: not YAML: {error}"
    lines = text.splitlines()
    near = range(max(0, mark.line - 1), min(len(lines), mark.line + 1))
    tab = next((n for n in near if re.match(r" *\t", lines[n])), None)
    if tab is not None:
        return f"{_format_place(name, tab + 1)}: begins with a tab; YAML allows only spaces there"
    reason = ", ".join(filter(None, (error.context, error.problem)))  # type: ignore[attr-defined]
    return f"{_format_place(name, mark.line + 1)}: not YAML: {reason}"


def _format_place(name: str, line: int) -> str:
    return name if ", override " in name else f"{name}, line {line}"
