"""The mapping of columns to the fields of a task: dotted paths, constants, templates, and lists of these."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, meta

from ...core.prompts.templates import JINJA
from ...errors import ConfigError, describe_unknown
from ...utils.field_paths import follow_path, list_heads
from .csv_rows import CellRow
from .rows import Row, Rows

Read = Callable[[Row], Any]
_NULL = StrictUndefined("a value that it writes is null; {{ name or '' }} writes nothing for it")  # raises
_JINJA = JINJA.overlay(finalize=lambda value: _NULL if value is None else value)


class ExpressionError(Exception):
    """A template that fails on a row."""


class ColumnMap:
    """The values of a task's fields, each read from a row by the setting `data.columns`. Raise `ConfigError` for an
    unknown column, or an expression that cannot be used; its key is `data.columns.<field>`."""

    def __init__(self, columns: Mapping[str, Any], rows: Rows) -> None:
        self._rows = rows
        self._used: dict[str, set[str]] = {}
        self._readers: dict[str, Read] = {}
        for field, spec in columns.items():
            self._used[field] = set()
            self._readers[field] = self._compile(spec, field, f"data.columns.{field}")
        self.plain = {field: spec for field, spec in columns.items() if isinstance(spec, str)}
        self.described = {field: _describe(spec, field) for field, spec in columns.items()}

    def __contains__(self, field: str) -> bool:
        return field in self._readers

    def get_used(self, fields: Iterable[str] | None = None) -> set[str]:
        """Return the columns that these fields (default: all) are read from."""
        names = self._readers if fields is None else [name for name in fields if name in self._readers]
        return {column for name in names for column in self._used[name]}

    def read(self, field: str, row: Row) -> Any:
        """Return the value of a field; None if its column has none. Raise `ExpressionError` if its template fails."""
        reader = self._readers.get(field)
        return None if reader is None else reader(row)

    def _compile(self, spec: Any, field: str, key: str) -> Read:
        if isinstance(spec, str):
            self._used[field].add(check_column(spec, self._rows, key))
            path = compile_path(spec)
            if field == "id":  # a name is as it was written
                return lambda row: path(row.written if isinstance(row, CellRow) and path(row) is not None else row)
            return path
        if isinstance(spec, list | tuple):
            readers = [self._compile(item, field, f"{key}.{number}") for number, item in enumerate(spec)]
            return lambda row: [reader(row) for reader in readers]
        if isinstance(spec, Mapping) and spec.keys() == {"value"}:
            return lambda row: spec["value"]
        if isinstance(spec, Mapping) and spec.keys() == {"template"}:
            return self._compile_template(spec["template"], field, key)
        if isinstance(spec, Mapping) and field == "metadata":
            inner = {str(name): self._compile(item, field, f"{key}.{name}") for name, item in spec.items()}
            return lambda row: {name: reader(row) for name, reader in inner.items()}
        allowed = "a column, {value: constant}, {template: Jinja2 source}, or a list of these"
        raise ConfigError(f"{key} = {spec!r:.80}; allowed: {allowed}", key=key)

    def _compile_template(self, source: Any, field: str, key: str) -> Read:
        if not isinstance(source, str):
            raise ConfigError(f"{key}.template = {source!r:.80}; allowed: text", key=key)
        try:
            names = meta.find_undeclared_variables(_JINJA.parse(source)) - _JINJA.globals.keys()
            template = _JINJA.from_string(source)
        except TemplateSyntaxError as error:
            raise ConfigError(f"{key}.template: line {error.lineno}: {error.message}", key=key) from error
        for name in sorted(names):
            self._used[field].add(check_column(name, self._rows, key))

        def render(row: Row) -> str:
            try:
                return template.render({name: row.get(name) for name in names})
            except Exception as error:  # a template can raise anything while it is rendered
                raise ExpressionError(f"its template fails: {type(error).__name__}: {error!s:.200}") from error

        return render


def check_column(path: str, rows: Rows, key: str) -> str:
    """Return the column that a dotted path begins with. Raise `ConfigError` with the nearest and all columns."""
    heads = list_heads(path)
    if same := [head for head in heads if head in rows.columns]:
        return same[0]
    known = rows.list_columns()  # it may begin in a later row
    if same := [head for head in heads if head in known]:
        return same[0]
    if not known:
        raise ConfigError(f"{key}: {rows.name} is empty: it has no row, and no column {path[:100]!r}", key=key)
    problem = describe_unknown("column", path[:100], [name[:100] for name in known])
    raise ConfigError(f"{key}: {rows.name}: {problem}", key=key)


def compile_path(path: str) -> Read:
    return (lambda row: follow_path(row, path)) if "." in path else (lambda row: row.get(path))


def _describe(spec: Any, field: str) -> str:
    columns = [spec] if isinstance(spec, str) else spec
    is_named = isinstance(columns, list | tuple) and all(isinstance(item, str) for item in columns)
    return ", ".join(columns) if is_named else field
