"""The folder of `viewbox rollout`: its settings, the episodes played so far, the episodes that failed.

config.yaml      model, environment with all its settings, reward, rollout: enough to score the episodes again
rollout.json     the command's own settings: endpoint, tasks, group, seed, and how tools and images are sent
episodes/        the store; retried.jsonl holds failed episodes that were played again
summary.json     rates and means over the episodes
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...configs import yaml_reader
from ...envs.data.fingerprint import list_changed
from ...errors import ConfigError
from ...utils.files import check_writable, open_regular, write_atomically
from ...utils.secrets import mask_settings
from . import run_folder
from .layout import LINES, MAX_FILE

COMMAND, EPISODES, RETRIED = "rollout.json", "episodes", "retried.jsonl"
FAILED = frozenset({"error", "timeout", "cancelled"})
# What may change on resume: settings of speed, the number of tasks, and the address of the same model.
SPEED_SETTINGS = ("slots", "timeout", "prefill_tokens", "kv_cache_bytes", "tool_wait_timeout", "cuda_graphs")
CHANGEABLE = frozenset({*(f"rollout.{name}" for name in SPEED_SETTINGS), "command.tasks", "command.endpoint"})


def start_rollout(folder: Path, config: Mapping[str, Any], command: Mapping[str, Any]) -> None:
    """Write the settings of a new rollout, or compare them with those of the rollout that is resumed.

    Raises:
        ConfigError: a setting differs, or the folder holds episodes of another run.
    """
    config, command = mask_settings(config), mask_settings(command)
    record, episodes = folder / COMMAND, folder / EPISODES / LINES
    if not os.path.lexists(record):
        if (folder / "config.yaml").is_file() and episodes.is_file():
            raise ConfigError(f"{folder}: this folder holds the episodes of another run; give another --out")
        run_folder.write_config(folder, config)
    else:
        before = mask_settings(_read_settings(folder))
        _check_data(folder, before["command"].get("data"), command.get("data"))
        old, new = dict(_iter_leaves(before)), dict(_iter_leaves({**config, "command": command}))
        for key in sorted((old.keys() | new.keys()) - CHANGEABLE):
            if old.get(key) != new.get(key) and not key.startswith("command.data."):
                raise ConfigError(
                    f"{folder}: was started with {key} = {old.get(key)!r}, given is {new.get(key)!r}; "
                    "give the same value, or another --out"
                )
    write_atomically(record, json.dumps(command, indent=2) + "\n")  # written last: then the folder can be resumed


def _check_data(folder: Path, before: Any, now: Mapping[str, str] | None) -> None:
    """Raises `ConfigError` if the files of the tasks hold something else than when the rollout was started."""
    changes = list_changed(before if isinstance(before, Mapping) else {}, now or {})
    if changes:
        problem = f"{folder}: its data have changed since it was started: {'; '.join(changes):.500}"
        raise ConfigError(f"{problem}; give another --out")


def move_failed_episodes(folder: Path) -> int:
    """Move episodes that ended with `error`, `timeout` or `cancelled` to retried.jsonl; returns their number.

    They then count as missing and are played again. After a kill, every line is in at least one of the two files.
    """
    path = folder / EPISODES / LINES
    if not os.path.lexists(path):
        return 0
    try:
        for name in (LINES, RETRIED):
            check_writable(path.with_name(name), folder)
        with open_regular(path, limit=MAX_FILE, inside=folder) as stored:
            lines = stored.readlines()
    except OSError as error:
        raise ConfigError(f"{error.filename}: cannot be used ({error.strerror}); give another --out") from error
    failed = [line for line in lines if _read_end_reason(line) in FAILED]
    if failed:
        with (path.with_name(RETRIED)).open("ab") as file:
            file.writelines(failed)
        write_atomically(path, b"".join(line for line in lines if _read_end_reason(line) not in FAILED))
    return len(failed)


def _read_settings(folder: Path) -> dict[str, Any]:
    """The config of a rollout, with the settings of its command under `command`."""
    command = run_folder.read_json(folder / COMMAND)
    config = yaml_reader.read(folder / "config.yaml", inside=folder).values
    if not isinstance(config, Mapping):
        raise ConfigError(f"{folder}: its config.yaml is not that of a rollout; give another --out")
    return {**config, "command": command}


def _read_end_reason(line: bytes) -> str | None:
    try:
        return json.loads(line).get("end_reason")
    except (ValueError, AttributeError, RecursionError):
        return None


def _iter_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every (dotted key, value) in nested mappings."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _iter_leaves(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
