"""`--to dir`: a folder on this machine. Nothing leaves, so nobody is asked.

A file that viewbox did not write is never touched.
"""

import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...utils.files import check_out, create_whole
from .base import Hub, HubPlace, Release, compute_hash

MANIFEST = ".viewbox-published.json"  # the files that viewbox wrote, with hashes; all others are the user's


class Directory(Hub):
    """A folder; what viewbox wrote there before is replaced by `--force`."""

    kinds = ("environment", "model")
    asks = False
    reads_front_matter = False

    def __init__(self, place: HubPlace) -> None:
        assert place.folder is not None  # `open_hub` asks for it
        self.folder, self.force = place.folder, place.force

    def describe(self) -> str:
        return str(self.folder)

    def list_versions(self) -> list[str]:
        try:
            return [str(json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))["version"])]
        except (OSError, ValueError, LookupError, TypeError):  # `push` says what is wrong with it
            return []

    def push(self, release: Release) -> str:
        replace_folder(release.folder, self.folder, dict(release.about), force=self.force)
        return str(self.folder)

    def fetch(self, release: Release, folder: Path) -> None:
        for name in release.hashes:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / name, folder / name)


def replace_folder(staged: Path, out: Path, about: dict[str, Any], *, force: bool) -> None:
    """Copy the staged files to `out`, and remove the files of an older package there. `about` are entries of the
    manifest beside the files; `force` says whether an older package may be replaced. Raise `ConfigError` if `out` holds
    files that may not be replaced; nothing was changed."""
    check_out(out, "folder", "OUT")
    old = _list_own_files(out, force) if out.is_dir() and any(out.iterdir()) else []
    new = sorted(path.relative_to(staged) for path in staged.rglob("*") if path.is_file())
    for path in new:
        if os.path.lexists(out / path) and path not in old:
            raise ConfigError(f"{out / path} was not written by viewbox; move it away first")
    for path in old:
        (out / path).unlink(missing_ok=True)
    for folder in sorted({parent for path in old for parent in (out / path).parents}, reverse=True):
        if folder != out and folder.is_relative_to(out) and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    with nullcontext(out) if out.exists() else create_whole(out, "OUT") as folder:
        for path in new:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(staged / path, folder / path)
        files = {path.as_posix(): compute_hash(folder / path) for path in new}
        (folder / MANIFEST).write_text(json.dumps({**about, "files": files}, indent=1) + "\n", encoding="utf-8")


def _list_own_files(out: Path, force: bool) -> list[Path]:
    """Return the files in `out` that an earlier call wrote; raise `ConfigError` if any of them may not be replaced."""
    try:
        manifest = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
        files = {Path(name): str(digest) for name, digest in manifest["files"].items()}
    except FileNotFoundError:
        allowed = "an empty folder or one that does not exist"
        raise ConfigError(f"{out} was not written by `viewbox publish`; allowed: {allowed}") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{out / MANIFEST} cannot be read ({error}); choose another folder") from error
    if not force:
        raise ConfigError(f"{out} holds {manifest.get('id')} {manifest.get('version')}; add --force to replace it")
    for path, digest in files.items():
        if path.is_absolute() or ".." in path.parts:
            raise ConfigError(f"{out / MANIFEST}: {path} is outside the folder")
        if (out / path).exists() and compute_hash(out / path) != digest:
            raise ConfigError(f"{out / path} was changed since it was published; move it away first")
    return list(files)
