"""`viewbox data`: looks at the tasks of a config."""

from typing import Annotated

import typer

from viewbox.terminal import make_line

app = typer.Typer(name="data", add_completion=False, rich_markup_mode="markdown", no_args_is_help=True)
_WIDTH = 200  # characters of a field that are printed


@app.callback()
def describe() -> None:
    """Look at the tasks of a config before training on them.

    Example: `viewbox data show quickstart`
    """


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
    from viewbox.cli.task_sheet import draw_sheet, list_shown, open_env
    from viewbox.cli.tool_trial import save_picture

    env = open_env(config, overrides or (), held_out=held_out)
    count, shown = list_shown(env, first, tasks)
    typer.echo(f"{env.name}: {count} tasks")
    for task in shown:
        typer.echo(f"\n{make_line(task.id, _WIDTH)}")
        for name, value in task.fields:
            typer.echo(f"  {make_line(name, 30):<14} {make_line(value, _WIDTH)}")
    save_picture(draw_sheet(shown), out)
    typer.echo(f"\n{out}")
