"""Finds the run and checkpoint to resume from, and puts the run's folder back to that step.

No checkpoint or episode is deleted: later checkpoints are renamed, stored episodes stay. Metrics after the checkpoint
are removed, since the repeated steps write them again.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..configs import yaml_reader
from ..envs.data.fingerprint import fingerprint_data, list_changed
from ..errors import ConfigError
from ..rollouts.store import run_folder
from ..rollouts.store.run_folder import LATEST
from ..utils.files import read_regular, write_atomically
from ..utils.terminal import make_line
from . import checkpoints

DATA = "data.json"  # in a run's folder: what the files of its tasks held


@dataclass(frozen=True)
class RunLocation:
    """A run's folder, and the checkpoint to resume from (None: start from the beginning)."""

    folder: Path
    checkpoint: Path | None

    @property
    def step(self) -> int:
        return 0 if self.checkpoint is None else checkpoints.get_step(self.checkpoint)


def find_run(parent: Path, name: str, wanted: str) -> RunLocation | None:
    """Return the run that `--resume` names; None if there is no run of that name yet.

    Args:
        parent: the folder of runs.
        name: the name of the run.
        wanted: "latest" for the newest run of that name, a run's folder, or one of its checkpoints.

    Raises:
        ConfigError: `wanted` is a folder, but neither a run nor a checkpoint.
    """
    if wanted == LATEST:
        folder = run_folder.find_latest_folder(parent, name)
        return None if folder is None else _locate_newest(folder)
    path = Path(wanted)
    if path.name.startswith("checkpoint-"):
        return RunLocation(path.parent.parent, checkpoints.check_resumable(path))
    if not (path / "config.yaml").is_file():
        raise ConfigError(
            f"--resume {wanted}: is not a run; allowed: a run's folder (with config.yaml) or a checkpoint-<step> in it"
        )
    return _locate_newest(path)


def _locate_newest(folder: Path) -> RunLocation:
    complete = checkpoints.list_complete(folder)
    return RunLocation(folder, checkpoints.check_resumable(complete[-1]) if complete else None)


def rewind(location: RunLocation) -> None:
    """Put a run's folder back to the checkpoint: removes later metrics, renames later checkpoints."""
    metrics = location.folder / "metrics.jsonl"
    if os.path.lexists(metrics):
        write_atomically(metrics, "".join(_read_lines_until(metrics, location.step)))
    for later in checkpoints.list_complete(location.folder):
        if checkpoints.get_step(later) > location.step:
            aside = later.with_name(f"superseded-{later.name}")
            number = 2
            while aside.exists():
                aside, number = later.with_name(f"superseded-{later.name}-{number}"), number + 1
            later.rename(aside)


def _read_lines_until(metrics: Path, step: int) -> Iterator[str]:
    try:
        content = read_regular(metrics, limit=run_folder.MAX_METRICS, inside=metrics.parent).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{metrics}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    for line in content.splitlines():
        try:
            logged = json.loads(line)
            logged_step = logged["step"]
        except (ValueError, LookupError, TypeError, RecursionError):  # the torn last line of a killed process
            continue
        is_kept = isinstance(logged_step, int | float) and logged_step <= step
        if is_kept and "train_runtime" not in logged:  # TRL's last line of a whole training
            yield line + "\n"


def list_changes(folder: Path, config: Mapping[str, object]) -> list[str]:
    """Return the settings that differ from those the run was started with, as `key: old → new`."""
    saved = yaml_reader.read(folder / "config.yaml", inside=folder).values
    before, now = dict(_flatten(saved)), dict(_flatten(config))
    keys = sorted({*before, *now})
    return [f"{key}: {before.get(key)} → {now.get(key)}" for key in keys if before.get(key) != now.get(key)]


def record_data(folder: Path, envs: Iterable[object], print_line: Callable[[str], None]) -> None:
    """Write what the files of a run's tasks hold into data.json, and warns of those that have changed since."""
    path = folder / DATA
    before = run_folder.read_json(path) if os.path.lexists(path) else {}
    now = {name: found for env in envs for name, found in fingerprint_data(env).items()}
    for change in list_changed(before, now):
        line = f"warning: the data of this run have changed, and with them its tasks from here on: {change}"
        print_line(make_line(line, 500))
    if now:
        write_atomically(path, json.dumps({**before, **now}, indent=2) + "\n")


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, list(value) if isinstance(value, tuple) else value
