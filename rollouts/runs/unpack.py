"""Reads the file that `pack.py` writes, without trusting it: somebody else may have made it.

Everything is unpacked into a folder beside the one that was asked for, which is renamed when it is complete. A killed
process leaves nothing under the name that was asked for.
"""

import os
import re
import shutil
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from ...errors import ConfigError, ImageError, ViewboxError
from ...images.files import open_picture
from ...images.ref import ImageRef
from ...utils.files import lock_file, open_regular
from ..store.layout import IMAGES, find_episodes_folder
from .pack import MAX_FILES, find_bad_name

MAX_DIRECTORY = 2**28  # bytes of the list of files, which is held in memory
MAX_PACK = 2**40
MAX_RATIO, ALLOWANCE = 250, 2**26  # what is unpacked has at most this many times the bytes of the pack, and 64 MB
_IMAGE = re.compile(rf"(?:.*/)?{IMAGES}/(?:[0-9a-zA-Z]{{1,2}}/)?([0-9a-zA-Z]+)\.(?:png|tif)")
_BLOCK = 2**20


@dataclass(frozen=True)
class UnpackedRun:
    """A run that was unpacked; `left_out` gives the reason of each file that was not written, by its name."""

    path: str
    files: int
    size: int
    left_out: dict[str, str] = field(default_factory=dict)


def unpack_run(pack: str | Path, out: str | Path) -> UnpackedRun:
    """Unpack a run into a new folder, all of it or nothing. An image that is not that of its hash is left out.

    Nothing in it is run, and nothing is written outside `out`.

    Args:
        pack: the file.
        out: the folder, which must not exist.

    Raises:
        ConfigError: the file is not a pack, is damaged or forged, or `out` exists or cannot be written.
    """
    pack, out = Path(pack), Path(out)
    if os.path.lexists(out):
        raise ConfigError(f"{out}: exists already; give another --out", key="out", given=str(out))
    draft, lock = out.with_name(f".{out.name}.part"), out.with_name(f".{out.name}.lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with lock_file(lock):
            try:
                _remove(draft)  # of an unpacking that was killed
                draft.mkdir()
                files, size, left_out = _unpack(pack, draft)
                find_episodes_folder(draft)
                os.rename(draft, out)
            finally:
                _remove(draft)
                lock.unlink(missing_ok=True)
    except BlockingIOError:
        raise ConfigError(f"{out}: another process is writing it") from None
    except OSError as error:
        raise ConfigError(f"{error.filename or out}: cannot be unpacked ({error.strerror or error})") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, struct.error) as error:
        raise ConfigError(f"{pack}: damaged ({error})") from error
    return UnpackedRun(str(out), files, size, left_out)


def _unpack(pack: Path, folder: Path) -> tuple[int, int, dict[str, str]]:
    left_out: dict[str, str] = {}
    with open_regular(pack, limit=MAX_PACK) as file:
        packed = os.fstat(file.fileno()).st_size
        _check_directory(file, pack)
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            size = _check_entries(entries, packed, pack)
            if shutil.disk_usage(folder).free < size:
                raise ConfigError(f"{folder.parent}: {size:,} bytes are unpacked, and there is less room on the disk")
            for entry in entries:
                path = folder / entry.filename
                path.parent.mkdir(parents=True, exist_ok=True)
                _write_entry(archive, entry, path, pack)
                if (match := _IMAGE.fullmatch(entry.filename)) and (problem := _check_image(path, folder, match[1])):
                    path.unlink()
                    left_out[entry.filename] = problem
    return len(entries) - len(left_out), size, left_out


def _check_directory(file: BinaryIO, pack: Path) -> None:
    """Raise `ConfigError` if the list of files is too large to be read into memory, or there is none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 22))
    tail = file.read(22)
    if len(tail) < 22 or tail[:4] != b"PK\5\6":
        raise ConfigError(f"{pack}: not a packed run, or cut off; allowed: a file that `viewbox runs pack` wrote")
    count, length = struct.unpack("<HL", tail[10:16])
    if count == 0xFFFF or length == 0xFFFFFFFF:  # more than fits: the numbers are in a record before it
        file.seek(max(0, size - 22 - 20 - 56))
        record = file.read(56)
        if record[:4] != b"PK\6\6":
            raise ConfigError(f"{pack}: damaged (its list of files is not where it should be)")
        count, length = struct.unpack("<QQ", record[32:48])
    if count > MAX_FILES or length > MAX_DIRECTORY:
        raise ConfigError(f"{pack}: {count:,} files in a list of {length:,} bytes; allowed: {MAX_FILES:,} files")
    file.seek(0)


def _check_entries(entries: list[zipfile.ZipInfo], packed: int, pack: Path) -> int:
    """The bytes of all files; raises `ConfigError` for a name or a kind of file that no pack has, or too many bytes."""
    names: set[str] = set()
    folders: set[str] = set()
    for entry in entries:
        kind = stat.S_IFMT(entry.external_attr >> 16)
        problem = find_bad_name(entry.filename)
        if not problem and kind not in (0, stat.S_IFREG):
            problem = "not a regular file"
        if not problem and (
            entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        ):
            problem = "encrypted, or compressed in another way"
        parts = entry.filename.casefold().split("/")
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        name = "/".join(parts)
        if not problem and (name in names or name in folders or above & names):
            problem = "two files have this name"
        if problem:
            raise ConfigError(f"{pack}: the file {entry.filename!r:.200} in it: {problem}; nothing was unpacked")
        names.add(name)
        folders |= above
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MAX_FILES or size > ALLOWANCE + MAX_RATIO * packed:
        raise ConfigError(
            f"{pack}: {len(entries):,} files of {size:,} bytes in {packed:,} bytes; allowed: {MAX_FILES:,} files and "
            f"{MAX_RATIO} times the size of the pack"
        )
    return size


def _write_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, pack: Path) -> None:
    with archive.open(entry) as source, path.open("xb") as target:
        left = entry.file_size
        while block := source.read(_BLOCK):  # checks the checksum at the end
            left -= len(block)
            if left < 0:
                raise ConfigError(f"{pack}: {entry.filename} is larger than it says")
            target.write(block)
        if left:
            raise ConfigError(f"{pack}: {entry.filename} is cut off")


def _check_image(path: Path, folder: Path, digest: str) -> str | None:
    """Why a file does not hold the pixels of its name; None if it does."""
    try:
        found = ImageRef.of(open_picture(str(path.relative_to(folder)), str(folder))).hash
    except ViewboxError as error:
        return str(error) if isinstance(error, ImageError) else f"cannot be opened: {error}"
    return None if found == digest else f"holds other pixels ({found[:12]})"


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
