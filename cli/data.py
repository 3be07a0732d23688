"""`viewbox data`: looks at the tasks of a config: their data, their fields and pictures, and their prompts."""

import html
import json
import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..configs import schema
from ..core.base import BaseMultiTurnEnv
from ..envs.data import check as checks
from ..envs.data.check import describe_splits
from ..envs.data.env import DataEnv
from ..envs.data.rows import Rows
from ..envs.from_config import build_envs, prepare_env
from ..errors import ConfigError, ViewboxError
from ..records import Task
from ..training.prompt_page import Prompt, build_prompt, render_parts, write_page
from ..utils.files import check_out
from ..utils.terminal import make_line
from .commands import say
from .task_sheet import ShownTask, draw_sheet, list_shown, load_config, open_envs, pick_tasks
from .tools import check_picture_out, save_picture

_WIDTH = 200  # characters of a field that are printed
_MAX_OPENED, _MAX_VOLUMES = 1000, 50  # tasks of a split whose images are opened in any case
_MAX_PROBLEMS = 100  # of a catalogue that are printed
Overrides = Annotated[Sequence[str], typer.Argument(metavar="[KEY=VALUE]...")]
Count = Annotated[int, typer.Option(min=1)]


def check(
    config: str,
    overrides: Overrides = (),
    *,
    path: str | None = None,
    held_out: bool = False,
    images: bool = False,
    write: str | None = None,
    out: str = "check.png",
) -> Iterator[str]:
    """Compare a dataset with what a config expects of it, and show three tasks.

    It prints how each column was read, with three values, and what is left out; the tasks, groups and labels of each
    split; and what the right answers of 20 tasks score by the reward of the config. It ends with status 1 if a row of
    any split is left out or makes no task, a column is missing, or holds values of another type or labels that are not
    expected, or if `--images` finds a row that cannot be shown. Of a catalogue of software (.jsonl, .sqlite) every
    problem is printed.

    Args:
        config: a dataset's preset (docs/datasets), a run's YAML, or a catalogue of software (a file).
        overrides: settings to change.
        path: the dataset on this machine; default: as the config says.
        held_out: check the data of `env.eval`.
        images: open every image of the source, and list those that cannot be shown.
        write: with --images: a new JSONL file for the rows that can be shown.
        out: PNG file for the three tasks.
    """
    from ..envs.right_answers import score_right_answers
    from ..envs.software_adviser.catalogue import SUFFIXES

    if Path(config).suffix.lower() in SUFFIXES:
        yield from _check_catalogue(config)
        return
    check_picture_out(out)
    if write is not None and not images:
        raise ConfigError("--write: which rows are clean is known with --images only", key="write")
    *both, conventions = open_data_envs(config, overrides, path)
    env = both[int(held_out)]
    if write is not None:
        checks.check_clean_path(env, Path(write))
    report = checks.compare_columns(env)
    yield report.describe()[:20_000]
    yield from (say(line, 500) for line in checks.describe_columns(env))
    yield conventions
    yield from (say(line, 2000) for line in describe_splits(*both, labels=True))
    problems = [*(check_rows(env, write) if images else ()), *_open_splits(both, env.rows if images else None)]
    yield from map(say, problems)
    right = score_right_answers(env)
    for answers in right:
        yield say(f"right answers: {answers.describe()}", 2000)
        yield from (f"warning: {warning}" for warning in answers.warnings)
    count, shown = list_shown(env, 0, 3)
    yield f"{env.name}: {count} tasks"
    yield from _print_tasks(shown, out)
    is_bad = any(line.startswith("bad: ") for line in problems) or any(answers.unopened for answers in right)
    _end(env, is_whole=report.fits and not is_bad, shown=shown)


def show(
    config: str,
    overrides: Overrides = (),
    *,
    tasks: Count = 8,
    first: int = 0,
    held_out: bool = False,
    out: str = "tasks.png",
) -> Iterator[str]:
    """Print the fields of some tasks, and draw their images with the boxes of the reference.

    A row of which no task can be made is printed with its reason.

    Args:
        config: a run's YAML, or the name of a shipped one.
        overrides: settings to change.
        tasks: number of tasks to show.
        first: number of the first one.
        held_out: show the tasks of `env.eval`.
        out: PNG file for the images and boxes.
    """
    check_picture_out(out)
    *both, conventions = open_envs(config, overrides)
    env = both[int(held_out)]
    count, shown = list_shown(env, first, tasks)
    yield f"{env.name}: {count} tasks"
    yield conventions
    if splits := describe_splits(*both):
        yield say(f"splits: {'; '.join(splits)}", 2000)
    yield from _print_tasks(shown, out)
    _end(env, shown=shown)


def preview(
    config: str,
    overrides: Overrides = (),
    *,
    tasks: Count = 3,
    first: int = 0,
    held_out: bool = False,
    out: str = "preview.html",
) -> Iterator[str]:
    """Print the prompts of some tasks: what the model reads before its first reply.

    If the model is on this machine, its own chat template writes them, and their tokens are counted. The HTML file
    shows the images too, and the right answer if it is known.

    Args:
        config: a run's YAML, or the name of a shipped one.
        overrides: settings to change.
        tasks: number of tasks.
        first: number of the first one.
        held_out: preview the tasks of `env.eval`.
        out: HTML file with the images in it.
    """
    check_out(out, "file")
    env, shown = list_previews(config, overrides, first=first, count=tasks, held_out=held_out)
    yield from (f"{one.to_text()[:20_000]}\n" for one in shown)
    bodies = (
        f"<h2>{html.escape(one.title)}</h2>{render_parts(one.prompt.parts)}\n<b>right answer: "
        f"{html.escape(one.answer)}</b><hr>"
        for one in shown
    )
    write_page(Path(out), "preview", "".join(bodies))
    yield out
    _end(env, shown=shown)


def _open_splits(both: Sequence[DataEnv], opened: Rows | None) -> Iterator[str]:
    """Open the images of the first tasks of each split, but not of rows that were opened before."""
    for env in checks.list_splits(*both):
        if opened is not None and (env.rows.name, env.rows.folder) == (opened.name, opened.folder):
            continue
        split = env.data.split
        try:
            has_volumes = any(env.get_images(number).may_hold_volumes() for number in env.tasks.numbers[:1])
            most = _MAX_VOLUMES if has_volumes else _MAX_OPENED
            yield from _open_images(env, f"{split}: ", f" of {split}", most)
        except ConfigError as error:
            yield f"bad: {split}: {error}"
            continue
        if len(env.tasks) > most:
            yield f"images of {split}: those of the first {most} tasks were opened; all: --images"


def _open_images(
    env: DataEnv, before: str = "", of: str = "", most: int | None = None
) -> Generator[str, None, checks.CheckedRows]:
    """Open the images of the source or of the first tasks, with progress on stderr; yield a line for each problem."""
    length = len(env.rows) if most is None else min(most, len(env.tasks))
    with typer.progressbar(length=length, label=f"opening images{of}", file=sys.stderr) as bar:
        found = checks.open_all_rows(env, bar.update, most)
    yield from (f"bad: {before}{problem}" for problem in found.list_problems())
    yield f"images{of}: {found.total - len(found.bad)} of {found.total} rows can be shown"
    return found


def _end(env: BaseMultiTurnEnv, *, is_whole: bool = True, shown: "Sequence[ShownTask | Preview]") -> None:
    """End with status 1 if a task could not be shown, or rows of the data are bad and left out."""
    parts = getattr(env, "parts", {"": env}).values()
    is_whole = is_whole and not any(getattr(part.tasks, "skipped", ()) for part in parts)
    if not is_whole or any(one.problem for one in shown):
        raise typer.Exit(1)


def _check_catalogue(path: str) -> Iterator[str]:
    from ..envs.software_adviser import check_catalogue

    found = check_catalogue(path)
    problems = found.problems
    yield from (say(problem, 500) for problem in problems[:_MAX_PROBLEMS])
    if len(problems) > _MAX_PROBLEMS:
        yield f"and {len(problems) - _MAX_PROBLEMS:,} more problems"
    yield f"{say(Path(path).name, _WIDTH)}: {len(found.tools):,} tools, {len(problems):,} problems"
    if problems:
        raise typer.Exit(1)


def _print_tasks(shown: Sequence[ShownTask], out: str) -> Iterator[str]:
    for task in shown:
        yield f"\n{make_line(task.id, _WIDTH)}"
        for name, value in task.fields:
            yield f"  {make_line(name, 30):<14} {make_line(value, _WIDTH)}"
    save_picture(draw_sheet(shown), out)
    yield f"\n{out}"


# ---------------------------------------------------------------- a dataset and its report
def open_data_envs(name: str, overrides: Sequence[str], path: str | None) -> tuple[DataEnv, DataEnv, str]:
    """Return the training and the held-out environment of a config, with its dataset at `path`, and what they assume.

    Raises:
        ConfigError: the config cannot be used, or its environment reads no dataset.
    """
    if path is not None:
        data = schema.load(name, overrides, needs_model=False).env.settings.get("data")
        overrides = [*overrides, *relocate(data if isinstance(data, Mapping) else {}, path)]
    env, held_out, conventions = open_envs(name, overrides)
    if not isinstance(env, DataEnv) or not isinstance(held_out, DataEnv):
        raise ConfigError(f"env.name = {env.name!r}: reads no dataset; allowed: a config with env.data", key="env.name")
    return env, held_out, conventions


def check_rows(env: DataEnv, write: str | None) -> Iterator[str]:
    """Open every image of the source; yield a line for each problem. Write the clean rows."""
    checked = yield from _open_images(env)
    if write is not None:
        checks.write_clean_rows(env, Path(write), checked.bad)
        folder = "" if env.data.images is not None or env.images_folder is None else f"; images: {env.images_folder}"
        yield f"{write}: {checked.total - len(checked.bad)} rows{folder}"


def relocate(data: Mapping[str, Any], path: str) -> list[str]:
    """Return overrides with which the files of a data block are looked for in `path`.

    It stands for the source or, if there are several files or a folder of images, for the folder that holds them all.

    >>> relocate({"source": "owner/name"}, "here")
    ['env.data.source="here"']
    >>> relocate({"source": {"test": "data/SLAKE/test.json"}, "images": "data/SLAKE/imgs"}, "here")
    ['env.data.source={"test": "here/test.json"}', 'env.data.images="here/imgs"']
    """
    source, images = data.get("source"), data.get("images")
    files: list[str] = list(source.values()) if isinstance(source, Mapping) else []
    if isinstance(source, str) and Path(source).suffix:
        files = [source]
    if not files or (images is None and not isinstance(source, Mapping)):
        return [f"env.data.source={json.dumps(path)}"]
    folders = [*(os.path.dirname(file) for file in files), *([images] if images else [])]
    common = os.path.commonpath([os.path.abspath(folder) for folder in folders])  # one may be absolute, others not

    def move(file: str) -> str:
        return os.path.normpath(os.path.join(path, os.path.relpath(os.path.abspath(file), common)))

    moved = {split: move(file) for split, file in source.items()} if isinstance(source, Mapping) else move(files[0])
    return [
        f"env.data.source={json.dumps(moved)}",
        *([f"env.data.images={json.dumps(move(images))}"] if images else []),
    ]


# ---------------------------------------------------------------- prompts
@dataclass(frozen=True)
class Preview:
    """The prompt of a task, or the problem; `answer` is the right one, or why it cannot be written."""

    task: str
    prompt: Prompt
    tools: tuple[str, ...]
    answer: str
    problem: str = ""

    @property
    def title(self) -> str:
        count = "" if self.prompt.tokens is None else f", {self.prompt.tokens} tokens"
        return f"{self.task} (tools: {', '.join(self.tools) or 'none'}{count})"

    def to_text(self) -> str:
        """Return the prompt, with the size of each image in its place."""
        parts = (
            part if isinstance(part, str) else f"<{part.width} x {part.height} pixels>" for part in self.prompt.parts
        )
        return f"== {self.title}\n{''.join(parts).strip()}\n-- right answer: {self.answer}"


def list_previews(
    name: str, overrides: Sequence[str], *, first: int, count: int, held_out: bool
) -> tuple[BaseMultiTurnEnv, list[Preview]]:
    """Return an environment of a config, and the prompts of `count` of its tasks.

    Raises:
        ViewboxError: the config cannot be used, or has no task with the number `first`.
    """
    config, model = load_config(name, overrides)
    with schema.locate_errors(config):
        env = build_envs(config, model.view_settings if model else {})[int(held_out)]
        prepare_env(env)
        _, tasks = pick_tasks(env, first, count)
    shown = []
    for task in tasks:
        try:
            state = env.for_task(task).reset(task, seed=0)
        except ViewboxError as error:
            shown.append(Preview(task.id, Prompt((f"cannot be opened: {error}",), None), (), "none", str(error)))
            continue
        shown.append(Preview(task.id, build_prompt(config, env, model, state), state.tools, _write_answer(env, task)))
    return env, shown


def _write_answer(env: BaseMultiTurnEnv, task: Task) -> str:
    env = env.for_task(task)
    try:
        return env.write_answer(task) if env.answer is not None else str(dict(task.reference))
    except ViewboxError as error:
        return f"unknown ({error})"
