"""A reward by import path: `package.module:name` or `path/to/file.py:name`.

The path may name a reward object, a class made without arguments, a function of (answer, reference), or a function of
one argument `episode`. Its form is checked before the first episode, because a mistake should not cost a run.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from ..errors import ConfigError
from ..records import Episode
from ..utils.importing import load_object
from .declare import AnyReward, Name, get_reward_name, register_reward
from .fields import Answer, Reference

ALLOWED = (
    "a function of (answer, reference), a function of one argument named `episode`, a reward object, "
    "or a class made without arguments"
)


@register_reward("python")
class ImportedReward:
    """A reward of your own, by its import path."""

    function: Annotated[
        str,
        Field(
            min_length=1,
            description="`package.module:name` or `path/to/file.py:name`: a function of (answer, reference) or of one "
            "episode, or a reward",
        ),
    ]
    name: Annotated[Name | None, Field(description="the name in logs if it is not a component; default: its own")] = (
        None
    )


@dataclass(frozen=True)
class AnswerFunction:
    """A plain function of (answer, reference) as a `Reward`."""

    function: Callable[..., Any]
    name: str

    def __call__(self, answer: Answer, reference: Reference) -> float | None:
        score: float | None = self.function(answer, reference)
        return score


@dataclass(frozen=True)
class EpisodeFunction:
    """A function of a whole episode as an `EpisodeReward`."""

    function: Callable[..., Any]
    name: str

    def of_episode(self, episode: Episode) -> float | None:
        score: float | None = self.function(episode)
        return score


def load_reward(path: str, name: str | None = None) -> AnyReward:
    """Load the reward at an import path.

    >>> load_reward("viewbox.rewards:ExactMatchReward").name
    'exact_match'
    >>> load_reward("operator:eq", name="same")(1, 1)
    True
    >>> load_reward("math:sqrt")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward 'math:sqrt': takes (x, /), not (answer, reference); allowed: a function of \
(answer, reference), a function of one argument named `episode`, a reward object, or a class made without arguments
    """
    loaded = load_object(path, kind="reward")
    return _to_reward(loaded, path, name, re.split("[:.]", path)[-1])


def _to_reward(loaded: Any, path: str, name: str | None, default: str) -> AnyReward:
    if inspect.isclass(loaded):
        try:
            loaded = loaded()
        except Exception as error:
            raise ConfigError(
                f"reward {path!r}: the class cannot be made without arguments: {type(error).__name__}: {error}"
            ) from error
    method = getattr(loaded, "of_episode", None)
    if method is None and not callable(loaded):
        raise ConfigError(f"reward {path!r}: is a {type(loaded).__name__}; allowed: {ALLOWED}")
    own = getattr(loaded, "name", None)
    name = name or (own if isinstance(own, str) and own else default)
    if method is not None:
        _check_signature(method, path, ("episode",))
        kept: AnyReward = loaded if own == name else EpisodeFunction(method, name)
        return kept
    arguments = ("episode",) if _get_first_argument(loaded, path) == "episode" else ("answer", "reference")
    _check_signature(loaded, path, arguments)
    if arguments == ("episode",):
        return EpisodeFunction(loaded, name)
    reward: AnyReward = loaded if own == name else AnswerFunction(loaded, name)
    return reward


def adapt_reward(reward: object) -> object:
    """Return a reward given in Python as one that can be called: a class is made, a function of `episode` reads
    episodes.

    >>> adapt_reward(lambda episode: 1.0).of_episode(None)
    1.0
    """
    if inspect.isclass(reward) or (callable(reward) and not hasattr(reward, "of_episode")):
        name = reward.__name__ if inspect.isclass(reward) else get_reward_name(reward)
        if inspect.isclass(reward) or _get_first_argument(reward, name) == "episode":
            return _to_reward(reward, name, None, name)
        _check_signature(reward, name, ("answer", "reference"))
    return reward


def _get_signature(function: Callable[..., Any], path: str) -> inspect.Signature:
    takes = getattr(getattr(function, "__code__", None), "co_argcount", 0)  # a wrapper that names none passes all on
    try:
        return inspect.signature(function, follow_wrapped=not takes)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"reward {path!r}: its arguments cannot be read ({error}); allowed: {ALLOWED}") from error


def _get_first_argument(function: Callable[..., Any], path: str) -> str:
    return next(iter(_get_signature(function, path).parameters), "")


def _check_signature(function: Callable[..., Any], path: str, arguments: tuple[str, ...]) -> None:
    signature = _get_signature(function, path)
    try:
        signature.bind(*arguments)
    except TypeError as error:
        bare = signature.replace(return_annotation=inspect.Signature.empty)
        raise ConfigError(f"reward {path!r}: takes {bare}, not ({', '.join(arguments)}); allowed: {ALLOWED}") from error
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise ConfigError(f"reward {path!r}: is asynchronous or a generator; allowed: {ALLOWED}")
