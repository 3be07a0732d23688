"""`viewbox picture`: one saved episode as a PNG."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("picture")
def picture(
    episode: Annotated[
        str,
        typer.Argument(
            metavar="RUN[#LINE]",
            help="A run and the line of an episode in it, from 1. Without a line: the best-scored that used a tool.",
        ),
    ],
    out: Annotated[str, typer.Option(help="PNG file to write.")] = "episode.png",
) -> None:
    """Draw one saved episode, turn by turn; `viewbox view` shows all of a run in a browser.

    Above: the task and its question. Then a panel for each picture that the model was shown, and for each failed tool
    call; below it the model's reply. Boxes lie where each picture shows them, after any zoom or rotation and on their
    slice: the reference green, the answer red, the arguments of the next tool call blue. Below: reference, answer,
    scores and errors.

    Example: `viewbox picture runs/quickstart-seed0#3 --out third.png`
    """
    from ..viewer.contact_sheet import draw_episode
    from .saved_episode import find_best_episode, load_episode, split_name
    from .tool_trial import save_picture

    run, line = split_name(episode, "RUN#LINE")
    found, number = find_best_episode(run) if line is None else (load_episode(run, line)[0], line)
    save_picture(draw_episode(found, line=number), out)
    typer.echo(out)
