"""`viewbox compare`: compares two runs on the tasks that both played."""

import json
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.terminal import make_line

if TYPE_CHECKING:
    from ..rollouts.scoring.compare import Comparison, Difference
    from ..rollouts.scoring.pairing import TaskReward

_CELL = 80  # characters of a cell, which may come from the episodes
_HEADINGS = ("", "first", "second", "difference", "wins", "ties", "losses")
app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


class Format(StrEnum):
    """What is printed."""

    table = "table"
    markdown = "markdown"
    csv = "csv"
    json = "json"


@app.command("compare")
def compare(
    a: Annotated[str, typer.Argument(help="The first run: a run folder, or a folder of saved episodes.")],
    b: Annotated[
        str | None,
        typer.Argument(help="The second run. Left out: the held-out episodes of the first run, first against last."),
    ] = None,
    reward: Annotated[
        str | None,
        typer.Option(help="Score both with this reward: a YAML file, module:name or file.py:name. Default: as stored."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Only episodes with FIELD OP VALUE, such as end_reason=answered; may be repeated."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Also compare for each value of this field, such as reference.kind.")
    ] = None,
    form: Annotated[Format, typer.Option("--format", help="What is printed.")] = Format.table,
    flips: Annotated[int, typer.Option(min=0, help="Tasks that are listed because only one side solves them.")] = 5,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Number of bootstrap draws for the 95 % intervals; 0: no intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Import and run code that a reward inside a run names. Only for runs you trust."),
    ] = False,
    ask_judge: Annotated[bool, typer.Option("--ask-judge", help="Ask the judge that a reward inside a run names.")] = (
        False
    ),
) -> None:
    """Compare two runs on the tasks that both played.

    A difference is the second minus the first. A task counts once, with the mean of its episodes on each side: it is
    solved if its mean reward is at least 0.5, and won if the second has the higher mean.

    Example: `viewbox compare runs/base runs/tuned --by reference.label --format markdown`
    """
    from ..rollouts.scoring.compare import compare_runs, find_held_out

    first, second = find_held_out(a) if b is None else (a, b)
    found = compare_runs(
        first,
        second,
        reward=reward,
        where=where or (),
        by=by,
        resamples=bootstrap,
        seed=seed,
        trust=trust,
        ask_judge=ask_judge,
    )
    if form == Format.json:
        typer.echo(json.dumps(found.to_dict()))
    elif form == Format.csv:
        _print_csv(found)
    else:
        _print_tables(found, flips, markdown=form == Format.markdown)


def _print_tables(found: "Comparison", flips: int, *, markdown: bool) -> None:
    a, b = found.a, found.b
    typer.echo(f"first:  {make_line(a.run)} ({_count(a.episodes, 'episode')} of {_count(a.tasks, 'task')})")
    typer.echo(f"second: {make_line(b.run)} ({_count(b.episodes, 'episode')} of {_count(b.tasks, 'task')})")
    typer.echo(f"{_count(found.tasks, 'task')} in both; of each, the mean of its episodes\n")
    print_table(_HEADINGS, [_list_cells(name, one) for name, one in found.scores.items()], markdown)
    if found.by is not None:
        typer.echo(f"\nreward by {make_line(found.by)}\n")
        print_table(_HEADINGS, [_list_cells(value, one) for value, one in found.groups.items()], markdown)
    for title, some in (("only the second solves", found.gained), ("only the first solves", found.lost)):
        if some and flips:
            shown = f", {flips} of them" if len(some) > flips else ""
            typer.echo(f"\n{title} {_count(len(some), 'task')}{shown}:\n")
            print_table(
                ("task", "first", "second", "episodes"), [_list_flip(found, one) for one in some[:flips]], markdown
            )
    typer.echo(f"\n{found.explain()}")
    if found.resamples:
        typer.echo(f"in brackets: 95 % percentile intervals of {found.resamples} bootstrap draws over tasks")
    for warning in found.warnings:
        typer.echo(make_line(f"warning: {warning}", 1000))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _list_cells(name: str, one: "Difference") -> tuple[str, ...]:
    figures = (one.a.format(), one.b.format(), one.difference.format("+"))
    return (name, *figures, *map(str, (one.wins, one.ties, one.losses)))


def _list_flip(found: "Comparison", flip: "TaskReward") -> tuple[str, ...]:
    links = f"{found.a.run}#{flip.a_line} {found.b.run}#{flip.b_line}"
    return flip.task, f"{flip.a:.3f}", f"{flip.b:.3f}", links


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], markdown: bool, widest: int = _CELL) -> None:
    """Print a table of texts, the first column of at most `widest` characters; all others are set to the right."""
    lines = [tuple(make_line(cell, 400 if n else widest) for n, cell in enumerate(row)) for row in (headings, *rows)]
    if markdown:
        lines = [tuple(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in line) for line in lines]
        rule = ("---", *("---:" for _ in headings[1:]))
        for line in (lines[0], rule, *lines[1:]):
            typer.echo(f"| {' | '.join(line)} |")
        return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        typer.echo("  ".join(cells).rstrip())


def _print_csv(found: "Comparison") -> None:
    """One row a score, then one a group; texts that a spreadsheet would read as a formula get an apostrophe."""
    import csv
    import sys

    writer = csv.writer(sys.stdout, lineterminator="\n")
    sides = ("first", "second", "difference")
    figures = [f"{side}{part}" for side in sides for part in ("", "_low", "_high")]
    writer.writerow(["group", "score", "tasks", *figures, "wins", "ties", "losses"])
    rows = [("", name, one) for name, one in found.scores.items()]
    rows += [(f"{found.by}={value}", "reward", one) for value, one in found.groups.items()]
    for group, name, one in rows:
        values = [value for side in (one.a, one.b, one.difference) for value in (side.mean, side.low, side.high)]
        lines = (make_line(text, 400) for text in (group, name))
        texts = [f"'{text}" if text[:1] in ("=", "+", "-", "@") else text for text in lines]
        writer.writerow([*texts, one.difference.count, *values, one.wins, one.ties, one.losses])
