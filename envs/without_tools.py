"""The same environment without its tools, which shows what they are worth."""

from typing import TypeVar

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.records import Task

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
    changes = {"get_max_calls": _allow_nothing} if refuse else {"tools_of": _offer_nothing}
    bare: type[Env] = type(type(env).__name__, (type(env),), changes)
    copy = object.__new__(bare)
    vars(copy).update(vars(env))  # caches too: both show the same images and the same descriptions of tools
    return copy


def _offer_nothing(env: BaseMultiTurnEnv, task: Task) -> tuple[str, ...]:
    return ()


def _allow_nothing(env: BaseMultiTurnEnv, name: str) -> int:
    return 0
