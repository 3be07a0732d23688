"""Whether the data of an environment are still those that a run was started with."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from .settings import DataSettings
from .sources import find_files

PARTS, PART = 256, 2**20  # of a larger file: how many places are read, evenly spread, and the bytes at each


def fingerprint_data(env: object) -> dict[str, str]:
    """Return what the files of an environment's rows hold, by the path that its settings name: size and a short
    hash, the same on every machine. Images, and datasets of the hub, are not looked at. A mixture has those of all
    its parts."""
    parts = getattr(env, "parts", None)
    if isinstance(parts, Mapping):
        return {path: found for part in parts.values() for path, found in fingerprint_data(part).items()}
    data = getattr(env, "data", None)
    if not isinstance(data, DataSettings):
        return {}
    sources = data.source.values() if isinstance(data.source, Mapping) else [data.source]
    rewards = data.difficulty.rewards if data.difficulty is not None else None
    given = [source for source in (*sources, rewards) if source is not None]
    return {source: _describe(files) for source in given if (files := _list_files(Path(source)))}


def _list_files(path: Path) -> list[Path]:
    return find_files(path)[0] if path.is_dir() else [path] if path.is_file() else []


def list_changed(before: Mapping[str, object], now: Mapping[str, str]) -> list[str]:
    """Return the data that differ from those before, as `path: before → now`; a file may have moved.

    >>> list_changed({"a.csv": "9 bytes, 1f", "b.csv": "5 bytes, 2e"}, {"a.csv": "8 bytes, 3d", "c/b": "5 bytes, 2e"})
    ['a.csv: 9 bytes, 1f → 8 bytes, 3d']
    """
    known = {path: [before[path]] if path in before else list(before.values()) or [now[path]] for path in now}
    return [f"{path}: {before.get(path, 'not read')} → {now[path]}" for path in now if now[path] not in known[path]]


def _describe(files: Iterable[Path]) -> str:
    total, digest = 0, hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        total += size
        digest.update(f"{path.name} {size} ".encode(errors="surrogateescape"))
        with path.open("rb") as file:
            for place in (*range(0, size, max(PART, size // PARTS)), max(0, size - PART)):
                file.seek(place)
                digest.update(file.read(PART))
    return f"{total:,} bytes, {digest.hexdigest()[:12]}"
