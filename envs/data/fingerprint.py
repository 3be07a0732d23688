"""Whether the data of an environment are still those that a run was started with."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .settings import DataSettings
from .sources import list_files

WHOLE = 2**28  # bytes of a source up to which all of it is read
PARTS, PART = 64, 2**20  # of a file in a larger source: how many places are read, and the bytes at each


def fingerprint_data(env: object) -> dict[str, str]:
    """What the files of an environment's rows hold, by the path that its settings name: size and a short hash.

    It is the same on every machine. Images, and datasets of the hub, are not looked at. An environment whose tasks are
    no rows has none; a mixture has those of all its environments.
    """
    parts = getattr(env, "parts", None)
    if isinstance(parts, Mapping):
        return {path: found for part in parts.values() for path, found in fingerprint_data(part).items()}
    data = getattr(env, "data", None)
    return _fingerprint(data) if isinstance(data, DataSettings) else {}


def _fingerprint(data: DataSettings) -> dict[str, str]:
    sources = data.source.values() if isinstance(data.source, Mapping) else [data.source]
    rewards = data.difficulty.rewards if data.difficulty is not None else None
    found = {}
    for path in (*sources, rewards):
        files = [] if path is None else _list_files(Path(path).expanduser())
        if path is not None and files:
            found[path] = _describe(files)
    return found


def _list_files(path: Path) -> list[Path]:
    return list_files(path) if path.is_dir() else [path] if path.is_file() else []


def list_changed(before: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    """The data of both that differ, as `path: before → now`.

    >>> list_changed({"a.csv": "9 bytes, 1f", "b.csv": "5 bytes, 2e"}, {"a.csv": "8 bytes, 3d"})
    ['a.csv: 9 bytes, 1f → 8 bytes, 3d']
    """
    return [f"{path}: {before[path]} → {now[path]}" for path in now if before.get(path, now[path]) != now[path]]


def _describe(files: Iterable[Path]) -> str:
    sizes = {file: file.stat().st_size for file in files}
    total = sum(sizes.values())
    digest = hashlib.sha256()
    for file, size in sizes.items():
        digest.update(f"{file.name} {size} ".encode(errors="surrogateescape"))
        with file.open("rb") as opened:
            for place in _list_places(size, whole=total <= WHOLE):
                opened.seek(place)
                digest.update(opened.read(PART))
    return f"{total:,} bytes, {digest.hexdigest()[:12]}"


def _list_places(size: int, *, whole: bool) -> Iterable[int]:
    """Where the parts of a file begin that are read: all of them, or some, evenly spread, the last one included."""
    if whole:
        return range(0, size, PART)
    return sorted({max(0, size - PART) * number // (PARTS - 1) for number in range(PARTS)})
