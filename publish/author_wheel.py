"""Asks the build of an author's project what it packs: the files of the module, the README and the licenses.

The wheel is built of a copy of the project, in a process with limits, and unpacked. Whatever the backend and however
data files are declared, what `pip install` would bring is what is published.
"""

import tomllib
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from viewbox.errors import ConfigError
from viewbox.files import read_regular
from viewbox.publish.author_files import MAX_FILE, is_license
from viewbox.publish.checks.fresh import open_wheel
from viewbox.publish.checks.installation import build_wheel
from viewbox.publish.checks.process import Limits
from viewbox.publish.checks.project import Project, copy_project, is_project
from viewbox.publish.checks.rows import Failed


@dataclass(frozen=True)
class AuthorWheel:
    """What a project's wheel says of it.

    Args:
        folder: the unpacked wheel.
        readme: its description; empty if there is none.
        is_markdown: whether that is Markdown, or reStructuredText or plain.
        license: its SPDX expression; None if it states none.
        licenses: its license files, by their path in the project.
    """

    folder: Path
    readme: str
    is_markdown: bool
    license: str | None
    licenses: dict[Path, Path]


def find_project(module: Path) -> Project | None:
    """The project of a module or package: the one beside it or, of `src`, above; None if it has none."""
    folder = module.parent.parent if module.parent.name == "src" else module.parent
    if not is_project(folder):
        return None
    try:
        read = tomllib.loads(read_regular(folder / "pyproject.toml", limit=MAX_FILE).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{folder / 'pyproject.toml'}: cannot be read ({error!s:.200})") from error
    is_built = {"project", "build-system"} & read.keys() or "setuptools" in read.get("tool", {})
    return Project(folder, read.get("project", {}), read.get("build-system", {})) if is_built else None


def read_wheel(module: Path, temporary: Path) -> AuthorWheel | None:
    """Build and unpack the wheel of a module's project; None if there is no project, or it does not pack the module.

    Args:
        module: the package's folder, or a single module.
        temporary: an empty folder, in which the wheel stays unpacked.

    Raises:
        ConfigError: the wheel cannot be built or read.
    """
    project = find_project(module)
    if project is None:
        return None
    copy = copy_project(project, temporary / "project")
    for path in [path for path in copy.folder.rglob("*") if path.is_symlink()]:
        if not any(path.resolve().is_relative_to(root.resolve()) for root in (copy.folder, project.folder)):
            path.unlink()  # what a link out of the project leads to is nothing that a build may pack
    try:
        wheel = build_wheel(copy, temporary / "wheel", home=temporary / "home", limits=Limits())
        with open_wheel(wheel) as file:
            file.extractall(temporary / "unpacked")
    except Failed as error:
        mend = f"; to mend it: {error.mend}" if error.mend else ""
        raise ConfigError(f"{project.folder}: which files it packs is not known: {error.finding}{mend}") from error
    unpacked = temporary / "unpacked"
    if not (unpacked / module.name).exists():
        return None
    [about] = unpacked.glob("*.dist-info")
    text = message_from_bytes(read_regular(about / "METADATA", limit=MAX_FILE))
    readme = str(text.get("Description") or text.get_payload()).strip()
    files = [path.relative_to(about / "licenses") for path in (about / "licenses").rglob("*") if path.is_file()]
    licenses = {path: about / "licenses" / path for path in files if not any(part[0] == "." for part in path.parts)}
    return AuthorWheel(
        unpacked,
        "" if readme == "UNKNOWN" else readme,
        "markdown" in str(text.get("Description-Content-Type", "")),
        _read_license(text.get("License-Expression") or text.get("License")),
        licenses or {Path(path.name): path for path in about.iterdir() if is_license(path)},
    )


def _read_license(stated: str | None) -> str | None:
    try:
        return canonicalize_license_expression(stated) if stated else None
    except InvalidLicenseExpression:  # the text of a license, or a name of one's own
        return None
