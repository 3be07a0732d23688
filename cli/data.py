"""`viewbox data`: looks at the tasks of a config, and at the data that they are made of.

`store_tasks` writes them, with their prompts, for the page of `viewbox view CONFIG`.
"""

import json
import os
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..configs import schema
from ..core.base import BaseMultiTurnEnv
from ..core.contract import EpisodeState
from ..core.tasks import to_sequence
from ..envs.data import check as checks
from ..envs.data.check import describe_splits
from ..envs.data.env import DataEnv
from ..envs.data.rows import Rows
from ..envs.from_config import build_envs, prepare_env
from ..errors import ConfigError
from ..records import Episode
from ..rollouts.store.writer import EpisodeWriter
from ..utils.frozen import thaw
from ..utils.terminal import make_line
from ..viewer.sources import EpisodeSet
from ..viewer.unplayed import build_unplayed
from .command_builder import say

if TYPE_CHECKING:
    from ..configs.schema import Config
    from ..training.plan import LocalModel

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
    """
    from ..envs.reward_check import score_right_answers
    from ..envs.software_adviser.catalogue import SUFFIXES

    if Path(config).suffix.lower() in SUFFIXES:
        yield from _check_catalogue(config)
        return
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
    are_opened = yield from _print_tasks(env, 3)
    is_bad = any(line.startswith("bad: ") for line in problems) or any(answers.unopened for answers in right)
    _end(env, is_whole=report.fits and not is_bad and are_opened)


def show(config: str, overrides: Overrides = (), *, tasks: Count = 8, held_out: bool = False) -> Iterator[str]:
    """Print the fields of the first tasks. `viewbox view CONFIG` shows their images, boxes and prompts in a browser.

    A row of which no task can be made is printed with its reason.

    Args:
        config: a run's YAML, or the name of a shipped one.
        overrides: settings to change.
        tasks: number of tasks to show.
        held_out: show the tasks of `env.eval`.
    """
    *both, conventions = open_envs(config, overrides)
    env = both[int(held_out)]
    yield conventions
    if splits := describe_splits(*both):
        yield say(f"splits: {'; '.join(splits)}", 2000)
    _end(env, is_whole=(yield from _print_tasks(env, tasks)))


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
        rows = checks.open_all_rows(env, bar.update, most)
    yield from (f"bad: {before}{problem}" for problem in rows.list_problems())
    yield f"images{of}: {rows.total - len(rows.bad)} of {rows.total} rows can be shown"
    return rows


def _end(env: BaseMultiTurnEnv, *, is_whole: bool) -> None:
    """End with status 1 if something cannot be shown, or rows of the data are bad and left out."""
    if not is_whole or _count_skipped(env):
        raise typer.Exit(1)


def _count_skipped(env: BaseMultiTurnEnv) -> int:
    return sum(len(getattr(part.tasks, "skipped", ())) for part in getattr(env, "parts", {"": env}).values())


def _check_catalogue(path: str) -> Iterator[str]:
    from ..envs.software_adviser import check_catalogue

    catalogue = check_catalogue(path)
    problems = catalogue.problems
    yield from (say(problem, 500) for problem in problems[:_MAX_PROBLEMS])
    if len(problems) > _MAX_PROBLEMS:
        yield f"and {len(problems) - _MAX_PROBLEMS:,} more problems"
    yield f"{say(Path(path).name, _WIDTH)}: {len(catalogue.tools):,} tools, {len(problems):,} problems"
    if problems:
        raise typer.Exit(1)


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


def load_config(name: str, overrides: Sequence[str]) -> "tuple[Config, LocalModel | None]":
    """Return a config, which may lack the section `model`, and its model if it is on this machine."""
    from ..training.plan import find_model

    config = schema.load(name, overrides, needs_model=False)
    with schema.locate_errors(config):
        return config, find_model(config.model)


def open_envs(name: str, overrides: Sequence[str]) -> tuple[BaseMultiTurnEnv, BaseMultiTurnEnv, str]:
    """Return the training and the held-out environment of a config, and the conventions that they assume."""
    config, model = load_config(name, overrides)
    with schema.locate_errors(config):
        env, held_out = build_envs(config, model.view_settings if model else {})
    why = f"{config.model.name} is not on this machine" if config.model.name else "the config names no model"
    views = f"views of at most {env.max_pixels:,} pixels, sides in multiples of {env.pixel_multiple}"
    assumed = f"conventions: coordinates {env.coordinates}; {views}" + ("" if model else f" ({why})")
    if isinstance(env, DataEnv) and any(
        env.fields[name].kind in ("box", "boxes") for name in env.fields.keys() & env.data.columns.keys()
    ):
        assumed += f"\n{env.data.boxes.describe()}"
    return env, held_out, assumed


def store_tasks(
    name: str, overrides: Sequence[str], count: int, folder: Path, problems: list[str]
) -> Iterator[EpisodeSet]:
    """Write the first tasks of a config into `folder`, each with its prompt: those of training, and those held out.

    What cannot be shown is appended to `problems`."""
    config, model = load_config(name, overrides)
    with schema.locate_errors(config):
        envs = build_envs(config, model.view_settings if model else {})
    for env, what in zip(envs, ("training", "held out"), strict=True):
        with schema.locate_errors(config):
            prepare_env(env)
        every = to_sequence(env.tasks, env.name)
        with EpisodeWriter(folder / what) as writer:
            for task in every[:count]:
                writer.append(episode := build_unplayed(env, task, partial(_describe_prompt, config, env, model)))
                problems += [f"{task.id}: {error}" for error in [episode.info.get("error")] if error]
        if bad := _count_skipped(env):
            problems.append(f"{bad} rows of {what} make no task: `viewbox data check {name}` says why")
        place = f"{name}: {min(count, len(every)):,} of {len(every):,} tasks"
        yield EpisodeSet(folder, folder / what, f"{Path(name).stem}, {what}", place)


def _describe_prompt(
    config: "Config", env: BaseMultiTurnEnv, model: "LocalModel | None", state: EpisodeState
) -> dict[str, Any]:
    """Return the prompt of an episode that was just opened and its number of tokens: as the model's chat template
    writes it or, if the model is not on this machine, as messages."""
    parts, count = list[Any](), None
    if model is None:
        parts = [part for message in state.messages for part in (f"\n[{message.role}]\n", *message.content)]
    else:
        tokens, ids, images = model.encode_prompt(config, env, state)
        left, count = tokens.tokenizer.decode(ids), len(ids)
        for image in images:
            text, _, left = left.partition(tokens.get_pixels(image).text)
            parts += [text, image]
        parts.append(left)
    texts = (part if isinstance(part, str) else f"<{part.width} x {part.height} pixels>" for part in parts)
    return {"prompt": "".join(texts).strip(), "prompt_tokens": count}


def _print_tasks(env: BaseMultiTurnEnv, count: int) -> Generator[str, None, bool]:
    """Print the fields of tasks; return whether all can be opened."""
    tasks, are_opened = to_sequence(env.tasks, env.name), True
    if not tasks:
        raise ConfigError(f"{env.name}: has no tasks", key="env")
    yield f"{env.name}: {len(tasks)} tasks"
    for task in tasks[:count]:
        episode = build_unplayed(env, task)
        are_opened = are_opened and "error" not in episode.info
        yield f"\n{make_line(task.id, _WIDTH)}"
        for name, value in _list_fields(episode):
            yield f"  {make_line(name, 30):<14} {make_line(_write_value(value), _WIDTH)}"
    return are_opened


def _list_fields(episode: Episode) -> Iterator[tuple[str, Any]]:
    task, info = episode.task, episode.info
    if "images" in info:
        yield "images", info["images"]
    if "question" not in task.prompt and episode.turns:
        yield "question", episode.turns[0].content
    for fields in (task.prompt, task.reference, task.metadata):
        yield from fields.items()
    if "error" in info:
        yield "problem", info["error"]


def _write_value(value: Any) -> str:
    """Return a value with four decimals at most."""
    plain = json.dumps(thaw(value), default=str)
    return value if isinstance(value, str) else str(json.loads(plain, parse_float=lambda text: round(float(text), 4)))
