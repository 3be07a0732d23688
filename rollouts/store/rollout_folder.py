"""The folder of `viewbox rollout`: its settings, the episodes played so far, the episodes that failed.

config.yaml      model, environment with all its settings, reward, rollout: enough to score the episodes again
rollout.json     the command's own settings: endpoint, tasks, group, seed, and how tools and images are sent
episodes/        the store; retried.jsonl holds failed episodes that were played again
summary.json     rates and means over the episodes
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from viewbox.errors import ConfigError
from viewbox.files import write_atomically
from viewbox.rollouts.store import run_folder
from viewbox.rollouts.store.reader import LINES

COMMAND, EPISODES, RETRIED = "rollout.json", "episodes", "retried.jsonl"
FAILED = frozenset({"error", "timeout", "cancelled"})
# What may change on resume: settings of speed, the number of tasks, and the address of the same model.
SPEED_SETTINGS = ("slots", "timeout", "prefill_tokens", "kv_cache_bytes", "tool_wait_timeout")
CHANGEABLE = frozenset({*(f"rollout.{name}" for name in SPEED_SETTINGS), "command.tasks", "command.endpoint"})


def start_rollout(folder: Path, config: Mapping[str, Any], command: Mapping[str, Any]) -> None:
    """Write the settings of a new rollout, or compare them with those of the rollout that is resumed.

    Raises:
        ConfigError: a setting differs, or the folder holds episodes of another run.
    """
    record, episodes = folder / COMMAND, folder / EPISODES / LINES
    if not record.is_file():
        if (folder / "config.yaml").is_file() and episodes.is_file():
            raise ConfigError(f"{folder}: this folder holds the episodes of another run; give another --out")
        run_folder.write_config(folder, config)
    else:
        before = {**yaml.safe_load((folder / "config.yaml").read_text()), "command": json.loads(record.read_text())}
        old, new = dict(_iter_leaves(before)), dict(_iter_leaves({**config, "command": command}))
        for key in sorted((old.keys() | new.keys()) - CHANGEABLE):
            if old.get(key) != new.get(key):
                raise ConfigError(
                    f"{folder}: was started with {key} = {old.get(key)!r}, given is {new.get(key)!r}; "
                    "give the same value, or another --out"
                )
    write_atomically(record, json.dumps(command, indent=2) + "\n")  # written last: then the folder can be resumed


def move_failed_episodes(folder: Path) -> int:
    """Move episodes that ended with `error`, `timeout` or `cancelled` to retried.jsonl; returns their number.

    They then count as missing and are played again. After a kill, every line is in at least one of the two files.
    """
    path = folder / EPISODES / LINES
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    failed = [line for line in lines if _read_end_reason(line) in FAILED]
    if failed:
        with (path.with_name(RETRIED)).open("ab") as file:
            file.writelines(failed)
        write_atomically(path, b"".join(line for line in lines if _read_end_reason(line) not in FAILED))
    return len(failed)


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
