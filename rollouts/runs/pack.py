"""One file of a run, to send to a colleague: a zip archive that is the same for the same run.

The lines of the episodes are copied first, up to the last complete one; the images and tokens that they refer to are
older. So a run can be packed while it is written.
"""

import os
import re
import stat
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ...envs import load_class
from ...errors import ConfigError
from ...plugins import ENVIRONMENTS
from ...utils.files import open_regular, try_lock
from ..scoring.trust import MIXTURE
from ..store.layout import LINES, MAX_FILE
from ..store.reader import load
from ..store.run_folder import read_config

WEIGHTS = ("checkpoints", "model")  # folders of a run that are left out unless asked for
LEFT_OUT = ("wandb",)
WEIGHT_FILES = (".safetensors", ".pt", ".pth", ".ckpt", ".gguf")
MAX_FILES = 1_000_000
MAX_PARTS, MAX_NAME = 12, 200  # folders inside each other; bytes of the name of each
_PART = re.compile(r"[\w][\w.,+=@() -]*")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
_DATE = (1980, 1, 1, 0, 0, 0)
_STORED = (".png", ".tif", ".bin", ".safetensors", ".pt")  # compressed already, or incompressible
_BLOCK = 2**20


@dataclass(frozen=True)
class PackedRun:
    """A pack that was made: the file, how many files are in it, and their bytes before compression."""

    path: str
    files: int
    size: int


def pack_run(run: str | Path, out: str | Path, *, weights: bool = False, restricted: bool = False) -> PackedRun:
    """Write a run into one file, whole or not at all. Checkpoints and model weights are left out.

    Args:
        run: a run folder, or a folder of episodes. Nothing in it is changed.
        out: the file; an older one is replaced.
        weights: also pack checkpoints and the trained model.
        restricted: pack images and answers of data that is restricted, or may be.

    Raises:
        ConfigError: the run is restricted, `out` cannot be written, or something in the run is not a regular file.
    """
    run, out = Path(run), Path(out)
    episodes = load(run).folder
    if not restricted and (reason := find_restriction(run, episodes)):
        raise ConfigError(
            f"{run}: {reason}; images and answers of restricted data must not leave this machine; "
            "allowed: --restricted, if the one who gets the file may have them"
        )
    if out.resolve().is_relative_to(run.resolve()):
        raise ConfigError(f"{out}: lies in the run that is packed; give another --out")
    files = list(_list_files(run, weights))
    files.sort(key=lambda name: (PurePosixPath(name).name != LINES, name))  # the lines first: see above
    if len(files) > MAX_FILES:
        raise ConfigError(f"{run}: has {len(files):,} files; allowed: {MAX_FILES:,}")
    draft = out.with_name(f".{out.name}.part")
    try:
        with draft.open("wb") as file:
            if not try_lock(file.fileno()):
                raise ConfigError(f"{out}: another process is writing it")
            file.truncate(0)
            with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
                size = sum(_add_file(archive, run, name) for name in files)
        os.replace(draft, out)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"{error.filename or out}: cannot be packed ({error.strerror or error})") from error
    return PackedRun(str(out), len(files), size)


def find_restriction(run: Path, episodes: Path) -> str | None:
    """Why the data of a run must not leave this machine, or may not; None if it may.

    Its config declares it, or its environment does; an environment that is not registered may, and so may a part of
    the config that cannot be read. Without a config, the episodes name the environment.
    """
    path, config = read_config(run, episodes)
    section = config.get("env")
    if not isinstance(section, Mapping) or not section.keys() & {"name", "environments"}:
        names = {episode.environment for episode in load(run, errors="skip")}
        declared = None if section is None else _find_in_section(section, f"{path}: env", None)
        return declared or next((why for name in sorted(names) if name and (why := _find_own_restriction(name))), None)
    return _find_in_section(section, f"{path}: env", MIXTURE)


def _find_in_section(section: object, place: str, key: str | None, known: Collection[str] = ()) -> str | None:
    """Why an environment's section is restricted, or may be.

    `key` is its name if it states none; None: it needs none, as it only changes another section, whose parts are
    `known`.
    """
    if not isinstance(section, Mapping):
        return f"{place} is no mapping, so its data may be restricted"
    data = section.get("data", {})
    if not isinstance(data, Mapping):
        return f"{place}.data is no mapping, so its data may be restricted"
    if data.get("restricted"):
        return f"its data is restricted ({place}.data.restricted)"
    name = section.get("name", key)
    if "name" in section or key is not None:
        if not isinstance(name, str) or not name:
            return f"{place} names no environment, so its data may be restricted"
        if why := _find_own_restriction(name):
            return why
    parts = section.get("environments", {})
    if not isinstance(parts, Mapping):
        return f"{place}.environments is no mapping, so its data may be restricted"
    for one, part in parts.items():
        if why := _find_in_section(part, f"{place}.environments.{one}", None if one in known else str(one)):
            return why
    return _find_in_section(section["eval"], f"{place}.eval", None, parts) if section.get("eval") else None


def find_bad_name(name: str) -> str | None:
    """Why a name is none of a file in a pack; it must lie in the folder on every system."""
    parts = name.split("/")
    if len(parts) > MAX_PARTS or any(len(part.encode()) > MAX_NAME for part in parts):
        return "its name is too long"
    for part in parts:
        if not _PART.fullmatch(part) or part.endswith((".", " ")) or _RESERVED.fullmatch(part):
            return "its name is not that of a file inside the run"
    return None


def _find_own_restriction(name: str) -> str | None:
    if name not in ENVIRONMENTS:
        return f"its environment {name:.100} is not registered here, so its data may be restricted"
    declared = getattr(load_class(name), "restricted", False)
    return f"the data of its environment {name} is restricted" if declared is True else None


def _list_files(run: Path, weights: bool) -> Iterator[str]:
    """The files of a run by their path in it; raises `ConfigError` for anything but files and folders."""
    waiting = [run]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                name = Path(entry.path).relative_to(run).as_posix()
                if entry.name.startswith(".") or entry.name.endswith(".tmp"):
                    continue
                if name in LEFT_OUT or (not weights and (name in WEIGHTS or entry.name.endswith(WEIGHT_FILES))):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                elif entry.is_file(follow_symlinks=False):
                    if problem := find_bad_name(name):
                        raise ConfigError(f"{entry.path}: {problem}; rename it")
                    yield name
                else:
                    raise ConfigError(f"{entry.path}: a link, pipe or device; only files and folders are packed")


def _add_file(archive: zipfile.ZipFile, run: Path, name: str) -> int:
    info = zipfile.ZipInfo(name, _DATE)
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.create_system = 3  # the same on every system
    info.compress_type = zipfile.ZIP_STORED if name.endswith(_STORED) else zipfile.ZIP_DEFLATED
    with open_regular(run / name, limit=MAX_FILE, inside=run) as source:
        size = os.fstat(source.fileno()).st_size
        if PurePosixPath(name).name == LINES:
            size = _find_last_end(source, size)
        with archive.open(info, "w", force_zip64=size >= 2**31) as target:
            left = size  # what is appended meanwhile is not packed
            while left and (block := source.read(min(_BLOCK, left))):
                target.write(block)
                left -= len(block)
    return size - left


def _find_last_end(file: BinaryIO, size: int) -> int:
    """Where the last complete line ends; the file is left at its beginning."""
    place = size
    while place > 0:
        start = max(0, place - _BLOCK)
        file.seek(start)
        end = file.read(place - start).rfind(b"\n")
        if end >= 0:
            place = start + end + 1
            break
        place = start
    file.seek(0)
    return place
