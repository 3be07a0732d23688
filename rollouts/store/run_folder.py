"""The folder of a run: config, versions, metrics.jsonl, curve.png, summary.json."""

import glob
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from ...configs import yaml_reader
from ...errors import ConfigError
from ...utils.files import check_inside, check_one_name, check_writable, lock_file, read_regular, write_atomically
from ...utils.secrets import mask_settings
from ...utils.terminal import make_printable
from ...version import get_versions

MAX_METRICS = 2**30  # bytes of metrics.jsonl
_NOT_CHECKED = ("images", "tokens", "wandb")
HELD_OUT = "held_out"  # the folder of held-out episodes, in a folder of each step at which they were played
LATEST = "latest"  # the newest run of a name


def create_folder(parent: Path, name: str) -> Path:
    """Create the folder `parent/name`; if it exists, `name-2`, `name-3` …"""
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def find_latest_folder(parent: Path, name: str) -> Path | None:
    """The newest folder that `create_folder` made for `name`, or None."""
    folders = {1: parent / name} if (parent / name).is_dir() else {}
    for folder in parent.glob(f"{glob.escape(name)}-*"):
        number = folder.name.removeprefix(f"{name}-")
        if number.isdecimal() and folder.is_dir():
            folders[int(number)] = folder
    return folders[max(folders)] if folders else None


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a run's folder for this process.

    Raises:
        ConfigError: another process is writing to it, or something in it leads out of it or is no regular file.
    """
    check_folder(folder)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_file(folder / ".lock"))
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process is still writing this run") from None
        yield


def check_folder(folder: Path) -> None:
    """Raise `ConfigError` if a run is written, or resumed, through a link that leads out of its folder.

    The folder may be somebody else's. Images and tokens are not looked at: each is checked when it is opened.
    """
    waiting = [folder]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            try:
                check_inside(Path(entry.path), folder)
                check_one_name(Path(entry.path))
                is_odd = entry.is_symlink() and not os.path.exists(entry.path)
                is_odd = is_odd or not (entry.is_file() or entry.is_dir())
            except OSError as error:
                raise ConfigError(f"{entry.path}: {error.strerror}; a run is kept in its own folder") from error
            if is_odd:
                raise ConfigError(f"{entry.path}: not a regular file; remove it from the folder of this run")
            if entry.is_dir(follow_symlinks=False) and entry.name not in _NOT_CHECKED:
                waiting.append(Path(entry.path))


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the resolved config, its secrets masked, and the versions; the number of threads of a run stays."""
    for name in ("config.yaml", "versions.json"):
        check_writable(folder / name, folder)
    (folder / "config.yaml").write_text(
        yaml.safe_dump(mask_settings(config), sort_keys=False, allow_unicode=True), "utf-8"
    )
    path = folder / "versions.json"
    before = read_json(path) if path.is_file() else {}
    threads = {"threads": before["threads"]} if "threads" in before else {}
    write_atomically(path, json.dumps({**get_versions(), **threads}, indent=2) + "\n")


def read_config(run: Path, episodes: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """The config.yaml of a run and its values; (None, {}) if there is none.

    Args:
        run: what the user named: the run's folder, or its folder of episodes.
        episodes: the folder of its episodes.
    """
    for folder in (run, episodes.parent):
        path = folder / "config.yaml"
        if os.path.lexists(path):
            values = yaml_reader.read(path, inside=folder).values
            return path, values if isinstance(values, Mapping) else {}
    return None, {}


def read_json(path: Path, limit: int = 2**20) -> dict[str, Any]:
    """The JSON object in a small file of a run; raises `ConfigError` if it cannot be read or is none."""
    try:
        value = json.loads(read_regular(path, limit=limit, inside=path.parent))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds a {type(value).__name__}; allowed: a JSON object")
    return value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a metrics.jsonl."""
    return [json.loads(line) for line in read_regular(path, limit=MAX_METRICS).decode().splitlines()]


def list_held_out(run: Path) -> list[Path]:
    """The folders of a run's held-out episodes, in the order of their steps."""
    paths = (path for path in (run / HELD_OUT).glob("*") if path.name.isdecimal() and len(path.name) < 12)
    return sorted(paths, key=lambda path: int(path.name))


def describe_view(run: str | Path) -> str:
    """The line that says how to look at the episodes of a run.

    >>> describe_view("runs/mine"), describe_view("my runs/a")
    ('look: viewbox view runs/mine', "look: viewbox view 'my runs/a'")
    """
    return f"look: viewbox view {shlex.quote(make_printable(str(run)))}"
