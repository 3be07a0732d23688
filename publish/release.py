"""What leaves this machine: its version, and every file with its hash, so that it can be listed and found again."""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.version import InvalidVersion, Version

from ..errors import ConfigError
from ..utils.terminal import make_line
from .file_notes import find_words

Kind = Literal["environment", "model"]
# What people read or Python runs, and the weights of models; everything else is data.
TEXT = (".py", ".pyi", ".j2", ".toml", ".md")
TEXT_NAMES = ("py.typed", "LICENSE", "NOTICE")
WEIGHTS = ".safetensors"
COPY = "_vendor/viewbox/"  # files of viewbox itself, no data of the author
TITLE = re.compile(r"(?i)\b(?:the|licen[cs]e|version|public|software)\b|v(?=\d)|[\s,-]+")  # what no SPDX name has
BUMPS = ("patch", "minor", "major")
FIRST = "0.1.0"


@dataclass(frozen=True)
class SentFile:
    """A file of a release; `note` names what a reader should look at: "data", "DICOM with PatientName"."""

    path: str
    size: int
    sha256: str
    note: str = ""

    @property
    def is_dicom(self) -> bool:
        return self.note.startswith("DICOM")


@dataclass(frozen=True)
class Release:
    """A package or a model that is ready to leave."""

    kind: Kind
    name: str
    version: str
    folder: Path
    files: tuple[SentFile, ...]
    about: Mapping[str, Any] = field(default_factory=dict)  # entries of the manifest: `environment`, …
    module: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def hashes(self) -> dict[str, str]:
        return {file.path: file.sha256 for file in self.files}


def list_files(folder: Path) -> tuple[SentFile, ...]:
    """Return every file of a folder, sorted.

    Raises:
        ConfigError: one of them is a link or no regular file.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path}: is a link, or no regular file; allowed: files and folders")
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            found.append(SentFile(name, path.stat().st_size, compute_hash(path), describe_file(path, name)))
    return tuple(found)


def describe_file(path: Path, name: str) -> str:
    """Return what kind of file it is, for the list that a person reads; empty for code and text."""
    if path.suffix in TEXT or path.name in TEXT_NAMES or COPY in name:
        return ""
    if path.suffix == WEIGHTS:
        return "weights"
    kind, words = find_words(path)
    return f"{kind} with {', '.join(words)}" if words else kind


def compute_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def describe_release(release: Release, place: str, *, every: bool = True) -> list[str]:
    """Return the lines that a person reads before the files leave: each file, and then what to look at twice.

    `every` says whether each file has a line, or scans and what is no code of a package alone.
    """
    lines = [
        f"{file.size:>12,}  {make_line(file.path)}" + (f"  ({file.note})" if file.note else "")
        for file in release.files
        if every or file.is_dicom or (file.note and "/_vendor/" not in file.path)
    ]
    data = [file for file in release.files if file.note.startswith("data")]
    scans = [file for file in release.files if file.is_dicom]
    about = f"{release.name} {release.version}, {len(release.files)} files, {release.size / 1000:,.0f} kB"
    lines += [f"{about}; to {place}"] if every else []
    worded = [file for file in data if file.note != "data"]
    for kind, files in (("data files", data), ("words beside pixels", worded), ("DICOM files", scans)):
        names = [file.path if files is data else f"{file.path} ({file.note})" for file in files]
        lines += [f"{kind} ({len(files)}): {_list_some(names)}"] * bool(files)
    if scans or worded:
        lines.append("their headers travel as they are: make sure that they name no patient")
    return lines


def _list_some(names: list[str], most: int = 20) -> str:
    rest = f" and {len(names) - most} more, listed above" if len(names) > most else ""
    return ", ".join(map(make_line, names[:most])) + rest


def compare_files(sent: Mapping[str, str], folder: Path, ignored: Collection[str] = ()) -> list[str]:
    """Return how the files of a folder differ from those that were sent; empty if they are the same.

    Names in `ignored`, at the top, are not looked at, nor is `__pycache__` anywhere.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] in ignored or "__pycache__" in name.parts or (path.is_dir() and not path.is_symlink()):
            continue
        found[name.as_posix()] = "a link" if path.is_symlink() else compute_hash(path)
    lines = [f"{make_line(name, 200)} is missing" for name in sent if name not in found]
    lines += [f"{make_line(name, 200)} was never sent" for name in found if name not in sent]
    lines += [f"{make_line(name, 200)} has other content" for name in sent if found.get(name, sent[name]) != sent[name]]
    return lines


def choose_version(version: str | None, bump: str | None, held: Sequence[str], where: str) -> str:
    """Return the version of the next release.

    Args:
        version: the version that was asked for.
        bump: "patch", "minor" or "major": the part of the latest held version that is raised.
        held: the versions that exist there; what is no version is passed over.
        where: the place, for messages.

    Raises:
        ConfigError: the version exists there, or both or an unknown part are given.

    >>> choose_version(None, "minor", ["0.1.0", "0.2.1"], "hub"), choose_version(None, None, [], "hub")
    ('0.3.0', '0.1.0')
    """
    if bump is not None and bump not in BUMPS:
        raise ConfigError(f"--bump {bump!r}; allowed: {', '.join(BUMPS)}", key="bump")
    if bump is not None and version is not None:
        raise ConfigError(f"--bump {bump} and --version {version}; allowed: one of them", key="bump")
    known = sorted(Version(text) for text in held if is_version(text))
    if bump is not None:
        return bump_version(known[-1], bump) if known else FIRST
    chosen = version or FIRST
    if Version(chosen) in known:
        following = bump_version(known[-1], "patch")
        raise ConfigError(
            f"--version {chosen}: {where} has it already; allowed: --version {following}, or --bump patch|minor|major",
            key="version",
        )
    return chosen


def bump_version(version: Version, part: str) -> str:
    """Return the release after a version, with one part raised.

    >>> [bump_version(Version("1.2.3rc1"), part) for part in BUMPS]
    ['1.2.4', '1.3.0', '2.0.0']
    """
    major, minor, patch = version.major, version.minor, version.micro
    if part == "major":
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if part == "minor" else f"{major}.{minor}.{patch + 1}"


def read_license(text: str) -> str:
    """Return a license as SPDX writes it.

    >>> read_license("apache-2.0 OR mit")
    'Apache-2.0 OR MIT'
    >>> read_license("Apache License, Version 2.0")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: license = 'Apache License, Version 2.0'; allowed: an SPDX name such as Apache-2.0 or \
CC-BY-4.0, or LicenseRef-NAME for one of your own (did you mean 'Apache-2.0'?)
    """
    name, found = "-".join(filter(None, TITLE.split(text))), []
    for spelled in (text, *(name + end for end in ("", ".0", "-Clause", "-only"))):
        with suppress(InvalidLicenseExpression):
            found.append(canonicalize_license_expression(spelled))
        if found and spelled is text:
            return found[0]
    near = f" (did you mean {found[0]!r}?)" if found else ""
    allowed = "an SPDX name such as Apache-2.0 or CC-BY-4.0, or LicenseRef-NAME for one of your own"
    raise ConfigError(f"license = {text!r:.100}; allowed: {allowed}{near}", key="license")


def is_version(text: str) -> bool:
    """Return whether a text is a version (PEP 440)."""
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True
