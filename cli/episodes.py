"""`viewbox view`, `viewbox export` and `viewbox import`: episodes for people and for other tools."""

import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..errors import ConfigError, StoreError
from ..utils.files import check_out
from .command_builder import say
from .figures import warn

if TYPE_CHECKING:
    from ..rollouts.exchange.selection import SelectionReport

PICTURES, SUFFIXES = (".png", ".jpg", ".jpeg"), (".yaml", ".yml")
MAX_LISTED = 20  # broken episodes


def view(
    runs: Sequence[str],
    *,
    out: str | None = None,
    serve: bool = False,
    port: Annotated[int, typer.Option(min=0, max=65535)] = 0,
    tasks: Annotated[int, typer.Option(min=1)] = 24,
) -> Iterator[str]:
    """Show saved episodes in a browser: curves, a table, every turn with its pictures and boxes, two runs compared.

    A small run becomes one HTML file, which needs no server and loads nothing. A large one is served on this machine
    until you stop the command; a run in progress updates itself. Held-out episodes of a run are sets of their own.
    The status is 1 if lines cannot be read or pictures cannot be shown.

    A config in place of runs shows its first tasks, those of training and those held out, before anybody plays them:
    the pictures with the boxes of the right answers, and all that the model reads before its first reply.

    Args:
        runs: run folders, or folders of saved episodes; several can be compared. Or a config, and settings of it as
            KEY.PATH=VALUE.
        out: HTML file to write; default: report.html, for at most 2,000 episodes.
        tasks: of a config: the number of tasks of each kind.
        serve: serve the page on 127.0.0.1 instead: for large runs, and runs in progress.
        port: port of the server; 0: any free one.
    """
    from ..rollouts.scoring.restriction import find_restriction
    from ..viewer.report import MAX_EPISODES, write_report
    from ..viewer.sources import find_sets, read_all

    if serve:  # says before it reads what is not installed
        from ..viewer import server  # noqa: F401

    path, problems = check_out("report.html" if out is None else out, "file"), list[str]()
    if path.suffix.lower() in PICTURES:
        raise ConfigError(f"--out {out!r}: the page is HTML, and a browser prints it; allowed: .html", key="out")
    with TemporaryDirectory() as folder:
        if is_config := _is_config(runs[0]):
            from .data import store_tasks

            sets = list(store_tasks(runs[0], runs[1:], tasks, Path(folder), problems))
        else:
            sets = find_sets(runs)
        with Console(stderr=True).status("reading episodes"):  # shown on a terminal only
            count = read_all(sets)
        for one in sets:
            skipped = f"; {one.index.reader.skipped} lines cannot be read" if one.index.reader.skipped else ""
            yield say(f"{one.name}: {len(one.index)} {'tasks' if is_config else 'episodes'}{skipped}")
        if not count and not serve:
            raise StoreError(f"{', '.join(runs)}: no episodes to show")
        yield from (say(f"warning: {problem}") for problem in problems)
        if serve or (out is None and count > MAX_EPISODES):
            from ..viewer.server import HOST, open_socket
            from ..viewer.server import serve as serve_sets

            opened, key = open_socket(port), secrets.token_urlsafe(16)  # so that nobody else can guess the address
            yield f"open http://{HOST}:{opened.getsockname()[1]}/{key}/  (Ctrl-C ends it)"
            serve_sets(sets, opened, key)
            return
        size, pictures = write_report(sets, path)
        for reason in dict.fromkeys(why for one in sets if (why := find_restriction(one.run, one.index.folder))):
            yield say(f"warning: {reason}: keep the file on this machine")
    yield say(f"wrote {path} ({size / 2**20:.1f} MB): open it in a browser")
    yield from _say_missing(pictures, sum(one.index.reader.skipped for one in sets))
    if problems:
        raise typer.Exit(1)


def _is_config(name: str) -> bool:
    """Return whether a name is that of a config, also of one that is not there; raise `ConfigError` for RUN#LINE."""
    from ..configs.schema import find
    from ..configs.yaml_reader import is_pipe

    path, (run, mark, line) = Path(name), name.rpartition("#")
    if mark and Path(run).is_dir():
        raise ConfigError(f"{name}: give {run}; its page has the episode at report.html#/run/0/episode/{line}")
    if path.exists():
        return is_pipe(path) or (path.is_file() and path.suffix in SUFFIXES)
    try:
        return path.suffix in SUFFIXES or bool(find(name))
    except ConfigError:
        return False


def _say_missing(pictures: Mapping[str, str], skipped: int = 0) -> Iterator[str]:
    """Say how many pictures and lines are not shown; raise `typer.Exit` with status 1 if any is not."""
    missing = [reason for reason in pictures.values() if reason]
    if skipped:
        yield f"warning: {skipped:,} lines cannot be read, and are left out"
    if missing:
        lost = f"{len(missing):,} of {len(pictures):,} pictures are missing or damaged"
        yield say(f"warning: {lost}; the first: {missing[0]}")
    if missing or skipped:
        raise typer.Exit(1)


def export(
    run: str,
    overrides: Annotated[Sequence[str], typer.Argument(metavar="[KEY.PATH=VALUE]...")] = (),
    *,
    to: Annotated[str, typer.Option("--to")],
    out: Annotated[str, typer.Option("--out")],
    where: Sequence[str] = (),
    best: int | None = None,
    per_task: bool = False,
    reward_between: tuple[float, float] | None = None,
    push: str | None = None,
) -> None:
    """Write a run, or a config, for another tool, whole or not at all; or take some episodes of a run into a new one.

    - `run`: a new run, which can be viewed, scored and trained on like any other
    - `openai`: a line of JSON for each episode, `{"messages": [...]}` with images as data URLs
    - `sft`: Parquet with `messages` and `images`, for TRL's SFTTrainer
    - `parquet`: one file with messages, images, answers and scores, for `datasets`; `--push owner/name` also puts it on
      the hub, unless the run's data is restricted
    - `inspect`: a log with messages, images and scores, for inspect-ai
    - `verl`: not a run but a config becomes a folder with which verl trains on its environment, on many GPUs

    It says how many episodes were taken and why the others were not; the status is 1 if some cannot be read or cannot
    be written in this form. If none is left, nothing is written and the status is 2.

    Args:
        run: run folder, or folder of saved episodes; with `--to verl`, a config.
        overrides: with `--to verl`: settings of the config as KEY.PATH=VALUE.
        to: form: run, parquet, sft, openai, inspect or verl; see above.
        out: file, or folder for run and verl, which must not exist.
        where: take only episodes with FIELD OP VALUE, such as 'reward>=0.5'; may be repeated.
        best: take this many of the highest rewards.
        per_task: take that many of each task.
        reward_between: take only tasks whose mean reward lies between two numbers, such as 0.2 0.8.
        push: with parquet: also put it on the hub, as the private dataset owner/name with a card.
    """
    of_runs = {"--where": where, "--best": best, "--per-task": per_task, "--reward-between": reward_between}
    if to == "verl":
        for name in (name for name, value in {**of_runs, "--push": push}.items() if value):
            raise ConfigError(f"{name}: goes with a run; `--to verl` exports a config", key=name.strip("-"))
        return export_config(run, out, overrides)
    if overrides:
        raise ConfigError(f"{overrides[0]}: settings go with --to verl; given --to {to}", key="to")
    from ..rollouts.exchange.export import export_run
    from ..rollouts.exchange.selection import Choice, filter_run

    choice = Choice(where, best, per_task, reward_between)
    if to != "run":
        return print_report(export_run(run, to, out, choice, push))
    if push:
        raise ConfigError("--push: does not go with --to run", key="to")
    return print_report(filter_run(run, out, choice))


def export_config(config: str, out: str, overrides: Sequence[str]) -> None:
    """Write the folder with which verl trains, and say what is in it."""
    from ..integrations.verl.export import export_verl

    written = export_verl(config, out, overrides)
    train, held_out = written.tasks
    typer.echo(say(f"{written.folder}: {train:,} tasks for training, {held_out:,} for validation", 500))
    typer.echo(f"prompts: up to {written.prompt_length} tokens (the longest measured: {written.longest_prompt})")
    for line in written.left_out:
        typer.echo(say(f"note: verl decides itself: {line}", 500))
    script = shlex.quote(f"{written.folder}/run.sh")
    typer.echo(say(f"next: {script} trainer.n_gpus_per_node=8 (see its README.md)", 500))


def import_(
    file: str, *, source: Annotated[str, typer.Option("--from")], out: Annotated[str, typer.Option("--out")]
) -> None:
    """Make a run of what another tool recorded, to view, compare and score it. Recorded scores are kept.

    - `verifiers`: traces.jsonl of verifiers 0.4, such as `vf-eval` writes it
    - `openai`: a line of JSON for each conversation, `{"messages": [...]}`
    - `inspect`: a log of inspect-ai
    - `parquet`: what `viewbox export --to parquet` wrote, or `--push` put on the hub

    The file is not trusted: no address in it is fetched, and only images in its own folder are opened. It ends with
    status 1 if a row cannot be read, and writes nothing if none can. What a run cannot hold is named.

    Args:
        file: the file that the other tool wrote.
        source: tool: verifiers, openai, inspect or parquet; see above.
        out: folder of the new run, which must not exist.
    """
    from ..rollouts.exchange.importing import import_file

    print_report(import_file(file, source, out))


def print_report(report: "SelectionReport") -> None:
    """Print what was taken and what was not; raise `typer.Exit` with status 1 if something was skipped."""
    typer.echo(say(report.describe(), 2000))
    for what, count in (+report.not_held).items():
        typer.echo(say(f"note: not kept: {what} ({count:,})", 500))
    for place, reason in list(report.broken.items())[:MAX_LISTED]:
        warn(f"{say(place, 300)}: {say(reason, 300)}")
    broken = report.left_out["broken"]
    if broken > MAX_LISTED:
        warn(f"and {broken - MAX_LISTED:,} more")
    if report.skipped:
        raise typer.Exit(1)
