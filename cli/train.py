"""`viewbox train`: the same as `python train.py`."""

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(
    "train", context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
)
def train(context: typer.Context) -> None:
    """Train a model from a YAML config.

    Example: `viewbox train quickstart train.seed=1`. `viewbox train --help` explains the arguments.
    """
    from ..training.command import main

    raise typer.Exit(main(context.args))
