"""What the model faces: environments, their tools and records. No torch in here."""

import traceback
from importlib import import_module
from typing import Any

from viewbox.errors import ConfigError, unknown

# name → where the class lives; imported when it is asked for
ENVIRONMENTS = {"digits": "viewbox.envs.digits:Digits"}


def make(name: str, **settings: Any) -> Any:
    """The environment of that name, its settings overridden; `package.module:Class` names one of your own.

    >>> make("digits", max_turns=3).max_turns
    3
    >>> make("digit")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: unknown environment 'digit'; allowed: digits (did you mean 'digits'?)
    """
    path = name if ":" in name else ENVIRONMENTS.get(name)
    if path is None:
        own = "; one of your own is named package.module:Class" if "." in name else ""
        raise ConfigError(unknown("environment", name, ENVIRONMENTS) + own, key="name")
    return _class(path)(**settings)


def _class(path: str) -> Any:
    """The environment class at `package.module:Class`; raises `ConfigError` naming what is missing or broken."""
    from viewbox.envs.base import BaseMultiTurnEnv
    from viewbox.rewards.imported import search_here

    search_here()
    name, _, attribute = path.partition(":")
    try:
        module = import_module(name)
    except Exception as error:  # the author's module may fail in any way
        raise ConfigError(f"environment {path!r}: {_why(name, error)}", key="name") from error
    classes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, BaseMultiTurnEnv) and value is not BaseMultiTurnEnv
    }
    if attribute in classes:
        return classes[attribute]
    if hasattr(module, attribute):
        found = f"{attribute!r} is not an environment; allowed: a subclass of viewbox.BaseMultiTurnEnv"
        raise ConfigError(f"environment {path!r}: {found} ({', '.join(classes) or 'none'} in {name})", key="name")
    raise ConfigError(f"environment {path!r}: {unknown(f'class of {name}', attribute, classes)}", key="name")


def _why(name: str, error: Exception) -> str:
    """Why a module cannot be imported, with the line of it that failed."""
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"{error}; allowed: a module that `python -c 'import {name}'` finds"
    if isinstance(error, SyntaxError):
        return f"{name} cannot be imported: {error.msg} ({error.filename}, line {error.lineno})"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    at = f" ({lines[-1].filename}, line {lines[-1].lineno})" if len(lines) > 1 else ""
    return f"{name} cannot be imported: {type(error).__name__}: {error}{at}"
