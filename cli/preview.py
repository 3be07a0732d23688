"""`viewbox preview`: tasks as the model would see them."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("preview")
def preview(
    config: Annotated[str, typer.Argument(help="A run's YAML, or the name of a shipped one.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Settings to change.", metavar="[KEY=VALUE]...")] = None,
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks.")] = 3,
    first: Annotated[int, typer.Option(min=0, help="Number of the first one.")] = 0,
    held_out: Annotated[bool, typer.Option("--held-out", help="Preview the tasks of `env.eval`.")] = False,
    out: Annotated[str, typer.Option(help="HTML file with the images in it.")] = "preview.html",
) -> None:
    """Print the prompts of some tasks: what the model reads before its first reply.

    If the model is on this machine, its own chat template writes them, and their tokens are counted. The HTML file
    shows the images too, and the right answer if it is known.

    Example: `viewbox preview quickstart --tasks 1`
    """
    from pathlib import Path

    from ..utils.terminal import make_printable
    from .task_preview import list_previews, write_previews

    shown = list_previews(config, overrides or (), first=first, count=tasks, held_out=held_out)
    for one in shown:
        typer.echo(make_printable(one.to_text(), 20_000))
        typer.echo("")
    write_previews(shown, Path(out))
    typer.echo(out)
