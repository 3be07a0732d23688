"""`--to dir`: a folder on this machine. Nothing leaves, so nobody is asked."""

import json
import shutil
import subprocess
from pathlib import Path

from ...errors import ConfigError
from ...utils.terminal import make_printable
from ..output import MANIFEST, replace_folder
from ..release import Kind, Release
from .base import MAX_SHOWN, Place


class Directory:
    """A folder; what viewbox wrote there before is replaced by `--force`."""

    kinds: tuple[Kind, ...] = ("environment", "model")
    asks = False
    keeps_versions = False
    reads_front_matter = False

    def __init__(self, place: Place) -> None:
        if place.folder is None:
            raise ConfigError("--to dir needs the folder to write", key="out")
        self.folder, self.force = place.folder, place.force

    def describe(self) -> str:
        return str(self.folder)

    def list_versions(self) -> list[str]:
        try:
            return [str(json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))["version"])]
        except (OSError, ValueError, LookupError, TypeError):  # `push` says what is wrong with it
            return []

    def check(self, release: Release) -> None:
        pass

    def push(self, release: Release) -> str:
        replace_folder(release.folder, self.folder, dict(release.about), force=self.force)
        return str(self.folder)

    def fetch(self, release: Release, folder: Path) -> None:
        for name in release.hashes:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / name, folder / name)

    def install(self, release: Release, folder: Path, bin: Path) -> None:
        install_folder(folder, bin)


def install_folder(folder: Path, bin: Path) -> None:
    """Install the package in a folder with the `pip` of a virtual environment; raises `ConfigError` if it fails."""
    done = subprocess.run(
        [bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", folder],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        said = make_printable(done.stderr.strip()[-MAX_SHOWN:])
        raise ConfigError(f"pip cannot install what was published:\n{said}")
