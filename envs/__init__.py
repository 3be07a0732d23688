"""Environments, their tools and prompts. Nothing here imports torch.

`make` builds an environment by name; `BaseMultiTurnEnv` (in `base`) is the class that authors subclass.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, describe_unknown
from ..registry import ENVIRONMENTS, find_plugin, list_plugins
from ..utils.importing import load_object

if TYPE_CHECKING:
    from ..core.base import BaseMultiTurnEnv


def make(name: str, **settings: object) -> "BaseMultiTurnEnv":
    """Make the environment of that name.

    Args:
        name: a registered name, or the path of your own class: `package.module:Class` or `path/to/file.py:Class`.
        settings: override the defaults of the environment.

    Raises:
        ConfigError: an unknown name, a module that cannot be imported, or a setting that is not allowed.

    >>> make("digits", max_turns=3).max_turns
    3
    >>> make("digit")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    viewbox.errors.ConfigError: unknown environment 'digit'; allowed: chest_xray, consultation, digits, ...
    """
    return load_class(name)(**settings)


def load_class(name: str) -> "type[BaseMultiTurnEnv]":
    """Return the class of an environment; `make` says what `name` may be.
    One of viewbox is imported from the package and nowhere else: the current folder is not searched."""
    path = name if ":" in name else find_plugin("environments", name)
    if path is None:
        hint = "or your own as package.module:Class or path/to/file.py:Class"
        known = list_plugins("environments")
        raise ConfigError(f"{describe_unknown('environment', name, known)}, {hint}", key="name")
    module, _, attribute = path.partition(":")
    if name in ENVIRONMENTS and module.startswith("viewbox."):
        return _check_class(getattr(import_module(module), attribute), path)
    return _check_class(load_object(path, kind="environment", key="name"), path)


def _check_class(loaded: Any, path: str) -> "type[BaseMultiTurnEnv]":
    from ..core.base import BaseMultiTurnEnv

    if isinstance(loaded, type) and issubclass(loaded, BaseMultiTurnEnv):
        return loaded
    name = path.rpartition(":")[2]
    problem = f"{name!r} is not an environment; allowed: a subclass of viewbox.BaseMultiTurnEnv"
    raise ConfigError(f"environment {path!r}: {problem}", key="name")
