"""Builds commands from functions: arguments, options and help come from a signature and its docstring.

    COMMANDS = {"runs": Command("rollouts.listing:list_runs", "viewbox runs FOLDER", show_runs)}

A positional parameter is an argument, a keyword-only one an option; the section `Args:` explains both. What a function
returns is shown by `Command.show` as sentences and tables, which one printer writes in four forms.
"""

import ast
import csv
import inspect
import io
import json
import os
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from ..errors import ConfigError, suggest_nearest
from ..utils.docstrings import read_docstring
from ..utils.files import expand_path
from ..utils.terminal import make_line, make_printable

PACKAGE = __package__.rpartition(".")[0]
CELL, PATH, LINE = 80, 400, 1000  # letters of a name, of any other cell, and of a sentence: they may be others' texts
FORMULA = ("=", "+", "-", "@")  # what a spreadsheet would compute
OTHER_NAMES = {"resamples": "bootstrap"}  # of options that are called otherwise than their parameter
Form = Literal["table", "markdown", "csv", "json"]


class PrintedTable(NamedTuple):
    """A title, headings, and rows of texts, numbers, intervals and None.

    Numbers below a heading in `signed` get a sign; columns but the first and those in `left` are set to the right.
    `widest` is the most letters of a cell of the first column."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    signed: Sequence[str] = ()
    left: Sequence[str] = ()
    widest: int = CELL


class Command(NamedTuple):
    """A command.

    Args:
        function: what it calls, as `module:name` in this package; it is imported when the command runs.
        example: a command line.
        show: the sentences and tables that show what the function returned.
            With it there is an option `--format`.
        failed: the status with this result, as `utils/exit_status.py` has it.
        context: settings of click's parser.
    """

    function: str
    example: str
    show: Callable[[Any], Iterable[PrintedTable | str] | None] | None = None
    failed: Callable[[Any], int] = lambda result: 0
    context: Mapping[str, Any] = {}


class CommandGroup(NamedTuple):
    """Commands with a common first word; `default` is meant if none of them is named."""

    about: str
    commands: Mapping[str, Command]
    default: str | None = None


class LazyGroup(TyperGroup):
    """Imports what a command needs when it runs: a list of commands reads their first sentences only."""

    table: Mapping[str, Command | CommandGroup] = {}
    default: str | None = None
    listing = False

    def list_commands(self, ctx: object) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.table:
            ctx.fail(f"No such command {cmd_name!r}{suggest_nearest(cmd_name, list(self.table))}.")
        row = self.table[cmd_name]
        if isinstance(row, CommandGroup):
            return build_group(row, cmd_name)
        return TyperCommand(cmd_name, help=read_summary(row)) if self.listing else build_command(row, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.listing = True
        super().format_help(ctx, formatter)
        self.listing = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if self.default and (not args or (args[0] not in self.table and args[0] not in ("--help", "-h"))):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


def build_group(row: CommandGroup, name: str) -> object:
    """Return the click group of a row."""
    kind = type("_Group", (LazyGroup,), {"table": row.commands, "default": row.default})
    app = typer.Typer(name=name, cls=kind, help=row.about, no_args_is_help=row.default is None, add_completion=False)
    app.rich_markup_mode = "markdown"
    app.callback()(lambda: None)
    return get_command(app)


def build_command(row: Command, name: str) -> object:
    """Return the click command of a row."""
    module, _, attribute = row.function.partition(":")
    function = getattr(import_module(f"{PACKAGE}.{module}"), attribute)
    parameters = list(_list_parameters(function))
    if row.show is not None:
        about = typer.Option("--format", help="What is printed.")
        parameters.append(_keyword("form", Annotated[Form, about], "table"))

    def run(**arguments: Any) -> None:
        form = arguments.pop("form", "table")
        arguments = {key: _expand(key, value) for key, value in arguments.items() if value is not None}
        _keep_inputs(arguments)
        result = function(**arguments)
        show(result, row.show or (lambda blocks: blocks), form)
        if status := row.failed(result):
            raise typer.Exit(status)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    about, _, rest = read_docstring(function).partition("\n\n")
    more = [part for part in rest.split("\n\n") if not re.match(r"(Args|Raises|Returns|Yields):|>>> ", part)]
    run.__doc__ = "\n\n".join([about, *more, *[f"Example: `{line}`" for line in row.example.splitlines()]])
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    app.command(name, context_settings=dict(row.context))(run)
    return get_command(app)


def _expand(name: str, value: Any) -> Any:
    """Return the value of an option, a path in full: no shell expands what stands behind `--out=`."""
    return expand_path(value, where=f"--{name}: ") if str(value).startswith(("~", "$")) else value


def _keep_inputs(given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if `--out` names a file that another argument names."""
    files = [str(path) for value in given.values() for path in (value if isinstance(value, list) else [value])]
    if out := given.get("out"):
        same = [path for path in files if os.path.isfile(out) and os.path.exists(path) and os.path.samefile(path, out)]
        if len(same) > 1:
            raise ConfigError(f"--out {out!r}: is what the command reads; allowed: another file", key="out")


def read_summary(row: Command) -> str:
    """Return the first sentence of a function's docstring, without importing it."""
    module, _, name = row.function.partition(":")
    source = Path(__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")
    raise LookupError(row.function)


def _list_parameters(function: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    own = {name: kind for name, kind in function.__annotations__.items() if name != "return"}  # which may be lazy
    hints = get_type_hints(types.SimpleNamespace(__annotations__=own), function.__globals__, include_extras=True)
    about = read_arguments(read_docstring(function))
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # Unpack[a TypedDict]: options of several commands
            shared = get_args(hints[name])[0]
            hints |= get_type_hints(shared, include_extras=True)
            about |= read_arguments(read_docstring(shared))
            for key in shared.__annotations__:
                yield _build_parameter(_keyword(key, hints[key], None), hints[key], about[key])
        elif name in about:  # others are callbacks, and what only a program gives
            yield _build_parameter(parameter, hints[name], about[name])


def _build_parameter(one: inspect.Parameter, hint: Any, text: str) -> inspect.Parameter:
    hint, option = get_args(hint) if get_origin(hint) is Annotated else (hint, None)
    kind, option = _simplify(hint), copy(option)
    is_option = one.kind is inspect.Parameter.KEYWORD_ONLY
    if option is None:
        word = OTHER_NAMES.get(one.name, one.name).replace("_", "-")
        flag = f"--{word}/--no-{word}" if hint == bool | None else f"--{word}"
        option = typer.Option(flag, min=0 if kind in (int, int | None) else None) if is_option else typer.Argument()
    option.help = text[:1].upper() + text[1:]
    default = None if one.default == () else one.default
    kind = kind | None if default is None and get_origin(kind) is not Union else kind
    return _keyword(one.name, Annotated[kind, option], default)


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _simplify(kind: Any) -> Any:
    """Return the type of an option: text, unless it can only be a number, a flag, a choice or a list."""
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [argument for argument in get_args(kind) if argument is not type(None)]
        base = _simplify(kinds[0]) if len(kinds) == 1 else str
        return base | None if type(None) in get_args(kind) else base
    if get_origin(kind) in (Literal, tuple) and Ellipsis not in get_args(kind):
        return kind
    if get_origin(kind) is not None and issubclass(get_origin(kind), Iterable):
        return list[str]
    return kind if kind in (bool, int, float) else str


def read_arguments(doc: str) -> dict[str, str]:
    """Return the section `Args:` of a docstring, by name.

    >>> read_arguments('''Add.
    ...
    ...     Args:
    ...         a, b: numbers,
    ...             both large.
    ... ''')
    {'a': 'numbers, both large.', 'b': 'numbers, both large.'}
    """
    section = re.search(r"\n( *)Args:\n(.*?)(?=\n\s*\n|\Z)", doc, re.S)
    if section is None:
        return {}
    start = f"^{section[1]}    "
    entries = re.findall(rf"{start}(\w[\w, ]*): (.*?)(?={start}\w[\w, ]*: |\Z)", section[2], re.M | re.S)
    return {name.strip(): " ".join(text.split()) for names, text in entries for name in names.split(",")}


def show(result: Any, blocks: Callable[[Any], Iterable[PrintedTable | str] | None], form: str = "table") -> None:
    """Print what a function returned: its `to_dict` as JSON, or the tables and sentences of `blocks`, as they come.

    CSV holds the first table and those with the same headings, and no sentences."""
    if form == "json":
        typer.echo(json.dumps(result.to_dict()))
        return
    headings: Sequence[str] = ()
    for block in blocks(result) or ():
        if isinstance(block, str):
            if form != "csv":
                typer.echo(make_printable(block))
        elif form == "csv":
            if not headings:
                typer.echo(_write_csv([["table", *_name_columns(block)]]))
            headings = headings or block.headings
            if list(block.headings[1:]) == list(headings[1:]):
                typer.echo(_write_csv([block.title, *_split_intervals(row)] for row in block.rows))
        else:
            typer.echo("\n".join(format_table(block, form == "markdown")))


def say(text: object, limit: int = LINE) -> str:
    """Return a sentence of others, as a terminal may show it."""
    return make_line(text, limit)


def format_table(table: PrintedTable, markdown: bool = False) -> list[str]:
    """Return the lines of a table."""
    rows = [[_format_cell(table, n, cell) for n, cell in enumerate(row)] for row in (table.headings, *table.rows)]
    title = ["", make_line(table.title, CELL), ""] if table.title else []
    if markdown:
        rows = [[cell.replace("\\", "\\\\").replace("|", "\\|") for cell in row] for row in rows]
        rows.insert(1, ["---", *["---:"] * (len(table.headings) - 1)])
        return [*title, *(f"| {' | '.join(row)} |" for row in rows)]
    widths, lines = [max(map(len, column)) for column in zip(*rows, strict=True)], []
    left = [n == 0 or name in table.left for n, name in enumerate(table.headings)]
    for row in rows:
        cells = zip(row, widths, left, strict=True)
        lines.append("  ".join(cell.ljust(width) if is_left else cell.rjust(width) for cell, width, is_left in cells))
    return [*title, *map(str.rstrip, lines)]


def _format_cell(table: PrintedTable, column: int, cell: Any) -> str:
    if cell is None:
        return "-"
    if hasattr(cell, "format") and not isinstance(cell, str):
        return str(cell.format("+" if table.headings[column] in table.signed else ""))
    return make_line(cell, PATH if column else table.widest)


def _name_columns(table: PrintedTable) -> Iterator[str]:
    first = table.rows[0] if table.rows else table.headings
    for name, cell in zip(table.headings, first, strict=True):
        yield name or "name"
        if hasattr(cell, "low"):
            yield from (f"{name}_low", f"{name}_high")


def _split_intervals(row: Sequence[Any]) -> Iterator[Any]:
    for cell in row:
        yield from (cell.mean, cell.low, cell.high) if hasattr(cell, "low") else (cell,)


def _write_csv(rows: Iterable[Iterable[Any]]) -> str:
    """Lines of CSV; a text that a spreadsheet would read as a formula gets an apostrophe."""
    text = io.StringIO()
    for row in rows:
        cells = [make_line(cell, PATH) if isinstance(cell, str) else cell for cell in row]
        cells = [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in cells]
        csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().rstrip("\n")
