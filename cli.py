"""The `viewbox` command."""

import sys
from typing import Annotated

import typer

from viewbox.errors import ViewboxError

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def train(context: typer.Context) -> None:
    """Train from a YAML config: `viewbox train quickstart train.seed=1` (see `viewbox train --help`)."""
    from viewbox.train import main as run

    raise typer.Exit(run(context.args))


@app.command()
def envs() -> None:
    """List the environments."""
    from viewbox import make
    from viewbox.envs import ENVIRONMENTS

    for name in sorted(ENVIRONMENTS):
        summary = (type(make(name)).__doc__ or "").strip().splitlines()[0]
        typer.echo(f"{name}: {summary}")


@app.command()
def picture(
    run: Annotated[str, typer.Argument(help="a folder of saved episodes")],
    out: Annotated[str, typer.Option(help="the PNG to write")] = "episode.png",
    number: Annotated[int, typer.Option(help="which episode that used a tool and answered right, from 0")] = 0,
) -> None:
    """Draw one saved episode: what was shown, what was said, turn by turn."""
    from viewbox.rollouts.picture import best, draw

    draw(best(run, number), out)
    typer.echo(out)


def main() -> None:
    """Runs the command; 2 where something given is wrong."""
    try:
        app()
    except ViewboxError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
