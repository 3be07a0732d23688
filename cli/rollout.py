"""`viewbox rollout`: plays an environment's tasks against an endpoint or a local model, and stores every episode."""

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from viewbox.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from viewbox.cli.progress import Progress
    from viewbox.rollouts.job import RolloutJob
    from viewbox.rollouts.session import RolloutSession

INTERRUPTED = 130
# Options of version 0.1, and the settings that replace them.
REMOVED = {
    "--set": "env.KEY=VALUE",
    "--top-p": "rollout.top_p=VALUE",
    "--top-k": "rollout.top_k=VALUE",
    "--min-p": "rollout.min_p=VALUE",
    "--repetition-penalty": "rollout.repetition_penalty=VALUE",
    "--stop": "rollout.stop='[TEXT, TEXT]'",
    "--kv-bytes": "rollout.kv_cache_bytes=8GiB",
    "--kv-cache-bytes": "rollout.kv_cache_bytes=8GiB",
    "--time-limit": "rollout.timeout=SECONDS",
    "--timeout": "rollout.timeout=SECONDS",
    "--api-key-env": "endpoint.api_key_env=NAME",
    "--tool-images": "endpoint.tool_images=tool",
    "--native-tools": "endpoint.native_tools=true",
    "--no-native-tools": "endpoint.native_tools=false",
    "--extra": "endpoint.extra.KEY=VALUE",
}


class RolloutCommand(TyperCommand):
    """Refuses removed options and names the settings that replace them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for argument in args:
            option = argument.partition("=")[0]
            if option in REMOVED:
                raise ConfigError(f"{option} is no longer an option; write {REMOVED[option]}", key=option)
        return super().parse_args(ctx, args)


app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("rollout", cls=RolloutCommand)
def rollout(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Any other setting of the sections env, reward, rollout, model and endpoint, such as env.noise=3, "
            "rollout.top_p=0.9, rollout.timeout=60 or endpoint.tool_images=tool.",
            metavar="KEY.PATH=VALUE",
            show_default=False,
        ),
    ] = None,
    env: Annotated[
        str | None, typer.Option(help="Environment: a registered name, package.module:Class or file.py:Class.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model: its name at the endpoint, else a local folder or a hub name.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="URL of an OpenAI-compatible server; images are sent there.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="YAML config whose model, env, reward and rollout sections are used.")
    ] = None,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Play the held-out tasks: apply env.eval of the config.")
    ] = False,
    tasks: Annotated[int, typer.Option(help="Number of tasks to play, beginning with the first.")] = 100,
    group: Annotated[int, typer.Option(help="Number of episodes per task.")] = 1,
    concurrency: Annotated[
        int | None,
        typer.Option(help="Number of episodes played at once. Default: 16 with an endpoint, else rollout.slots."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature. Default: the server's, or 1 for a local model.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum tokens per reply. Default: the server's, or 512 for a local model.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Sampling seed; each episode derives its own from it.")] = 0,
    out: Annotated[
        str | None,
        typer.Option(help="Output folder; an unfinished rollout there is resumed. Default: a new folder in runs/."),
    ] = None,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", help="Play again the episodes that ended as error, timeout or cancelled."),
    ] = False,
) -> None:
    """Play an environment's tasks against an endpoint or a local model, and store every episode.

    Example: `viewbox rollout --env digits --endpoint http://127.0.0.1:8000/v1 --model my-model env.noise=3`

    The API key is read from the environment variable that endpoint.api_key_env names; OPENAI_API_KEY is sent
    to OpenAI's own address without being named. A key travels over https only, except to this machine.
    You can stop the command at any moment: the same command with --out FOLDER plays the missing episodes.
    """
    from viewbox.rollouts.job import RolloutOptions, build_job
    from viewbox.rollouts.session import create_rollout_folder

    section = {"slots": concurrency, "temperature": temperature, "max_reply_tokens": max_tokens}
    options = RolloutOptions(
        env=env,
        model=model,
        endpoint=endpoint,
        config=config,
        held_out=held_out,
        overrides=[
            *(f"rollout.{name}={value}" for name, value in section.items() if value is not None),
            *(overrides or ()),
        ],
        tasks=tasks,
        group=group,
        seed=seed,
    )
    job = build_job(options)
    raise typer.Exit(play_job(job, create_rollout_folder(job, out), retry_failed=retry_failed))


def play_job(job: "RolloutJob", folder: "Path", *, retry_failed: bool) -> int:
    """Plays the missing episodes, shows the progress and prints the figures; returns the exit status."""
    from viewbox.cli.progress import Progress, print_summary
    from viewbox.rollouts.session import open_session

    with open_session(job, folder, retry_failed=retry_failed) as session:
        saved = session.writer.count
        typer.echo(f"folder: {folder}" + (f" ({saved} episodes are stored already)" if saved else ""))
        if session.retried:
            typer.echo(f"{session.retried} failed episodes are played again")
        heading = f"{job.env.name}, {job.config.model.name}"
        progress = Progress(total=session.total, heading=heading, get_load=getattr(job.generator, "get_load", None))
        try:
            asyncio.run(_play_session(session, progress))
        except KeyboardInterrupt:
            saved = session.writer.count
            typer.echo(f"interrupted: {saved} of {session.total} episodes are stored; resume with --out {folder}")
            return INTERRUPTED
        summary = session.write_summary()
    print_summary(summary)
    if summary["errors"]:
        typer.echo(f"to play failed episodes again: --out {folder} --retry-failed")
    typer.echo(f"figures: {folder / 'summary.json'}")
    return 0


async def _play_session(session: "RolloutSession", progress: "Progress") -> None:
    for episode in session.load_saved():
        progress.add(episode, earlier=True)
    with progress.show():
        async with aclosing(session.play()) as episodes:
            async for episode in episodes:
                progress.add(episode)
