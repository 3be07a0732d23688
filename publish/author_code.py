"""Which environment is to be published, and which code has to come along with it."""

import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from viewbox.envs import make
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.rewards.imported import search_here

FORMS = "allowed: a name (see `viewbox envs`), package.module:Class, or path/to/module.py:Class"


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
    """The environment that `given` names, made with `settings`; raises `ConfigError` where it cannot be had."""
    left, colon, name = given.rpartition(":")
    if not colon or left.split(".")[0] == "viewbox":
        return Source(make(given, **settings), given)
    if left.endswith(".py"):
        path = Path(left)
        if not path.is_file():
            raise ConfigError(f"{left}: no such file; {FORMS}")
        return Source(_made(_loaded(path), name, given, settings), f"{path.stem}:{name}", module=path)
    search_here()
    try:
        module = import_module(left)
    except ImportError as error:
        raise ConfigError(f"environment {given!r}: {error}; {FORMS}") from error
    env = _made(module, name, given, settings)
    top = sys.modules[left.split(".")[0]]
    if top.__file__ is None:
        raise ConfigError(f"environment {given!r}: the folder of {top.__name__} needs an __init__.py to be published")
    file = Path(top.__file__)
    if file.name == "__init__.py":
        return Source(env, given, package=file.parent)
    return Source(env, given, module=file)


def _loaded(path: Path) -> ModuleType:
    if not path.stem.isidentifier() or path.stem.startswith("_"):
        raise ConfigError(f"{path}: the file's name must be that of a module that can be imported, without a leading _")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: cannot be imported")
    module = sys.modules[path.stem] = module_from_spec(spec)  # type hints are looked up there
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise ConfigError(f"{path}: {error}; a module of a package is named as package.module:Class") from error
    return module


def _made(module: ModuleType, name: str, given: str, settings: dict[str, Any]) -> BaseMultiTurnEnv:
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, BaseMultiTurnEnv)):
        raise ConfigError(f"environment {given!r}: {module.__name__} has no environment class {name!r}; {FORMS}")
    return cls(**settings)
