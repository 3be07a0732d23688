"""`viewbox envs`: the registered environments."""

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("envs")
def envs() -> None:
    """List the registered environments, each with the first line of its docstring.

    Example: `viewbox envs`
    """
    from ..envs import load_class
    from ..plugins import list_plugins

    for name in sorted(list_plugins("environments")):
        summary = (load_class(name).__doc__ or "").strip().splitlines()[0]
        typer.echo(f"{name}: {summary}")
