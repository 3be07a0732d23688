"""`viewbox data`: looks at the tasks of a config."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigError
from ..utils.terminal import make_line

if TYPE_CHECKING:
    from .task_sheet import ShownTask

app = typer.Typer(name="data", add_completion=False, rich_markup_mode="markdown", no_args_is_help=True)
_WIDTH = 200  # characters of a field that are printed
_MAX_PROBLEMS = 100  # of a catalogue that are printed


@app.callback()
def describe() -> None:
    """Look at the tasks of a config before training on them.

    Example: `viewbox data show quickstart`
    """


@app.command("check")
def check(
    config: Annotated[
        str,
        typer.Argument(help="A dataset's preset (docs/datasets), a run's YAML, or a catalogue of software (a file)."),
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change.", metavar="[KEY=VALUE]...")] = None,
    path: Annotated[
        str | None, typer.Option("--path", help="The dataset on this machine; default: as the config says.")
    ] = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Check the data of `env.eval`.")] = False,
    images: Annotated[
        bool, typer.Option("--images", help="Open every image of the source, and list those that cannot be shown.")
    ] = False,
    write: Annotated[
        str | None, typer.Option("--write", help="With --images: a new JSONL file for the rows that can be shown.")
    ] = None,
    out: Annotated[str, typer.Option(help="PNG file for the three tasks.")] = "check.png",
) -> None:
    """Compare a dataset with what a config expects of it, and show three tasks.

    It prints the tasks, groups and labels of each split, and what the right answers of 20 tasks score by the reward of
    the config. It ends with status 1 if a column is missing, or holds values of another type or labels that are not
    expected, or if `--images` finds a row that cannot be shown. Of a catalogue of software (.jsonl, .sqlite) every
    problem is printed with its place.

    Example: `viewbox data check vqa_rad --path data/vqa-rad`
    """
    from ..envs.software_adviser.catalogue import SUFFIXES

    if Path(config).suffix.lower() in SUFFIXES:
        _check_catalogue(config)
        return
    from ..envs.data.env import describe_splits
    from ..envs.right_answers import score_right_answers
    from ..utils.terminal import make_printable
    from .data_check import check_rows, describe_report, open_data_envs
    from .task_sheet import draw_sheet, list_shown
    from .tool_trial import save_picture

    if write is not None and not images:
        raise ConfigError("--write: which rows are clean is known with --images only", key="write")
    *both, conventions = open_data_envs(config, overrides or (), path)
    env = both[int(held_out)]
    report = env.compare()
    typer.echo(make_printable(describe_report(report), 20_000))
    typer.echo(conventions)
    for line in describe_splits(*both, labels=True):
        typer.echo(make_line(line, 2000))
    problems = list(
        check_rows(env, write) if images else ["images: not opened, but those of the tasks below; --images"]
    )
    for line in problems:
        typer.echo(make_line(line, 1000))
    for answers in score_right_answers(env):
        typer.echo(make_line(f"right answers: {answers.describe()}", 2000))
        for warning in answers.warnings:
            typer.echo(f"warning: {warning}")
    count, shown = list_shown(env, 0, 3)
    typer.echo(f"{env.name}: {count} tasks")
    _print_tasks(shown)
    save_picture(draw_sheet(shown), out)
    typer.echo(f"\n{out}")
    if not report.fits or any(line.startswith("bad: ") for line in problems):
        raise typer.Exit(1)


@app.command("show")
def show(
    config: Annotated[str, typer.Argument(help="A run's YAML, or the name of a shipped one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change.", metavar="[KEY=VALUE]...")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks to show.")] = 8,
    first: Annotated[int, typer.Option(min=0, help="Number of the first one.")] = 0,
    held_out: Annotated[bool, typer.Option("--held-out", help="Show the tasks of `env.eval`.")] = False,
    out: Annotated[str, typer.Option(help="PNG file for the images and boxes.")] = "tasks.png",
) -> None:
    """Print the fields of some tasks, and draw their images with the boxes of the reference.

    A row of which no task can be made is printed with its reason.

    Example: `viewbox data show quickstart --tasks 4`
    """
    from ..envs.data.env import describe_splits
    from .task_sheet import draw_sheet, list_shown, open_envs
    from .tool_trial import save_picture

    *both, conventions = open_envs(config, overrides or ())
    env = both[int(held_out)]
    count, shown = list_shown(env, first, tasks)
    typer.echo(f"{env.name}: {count} tasks")
    typer.echo(conventions)
    if splits := describe_splits(*both):
        typer.echo(make_line(f"splits: {'; '.join(splits)}", 2000))
    _print_tasks(shown)
    save_picture(draw_sheet(shown), out)
    typer.echo(f"\n{out}")


def _check_catalogue(path: str) -> None:
    """Print what is wrong in a catalogue of software; ends with status 1 if anything is."""
    from ..envs.software_adviser import check_catalogue, read_catalogue

    problems = check_catalogue(path)
    for problem in problems[:_MAX_PROBLEMS]:
        typer.echo(make_line(problem, 500))
    if len(problems) > _MAX_PROBLEMS:
        typer.echo(f"and {len(problems) - _MAX_PROBLEMS:,} more problems")
    typer.echo(
        f"{make_line(Path(path).name, _WIDTH)}: {len(read_catalogue(path).tools):,} tools, {len(problems):,} problems"
    )
    if problems:
        raise typer.Exit(1)


def _print_tasks(shown: "Sequence[ShownTask]") -> None:
    for task in shown:
        typer.echo(f"\n{make_line(task.id, _WIDTH)}")
        for name, value in task.fields:
            typer.echo(f"  {make_line(name, 30):<14} {make_line(value, _WIDTH)}")
