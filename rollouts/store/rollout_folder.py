"""The folder of `viewbox rollout`: what it was started with, what is already played, what failed.

config.yaml      model, environment with all its settings, reward, rollout: enough to score the episodes again
rollout.json     the command's own part: endpoint, tasks, group, seed and how tools and images are sent
episodes/        the store; retried.jsonl beside its lines holds failed episodes that were played again
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
from viewbox.rollouts.store.writer import LINES

COMMAND, EPISODES, RETRIED = "rollout.json", "episodes", "retried.jsonl"
FAILED = frozenset({"error", "timeout", "cancelled"})
# What a resumed command may change: how fast it plays, how much, and where the same model is served now.
SPEED = ("slots", "timeout", "prefill_tokens", "kv_cache_bytes", "tool_wait_timeout")
FREE = frozenset({*(f"rollout.{name}" for name in SPEED), "command.tasks", "command.endpoint"})


def begin(folder: Path, config: Mapping[str, Any], command: Mapping[str, Any]) -> None:
    """Writes what the folder is started with; where it was started before, raises `ConfigError` if that differs."""
    record, episodes = folder / COMMAND, folder / EPISODES / LINES
    if not record.is_file():
        if (folder / "config.yaml").is_file() and episodes.is_file():
            raise ConfigError(f"{folder}: holds another run's episodes; give another --out")
        run_folder.write_config(folder, config)
    else:
        before = {**yaml.safe_load((folder / "config.yaml").read_text()), "command": json.loads(record.read_text())}
        was, now = dict(_flat(before)), dict(_flat({**config, "command": command}))
        for key in sorted((was.keys() | now.keys()) - FREE):
            if was.get(key) != now.get(key):
                raise ConfigError(
                    f"{folder}: was started with {key} = {was.get(key)!r}, given is {now.get(key)!r}; "
                    "give the same, or another --out"
                )
    write_atomically(record, json.dumps(command, indent=2) + "\n")  # last: with it the folder can be resumed


def set_failed_aside(folder: Path) -> int:
    """Moves the lines of episodes that ended `error`, `timeout` or `cancelled` to retried.jsonl; returns how many.

    They are then missing and will be played again. A kill in between leaves every line in at least one of the files.
    """
    path = folder / EPISODES / LINES
    lines = path.read_bytes().splitlines(keepends=True) if path.is_file() else []
    failed = [line for line in lines if _end_reason(line) in FAILED]
    if failed:
        with (path.with_name(RETRIED)).open("ab") as file:
            file.writelines(failed)
        write_atomically(path, b"".join(line for line in lines if _end_reason(line) not in FAILED))
    return len(failed)


def _end_reason(line: bytes) -> str | None:
    try:
        return json.loads(line).get("end_reason")
    except (ValueError, AttributeError, RecursionError):
        return None


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of everything in nested mappings."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value
