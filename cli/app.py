"""The `viewbox` command: the commands of `commands.py` under one name."""

import sys
from typing import Annotated

import typer

from ..utils.exit_status import guard
from ..version import __version__
from .command_builder import LazyGroup
from .commands import COMMANDS


class Viewbox(LazyGroup):
    """The commands of `COMMANDS`."""

    table = COMMANDS


app = typer.Typer(
    cls=Viewbox, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"viewbox {__version__}")
        raise typer.Exit


ABOUT = """Reinforcement-learning environments in which a vision-language model reads an image with a viewer's tools.

`viewbox COMMAND --help` explains a command and shows an example."""


@app.callback(help=ABOUT)
def describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> object:
    """Run the command and end with its status (see `viewbox.utils.exit_status`)."""
    sys.exit(guard(app))
