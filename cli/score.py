"""`viewbox score`: scores saved episodes. It prints tables on a terminal, and aligned columns otherwise."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.terminal import make_line

if TYPE_CHECKING:
    from rich.console import Console

    from ..rollouts.scoring.bootstrap import Interval
    from ..rollouts.scoring.score_report import ScoreChange, ScoreReport

_MAX_LISTED = 5  # unreadable lines
_CELL, _WIDTH = 80, 1000  # characters of a cell and of a note: both may come from the episodes
_HEADINGS = ("episodes", "stored", "new", "change")
app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("score")
def score(
    run: Annotated[str, typer.Argument(help="Run folder, or folder of saved episodes.")],
    reward: Annotated[
        str | None,
        typer.Option(help="Reward: a YAML file, module:name or file.py:name. Default: the run's own."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="Environment whose reward and metrics are used: a name, module:Class, file.py:Class or a config. "
            "Default: the run's own."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Score only episodes with FIELD OP VALUE, such as end_reason=answered; may be repeated."),
    ] = None,
    group_by: Annotated[
        str | None, typer.Option(help="Field of the episodes; the reward is also printed for each of its values.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Store the scores in the run, as a column of this name. Default: nothing is written."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an earlier column of that name.")] = False,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Number of bootstrap draws for the 95 % intervals; 0: no intervals.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Import and run code that the run's own files name. Only for runs you trust."),
    ] = False,
    ask_judge: Annotated[
        bool,
        typer.Option("--ask-judge", help="Ask the judge of the run's own config. Without it, its address is shown."),
    ] = False,
    task_rewards: Annotated[
        str | None,
        typer.Option(help="File for the mean reward of each task; a data block's `difficulty: {rewards: …}` reads it."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Score saved episodes again, without the model.

    The stored scores stay; with --name, the new ones become a column beside them.

    The run may be somebody else's: code that its files name is not run, and a judge that its config names is not asked.
    What you name yourself with --reward is. It ends with status 1 if lines of the run could not be used.

    Example: `viewbox score runs/quickstart-seed0 --reward strict.yaml --where 'info.step>=90'`
    """
    import json

    from ..rollouts.scoring.rescore import score_run

    report = score_run(
        run,
        reward=reward,
        where=where or (),
        group_by=group_by,
        name=name,
        replace=replace,
        env=env,
        resamples=bootstrap,
        seed=seed,
        trust=trust,
        ask_judge=ask_judge,
        task_rewards=task_rewards,
    )
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
    else:
        print_report(report)
    if report.skipped:
        raise typer.Exit(1)


def print_report(report: "ScoreReport") -> None:
    """Prints the report in words and tables."""
    from rich.console import Console
    from rich.markup import escape

    from ..rollouts.store.run_folder import describe_view

    console = Console(highlight=False, soft_wrap=True, emoji=False)
    console.print(
        f"{escape(make_line(report.run))}: {report.episodes} episodes of {report.tasks} tasks",
        *_describe_filters(report),
    )
    rows = [("reward", report.total), *report.components.items()]
    _print_table(console, [("", *_HEADINGS), *((name, *_format_cells(row)) for name, row in rows)])
    if report.group_by is not None:
        groups = [(group.value, *_format_cells(group.total)) for group in report.groups]
        console.print(f"\nreward by {escape(report.group_by)}")
        _print_table(console, [(report.group_by, *_HEADINGS), *groups])
    for line in _list_notes(report):
        console.print(escape(make_line(line, _WIDTH)))
    console.print()
    _print_table(console, [("", "value"), *_list_metrics(report)])
    console.print(escape(describe_view(report.run)))


def _describe_filters(report: "ScoreReport") -> list[str]:
    from rich.markup import escape

    return [escape(make_line(f"where {' and '.join(report.where)}"))] if report.where else []


def _list_metrics(report: "ScoreReport") -> Iterable[tuple[str, str]]:
    """The environment's own metrics first; end reasons that did not occur are left out."""
    for name in sorted(report.metrics, key=lambda name: not name.startswith("metrics/")):
        if report.metrics[name].mean or not name.startswith("end/"):
            draws = f" ({report.fewer_draws[name]} draws)" if name in report.fewer_draws else ""
            yield name.removeprefix("metrics/"), report.metrics[name].format() + draws


def _format_cells(row: "ScoreChange") -> tuple[str, ...]:
    return str(row.episodes), _format_interval(row.stored), _format_interval(row.new), _format_interval(row.change, "+")


def _format_interval(interval: "Interval | None", sign: str = "") -> str:
    return "-" if interval is None else interval.format(sign)


def _print_table(console: "Console", lines: Sequence[tuple[str, ...]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    lines = [tuple(make_line(cell, _CELL) for cell in line) for line in lines]
    if console.is_terminal:
        table = Table()
        for i, heading in enumerate(lines[0]):
            table.add_column(escape(heading), justify="right" if i else "left")
        for line in lines[1:]:
            table.add_row(*map(escape, line))
        console.print(table, soft_wrap=False)  # a narrow terminal folds cells and keeps the frame
        return
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        print("  ".join(cells).rstrip())


def _list_notes(report: "ScoreReport") -> Iterable[str]:
    from ..rollouts.scoring.bootstrap import CONFIDENCE

    if report.resamples:
        yield (
            f"in brackets: {100 * CONFIDENCE:.0f} % percentile intervals of {report.resamples} bootstrap draws over "
            f"tasks; changes are paired"
        )
    if report.saved:
        yield f"the run stores a part of its training episodes: {report.saved} of each step; figures are over these"
    changes = [report.total.change, *(one.change for one in report.components.values())]
    if all(one is None or one.mean == one.low == one.high == 0 for one in changes):
        yield "every episode was scored again with this reward; no score changed"
    if report.column is not None:
        yield f"written: {report.column}  (viewbox.load({report.run!r}, scores={report.name!r}))"
    for problem in report.problems:
        yield f"warning: {problem}"
    without = report.episodes - report.total.episodes - report.failures
    if without > 0:
        yield f"{without} episodes have no score (a fault ended them, or no component applies); means leave them out"
    if report.failures:
        first = report.first_failure
        assert first is not None
        yield (
            f"warning: the reward failed on {report.failures} episodes, which have no score; the first: "
            f"line {first.line}, task {first.task!r}: {first.error}"
        )
    if report.counts:
        yield ", ".join(f"{name}: {count:g}" for name, count in report.counts.items())
    if report.skipped:
        yield f"warning: {report.skipped} lines of {report.file} cannot be read and were skipped"
        for line, why in list(report.unreadable.items())[:_MAX_LISTED]:
            yield f"  line {line}: {why:.200}"
        if report.skipped > _MAX_LISTED:
            yield f"  and {report.skipped - _MAX_LISTED} more"
