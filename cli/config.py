"""`viewbox config`: prints docs/configuration.md."""

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("config")
def config() -> None:
    """Print every section, key, type and default of a YAML config.

    Example: `viewbox config | less`
    """
    from .docs.config_page import build_page

    typer.echo(build_page(), nl=False)
