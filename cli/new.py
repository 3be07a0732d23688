"""`viewbox new`: writes a package with one working environment."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Name of the package: lower-case words joined by '-'.")],
    folder: Annotated[str, typer.Option("--in", help="Folder in which the new folder NAME is made.")] = ".",
) -> None:
    """Write a package with one working environment, its tests, a README, a license and a file for CI.

    It passes `viewbox check` as it is. Change it into your own, and check it again before you publish it.

    Example: `viewbox new bright-discs && viewbox check bright-discs`
    """
    from ..publish.new import write_project

    root = write_project(name, folder)
    for path in sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file()):
        typer.echo(f"written: {root / path}")
    typer.echo(f"next: viewbox check {root}")
