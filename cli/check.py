"""`viewbox check`: a table of what a hub, a trainer and a stranger will ask of a package."""

import json
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.terminal import make_line, make_printable

if TYPE_CHECKING:
    from ..publish.checks import Row

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
WIDTH = 100  # letters of a line of findings


@app.command("check")
def check(
    package: Annotated[
        str,
        typer.Argument(
            metavar="PATH|NAME",
            help="A folder with a pyproject.toml; or what `viewbox publish` takes (a registered name, "
            "package.module:Class, file.py:Class, a config), of which the package is checked that it would write.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Setting of a named environment as KEY=VALUE (YAML); may be repeated."),
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", help="Try only this row and those that it needs; may be repeated.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that the process of one row may take.")] = 120,
    memory: Annotated[float, typer.Option(min=0.25, help="GiB of memory that it may take (Linux).")] = 4,
    episode: Annotated[float, typer.Option(min=0.1, help="Seconds that one episode may take.")] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as one JSON list.")] = False,
) -> None:
    """Check a package before you publish it: a table with a row for each thing, and how to mend those that fail.

    The package is copied elsewhere, built as a wheel and installed into a fresh environment that holds what it declares
    and nothing else. There it is imported and played, in processes with limits on time and memory: its right answers
    must score 1, wrong ones less, and the same seed must give the same episode in every process. The commands of its
    README are run, except those that install, send, or need a model.

    **This runs the code of the package**, with your rights. Code that hangs, exits or takes too much costs its row, but
    nothing contains a program that means harm: read a stranger's code first.

    The status is 0 if all rows pass, and 1 if one does not.

    Example: `viewbox check bright-discs`
    """
    from ..configs.yaml_reader import parse_key_values
    from ..publish.checks import Limits, check_any

    limits = Limits(seconds=timeout, memory=int(memory * 2**30), episode=episode)
    show = None if as_json else print_row
    rows = check_any(package, parse_key_values(settings or [], "--set"), limits=limits, rows=row, on_row=show)
    typer.echo(json.dumps([asdict(one) for one in rows], indent=1) if as_json else count_rows(rows))
    raise typer.Exit(0 if all(one.passed for one in rows) else 1)


def print_row(row: "Row") -> None:
    """Print a row, and below it how to mend it."""
    from ..publish.checks import CHECKS

    width = max(map(len, CHECKS))
    mark = "ok  " if row.passed else "FAIL" if row.tried else "-   "
    finding = make_printable(row.finding) if row.tried and not row.passed else make_line(row.finding, 2 * WIDTH)
    lines = _indent(f"{mark}  {row.name:{width}}  ", finding)
    lines += _indent(" " * (width + 8) + "mend: ", row.mend) if row.mend else []
    typer.echo("\n".join(lines))


def count_rows(rows: "list[Row]") -> str:
    """The summary of a table."""
    failed, left = [row for row in rows if row.tried and not row.passed], [row for row in rows if not row.tried]
    return f"{len(rows) - len(failed) - len(left)} passed, {len(failed)} failed, {len(left)} not tried"


def _indent(start: str, text: str) -> list[str]:
    lines = [one for line in text.splitlines() or [""] for one in textwrap.wrap(line, WIDTH) or [""]]
    return [f"{start if number == 0 else ' ' * len(start)}{line}" for number, line in enumerate(lines)]
