"""A reward by import path: `package.module:name` or `path/to/file.py:name`.

What stands there may be a reward object, a class made without arguments, a function of (answer, reference), or a
function of one `episode`. Its form is checked before the first episode, because a mistake should not cost a run.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from viewbox.errors import ConfigError
from viewbox.importing import load_object
from viewbox.rewards.base import EpisodeReward, Reward

ALLOWED = (
    "a function of (answer, reference), a function of one argument named `episode`, a reward object, "
    "or a class made without arguments"
)


@dataclass(frozen=True)
class AnswerFunction:
    """A plain function of (answer, reference) as a `Reward`."""

    function: Callable[..., Any]
    name: str

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        return self.function(answer, reference)


@dataclass(frozen=True)
class EpisodeFunction:
    """A function of a whole episode as an `EpisodeReward`."""

    function: Callable[..., Any]
    name: str

    def of_episode(self, episode: Any) -> float | None:
        return self.function(episode)


def imported(function: str, name: str | None = None) -> Reward | EpisodeReward:
    """The reward at `function`; `name` is its component's name (default: its own).

    The current folder is searched after what is installed. Raises `ConfigError` saying what was given and what is
    allowed.

    >>> imported("viewbox.rewards:ExactMatchReward").name
    'exact_match'
    >>> imported("operator:eq", name="same")(1, 1)
    True
    >>> imported("math:sqrt")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward 'math:sqrt': takes (x, /), not (answer, reference); allowed: a function of \
(answer, reference), a function of one argument named `episode`, a reward object, or a class made without arguments
    """
    loaded = load_object(function, kind="reward")
    return _as_reward(loaded, function, name, re.split("[:.]", function)[-1])


def _as_reward(found: Any, given: str, name: str | None, default: str) -> Reward | EpisodeReward:
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:
            raise ConfigError(
                f"reward {given!r}: the class cannot be made without arguments: {type(error).__name__}: {error}"
            ) from error
    method = getattr(found, "of_episode", None)
    if method is None and not callable(found):
        raise ConfigError(f"reward {given!r}: is a {type(found).__name__}; allowed: {ALLOWED}")
    own = getattr(found, "name", None)
    called = name or (own if isinstance(own, str) and own else default)
    if method is not None:
        _check(method, given, ("episode",))
        return found if own == called else EpisodeFunction(method, called)
    wanted = ("episode",) if _first_argument(found, given) == "episode" else ("answer", "reference")
    _check(found, given, wanted)
    if wanted == ("episode",):
        return EpisodeFunction(found, called)
    return found if own == called else AnswerFunction(found, called)


def _signature(function: Callable[..., Any], given: str) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"reward {given!r}: its arguments cannot be read ({error}); allowed: {ALLOWED}") from error


def _first_argument(function: Callable[..., Any], given: str) -> str:
    return next(iter(_signature(function, given).parameters), "")


def _check(function: Callable[..., Any], given: str, wanted: tuple[str, ...]) -> None:
    signature = _signature(function, given)
    try:
        signature.bind(*wanted)
    except TypeError as error:
        bare = signature.replace(return_annotation=inspect.Signature.empty)
        raise ConfigError(f"reward {given!r}: takes {bare}, not ({', '.join(wanted)}); allowed: {ALLOWED}") from error
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"reward {given!r}: is asynchronous or a generator; allowed: {ALLOWED}")
