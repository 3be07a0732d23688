"""`viewbox filter`: takes some episodes of a run into a new one."""

from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.terminal import make_line

if TYPE_CHECKING:
    from ..rollouts.exchange.selection import Report

_MAX_LISTED = 20  # broken episodes
app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("filter")
def filter_(
    run: Annotated[str, typer.Argument(help="Run folder, or folder of saved episodes.")],
    out: Annotated[str, typer.Option("--out", help="Folder of the new run, which must not exist.")],
    where: Annotated[
        list[str] | None,
        typer.Option(help="Take only episodes with FIELD OP VALUE, such as 'reward>=0.5'; may be repeated."),
    ] = None,
    best: Annotated[int | None, typer.Option(help="Take this many of the highest rewards.")] = None,
    per_task: Annotated[bool, typer.Option("--per-task", help="Take that many of each task.")] = False,
    reward_between: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Take only tasks whose mean reward lies between two numbers, such as 0.2 0.8."),
    ] = None,
) -> None:
    """Take some episodes of a run into a new run, which can be viewed, scored and trained on like any other.

    It says how many were taken and why the others were not, and ends with status 1 if some cannot be read.

    Example: `viewbox filter runs/a --where 'reward>=0.8' --best 2 --per-task --out runs/a-best`
    """
    from ..rollouts.exchange.selection import Choice, filter_run

    print_report(filter_run(run, out, Choice(where or (), best, per_task, reward_between)))


def print_report(report: "Report") -> None:
    """Print what was taken and what was not; raises `typer.Exit` with status 1 if something is broken."""
    typer.echo(make_line(report.describe(), 2000))
    for what, count in (+report.not_held).items():
        typer.echo(make_line(f"note: not kept: {what} ({count:,})", 500))
    for place, reason in list(report.broken.items())[:_MAX_LISTED]:
        typer.echo(f"warning: {make_line(place, 300)}: {make_line(reason, 300)}", err=True)
    broken = report.left_out["broken"]
    if broken > _MAX_LISTED:
        typer.echo(f"warning: and {broken - _MAX_LISTED:,} more", err=True)
    if broken:
        raise typer.Exit(1)
