"""What one of several processes does for all of them."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ViewboxError

T = TypeVar("T")


def do_once(work: Callable[[], T]) -> T:
    """Return what the work returns on the first process, on all of them; its `ViewboxError` is raised on all."""
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    shared: list[Any] = [None]
    if PartialState().is_main_process:
        try:
            shared = [work()]
        except ViewboxError as error:
            shared = [error]
    broadcast_object_list(shared)
    if isinstance(shared[0], ViewboxError):
        raise shared[0]
    result: T = shared[0]
    return result
