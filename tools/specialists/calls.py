"""A call of a specialist on its way: what is asked, who waits for it, and how it ends."""

from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ...errors import ToolError, ToolFault
from ...images.ref import ImageRef


class OutOfMemory(Exception):
    """A runner's device has no memory for a batch of this size."""


class HungError(Exception):
    """A batch has taken longer than its timeout."""


@dataclass(frozen=True)
class Request:
    """What a model is asked: a picture, and what else its result depends on. Equal requests have equal results."""

    picture: ImageRef
    arguments: Hashable = ()

    @property
    def key(self) -> Hashable:
        """Names the result in the cache: the hash of the pixels as they are shown, and the arguments."""
        return self.picture.hash, self.arguments


@dataclass(frozen=True)
class TextRequest:
    """What a model of texts is asked: one text, or a query and a text."""

    texts: tuple[str, ...]

    @property
    def key(self) -> Hashable:
        return self.texts


class Call:
    """A request in a queue; `futures` are those of all calls that wait for it."""

    def __init__(self, request: Request | TextRequest) -> None:
        self.request = request
        self.is_second_try = False
        self.futures: list[Future[Any]] = []

    def finish(self, outcome: Any) -> None:
        for future in self.futures:
            if not future.done() and future.set_running_or_notify_cancel():
                set_outcome(future, outcome)


@dataclass(frozen=True)
class Failed:
    """A call's error in words; `kind` is `ToolError` if the model refuses what it was asked."""

    text: str
    kind: type[ToolError | ToolFault] = ToolFault


def set_outcome(future: Future[Any], outcome: Any) -> None:
    """Every future gets an exception of its own: one that is raised again and again keeps every traceback."""
    if isinstance(outcome, Failed):
        future.set_exception(outcome.kind(outcome.text))
    else:
        future.set_result(outcome)


def describe_failure(error: Exception) -> Failed:
    """The error of a call in words; the tool's name is put in front of it."""
    if isinstance(error, ToolError | ToolFault):
        return Failed(str(error), type(error))
    if isinstance(error, OutOfMemory):
        return Failed("has no memory left for this picture")
    if isinstance(error, HungError):
        return Failed("gave no result in time")
    return Failed(f"failed on this picture ({type(error).__name__})")
