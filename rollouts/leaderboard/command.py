"""The command that plays or trains a run again. Every part is quoted for the shell: a run can hold any text."""

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viewbox.errors import ConfigError
from viewbox.rollouts.store.rollout_folder import COMMAND
from viewbox.rollouts.store.run_folder import read_json

_OVERRIDES = ("tool_images", "native_tools", "extra")  # settings of the endpoint in rollout.json


def build_train_command(run: str, config: Mapping[str, Any]) -> tuple[str, str]:
    """The command that trains a run again and "", or "" and why there is none.

    >>> build_train_command("runs/my run", {"train": {}})
    ("viewbox train 'runs/my run/config.yaml'", '')
    """
    if not config:
        return "", "the run has no config.yaml"
    return shlex.join(["viewbox", "train", _protect(f"{run}/config.yaml")]), ""


def build_play_command(played: Path, run: str, *, evaluation: Path | None = None) -> tuple[str, str]:
    """The command that plays a rollout or an evaluation again and "", or "" and why there is none.

    Args:
        played: the folder with the rollout's config.yaml and rollout.json.
        run: the path of the run as the command names it.
        evaluation: the folder of the episodes without tools, if the run is an evaluation.

    Raises:
        ConfigError: rollout.json cannot be read, or its numbers are none.
    """
    if not all(os.path.lexists(played / name) for name in ("config.yaml", COMMAND)):
        return "", f"the run has no config.yaml or no {COMMAND}"
    record = read_json(played / COMMAND)
    inside = run if evaluation is None else f"{run}/{played.name}"
    words = ["viewbox", "rollout" if evaluation is None else "evaluate", "--config", _protect(f"{inside}/config.yaml")]
    for name in ("tasks", "group", "seed"):
        value = record.get(name)
        if type(value) is not int or not 0 <= value <= 2**53:
            raise ConfigError(f"{played / COMMAND}: {name} = {value!r:.80}; allowed: a whole number", key=name)
        words += [f"--{name}", str(value)]
    if isinstance(record.get("endpoint"), str):
        words += [f"--endpoint={record['endpoint']}"]
        words += [
            f"endpoint.{name}={json.dumps(record[name])}" for name in _OVERRIDES if record.get(name) not in (None, {})
        ]
    if (
        evaluation is not None
        and os.path.lexists(evaluation / COMMAND)
        and read_json(evaluation / COMMAND).get("tools") == "refused"
    ):
        words.append("--refuse")
    return shlex.join(words), ""


def _protect(path: str) -> str:
    """The path, never read as an option."""
    return f"./{path}" if path.startswith("-") else path
