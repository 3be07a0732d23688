"""The one check that is made where the data of an environment would leave this machine.

The images, answers and references of an environment with `restricted = True` stay here. Every door asks
`check_may_leave`: the endpoint of a rollout, a judge, the adapters, trackers, the hub and `viewbox publish`.

Some doors cannot be seen beforehand: a judge in a function, a tool or a simulated user that asks a model. While an
episode is played or scored, `keep_here` is therefore in force, and every client calls `check_sending` before it sends.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol

from viewbox.errors import ConfigError
from viewbox.network.hosts import is_loopback

_check: ContextVar[Callable[[str], None] | None] = ContextVar("check", default=None)  # of the data in use


class HasData(Protocol):
    """What is asked of an environment."""

    @property
    def name(self) -> str: ...
    @property
    def restricted(self) -> bool: ...


def check_may_leave(env: HasData, to: str | None, *, door: str, allowed: str, key: str | None = None) -> None:
    """Raises `ConfigError` if data of a restricted environment would leave this machine.

    Args:
        env: the environment.
        to: the URL they are sent to, or the name of a service; None: they stay on this machine.
        door: what sends them, as the beginning of a sentence that ends with `to`.
        allowed: what the user can do instead.
        key: the setting that decides it.

    >>> class Scans:
    ...     name, restricted = "scans", True
    >>> check_may_leave(Scans(), "http://localhost:8000/v1", door="it is sent to", allowed="localhost")
    >>> check_may_leave(Scans(), "https://judge.example", door="it is sent to", allowed="localhost")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: scans: its data is restricted to this machine, but it is sent to \
https://judge.example; allowed: localhost
    """
    if to is None or not getattr(env, "restricted", False) or is_here(to):
        return
    raise ConfigError(
        f"{env.name}: its data is restricted to this machine, but {door} {to}; allowed: {allowed}",
        key=key,
        given=to,
    )


def is_here(to: str) -> bool:
    """Whether a URL leads to this machine; a name that is not a URL, and a URL that cannot be read, do not."""
    try:
        return is_loopback(to)
    except ConfigError:
        return False


def keep_here(env: HasData) -> AbstractContextManager[None]:
    """Inside the block, nothing is sent to another machine if the environment is restricted.

    It holds for the block's threads and tasks that copy its context variables, as those of viewbox do.
    """
    if not getattr(env, "restricted", False):
        return nullcontext()
    return guard_sending(
        lambda to: check_may_leave(env, to, door="a request would be sent to", allowed="an address on localhost")
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
    """Raises `ConfigError` if the data in use may not be sent to this URL; clients call it before they send."""
    check = _check.get()
    if check is not None:
        check(to)
