"""The one check that is made where the data of an environment would leave this machine.

The images, answers and references of an environment with `restricted = True` stay on this machine. Everything that
would send them calls `check_may_leave` when it is set up: the endpoint of a rollout, a judge, the adapters, trackers,
the hub and `viewbox publish`.

Some senders are not known beforehand: a function that asks a judge, a tool or a simulated user that asks a model. So an
episode is played and scored inside `keep_on_this_machine`, and every client calls `check_sending` before it sends.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from ..errors import ConfigError
from .hosts import is_loopback

RESTRICTED = "restricted"  # the key of an episode's `info` that says it, after the episode has left its environment

# Called with every address that something is sent to; raises if the data in use may not go there.
_check: ContextVar[Callable[[str], None] | None] = ContextVar("check", default=None)


class HasData(Protocol):
    """The part of an environment that the check reads."""

    @property
    def name(self) -> str: ...
    @property
    def restricted(self) -> bool: ...


def check_may_leave(env: HasData, to: str | None, *, action: str, allowed: str, key: str | None = None) -> None:
    """Raise `ConfigError` if data of a restricted environment would leave this machine: to a URL, or the name of a
    service. `action` are the words in front of `to`, `allowed` is what the user can do instead, `key` the setting that
    decides."""
    if to is None or not getattr(env, "restricted", False) or is_this_machine(to):
        return
    problem = f"its data is restricted to this machine, but {action} {to}; allowed: {allowed}"
    raise ConfigError(f"{env.name}: {problem}", key=key)


def is_this_machine(to: str) -> bool:
    """Return whether a URL leads to this machine; a name that is not a URL, and a URL that cannot be read, do not."""
    try:
        return is_loopback(to)
    except ConfigError:
        return False


def keep_on_this_machine(env: HasData) -> AbstractContextManager[None]:
    """Inside the block, also in threads and tasks that copy its context variables, nothing is sent to another machine
    if the environment is restricted."""
    if not getattr(env, "restricted", False):
        return nullcontext()
    return guard_sending(
        lambda to: check_may_leave(env, to, action="a request would be sent to", allowed="an address on localhost")
    )


@contextmanager
def guard_sending(check: Callable[[str], None]) -> Iterator[None]:
    """Inside the block, `check_sending` calls `check` with the address, and then the checks of the blocks around it."""
    outer = _check.get()

    def check_all(to: str) -> None:
        check(to)
        if outer is not None:
            outer(to)

    token = _check.set(check_all)
    try:
        yield
    finally:
        _check.reset(token)


def check_sending(to: str) -> None:
    """Raise `ConfigError` if the data in use may not be sent to this URL; clients call it before they send."""
    check = _check.get()
    if check is not None:
        check(to)
