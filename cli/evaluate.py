"""`viewbox evaluate`: plays held-out tasks with tools and without, and prints what the tools are worth."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.terminal import make_line
from . import play_options as options

if TYPE_CHECKING:
    from ..rollouts.scoring.tool_gain import ToolGain

WITH, WITHOUT = "with_tools", "without_tools"  # the folders inside --out
MAX_NAME = 60  # characters of a tool's or component's name: it may come from the episodes
app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("evaluate")
def evaluate(
    overrides: options.Overrides = None,
    env: options.Env = None,
    model: options.Model = None,
    endpoint: options.Endpoint = None,
    config: options.ConfigFile = None,
    tasks: options.Tasks = 200,
    group: options.Group = 1,
    concurrency: options.Concurrency = None,
    temperature: options.Temperature = None,
    max_tokens: options.MaxTokens = None,
    seed: options.Seed = 0,
    out: Annotated[
        str | None,
        typer.Option(help="Output folder; an unfinished evaluation there is resumed. Default: a new folder in runs/."),
    ] = None,
    retry_failed: options.RetryFailed = False,
    refuse: Annotated[
        bool,
        typer.Option(
            "--refuse",
            help="Without tools: offer them all the same, and refuse every call. For a policy that has learned to call "
            "before it answers.",
        ),
    ] = False,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Number of bootstrap draws for the 95 % intervals; 0: no intervals.")
    ] = 1000,
    as_json: Annotated[
        bool, typer.Option("--json", help="Also print the comparison as one JSON object, on the last line.")
    ] = False,
) -> None:
    """Play the same tasks with tools and without, and print what the tools are worth.

    A config's held-out tasks (env.eval) are played if it has any. Turns and reward are the same both times.

    Example: `viewbox evaluate --config quickstart --model runs/quickstart-seed0/model --tasks 200`

    Every episode is stored: in with_tools and without_tools inside the output folder, which `viewbox score` reads. You
    can stop the command at any moment: the same command with --out FOLDER plays the missing episodes.
    """
    from ..rollouts.job import build_job, remove_tools_of_job
    from ..rollouts.scoring.tool_gain import MAX_UNANSWERED, compare_tools
    from ..rollouts.session import create_rollout_folder
    from ..rollouts.store.reader import load
    from ..rollouts.store.run_folder import describe_view
    from ..utils.files import write_atomically
    from .rollout import INTERRUPTED, play_folder

    job = build_job(
        env=env,
        model=model,
        endpoint=endpoint,
        config=config,
        held_out=None,
        overrides=options.list_overrides(
            overrides, concurrency=concurrency, temperature=temperature, max_tokens=max_tokens
        ),
        tasks=tasks,
        group=group,
        seed=seed,
    )
    bare = remove_tools_of_job(job, refuse=refuse)
    folder = create_rollout_folder(job, out, kind="evaluate")
    with closing(job):
        for way, chosen in ((WITH, job), (WITHOUT, bare)):
            inside = create_rollout_folder(chosen, folder / way)
            if play_folder(chosen, inside, retry_failed=retry_failed, root=folder) is None:
                raise typer.Exit(INTERRUPTED)
    played, unaided = (load(folder / way / "episodes") for way in (WITH, WITHOUT))
    gain = compare_tools(played, unaided, job.env.tools, resamples=bootstrap)
    write_atomically(folder / "tool_gain.json", json.dumps(gain.to_dict(), indent=2) + "\n")
    print_gain(gain)
    if gain.unanswered > MAX_UNANSWERED and not refuse:
        typer.echo(
            "to leave the prompt as it is and refuse the calls: the same command with --refuse and another --out"
        )
    typer.echo(f"figures: {folder / 'tool_gain.json'}")
    typer.echo(describe_view(folder))
    if as_json:
        typer.echo(json.dumps(gain.to_dict()))


def print_gain(gain: "ToolGain") -> None:
    """Prints each score with and without tools and the difference; below it, how each tool was used."""
    from rich.table import Table
    from rich.text import Text

    from .progress import build_console

    console = build_console()
    scores = Table("", title=f"{gain.pairs} pairs of episodes, {gain.tasks} tasks", title_justify="left")
    for heading in ("with tools", "without", "difference"):
        scores.add_column(heading, justify="right")
    for name, one in gain.gains.items():
        title = make_line(name.removeprefix("rewards/").removesuffix("/mean"), MAX_NAME)
        cells = (one.with_tools.format(), one.without_tools.format(), one.difference.format("+"))
        scores.add_row(Text(title), *cells)
    tools = Table("tool")
    for heading in ("calls", "per episode", "episodes that call it", "calls that succeed"):
        tools.add_column(heading, justify="right")
    for name, use in gain.tools.items():
        success = "-" if use.success is None else f"{use.success:.0%}"
        tools.add_row(
            Text(make_line(name, MAX_NAME)), str(use.calls), f"{use.per_episode:.2f}", f"{use.episodes:.0%}", success
        )
    console.print(scores)
    console.print(tools)
    console.print(gain.explain(), highlight=False)
