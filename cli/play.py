"""`viewbox rollout`, `viewbox evaluate` and `viewbox train`: they play episodes and show how far they are."""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence, Sized
from contextlib import aclosing, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import typer

from ..errors import ConfigError, ViewboxError
from ..utils.files import check_out, write_atomically
from ..utils.terminal import make_printable
from .command_builder import show
from .figures import Evaluation

if TYPE_CHECKING:
    from ..rollouts.job import RolloutJob, RolloutSession
    from .progress import Progress

INTERRUPTED = 130
FEW = 3  # episodes whose answers are printed
Overrides = Annotated[Sequence[str], typer.Argument(metavar="KEY.PATH=VALUE", show_default=False)]


class PlayOptions(TypedDict, total=False):
    """Who plays what, and how.

    Args:
        env: environment: a registered name, package.module:Class or file.py:Class.
        model: model: its name at the endpoint, else a local folder or a hub name.
        endpoint: URL of an OpenAI-compatible server; images are sent there.
        config: YAML config whose model, env, reward and rollout sections are used.
        group: number of episodes per task. Default: 1.
        concurrency: number of episodes played at once. Default: 16 with an endpoint, else rollout.slots.
        temperature: sampling temperature. Default: the server's, or 1 for a local model.
        max_tokens: maximum tokens per reply. Default: the server's, or 512 for a local model.
        seed: sampling seed; each episode derives its own from it. Default: 0.
        out: output folder; what is unfinished there is resumed. Default: a new folder in runs/.
        retry_failed: play again the episodes that ended as error, timeout or cancelled.
    """

    env: str
    model: str
    endpoint: str
    config: str
    group: int
    concurrency: int
    temperature: float
    max_tokens: int
    seed: int
    out: str
    retry_failed: bool


def rollout(
    overrides: Overrides = (),
    *,
    held_out: bool = False,
    tasks: int | None = None,
    check_tokens: bool = False,
    check_model: bool = False,
    **options: Unpack[PlayOptions],
) -> None:
    """Play an environment's tasks against an endpoint or a local model, and store every episode.

    The API key is read from the environment variable that endpoint.api_key_env names; OPENAI_API_KEY is sent
    to OpenAI's own address without being named. A key travels over https only, except to this machine.
    You can stop the command at any moment: the same command with --out FOLDER plays the missing episodes.

    Args:
        overrides: any other setting of the sections env, reward, rollout, model and endpoint, such as env.noise=3,
            rollout.top_p=0.9, rollout.timeout=60, rollout.engine=vllm or endpoint.tool_images=tool.
        held_out: play the held-out tasks: apply env.eval of the config.
        tasks: number of tasks to play, beginning with the first. Default: what there is, but at most 100.
        check_tokens: with --endpoint: compare each prompt's token ids with those of viewbox's own engine; vLLM returns
            them. Ends with status 1 if a text differs or cannot be compared. endpoint.tokenizer names the model's
            folder, if --model does not.
        check_model: play nothing: print how a local model works here, and how far the engine differs from the model's
            own forward. Ends with status 2 if it cannot be played.
    """
    from ..rollouts.job import build_job, create_rollout_folder
    from ..rollouts.store.run_folder import remove_unused

    if check_model:
        for line in _check_model(overrides, options):
            typer.echo(line)
        return

    check_out(options.get("out", "runs"), "folder")
    out, retry_failed = options.pop("out", None), options.pop("retry_failed", False)
    job = build_job(
        **read_options(overrides, held_out=held_out, tasks=tasks, check_tokens=check_tokens, purpose="play", **options)
    )
    with closing(job.player), remove_unused(folder := create_rollout_folder(job, out), new=out is None):
        there = len(job.env.tasks) if tasks is None and isinstance(job.env.tasks, Sized) else 0
        if there > len(job.tasks):
            typer.echo(f"{len(job.tasks)} of {there:,} tasks are played; more: --tasks")
        status = play_job(job, folder, retry_failed=retry_failed)
    check = getattr(job.generator, "token_check", None)
    if check is not None:
        for line in check.describe():
            typer.echo(line)
        status = status or int(not check.passed)
    raise typer.Exit(status)


def _check_model(overrides: Sequence[str], options: PlayOptions) -> Iterator[str]:
    from ..rollouts.job import read_config

    if "endpoint" in options:
        raise ConfigError("--check-model: looks at a local model; leave out --endpoint", key="endpoint")
    env = None if "config" in options else options.get("env", "digits")
    run, _ = read_config(options.get("config"), env=env, model=options.get("model"), overrides=overrides)
    from ..engines.hf.parity import describe_model

    yield from describe_model(run.model)


def evaluate(
    overrides: Overrides = (),
    *,
    tasks: int = 200,
    refuse: bool = False,
    pictures: str | None = None,
    of: str | None = None,
    acuity: bool = False,
    resamples: int = 1000,
    **options: Unpack[PlayOptions],
) -> Evaluation:
    """Play the same tasks with tools and without, and print what the tools are worth.

    A config's held-out tasks (env.eval) are played if it has any. Turns and reward are the same both times.

    Every episode is stored: in with_tools and without_tools inside the output folder, which `viewbox score` reads. You
    can stop the command at any moment: the same command with --out FOLDER plays the missing episodes.

    Args:
        overrides: any other setting of the sections env, reward, rollout, model and endpoint, such as env.noise=3,
            rollout.top_p=0.9, rollout.timeout=60, rollout.engine=vllm or endpoint.tool_images=tool.
        tasks: number of tasks to play, beginning with the first.
        refuse: without tools: offer them all the same, and refuse every call. For a policy that has learned to call
            before it answers.
        pictures: instead, play the tasks with other pictures, and print what the real ones are worth: real and blank
            (one gray), other (another task's) and shuffled (cut into tiles in another order), or some of these.
        of: with --pictures: only the calls of this tool work on other pictures, those of one reply at a time.
        acuity: instead, show the target of each task at several scales, and print how right the answers are.
        resamples: no 95 % intervals if this is 0; those of means need no bootstrap draws.
    """
    from ..rollouts import worth
    from ..rollouts.acuity import Acuity, measure_acuity, show_targets
    from ..rollouts.job import build_job, create_rollout_folder
    from ..rollouts.scoring.blind import measure_blind
    from ..rollouts.store.run_folder import describe_view, remove_unused

    if [refuse, pictures is not None, acuity].count(True) > 1 or (of and pictures is None):
        problem = "--refuse, --pictures and --acuity cannot be joined; allowed: one of them, and --of with --pictures"
        raise ConfigError(problem, key="pictures")
    check_out(options.get("out", "runs"), "folder")
    out, retry_failed = options.pop("out", None), options.pop("retry_failed", False)
    job = build_job(**read_options(overrides, held_out=None, tasks=tasks, **options))
    with closing(job.player):
        names = () if pictures is None else worth.read_pictures(pictures)
        if names:
            ways = worth.swap_all(job, names, of)
        else:
            ways = show_targets(job) if acuity else worth.leave_tools(job, refuse=refuse)
        with remove_unused(folder := create_rollout_folder(job, out, kind="evaluate"), new=out is None):
            _play_ways({worth.REAL: job} if of else ways, folder, retry_failed)
            if of:
                ways = worth.swap_calls(job, names, of, folder)
                _play_ways(ways, folder, retry_failed)
                ways = {worth.REAL: job, **ways}
    blind = measure_blind(job.env, job.tasks) if names else None
    result: worth.Worth | Acuity = (
        measure_acuity(folder, ways, resamples)
        if acuity
        else worth.measure_worth(folder, [*ways], job.env.tools, resamples, of=of, blind=blind, refused=refuse)
    )
    figures = folder / f"{'acuity' if acuity else 'pictures' if names else 'tool_gain'}.json"
    write_atomically(figures, json.dumps(result.to_dict(), indent=2) + "\n")
    return Evaluation(result, [f"figures: {figures}", describe_view(folder)])


def _play_ways(ways: Mapping[str, "RolloutJob"], folder: Path, retry_failed: bool) -> None:
    """Play the same tasks in several ways, each into a folder of its name."""
    from ..rollouts.job import create_rollout_folder

    counts = [f"{len(job.tasks if job.only is None else job.only) * job.group} {name}" for name, job in ways.items()]
    typer.echo(f"cost: episodes: {', '.join(counts) or 'none'}; what the folder has is not played again")
    for name, job in ways.items():
        summary = play_folder(job, create_rollout_folder(job, folder / name), retry_failed=retry_failed, root=folder)
        if summary is None or (status := check_played(summary)):
            raise typer.Exit(INTERRUPTED if summary is None else status)


def train(arguments: Sequence[str] = ()) -> None:
    """Train a model from a YAML config.

    `viewbox train --help` explains the arguments.

    Args:
        arguments: a config and settings, as `python train.py` takes them.
    """
    from ..training.command import main

    raise typer.Exit(main(list(arguments)))


def read_options(
    overrides: Sequence[str],
    *,
    concurrency: int | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    **settings: object,
) -> dict[str, Any]:
    """Return what `build_job` takes; options of the section `rollout` come before the overrides, which win."""
    section = {"slots": concurrency, "temperature": temperature, "max_reply_tokens": max_tokens}
    options = [f"rollout.{name}={value}" for name, value in section.items() if value is not None]
    return {"overrides": [*options, *overrides], **settings}


def play_job(job: "RolloutJob", folder: Path, *, retry_failed: bool) -> int:
    """Play the missing episodes, show the progress and print the figures; return the exit status."""
    from ..rollouts.ask import write_readable
    from ..rollouts.store.reader import load
    from ..rollouts.store.run_folder import EPISODES, describe_view
    from .figures import show_summary

    summary = play_folder(job, folder, retry_failed=retry_failed)
    if summary is None:
        return INTERRUPTED
    show(summary, show_summary)
    if summary["episodes"] <= FEW:
        for episode in load(folder / EPISODES):
            if episode.answer is not None:
                typer.echo(make_printable(f"answer to {episode.task.id}: {write_readable(episode.answer)}"))
    if summary["faults"]:
        typer.echo(f"to play the {summary['faults']} failed episodes again: --out {folder} --retry-failed")
    typer.echo(f"figures: {folder / 'summary.json'}")
    typer.echo(describe_view(folder))
    return check_played(summary)


def check_played(summary: Mapping[str, Any]) -> int:
    """Return the exit status: 2 if every episode is a fault, which is said."""
    if summary["faults"] < summary["episodes"]:
        return 0
    typer.echo("error: nothing was played: every episode failed", err=True)
    return 2


def play_folder(
    job: "RolloutJob", folder: Path, *, retry_failed: bool, root: Path | None = None
) -> "dict[str, Any] | None":
    """Play the missing episodes of a folder and show the progress; return the figures, or None if interrupted.

    `root` is what `--out` must name to resume, if it is not the folder."""
    from ..rollouts.job import open_session
    from .progress import Progress

    with open_session(job, folder, retry_failed=retry_failed) as session:
        saved = session.writer.count
        typer.echo(f"folder: {folder}" + (f" ({saved} episodes are stored already)" if saved else ""))
        if session.retried:
            typer.echo(f"{session.retried} failed episodes are played again")
        if job.player.threads:
            typer.echo(f"threads: {job.player.threads}")
        if saved < session.total:
            start_server(job, root or folder)
        progress = Progress(session.total, get_load=getattr(job.generator, "get_load", None))
        try:
            asyncio.run(_play_session(session, progress))
        except KeyboardInterrupt:
            saved = session.writer.count
            typer.echo(
                f"interrupted: {saved} of {session.total} episodes are stored; resume with --out {root or folder}"
            )
            return None
        except ViewboxError:
            if saved := session.writer.count:
                typer.echo(f"{saved} episodes are stored; to go on: --out {root or folder} --retry-failed")
            raise
        return session.write_summary()


def start_server(job: "RolloutJob", folder: Path) -> None:
    """Start the job's own server, if it has one that does not run yet, and wait until it answers."""
    from rich.console import Console
    from rich.text import Text

    from ..engines.vllm.process import LOG

    server = job.player.server
    if server is None or server.is_ready():
        return
    server.log = folder / LOG
    typer.echo(f"starting a vLLM server of {job.config.model.name}; its log: {server.log}")
    started = time.monotonic()
    with Console().status("") as status:  # shown on a terminal only
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
