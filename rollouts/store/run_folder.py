"""What a run leaves on disk: config, versions, metrics.jsonl, curve.png, summary.json."""

import glob
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from viewbox.errors import ConfigError
from viewbox.files import lock_file

LATEST = "latest"  # the newest run of a name
PACKAGES = ("viewbox", "torch", "transformers", "trl", "peft", "accelerate", "numpy", "pillow")


def versions() -> dict[str, str]:
    """The versions a result depends on."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def create(parent: Path, name: str) -> Path:
    """A new folder `parent/name`, or `name-2`, `name-3` … where earlier runs stand."""
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def latest(parent: Path, name: str) -> Path | None:
    """The newest of the folders that `create` made for `name`; None where there is none."""
    found = {1: parent / name} if (parent / name).is_dir() else {}
    for folder in parent.glob(f"{glob.escape(name)}-*"):
        number = folder.name.removeprefix(f"{name}-")
        if number.isdecimal() and folder.is_dir():
            found[int(number)] = folder
    return found[max(found)] if found else None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Marks a run's folder as being written by this process; raises `ConfigError` where another one does."""
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_file(folder / ".lock"))
        except BlockingIOError:
            raise ConfigError(f"{folder}: another process is still writing this run") from None
        yield


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """The resolved config and the versions."""
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
    (folder / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text().splitlines()]
