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


@dataclass(frozen=True)
class EnvironmentSource:
    """An environment and its author's code: a module, or the package it is in; neither if it is viewbox's own."""

    env: BaseMultiTurnEnv
    name: str  # for `viewbox.make`; a single module is named without the published package around it
    module: Path | None = None
    package: Path | None = None
    chosen: AuthorFiles = field(default_factory=AuthorFiles)  # of the package

    def get_published_name(self, package: str) -> str:
        """The name for `viewbox.make` in the published package."""
        return f"{package}.{self.name}" if self.module else self.name

    @property
    def files(self) -> list[Path]:
        """The author's Python files, sorted."""
        if self.package:
            return [self.package / path for path in self.chosen.taken if path.suffix == ".py"]
        return [self.module] if self.module else []


def find_environment(given: str, settings: dict[str, Any], data: Sequence[str] = ()) -> EnvironmentSource:
    """Creates the environment `given` with `settings`, and finds its code and the `data` files of its package.

    Raises:
        ConfigError: it cannot be created, or its code cannot be imported from a published package.
    """
    source = _find_source(given, settings, data)
    if source.module:
        check_file(source.module.resolve())
    if data and not source.package:
        raise ConfigError("--data: names files of a package; allowed: with package.module:Class", key="data")
    return source


def _find_source(given: str, settings: dict[str, Any], data: Sequence[str]) -> EnvironmentSource:
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
    if file.name == "__init__.py":
        return EnvironmentSource(env, given, package=file.parent, chosen=list_author_files(file.parent, data))
    return EnvironmentSource(env, given, module=file)


def _check_file_name(path: Path) -> None:
    if not path.stem.isidentifier() or path.stem.startswith("_"):
        raise ConfigError(f"{path}: the file becomes a module; allowed: a name such as my_env.py, without a leading _")
