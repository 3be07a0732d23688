"""What a run leaves on disk: config, versions, metrics.jsonl, curve.png, summary.json."""

import json
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

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


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """The resolved config and the versions."""
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
    (folder / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text().splitlines()]
