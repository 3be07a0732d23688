"""The environment of a config whose data is elsewhere, and a report on its dataset as text."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ..configs import schema
from ..envs.data.check import DataReport
from ..envs.data.env import DataEnv
from ..envs.data.image_check import check_clean_path, open_all_rows, write_clean_rows
from ..errors import ConfigError
from .task_sheet import open_envs


def open_data_envs(name: str, overrides: Sequence[str], path: str | None) -> tuple[DataEnv, DataEnv, str]:
    """The training and the held-out environment of a config, with its dataset at `path`, and what they assume.

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


def open_data_env(name: str, overrides: Sequence[str], path: str | None, *, held_out: bool) -> DataEnv:
    """The environment of a config that `open_data_envs` gives, for training or held out."""
    env, other, _ = open_data_envs(name, overrides, path)
    return other if held_out else env


def check_rows(env: DataEnv, write: str | None) -> Iterator[str]:
    """Open every image of the source, with progress on stderr; a line for each problem. Writes the clean rows."""
    if write is not None:
        check_clean_path(env, Path(write))
    with typer.progressbar(length=env.count_rows(), label="opening images", file=sys.stderr) as bar:
        checked = open_all_rows(env, bar.update)
    yield from (f"bad: {problem}" for problem in checked.list_problems())
    yield f"images: {checked.total - len(checked.bad)} of {checked.total} rows can be shown"
    if write is not None:
        write_clean_rows(env, Path(write), checked.bad, checked.total)
        folder = "" if env.data.images is not None or env.images_folder is None else f"; images: {env.images_folder}"
        yield f"{write}: {checked.total - len(checked.bad)} rows{folder}"


def relocate(data: Mapping[str, Any], path: str) -> list[str]:
    """Overrides with which the files of a data block are looked for in `path`.

    It stands for the source or, if there are several files or a folder of images, for the folder that holds them all.

    >>> relocate({"source": "owner/name"}, "here")
    ['env.data.source="here"']
    >>> relocate({"source": {"test": "data/SLAKE/test.json"}, "images": "data/SLAKE/imgs"}, "here")
    ['env.data.source={"test": "here/test.json"}', 'env.data.images="here/imgs"']
    """
    source, images = data.get("source"), data.get("images")
    files: list[str] = list(source.values()) if isinstance(source, Mapping) else []
    if isinstance(source, str) and _is_file(source):
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


def _is_file(source: Any) -> bool:
    return isinstance(source, str) and Path(source).suffix != ""


def describe_report(report: DataReport) -> str:
    """The report, a line for each finding."""
    return "\n".join(_list_lines(report))


def _list_lines(report: DataReport) -> Iterator[str]:
    if not report.compared:
        yield f"{report.rows} rows; no column is compared, because data.features names none"
        return
    yield f"{report.rows} rows; the first {report.compared} are compared"
    findings = (
        ("missing", report.missing),
        ("other type", report.types),
        ("unexpected label", report.labels),
        ("extra", report.extra),
        ("does not occur", report.absent),
    )
    for name, lines in findings:
        yield from (f"{name}: {line}" for line in lines)
    fits = f"it fits: the columns of data.features, in {report.compared} rows"
    yield fits if report.fits else f"it does not fit; its columns: {', '.join(report.columns)}"
