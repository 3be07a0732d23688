"""The folder of a run: config, versions, metrics.jsonl, curve.png, summary.json.

That of `viewbox rollout` has also rollout.json, the command's own settings: endpoint, tasks, group, seed, and how tools
and images are sent; and episodes/retried.jsonl with failed episodes that were played again.
"""

import glob
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ...configs import yaml_reader
from ...envs.data.sources import list_changed
from ...errors import ConfigError
from ...utils import files
from ...utils.files import read_regular, write_atomically
from ...utils.secrets import mask_settings
from ...utils.terminal import make_printable
from ...version import get_versions
from .layout import LINES, MAX_FILE
from .lines import read_lines

MAX_METRICS = 2**30  # bytes of metrics.jsonl
_SETTINGS = ("config.yaml", "versions.json", "rollout.json", "format.json")
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


@contextmanager
def remove_unused(folder: Path, *, new: bool = True) -> Iterator[Path]:
    """Remove a new folder if the block fails before anything was kept in it but settings."""
    try:
        yield folder
    except BaseException:
        stored = (path for path in folder.rglob("*") if path.is_file() and path.name not in _SETTINGS)
        if new and not any(path.stat().st_size for path in stored):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def find_latest_folder(parent: Path, name: str) -> Path | None:
    """Return the newest folder that `create_folder` made for `name`, or None."""
    folders = {1: parent / name} if (parent / name).is_dir() else {}
    for folder in parent.glob(f"{glob.escape(name)}-*"):
        number = folder.name.removeprefix(f"{name}-")
        if number.isdecimal() and folder.is_dir():
            folders[int(number)] = folder
    return folders[max(folders)] if folders else None


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a run's folder for this process. Raise `ConfigError` if another process is writing to it, or something in it
    leads out of it or is no regular file."""
    check_folder(folder)
    with ExitStack() as stack:
        try:
            stack.enter_context(files.lock_file(folder / ".lock"))
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process is still writing this run") from None
        yield


def check_folder(folder: Path) -> None:
    """Raise `ConfigError` if a run is written, or resumed, through a link that leads out of its folder.
    The folder may be somebody else's. Images and tokens are not looked at: each is checked when it is opened."""
    waiting = [folder]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            try:
                files.check_inside(Path(entry.path), folder)
                files.check_one_name(Path(entry.path))
                is_odd = entry.is_symlink() and not os.path.exists(entry.path)
                is_odd = is_odd or not (entry.is_file() or entry.is_dir())
            except OSError as error:
                raise ConfigError(f"{entry.path}: {error.strerror}; a run is kept in its own folder") from error
            if is_odd:
                raise ConfigError(f"{entry.path}: not a regular file; remove it from the folder of this run")
            if entry.is_dir(follow_symlinks=False) and entry.name not in _NOT_CHECKED:
                waiting.append(Path(entry.path))


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Write the resolved config, its secrets masked, and the versions; the number of threads of a run stays."""
    for name in ("config.yaml", "versions.json"):
        files.check_writable(folder / name, folder)
    (folder / "config.yaml").write_text(yaml_reader.write(mask_settings(config)), "utf-8")
    path = folder / "versions.json"
    before = read_json(path) if path.is_file() else {}
    threads = {"threads": before["threads"]} if "threads" in before else {}
    write_atomically(path, json.dumps({**get_versions(), **threads}, indent=2) + "\n")


def read_config(run: Path, episodes: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """Return the config.yaml of a run and its values; (None, {}) if there is none."""
    for folder in (run, episodes.parent):
        path = folder / "config.yaml"
        if os.path.lexists(path):
            values = yaml_reader.read(path, inside=folder).values
            return path, values if isinstance(values, Mapping) else {}
    return None, {}


def read_json(path: Path, limit: int = 2**20) -> dict[str, Any]:
    """Return the JSON object in a small file of a run; raise `ConfigError` if it cannot be read or is none."""
    try:
        value = json.loads(read_regular(path, limit=limit, inside=path.parent))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds a {type(value).__name__}; allowed: a JSON object")
    return value


def read_metrics(path: Path, *, limit: int = MAX_METRICS) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics.jsonl. What is no object of JSON is passed over, such as the torn last line of a
    killed process. Raise `OSError` if the file cannot be read, or is larger than `limit` bytes."""
    with files.open_regular(path, limit=limit, inside=path.parent) as file:
        for line in read_lines(file):
            with suppress(ValueError, RecursionError):
                values = json.loads(line or b"")
                if isinstance(values, dict):
                    yield values


def list_held_out(run: Path) -> list[Path]:
    """Return the folders of a run's held-out episodes, in the order of their steps."""
    paths = (path for path in (run / HELD_OUT).glob("*") if path.name.isdecimal() and len(path.name) < 12)
    return sorted(paths, key=lambda path: int(path.name))


def describe_view(run: str | Path) -> str:
    """Return the line that says how to look at the episodes of a run.

    >>> describe_view("runs/mine"), describe_view("my runs/a")
    ('look: viewbox view runs/mine', "look: viewbox view 'my runs/a'")
    """
    return f"look: viewbox view {shlex.quote(make_printable(str(run)))}"


COMMAND, EPISODES, RETRIED = "rollout.json", "episodes", "retried.jsonl"
FAILED = frozenset({"error", "timeout", "cancelled"})
# What may change on resume: settings of speed, the number of tasks, and the address of the same model.
SPEED_SETTINGS = ("slots", "timeout", "prefill_tokens", "kv_cache_bytes", "tool_wait_timeout")
CHANGEABLE = frozenset({*(f"rollout.{name}" for name in SPEED_SETTINGS), "command.tasks", "command.endpoint"})


def start_rollout(folder: Path, config: Mapping[str, Any], command: Mapping[str, Any]) -> None:
    """Write the settings of a new rollout, or compare them with those of the rollout that is resumed. Raise
    `ConfigError` if a setting differs, or the folder holds episodes of another run."""
    config, command = mask_settings(config), mask_settings(command)
    record, episodes = folder / COMMAND, folder / EPISODES / LINES
    if not os.path.lexists(record):
        if (folder / "config.yaml").is_file() and episodes.is_file():
            raise ConfigError(f"{folder}: this folder holds the episodes of another run; give another --out")
        write_config(folder, config)
    else:
        before = mask_settings(_read_settings(folder))
        _check_data(folder, before["command"].get("data"), command.get("data"))
        old, new = dict(iter_leaves(before)), dict(iter_leaves({**config, "command": command}))
        for key in sorted((old.keys() | new.keys()) - CHANGEABLE):
            if old.get(key) != new.get(key) and not key.startswith("command.data."):
                raise ConfigError(
                    f"{folder}: was started with {key} = {old.get(key)!r}, given is {new.get(key)!r}; "
                    "give the same value, or another --out"
                )
    write_atomically(record, json.dumps(command, indent=2) + "\n")  # written last: then the folder can be resumed


def _check_data(folder: Path, before: Any, now: Mapping[str, str] | None) -> None:
    """Raise `ConfigError` if the files of the tasks hold something else than when the rollout was started."""
    changes = list_changed(before if isinstance(before, Mapping) else {}, now or {})
    if changes:
        problem = f"{folder}: its data have changed since it was started: {'; '.join(changes):.500}"
        raise ConfigError(f"{problem}; give another --out")


def move_failed_episodes(folder: Path) -> int:
    """Move episodes that ended with `error`, `timeout` or `cancelled` to retried.jsonl; return their number.
    They then count as missing and are played again. After a kill, every line is in at least one of the two files."""
    path = folder / EPISODES / LINES
    if not os.path.lexists(path):
        return 0
    try:
        for name in (LINES, RETRIED):
            files.check_writable(path.with_name(name), folder)
        with files.open_regular(path, limit=MAX_FILE, inside=folder) as stored:
            lines = stored.readlines()
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be used ({error.strerror}); give another --out") from error
    failed = [line for line in lines if _read_end_reason(line) in FAILED]
    if failed:
        with (path.with_name(RETRIED)).open("a+b") as file:
            file.writelines([files.begin_line(file.fileno()), *failed])
        write_atomically(path, b"".join(line for line in lines if _read_end_reason(line) not in FAILED))
    return len(failed)


def _read_settings(folder: Path) -> dict[str, Any]:
    """Return the config of a rollout, with the settings of its command under `command`."""
    command = read_json(folder / COMMAND)
    config = yaml_reader.read(folder / "config.yaml", inside=folder).values
    if not isinstance(config, Mapping):
        raise ConfigError(f"{folder}: its config.yaml is not that of a rollout; give another --out")
    return {**config, "command": command}


def _read_end_reason(line: bytes) -> str | None:
    try:
        reason = json.loads(line).get("end_reason")
        return reason if isinstance(reason, str) else None
    except (ValueError, AttributeError, RecursionError):
        return None


def iter_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every (dotted key, value) in nested mappings; a tuple as the list that it is in a file."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from iter_leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, list(value) if isinstance(value, tuple) else value
