"""Environments, their tools and prompts. Nothing here imports torch.

`make` builds an environment by name; `BaseMultiTurnEnv` (in `base`) is the class that authors subclass.
"""

from typing import TYPE_CHECKING, Any

from viewbox.errors import ConfigError, describe_unknown
from viewbox.importing import load_object

if TYPE_CHECKING:
    from viewbox.envs.base import BaseMultiTurnEnv

# name → path of the class, which is imported when it is needed
ENVIRONMENTS = {"digits": "viewbox.envs.digits:Digits"}


def make(name: str, **settings: Any) -> "BaseMultiTurnEnv":
    """Make the environment of that name.

    Args:
        name: a registered name, or the path of your own class: `package.module:Class` or `path/to/file.py:Class`.
        settings: override the defaults of the environment.

    Raises:
        ConfigError: an unknown name, a module that cannot be imported, or a setting that is not allowed.

    >>> make("digits", max_turns=3).max_turns
    3
    >>> make("digit")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: unknown environment 'digit'; allowed: digits (did you mean 'digits'?), or your own \
as package.module:Class or path/to/file.py:Class
    """
    path = name if ":" in name else ENVIRONMENTS.get(name)
    if path is None:
        own = "or your own as package.module:Class or path/to/file.py:Class"
        raise ConfigError(f"{describe_unknown('environment', name, ENVIRONMENTS)}, {own}", key="name", given=name)
    return _load_class(path)(**settings)


def _load_class(path: str) -> "type[BaseMultiTurnEnv]":
    from viewbox.envs.base import BaseMultiTurnEnv

    loaded = load_object(path, kind="environment", key="name")
    if isinstance(loaded, type) and issubclass(loaded, BaseMultiTurnEnv):
        return loaded
    name = path.rpartition(":")[2]
    raise ConfigError(
        f"environment {path!r}: {name!r} is not an environment; allowed: a subclass of viewbox.BaseMultiTurnEnv",
        key="name",
        given=path,
    )
