"""Finds the environment to publish, and the author's code that must be copied with it.

The project's own build says what it packs: a wheel is built of a copy, in a process with limits, and unpacked. Whatever
the backend and however data files are declared, what `pip install` would bring is what is published.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from pathlib import Path
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ..core.base import BaseMultiTurnEnv
from ..envs import make
from ..errors import ConfigError
from ..utils.files import read_regular
from .checks.process import Limits
from .checks.project import Project, build_wheel, copy_project, is_project, open_wheel, read_toml
from .checks.rows import Failed
from .contents import MAX_FILE, AuthorFiles, check_file, is_license, list_author_files


@dataclass(frozen=True)
class AuthorWheel:
    """What a project's wheel says of it; the license files by their path in the project."""

    folder: Path
    readme: str
    is_markdown: bool
    license: str | None
    licenses: dict[Path, Path]


def find_project(module: Path) -> Project | None:
    """Return the project of a module or package: the one beside it or, of `src`, above; None if it has none."""
    folder = module.parent.parent if module.parent.name == "src" else module.parent
    read = read_toml(folder) if is_project(folder) else {}
    is_built = {"project", "build-system"} & read.keys() or "setuptools" in read.get("tool", {})
    return Project(folder, read.get("project", {}), read.get("build-system", {})) if is_built else None


def read_wheel(module: Path, temporary: Path) -> AuthorWheel | None:
    """Build and unpack the wheel of a module's project; None if there is no project, or it does not pack the module.
    The wheel stays unpacked in `temporary`, an empty folder. Raise `ConfigError` if the wheel cannot be built or
    read."""
    project = find_project(module)
    if project is None:
        return None
    copy = copy_project(project, temporary / "project")
    for path in [path for path in copy.folder.rglob("*") if path.is_symlink()]:
        if not any(path.resolve().is_relative_to(root.resolve()) for root in (copy.folder, project.folder)):
            path.unlink()  # what a link out of the project leads to is nothing that a build may pack
    try:
        with open_wheel(build_wheel(copy, temporary / "wheel", home=temporary / "home", limits=Limits())) as file:
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
    license, stated = None, text.get("License-Expression") or text.get("License")
    with suppress(InvalidLicenseExpression):  # the text of a license, or a name of one's own
        license = canonicalize_license_expression(stated) if stated else None
    return AuthorWheel(
        unpacked,
        "" if readme == "UNKNOWN" else readme,
        "markdown" in str(text.get("Description-Content-Type", "")),
        license,
        licenses or {Path(path.name): path for path in about.iterdir() if is_license(path)},
    )


@dataclass(frozen=True)
class EnvironmentSource:
    """An environment and its author's code: a module, or the package it is in; neither if it is viewbox's own."""

    env: BaseMultiTurnEnv
    name: str  # for `viewbox.make`; a single module is named without the published package around it
    module: Path | None = None
    package: Path | None = None
    chosen: AuthorFiles = field(default_factory=AuthorFiles)  # of the package
    wheel: AuthorWheel | None = None  # of the project around it

    @property
    def files(self) -> list[Path]:
        """The author's Python files, sorted."""
        if self.package:
            return [self.package / path for path in self.chosen.taken if path.suffix == ".py"]
        return [self.module] if self.module else []


def find_environment(given: str, settings: dict[str, Any], data: Sequence[str], temporary: Path) -> EnvironmentSource:
    """Create the environment `given` with `settings`, and find its code and the `data` files of its package. The wheel
    of its project is built and unpacked in the empty folder `temporary`. Raise `ConfigError` if it cannot be created,
    or its code cannot be imported from a published package."""
    source = _find_source(given, settings, data, temporary)
    if source.module:
        check_file(source.module.resolve())
    if data and not source.package:
        raise ConfigError("--data: names files of a package; allowed: with package.module:Class", key="data")
    return source


def _find_source(given: str, settings: dict[str, Any], data: Sequence[str], temporary: Path) -> EnvironmentSource:
    left, colon, name = given.rpartition(":")
    if left.endswith(".py"):
        path = Path(left)
        if not path.stem.isidentifier() or path.stem.startswith("_"):
            allowed = "a name such as my_env.py, without a leading _"
            raise ConfigError(f"{path}: the file becomes a module; allowed: {allowed}")
    env = make(given, **settings)
    if not colon or left.split(".")[0] == "viewbox":
        return EnvironmentSource(env, given)
    if left.endswith(".py"):
        return EnvironmentSource(env, f"{path.stem}:{name}", module=path)
    top = sys.modules[left.split(".")[0]]
    if top.__file__ is None:
        problem = f"the folder of {top.__name__} has no __init__.py; allowed: a regular package"
        raise ConfigError(f"environment {given!r}: {problem}")
    file = Path(top.__file__)
    if file.name != "__init__.py":
        return EnvironmentSource(env, given, module=file, wheel=read_wheel(file, temporary))
    wheel = read_wheel(file.parent, temporary)
    packed = wheel.folder / file.parent.name if wheel is not None else None
    chosen = list_author_files(file.parent, data, packed)
    return EnvironmentSource(env, given, package=packed or file.parent, chosen=chosen, wheel=wheel)
