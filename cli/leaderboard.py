"""`viewbox leaderboard`: keeps a table of models and environments, one row for each run."""

from typing import Annotated

import typer

from viewbox.terminal import make_line

app = typer.Typer(name="leaderboard", add_completion=False, rich_markup_mode="markdown", no_args_is_help=True)
Board = Annotated[str, typer.Option("--board", help="The table: a JSON file. Markdown and HTML are written beside it.")]


@app.callback()
def describe() -> None:
    """Keep a table of models and environments: reward with interval, tool gain, calls, tokens, and each run's command.

    Example: `viewbox leaderboard add runs/quickstart-seed0`
    """


@app.command("add")
def add(
    run: Annotated[
        str,
        typer.Argument(
            help="A run: an evaluation, a rollout, or a training run, of which the last held-out episodes count."
        ),
    ],
    board: Board = "leaderboard.json",
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Number of bootstrap draws for the 95 % intervals; 0: no intervals.")
    ] = 1000,
) -> None:
    """Add a run to the table, or read its row again. Processes that add at once all keep their rows.

    The tool gain needs a run of `viewbox evaluate`. The run may be somebody else's: its files are read as text and
    numbers, nothing that they name is run, and the reward is the one that it stores (`viewbox score` checks it).

    Example: `viewbox leaderboard add runs/evaluate-digits-tiny --board results/leaderboard.json`
    """
    from viewbox.rollouts.leaderboard.board import add_run

    row = add_run(board, run, resamples=bootstrap)
    figures = [f"{row.episodes} episodes of {row.tasks} tasks"]
    figures += [f"{name} {one.mean:.3f}" for name, one in (("reward", row.reward), ("gain", row.tool_gain)) if one]
    typer.echo(f"{make_line(row.run)}: {make_line(row.model)} in {make_line(row.environment)}, {', '.join(figures)}")
    if row.skipped:
        typer.echo(f"warning: {row.skipped} lines of the run cannot be read and were left out", err=True)
    typer.echo(f"again: {row.command}" if row.command else f"no command plays it again: {row.no_command}")
    typer.echo(f"table: {make_line(board)}, with .md and .html beside it")


@app.command("render")
def render(board: Board = "leaderboard.json") -> None:
    """Write the table as Markdown and HTML again, after you removed or merged rows of the JSON file.

    Example: `viewbox leaderboard render --board results/leaderboard.json`
    """
    from viewbox.rollouts.leaderboard.board import render_board

    for page in render_board(board):
        typer.echo(f"written: {make_line(page)}")
