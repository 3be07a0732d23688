"""What the model faces: environments, their tools and records. No torch in here."""

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
        raise ConfigError(unknown("environment", name, ENVIRONMENTS))
    module, _, cls = path.partition(":")
    try:
        made = getattr(import_module(module), cls)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"environment {name!r}: {error}") from error
    return made(**settings)
