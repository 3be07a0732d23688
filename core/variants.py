"""Variants of an environment: the same one without its tools, with another reward, or with native tool calls."""

from typing import Any, TypeVar

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
        return vary(env, parts={key: remove_tools(part, refuse=refuse) for key, part in env.parts.items()})
    change = {"toolbox": env.toolbox.refuse_all()} if refuse else {"tools_of": lambda task: ()}
    return vary(env, prepare=lambda: None, **change)  # no tool is called, so none needs its model


def vary(env: Env, **attributes: Any) -> Env:
    """Return a copy with other attributes, such as `reward`. It shares the caches of `env`: both show the same images
    and describe the same tools."""
    copy = object.__new__(type(env))
    vars(copy).update(vars(env) | attributes)
    return copy
