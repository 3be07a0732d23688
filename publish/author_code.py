"""Finds the environment to publish, and the author's code that must be copied with it."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from viewbox.envs import make
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.publish.author_files import AuthorFiles, check_file, list_author_files
from viewbox.publish.author_wheel import AuthorWheel, read_wheel


@dataclass(frozen=True)
class EnvironmentSource:
    """An environment and its author's code: a module, or the package it is in; neither if it is viewbox's own."""

    env: BaseMultiTurnEnv
    name: str  # for `viewbox.make`; a single module is named without the published package around it
    module: Path | None = None
    package: Path | None = None
    chosen: AuthorFiles = field(default_factory=AuthorFiles)  # of the package
    wheel: AuthorWheel | None = None  # of the project around it

    def get_published_name(self, package: str) -> str:
        """The name for `viewbox.make` in the published package."""
        return f"{package}.{self.name}" if self.module else self.name

    @property
    def files(self) -> list[Path]:
        """The author's Python files, sorted."""
        if self.package:
            return [self.package / path for path in self.chosen.taken if path.suffix == ".py"]
        return [self.module] if self.module else []


def find_environment(given: str, settings: dict[str, Any], data: Sequence[str], temporary: Path) -> EnvironmentSource:
    """Creates the environment `given` with `settings`, and finds its code and the `data` files of its package.

    The wheel of its project is built and unpacked in the empty folder `temporary`.

    Raises:
        ConfigError: it cannot be created, or its code cannot be imported from a published package.
    """
    source = _find_source(given, settings, data, temporary)
    if source.module:
        check_file(source.module.resolve())
    if data and not source.package:
        raise ConfigError("--data: names files of a package; allowed: with package.module:Class", key="data")
    return source


def _find_source(given: str, settings: dict[str, Any], data: Sequence[str], temporary: Path) -> EnvironmentSource:
    left, colon, name = given.rpartition(":")
    if left.endswith(".py"):
        _check_file_name(Path(left))
    env = make(given, **settings)
    if not colon or left.split(".")[0] == "viewbox":
        return EnvironmentSource(env, given)
    if left.endswith(".py"):
        path = Path(left)
        return EnvironmentSource(env, f"{path.stem}:{name}", module=path)
    top = sys.modules[left.split(".")[0]]
    if top.__file__ is None:
        raise ConfigError(
            f"environment {given!r}: the folder of {top.__name__} has no __init__.py; allowed: a regular package"
        )
    file = Path(top.__file__)
    if file.name != "__init__.py":
        return EnvironmentSource(env, given, module=file, wheel=read_wheel(file, temporary))
    wheel = read_wheel(file.parent, temporary)
    packed = wheel.folder / file.parent.name if wheel is not None else None
    chosen = list_author_files(file.parent, data, packed)
    return EnvironmentSource(env, given, package=packed or file.parent, chosen=chosen, wheel=wheel)


def _check_file_name(path: Path) -> None:
    if not path.stem.isidentifier() or path.stem.startswith("_"):
        raise ConfigError(f"{path}: the file becomes a module; allowed: a name such as my_env.py, without a leading _")
