"""The `viewbox` command: the list of its commands, each in a file of that name beside this one
(`import_.py` for `import`).

The file of a command is imported when the command runs or `--help` lists it. It must therefore import numpy and torch
inside its functions only.
"""

import sys
from importlib import import_module
from keyword import iskeyword
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ..errors import suggest_nearest
from ..utils.exit_status import guard
from ..version import __version__

COMMANDS = (
    "train",
    "rollout",
    "evaluate",
    "score",
    "view",
    "compare",
    "filter",
    "export",
    "import",
    "runs",
    "reward",
    "tools",
    "picture",
    "data",
    "snapshot",
    "preview",
    "new",
    "check",
    "publish",
    "openenv",
    "envs",
    "config",
    "memory",
)


def _get_file(command: str) -> str:
    return f"{command}_" if iskeyword(command) else command


class LazyGroup(TyperGroup):
    """Imports the file of a command when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            ctx.fail(f"No such command {cmd_name!r}{suggest_nearest(cmd_name, COMMANDS)}.")
        return get_command(import_module(f"viewbox.cli.{_get_file(cmd_name)}").app)


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"viewbox {__version__}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Reinforcement-learning environments in which a vision-language model reads an image with a viewer's tools.

    `viewbox COMMAND --help` explains a command and shows an example.
    """


def main() -> None:
    """Runs the command and ends with its status (see `viewbox.utils.exit_status`)."""
    sys.exit(guard(app))
