"""What a check is: a function that gives one row of the table. `@check` registers it; a new row touches one file.

This module is also loaded in the process of the author's code (`child.py`), and therefore imports nothing of viewbox.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CheckRow:
    """One row of the table that `viewbox check` prints.

    Args:
        passed: whether it holds; False if it was not tried.
        finding: what was found, in one line or a few.
        mend: how to repair it; empty if it passed.
        tried: False if another row failed that this one needs.
    """

    name: str
    passed: bool
    finding: str
    mend: str = ""
    tried: bool = True


class Failed(Exception):
    """Raised by a check: what was found, and how to mend it, if not as the check says in general."""

    def __init__(self, finding: str, mend: str | None = None) -> None:
        super().__init__(finding)
        self.finding, self.mend = finding, mend


class NotTried(Exception):
    """Raised by a check that another row's failure kept from a result."""


@dataclass(frozen=True)
class Check:
    """A registered check.

    Args:
        run: gives the finding, or raises `Failed` or `NotTried`. It takes the `Trial`; or the opened environment and
            the project (a mapping), and then it runs `inside` the process of the author's code.
        mend: how to repair what it finds.
        applies: whether a trial has this row; default: each has.
    """

    name: str
    run: Callable[..., Any]
    needs: Sequence[str] = ()
    mend: str = ""
    applies: Callable[[Any], bool] | None = None

    @property
    def inside(self) -> bool:
        return bool(self.run.__code__.co_argcount == 2)


CHECKS: dict[str, Check] = {}  # in the order of the table; a check needs only those before it


def check(name: str, **given: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the check of a row; `given` are the further arguments of `Check`."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        CHECKS[name] = Check(name, run, **given)
        return run

    return register


def shorten(texts: Sequence[object], count: int = 3) -> str:
    """Join the first of many findings, and say how many follow.

    >>> shorten(["a", "b", "c", "d"])
    'a; b; c (and 1 more)'
    """
    more = f" (and {len(texts) - count} more)" if len(texts) > count else ""
    return "; ".join(map(str, texts[:count])) + more
