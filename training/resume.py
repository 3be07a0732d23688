"""Where a run goes on: its folder, the checkpoint, and what is put back to that step.

Nothing is deleted: metrics after the checkpoint are written again as the steps are repeated, later checkpoints are set
aside under another name, and stored episodes stay.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from viewbox.errors import ConfigError
from viewbox.files import write_atomically
from viewbox.rollouts.store import run_folder
from viewbox.rollouts.store.run_folder import LATEST
from viewbox.training import checkpoints


@dataclass(frozen=True)
class Place:
    """A run's folder, and the checkpoint to go on from (None: from the start)."""

    folder: Path
    checkpoint: Path | None

    @property
    def step(self) -> int:
        return 0 if self.checkpoint is None else checkpoints.step_of(self.checkpoint)


def find(parent: Path, name: str, wanted: str) -> Place | None:
    """What `--resume` means: "latest" is the newest run of that name (None: there is none yet); else a run's folder or
    one of its checkpoints. Raises `ConfigError` where a folder that was given is neither.
    """
    if wanted == LATEST:
        folder = run_folder.find_latest_folder(parent, name)
        return None if folder is None else _newest(folder)
    path = Path(wanted)
    if path.name.startswith("checkpoint-"):
        return Place(path.parent.parent, checkpoints.check(path))
    if not (path / "config.yaml").is_file():
        raise ConfigError(f"--resume {wanted}: not a run's folder (config.yaml inside) nor a checkpoint-<step> of one")
    return _newest(path)


def _newest(folder: Path) -> Place:
    whole = checkpoints.complete(folder)
    return Place(folder, checkpoints.check(whole[-1]) if whole else None)


def rewind(place: Place) -> None:
    """Puts a run's folder back to the checkpoint: metrics up to its step, later checkpoints set aside."""
    metrics = place.folder / "metrics.jsonl"
    if metrics.is_file():
        write_atomically(metrics, "".join(_lines_until(metrics, place.step)))
    for later in checkpoints.complete(place.folder):
        if checkpoints.step_of(later) > place.step:
            aside = later.with_name(f"superseded-{later.name}")
            number = 2
            while aside.exists():
                aside, number = later.with_name(f"superseded-{later.name}-{number}"), number + 1
            later.rename(aside)


def _lines_until(metrics: Path, step: int) -> Iterator[str]:
    for line in metrics.read_text().splitlines():
        try:
            logged = json.loads(line)
        except ValueError:  # the torn last line of a process that was killed
            continue
        if logged["step"] <= step and "train_runtime" not in logged:  # which says that training ended: it goes on
            yield line + "\n"


def changes(folder: Path, config: Mapping[str, Any]) -> list[str]:
    """What the config says now and did not say when the run was started, as `key: old → new`."""
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    before, now = dict(_flat(saved)), dict(_flat(config))
    keys = sorted({*before, *now})
    return [f"{key}: {before.get(key)} → {now.get(key)}" for key in keys if before.get(key) != now.get(key)]


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, list(value) if isinstance(value, tuple) else value
