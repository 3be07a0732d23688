"""Finds the environment to publish, and the author's code that has to travel with it."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewbox.envs import make
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError


@dataclass(frozen=True)
class EnvironmentSource:
    """An environment and the author's code: a module or the package around it; neither if the code is in viewbox."""

    env: BaseMultiTurnEnv
    name: str  # for `viewbox.make`; of a single module, the name without the published package around it
    module: Path | None = None
    package: Path | None = None

    def get_published_name(self, package: str) -> str:
        """The name for `viewbox.make` in the published package."""
        return f"{package}.{self.name}" if self.module else self.name

    @property
    def files(self) -> list[Path]:
        """The author's Python files."""
        if self.package:
            return sorted(self.package.rglob("*.py"))
        return [self.module] if self.module else []


def find_environment(given: str, settings: dict[str, Any]) -> EnvironmentSource:
    """Create the environment `given` with `settings` and find its code; raises `ConfigError`."""
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
        raise ConfigError(f"environment {given!r}: to be published, the folder of {top.__name__} needs an __init__.py")
    file = Path(top.__file__)
    if file.name == "__init__.py":
        return EnvironmentSource(env, given, package=file.parent)
    return EnvironmentSource(env, given, module=file)


def _check_file_name(path: Path) -> None:
    if not path.stem.isidentifier() or path.stem.startswith("_"):
        raise ConfigError(f"{path}: the file name must be a valid module name without a leading _")
