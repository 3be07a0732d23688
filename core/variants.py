"""Variants of an environment: the same one without its tools, with another reward, or with native tool calls."""

from typing import Any, TypeVar

from ..rewards import CombinedReward
from .base import BaseMultiTurnEnv

Env = TypeVar("Env", bound=BaseMultiTurnEnv)


def remove_tools(env: Env, *, refuse: bool = False) -> Env:
    """Return an environment without tools; tasks, turns, answer and reward are those of `env`.

    Args:
        env: stays as it is.
        refuse: the prompt still offers the tools, and every call is refused. A policy that has learned to call before
            it answers may not answer at all if no tool is offered.

    >>> from viewbox.envs.digits import Digits
    >>> env = remove_tools(Digits())
    >>> env.name, env.reset(env.tasks[0], seed=0).tools
    ('digits', ())
    """
    if hasattr(env, "parts"):  # of a mixture
        return _copy(env, parts={key: remove_tools(part, refuse=refuse) for key, part in env.parts.items()})
    change = {"toolbox": env.toolbox.refuse_all()} if refuse else {"tools_of": lambda task: ()}
    return _copy(env, prepare=lambda: None, **change)  # no tool is called, so none needs its model


def replace_reward(env: Env, reward: CombinedReward) -> Env:
    """Return the environment with a reward that has the same components, weighted otherwise."""
    return _copy(env, reward=reward)


def use_native_calls(env: Env) -> Env:
    """Return the environment for a model whose chat template teaches the tools and whose calls the framework parses."""
    return _copy(env, reply_format="native")


def _copy(env: Env, **attributes: Any) -> Env:
    """Return a copy that shares the caches of `env`: both show the same images and describe the same tools."""
    copy = object.__new__(type(env))
    vars(copy).update(vars(env) | attributes)
    return copy
