"""A release, and what is asked of the place that it goes to. A new hub is one file with a class like `Hub`."""

import hashlib
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from ...errors import ConfigError
from ...utils.terminal import make_printable

Kind = Literal["environment", "model"]
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
MAX_SHOWN = 600  # characters of a hub's answer that a message repeats


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


def compute_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class HubPlace:
    """Where a release goes: a repository on a hub, or a folder, in which `force` replaces an older package."""

    kind: Kind
    owner: str = ""
    name: str = ""
    public: bool = False
    folder: Path | None = None
    force: bool = False

    @property
    def repository(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def visibility(self) -> str:
        return "public" if self.public else "private"

    def check_visibility(self, address: str, is_public: bool) -> None:
        """Raise `ConfigError` if the repository that a hub holds is not read by whom it is meant for."""
        if is_public is not self.public:
            raise ConfigError(
                f"{address} is {'public' if is_public else 'private'}, not {self.visibility}; allowed: "
                f"{'--public' if is_public else 'leave out --public'}, or change it on the hub",
                key="public",
            )


class MissingError(ConfigError):
    """There is no such repository, or the key may not see it."""


class Hub(Protocol):
    """A place that releases are sent to, and come back from. All methods raise `ConfigError` with the reason if the hub
    or its client refuses, or cannot be reached. A message holds no key."""

    kinds: tuple[Kind, ...]  # what it holds
    asks: bool  # whether files leave this machine: a person is asked before, and a version is published once only
    reads_front_matter: bool  # whether it shows the YAML at the head of README.md as tags

    def __init__(self, place: HubPlace) -> None: ...

    def describe(self) -> str:
        """Return the address, and who may read it."""

    def list_versions(self) -> list[str]:
        """Return the versions that it holds; empty if there is nothing yet."""

    def check(self, release: Release) -> None:
        """Raise `ConfigError` if its client is missing, or would not send the files as they are."""

    def push(self, release: Release) -> str:
        """Send a release; return its address."""

    def fetch(self, release: Release, folder: Path) -> None:
        """Download what `push` sent into an empty folder."""

    def install(self, release: Release, folder: Path, bin: Path) -> None:
        """Install the package from the hub, as its users do, into the virtual environment with this `bin`. `folder` is
        what `fetch` downloaded, which the `pip` there installs unless a hub has a client of its own for it."""
        how = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        command: list[str | Path] = [bin / "python", *how, folder]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            said = make_printable(done.stderr.strip()[-MAX_SHOWN:])
            raise ConfigError(f"pip cannot install what was published:\n{said}")


def split_repository(id: str | None, to: str) -> tuple[str, str]:
    """Owner and name of `--id owner/name`.

    >>> split_repository("me/dots", "hf")
    ('me', 'dots')
    """
    owner, slash, name = (id or "").partition("/")
    if not slash or not _OWNER.fullmatch(owner) or not _OWNER.fullmatch(name) or ".." in name:
        written = f"--id {id!r:.100}" if id else f"--to {to} without --id"
        allowed = "--id owner/name, your name on the hub and that of the repository"
        raise ConfigError(f"{written}; allowed: {allowed}", key="id")
    return owner, name
