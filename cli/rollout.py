"""`viewbox rollout`: plays an environment's tasks against an endpoint or a local model, and stores every episode."""

import asyncio
import time
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import play_options as options

if TYPE_CHECKING:
    from pathlib import Path

    from ..rollouts.job import RolloutJob
    from ..rollouts.session import RolloutSession
    from .progress import Progress

INTERRUPTED = 130
app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("rollout")
def rollout(
    overrides: options.Overrides = None,
    env: options.Env = None,
    model: options.Model = None,
    endpoint: options.Endpoint = None,
    config: options.ConfigFile = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Play the held-out tasks: apply env.eval of the config.")
    ] = False,
    tasks: options.Tasks = 100,
    group: options.Group = 1,
    concurrency: options.Concurrency = None,
    temperature: options.Temperature = None,
    max_tokens: options.MaxTokens = None,
    seed: options.Seed = 0,
    out: Annotated[
        str | None,
        typer.Option(help="Output folder; an unfinished rollout there is resumed. Default: a new folder in runs/."),
    ] = None,
    retry_failed: options.RetryFailed = False,
    check_tokens: Annotated[
        bool,
        typer.Option(
            "--check-tokens",
            help="With --endpoint: compare each prompt's token ids with those of viewbox's own engine; vLLM returns "
            "them. Ends with status 1 if a text differs or cannot be compared. endpoint.tokenizer names the model's "
            "folder, if --model does not.",
        ),
    ] = False,
) -> None:
    """Play an environment's tasks against an endpoint or a local model, and store every episode.

    Example: `viewbox rollout --env digits --endpoint http://127.0.0.1:8000/v1 --model my-model env.noise=3`

    Example: `viewbox rollout --config quickstart --model package:tiny_viewer --tasks 50`

    The API key is read from the environment variable that endpoint.api_key_env names; OPENAI_API_KEY is sent
    to OpenAI's own address without being named. A key travels over https only, except to this machine.
    You can stop the command at any moment: the same command with --out FOLDER plays the missing episodes.
    """
    from ..rollouts.job import build_job
    from ..rollouts.session import create_rollout_folder

    job = build_job(
        env=env,
        model=model,
        endpoint=endpoint,
        config=config,
        held_out=held_out,
        overrides=options.list_overrides(
            overrides, concurrency=concurrency, temperature=temperature, max_tokens=max_tokens
        ),
        tasks=tasks,
        group=group,
        seed=seed,
        check_tokens=check_tokens,
    )
    with closing(job):
        status = play_job(job, create_rollout_folder(job, out), retry_failed=retry_failed)
    check = getattr(job.generator, "token_check", None)
    if check is not None:
        for line in check.describe():
            typer.echo(line)
        status = status or int(not check.passed)
    raise typer.Exit(status)


def play_job(job: "RolloutJob", folder: "Path", *, retry_failed: bool) -> int:
    """Plays the missing episodes, shows the progress and prints the figures; returns the exit status."""
    from ..rollouts.store.run_folder import describe_view
    from .progress import print_summary

    summary = play_folder(job, folder, retry_failed=retry_failed)
    if summary is None:
        return INTERRUPTED
    print_summary(summary)
    if summary["errors"]:
        typer.echo(f"to play failed episodes again: --out {folder} --retry-failed")
    typer.echo(f"figures: {folder / 'summary.json'}")
    typer.echo(describe_view(folder))
    return 0


def play_folder(
    job: "RolloutJob", folder: "Path", *, retry_failed: bool, root: "Path | None" = None
) -> "dict[str, Any] | None":
    """Plays the missing episodes of a folder and shows the progress; returns the figures, or None if interrupted.

    Args:
        job: what to play.
        folder: where its episodes are stored.
        retry_failed: play episodes again that ended as error, timeout or cancelled.
        root: what `--out` must name to resume; default: the folder.
    """
    from ..rollouts.session import open_session
    from .progress import Progress

    with open_session(job, folder, retry_failed=retry_failed) as session:
        saved = session.writer.count
        typer.echo(f"folder: {folder}" + (f" ({saved} episodes are stored already)" if saved else ""))
        if session.retried:
            typer.echo(f"{session.retried} failed episodes are played again")
        if job.threads:
            typer.echo(f"threads: {job.threads}")
        if saved < session.total:
            start_server(job, root or folder)
        heading = f"{job.env.name}, {job.config.model.name}"
        progress = Progress(total=session.total, heading=heading, get_load=getattr(job.generator, "get_load", None))
        try:
            asyncio.run(_play_session(session, progress))
        except KeyboardInterrupt:
            saved = session.writer.count
            typer.echo(
                f"interrupted: {saved} of {session.total} episodes are stored; resume with --out {root or folder}"
            )
            return None
        return session.write_summary()


def start_server(job: "RolloutJob", folder: "Path") -> None:
    """Starts the job's own server, if it has one that does not run yet, and waits until it answers."""
    from rich.text import Text

    from ..engines.vllm.process import LOG
    from .progress import build_console

    server = job.server
    if server is None or server.is_ready():
        return
    server.log = folder / LOG
    typer.echo(f"starting a vLLM server of {job.config.model.name}; its log: {server.log}")
    console, started = build_console(), time.monotonic()
    with console.status("") as status:  # shown on a terminal only
        server.show = lambda line: status.update(Text(line))
        server.wait()
    server.show = lambda line: None
    typer.echo(f"the server answers after {time.monotonic() - started:.0f} s")


async def _play_session(session: "RolloutSession", progress: "Progress") -> None:
    for episode in session.load_saved():
        progress.add(episode, earlier=True)
    with progress.show():
        async with aclosing(session.play()) as episodes:
            async for episode in episodes:
                progress.add(episode)
