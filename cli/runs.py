"""`viewbox runs`: lists runs with their figures, and packs one into a file."""

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ..utils.terminal import make_line

if TYPE_CHECKING:
    from ..rollouts.runs.listing import RunFigures

_CELL, _PATH = 40, 200  # characters of a cell, which may come from somebody else's run
_HEADINGS = ("run", "environment", "model", "method", "steps", "episodes", "reward", "date", "size")


class Format(StrEnum):
    """How runs are listed."""

    table = "table"
    markdown = "markdown"
    json = "json"


class ListGroup(TyperGroup):
    """Without the name of a command, `list` is meant: `viewbox runs FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(name="runs", cls=ListGroup, add_completion=False, rich_markup_mode="markdown")


@app.callback()
def describe() -> None:
    """List runs with their figures; pack a run into one file to send, and unpack it.

    Example: `viewbox runs`, or `viewbox runs FOLDER --format markdown`
    """


@app.command("list")
def list_(
    folder: Annotated[str, typer.Argument(help="The folder that holds the runs, at any of three levels.")] = "runs",
    form: Annotated[Format, typer.Option("--format", help="What is printed.")] = Format.table,
) -> None:
    """List the runs below a folder, newest first: `viewbox runs` alone does the same.

    The reward is that of the first and of the last step. It ends with status 1 if a run cannot be read.

    Example: `viewbox runs runs --format markdown`
    """
    from ..rollouts.runs.listing import list_runs
    from .compare import print_table

    found = list_runs(folder)
    if form == Format.json:
        typer.echo(json.dumps(found.to_dict()))
    else:
        if not found.runs and not found.broken:
            typer.echo(f"{make_line(folder)}: no runs here")
        if found.runs:
            print_table(_HEADINGS, map(_list_cells, found.runs), form == Format.markdown, _PATH)
        for path, reason in found.broken.items():
            typer.echo(f"warning: {make_line(path)} cannot be read: {make_line(reason, 300)}", err=True)
    if found.broken:
        raise typer.Exit(1)


@app.command("pack")
def pack(
    run: Annotated[str, typer.Argument(help="The run: its folder, or a folder of saved episodes.")],
    out: Annotated[str, typer.Option("--out", help="The file, such as run.zip; an older one is replaced.")],
    weights: Annotated[bool, typer.Option("--weights", help="Also pack checkpoints and the trained model.")] = False,
    restricted: Annotated[
        bool, typer.Option("--restricted", help="Pack images and answers of data that is restricted, or may be.")
    ] = False,
) -> None:
    """Pack a run into one file. The same run always gives the same file.

    Example: `viewbox runs pack runs/quickstart --out quickstart.zip`
    """
    from ..rollouts.runs.pack import pack_run

    made = pack_run(run, out, weights=weights, restricted=restricted)
    typer.echo(f"{make_line(made.path)}: {made.files:,} files, {_format_size(made.size)} unpacked")


@app.command("unpack")
def unpack(
    file: Annotated[str, typer.Argument(help="A file that `viewbox runs pack` wrote.")],
    out: Annotated[str, typer.Option("--out", help="The folder of the run, which must not exist.")],
) -> None:
    """Unpack a run that somebody sent. Its file is not trusted: nothing in it is run or written elsewhere.

    It ends with status 1 if an image was left out because its file does not hold the pixels of its name.

    Example: `viewbox runs unpack quickstart.zip --out runs/theirs`
    """
    from ..rollouts.runs.unpack import unpack_run

    made = unpack_run(file, out)
    for name, reason in made.left_out.items():
        typer.echo(f"warning: left out: {make_line(name)}: {make_line(reason, 300)}", err=True)
    typer.echo(f"{make_line(made.path)}: {made.files:,} files, {_format_size(made.size)}")
    if made.left_out:
        raise typer.Exit(1)


def _list_cells(run: "RunFigures") -> tuple[str, ...]:
    rewards = [f"{value:.3f}" for value in (run.first_reward, run.last_reward) if value is not None]
    return (
        run.path,
        *(make_line(name or "-", _CELL) for name in (run.environment, run.model, run.method)),
        "-" if run.steps is None else str(run.steps),
        "-" if run.episodes is None else f"{run.episodes:,}" + (f" ({run.saved} a step)" if run.saved else ""),
        " → ".join(rewards[:1] if len(set(rewards)) == 1 else rewards) or "-",
        (run.modified or "-")[:16].replace("T", " "),
        _format_size(run.size),
    )


def _format_size(size: int) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000  # type: ignore[assignment]
    return f"{size:.1f} TB"
