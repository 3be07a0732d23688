"""One file of a run, to send to a colleague: a tar archive that is the same for the same run.

The lines of the episodes are packed first, up to the last complete one; the images and tokens that they refer to are
older. So a run can be packed while it is written.

A file is unpacked without trusting it: somebody else may have made it. Only regular files inside the run are read from
it, into a folder beside the one that was asked for, which is renamed when it is complete.
"""

import gzip
import os
import re
import tarfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ...envs import load_class
from ...errors import ConfigError, ImageError, StoreError, ViewboxError
from ...images.files import open_picture
from ...images.files.native import SUFFIX, read_native
from ...images.ref import ImageRef
from ...plugins import ENVIRONMENTS
from ...utils.files import check_out, create_whole, open_regular, replace_atomically
from ..scoring.trust import MIXTURE
from ..store.layout import IMAGES, LINES, MAX_FILE, build_image_path, find_damage, find_episodes_folder, iter_images
from ..store.reader import load
from ..store.run_folder import read_config

WEIGHTS = ("checkpoints", "model")  # folders of a run that are left out unless asked for
LEFT_OUT = ("wandb",)
WEIGHT_FILES = (".safetensors", ".pt", ".pth", ".ckpt", ".gguf")
MAX_FILES, MAX_PACK = 1_000_000, 2**40
MAX_PARTS, MAX_NAME = 12, 200  # folders inside each other; bytes of the name of each
MAX_RATIO, ALLOWANCE = 250, 2**26  # what is unpacked has at most this many times the bytes of the pack, and 64 MB
_PART = re.compile(r"[\w][\w.,+=@() -]*")
_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
_IMAGE = re.compile(rf"(?:.*/)?{IMAGES}/(?:[0-9a-zA-Z]{{1,2}}/)?([0-9a-zA-Z]+)\.(?:png|tif|source)")
_BLOCK = 2**20


@dataclass(frozen=True)
class PackedRun:
    """A run that was packed or unpacked.

    Args:
        path: what was written: the file, or the folder.
        files: how many files are in it.
        size: their bytes, unpacked.
        left_out: the reason of each file that was not unpacked, by its name.
        damaged: why a picture of a packed run cannot be opened, by its name.
        skipped: lines of a packed run that cannot be read.
    """

    path: str
    files: int
    size: int
    left_out: dict[str, str] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)
    skipped: int = 0


def pack_run(run: str | Path, out: str | Path, *, weights: bool = False, restricted: bool = False) -> PackedRun:
    """Pack a run into one file, whole or not at all. The same run always gives the same file.

    The status is 1 if lines cannot be read, or pictures are missing or damaged.

    Args:
        run: the run: its folder, or a folder of saved episodes. Nothing in it is changed.
        out: the file, such as run.tar.gz; an older one is replaced.
        weights: also pack checkpoints and the trained model.
        restricted: pack images and answers of data that is restricted, or may be.

    Raises:
        ConfigError: the run is restricted, `out` cannot be written, or something in the run is not a regular file.
    """
    run, out = Path(run), check_out(out, "file")
    reader = load(run, errors="skip")
    if next(iter(reader), None) is None and not reader.skipped:
        raise StoreError(f"{run}: holds no episodes")
    episodes = reader.folder
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
    try:
        with (
            replace_atomically(out) as file,
            gzip.GzipFile("", "wb", 1, file, mtime=0) as stream,  # most bytes are those of pictures
            tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            size = sum(_add_file(archive, run, name) for name in files)
    except OSError as error:
        raise ConfigError(f"{error.filename or out}: cannot be packed ({error.strerror or error})") from error
    return _add_problems(PackedRun(str(out), len(files), size), run, files)


def _add_problems(packed: PackedRun, run: Path, files: Collection[str]) -> PackedRun:
    """Return what was packed with what cannot be used of it."""
    skipped = 0
    for folder in (PurePosixPath(name).parent for name in files if PurePosixPath(name).name == LINES):
        reader = load(run / folder, errors="skip")
        found = {ref.hash: ref for episode in reader for ref in iter_images(episode)}
        names = {str(folder / build_image_path(ref.hash, ref.mode)): ref for ref in found.values()}
        packed.damaged.update({name: problem for name, ref in names.items() if (problem := find_damage(ref))})
        skipped += reader.skipped
    return replace(packed, skipped=skipped)


def unpack_run(pack: str | Path, out: str | Path) -> PackedRun:
    """Unpack a run that somebody sent. Its file is not trusted: nothing in it is run or written elsewhere.

    An image that does not hold the pixels of its name is left out, and the status is 1. Else all is written or nothing.

    Args:
        pack: a file that `viewbox runs pack` wrote.
        out: the folder of the run, which must not exist.

    Raises:
        ConfigError: the file is not a pack, is damaged or forged, or `out` exists or cannot be written.
    """
    pack = Path(pack)
    with create_whole(out) as draft:
        draft.mkdir()
        try:
            files, size, left_out = _unpack(pack, draft)
        except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, RecursionError) as error:
            raise ConfigError(f"{pack}: not a packed run, or damaged ({error})") from error
        except OSError as error:
            raise ConfigError(f"{error.filename or out}: cannot be unpacked ({error.strerror or error})") from error
        find_episodes_folder(draft)
    return PackedRun(str(out), files, size, left_out)


def find_restriction(run: Path, episodes: Path) -> str | None:
    """Return why the data of a run must not leave this machine, or may not; None if it may.

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
    """Return why an environment's section is restricted, or may be.

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


def _find_own_restriction(name: str) -> str | None:
    if name not in ENVIRONMENTS:
        return f"its environment {name:.100} is not registered here, so its data may be restricted"
    declared = getattr(load_class(name), "restricted", False)
    return f"the data of its environment {name} is restricted" if declared is True else None


def _list_files(run: Path, weights: bool) -> Iterator[str]:
    """Yield the files of a run by their path in it; raise `ConfigError` for anything but files and folders."""
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


def _add_file(archive: tarfile.TarFile, run: Path, name: str) -> int:
    info = tarfile.TarInfo(name)
    with open_regular(run / name, limit=MAX_FILE, inside=run) as source:
        info.size = os.fstat(source.fileno()).st_size  # what is appended meanwhile is not packed
        if PurePosixPath(name).name == LINES:
            info.size = _find_last_end(source, info.size)
        archive.addfile(info, source)
    return info.size


def _find_last_end(file: BinaryIO, size: int) -> int:
    """Return where the last complete line ends; the file is left at its beginning."""
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


def _unpack(pack: Path, folder: Path) -> tuple[int, int, dict[str, str]]:
    """Return the number of files that were written, their bytes, and what was left out."""
    names: set[str] = set()
    folders: set[str] = set()
    left_out: dict[str, str] = {}
    size = 0
    with open_regular(pack, limit=MAX_PACK) as file, _Unpacked(file, pack) as stream:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK, tarinfo=_PackedFile) as archive:
            for entry in archive:
                problem = getattr(entry, "problem", None) or find_bad_name(entry.name)
                if problem := problem or _find_conflict(entry.name, names, folders):
                    raise ConfigError(f"{pack}: the file {entry.name!r:.200} in it: {problem}; nothing was unpacked")
                if len(names) > MAX_FILES:
                    raise ConfigError(f"{pack}: more than {MAX_FILES:,} files; nothing was unpacked")
                archive.extract(entry, folder, set_attrs=False, filter="data")
                match = _IMAGE.fullmatch(entry.name)
                if match and (reason := _check_image(folder / entry.name, folder, match[1])):
                    (folder / entry.name).unlink()
                    left_out[entry.name] = reason
                size += entry.size
        while stream.read(_BLOCK):  # the checksum stands at the end
            pass
    return len(names) - len(left_out), size, left_out


class _PackedFile(tarfile.TarInfo):
    """A header of the archive: only regular files, and long names of them, are read any further."""

    problem: str | None = None

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_PackedFile":
        found = super().frombuf(buf, encoding, errors)
        if found.type == tarfile.GNUTYPE_LONGNAME and found.size <= MAX_PARTS * (MAX_NAME + 1):
            return found
        if found.type != tarfile.REGTYPE:
            found.problem, found.type, found.size = "not a regular file", tarfile.REGTYPE, 0
        return found


class _Unpacked(gzip.GzipFile):
    """The bytes of a pack; raises `ConfigError` if they are too many for its size."""

    def __init__(self, file: BinaryIO, pack: Path) -> None:
        super().__init__(fileobj=file)
        self.pack, self.size = pack, os.fstat(file.fileno()).st_size

    def read(self, size: int | None = -1) -> bytes:
        block = super().read(size)
        if self.tell() > ALLOWANCE + MAX_RATIO * self.size:
            raise ConfigError(
                f"{self.pack}: more than {self.tell():,} bytes in {self.size:,} bytes; allowed: {MAX_RATIO} times the "
                "size of the pack"
            )
        return block


def _find_conflict(name: str, names: set[str], folders: set[str]) -> str | None:
    """Return why a file cannot lie beside those that came before it; else it is added to them."""
    name = name.casefold()
    above = {str(path) for path in PurePosixPath(name).parents}
    if name in names or name in folders or above & names:
        return "two files have this name"
    names.add(name)
    folders |= above
    return None


def find_bad_name(name: str) -> str | None:
    """Return why a name is none of a file in a pack; it must lie in the folder on every system."""
    parts = name.split("/")
    if len(parts) > MAX_PARTS or any(len(part.encode()) > MAX_NAME for part in parts):
        return "its name is too long"
    for part in parts:
        if not _PART.fullmatch(part) or part.endswith((".", " ")) or _RESERVED.fullmatch(part):
            return "its name is not that of a file inside the run"
    return None


def _check_image(path: Path, folder: Path, digest: str) -> str | None:
    """Return why a file does not hold the pixels of its name; None if it does."""
    try:
        if path.suffix == SUFFIX:
            read_native(str(path), folder, digest)
            return None
        found = ImageRef.of(open_picture(str(path.relative_to(folder)), str(folder))).hash
    except ViewboxError as error:
        return str(error) if isinstance(error, ImageError) else f"cannot be opened: {error}"
    return None if found == digest else f"holds other pixels ({found[:12]})"
