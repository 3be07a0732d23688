"""`viewbox picture`: one saved episode as a PNG."""

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("picture")
def picture(
    run: Annotated[str, typer.Argument(help="Folder of saved episodes, or of a run that holds one.")],
    out: Annotated[str, typer.Option(help="PNG file to write.")] = "episode.png",
    number: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Number of the episode in the folder, from 0. Default: the best-scored episode that used a tool.",
        ),
    ] = None,
) -> None:
    """Draw one saved episode, turn by turn.

    Above: the task and its question. Then one panel per turn: the image that was shown, or the error of a failed tool
    call, and below it the model's reply. Every box in the reference is drawn green on the first image, every box in
    the answer red. Below: reference, answer and scores.

    Example: `viewbox picture runs/quickstart-seed0 --number 3 --out third.png`
    """
    from viewbox.cli.episode_picture import draw_episode
    from viewbox.cli.saved_episode import find_best_episode, load_episode
    from viewbox.cli.tool_trial import save_picture

    episode = find_best_episode(run) if number is None else load_episode(run, number)[0]
    save_picture(draw_episode(episode), out)
    typer.echo(out)
