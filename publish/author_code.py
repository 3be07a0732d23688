"""Which environment is to be published, and which code has to come along with it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewbox.envs import make
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError


@dataclass(frozen=True)
class Source:
    """An environment, and the author's code: one module, or the package it stands in; neither for one of viewbox's."""

    env: BaseMultiTurnEnv
    name: str  # as `viewbox.make` takes it, but for a module of its own, which moves into the published package
    module: Path | None = None
    package: Path | None = None

    def inside(self, package: str) -> str:
        """The name in the published package."""
        return f"{package}.{self.name}" if self.module else self.name

    @property
    def files(self) -> list[Path]:
        """The author's Python files."""
        if self.package:
            return sorted(self.package.rglob("*.py"))
        return [self.module] if self.module else []


def find(given: str, settings: dict[str, Any]) -> Source:
    """The environment that `given` names, made with `settings`; raises `ConfigError` if it cannot be had."""
    left, colon, name = given.rpartition(":")
    if left.endswith(".py"):
        _check_file_name(Path(left))
    env = make(given, **settings)
    if not colon or left.split(".")[0] == "viewbox":
        return Source(env, given)
    if left.endswith(".py"):
        path = Path(left)
        return Source(env, f"{path.stem}:{name}", module=path)
    top = sys.modules[left.split(".")[0]]
    if top.__file__ is None:
        raise ConfigError(f"environment {given!r}: the folder of {top.__name__} needs an __init__.py to be published")
    file = Path(top.__file__)
    if file.name == "__init__.py":
        return Source(env, given, package=file.parent)
    return Source(env, given, module=file)


def _check_file_name(path: Path) -> None:
    if not path.stem.isidentifier() or path.stem.startswith("_"):
        raise ConfigError(f"{path}: the file's name must be that of a module that can be imported, without a leading _")
