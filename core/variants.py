"""Variants of an environment: the same one without its tools, with another reward, or with native tool calls."""

from typing import Any, TypeVar

from ..records import Task
from ..rewards import CombinedReward
from .base import BaseMultiTurnEnv

Env = TypeVar("Env", bound=BaseMultiTurnEnv)


def remove_tools(env: Env, *, refuse: bool = False) -> Env:
    """An environment without tools; tasks, turns, answer and reward are those of `env`.

    Args:
        env: stays as it is.
        refuse: the prompt still offers the tools, and every call is refused. A policy that has learned to call before
            it answers may not answer at all if no tool is offered.

    >>> from viewbox.envs.digits import Digits
    >>> env = remove_tools(Digits())
    >>> env.name, env.get_offered_tools(env.tasks[0])
    ('digits', ())
    """
    method: dict[str, Any] = {"get_max_calls": _allow_nothing} if refuse else {"tools_of": _offer_nothing}
    return _copy(env, {**method, "needs_preparing": False, "prepare": _do_nothing})


def replace_reward(env: Env, reward: CombinedReward) -> Env:
    """The environment with a reward that has the same components, weighted otherwise."""
    return _copy(env, {}, reward=reward)


def use_native_calls(env: Env) -> Env:
    """The environment for a model whose chat template teaches the tools and whose calls the framework parses."""
    return _copy(env, {}, reply_format="native")


def _copy(env: Env, methods: dict[str, Any], **attributes: Any) -> Env:
    """A copy that shares the caches of `env`: both show the same images and describe the same tools."""
    changed: type[Env] = type(type(env).__name__, (type(env),), methods) if methods else type(env)
    copy = object.__new__(changed)
    vars(copy).update(vars(env) | attributes)
    return copy


def _offer_nothing(env: BaseMultiTurnEnv, task: Task) -> tuple[str, ...]:
    return ()


def _do_nothing(env: BaseMultiTurnEnv) -> None:
    """No tool is called, so none needs its model."""


def _allow_nothing(env: BaseMultiTurnEnv, name: str) -> int:
    return 0
