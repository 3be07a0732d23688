"""Tools beside the viewer's: searches, specialists, whatever is asked of a picture or of the world, not of the view.

    @tool
    async def find_nodules(image: Picture, at_least: Annotated[float, Range(0, 1)] = 0.5) -> Found:
        "Nodules in a chest X-ray, with a box each."

They run at the same time as the other calls of a reply: an `async def` on the event loop, a `def` in a thread. Pictures
come by reference: the model writes "view_3", the function is given the `View` (what is shown, and through `.source`
the native pixels).
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from viewbox.envs import concurrency
from viewbox.envs.tools.results import GO_ON, shown_picture, stated_facts, storable, too_long
from viewbox.envs.tools.tool import Tool, failure, mapping, own
from viewbox.errors import ToolError
from viewbox.images.coordinates import Coordinates
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import ToolResult

__all__ = ["Found", "answer"]

log = logging.getLogger("viewbox.envs")

GRACE = 1.0  # seconds in which a tool that was told to stop may tidy up; then it is left to itself
BUDGET = 512 * 512  # pixels


@dataclass(frozen=True)
class Found:
    """What a free tool found: words, numbers and, perhaps, a picture to show (never a path).

    A point or box among the facts is a `Stated`, in fractions of the first picture the tool was given: the model is
    told it in its own coordinates.
    """

    text: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    image: Image.Image | np.ndarray | Source | View | None = None


async def answer(
    tool: Tool,
    arguments: Mapping[str, Any] | str,
    *,
    pictures: Callable[[str], View],
    hidden: Mapping[str, Any] | None = None,
    coordinates: Coordinates = "unit",
    limit: float | None = None,
    max_pixels: int = BUDGET,
    multiple: int = 1,
) -> ToolResult:
    """Runs a free tool. Whatever goes wrong is in the result's `error`; only a cancellation raises.

    Arguments are checked before anything runs. `pictures` finds a picture by the name the model wrote and raises
    `ToolError` in words; it is called in a thread. After `limit` seconds the call is given up: a coroutine is
    cancelled, a thread abandoned. A picture that is returned is shown at most `max_pixels` large.

    >>> from viewbox.envs.tools.arguments import Picture
    >>> def mean(image: Picture) -> dict:
    ...     "The mean gray value."
    ...     return {"mean": image.gray().mean()}
    >>> gray = View.of(np.full((2, 2), 7, np.uint8))
    >>> asyncio.run(answer(Tool.of(mean), {"image": "view_0"}, pictures={"view_0": gray}.__getitem__)).text
    'found (mean: 7.0)'
    """
    call = _Call(tool, arguments, pictures, hidden, coordinates, max_pixels, multiple)
    try:
        if tool.awaited:
            return await call.on_the_loop(limit)
        return await concurrency.run(call.in_a_thread, limit=limit)
    except concurrency.TookTooLong:
        log.warning("tool %s took longer than %s s", tool.name, limit)
        return too_long(tool.name, limit)
    except concurrency.Foreign as error:
        return failure(tool.name, error.__cause__ or error)
    except Exception as error:
        return failure(tool.name, error)


@dataclass(frozen=True)
class _Call:
    tool: Tool
    arguments: Mapping[str, Any] | str
    pictures: Callable[[str], View]
    hidden: Mapping[str, Any] | None
    coordinates: Coordinates
    max_pixels: int
    multiple: int

    def in_a_thread(self) -> ToolResult:
        given = self.prepared()
        return self.result(given, self.tool.run(**given))

    async def on_the_loop(self, limit: float | None) -> ToolResult:
        """Pictures in a thread all the same: opening one, or scaling it, takes a while."""
        given = await concurrency.run(self.prepared, limit=limit) if self.tool.takes_pictures else self.prepared()
        said = await _within(limit, self.tool, given)
        if isinstance(said, Found) and said.image is not None:
            return await concurrency.run(self.result, given, said, limit=limit)
        return self.result(given, said)

    def prepared(self) -> dict[str, Any]:
        """What the function is given."""
        if self.tool.viewer:
            raise ToolError(f"{self.tool.name} is a viewer's tool: it works on the view, not beside it")
        given = mapping(self.tool.name, self.arguments)
        return self.tool.arguments(given, self.coordinates, None, self.pictures) | own(self.tool, self.hidden)

    def result(self, given: Mapping[str, Any], said: Any) -> ToolResult:
        """What the function returned, as a record."""
        name, found = self.tool.name, _found(self.tool.name, said)
        kinds = {key: spec.get("x-kind") for key, spec in self.tool.parameters.items()}
        seen = [given[key] for key, kind in kinds.items() if kind == "picture" and key in given]
        facts = stated_facts(found.facts, self.coordinates, seen[0].size if seen else (1, 1))
        picture = None if found.image is None else shown_picture(found.image, name, self.max_pixels, self.multiple)
        words = storable(found.text) or ("found" if facts else "done")
        return ToolResult(name, words, image=picture, facts=facts)


def _found(name: str, said: Any) -> Found:
    """What a function returned as `Found`; raises `ToolError` for what is none of the things it may return."""
    if inspect.iscoroutine(said):
        said.close()  # nobody will await it
    found = Found(said) if isinstance(said, str) else Found(facts=said) if isinstance(said, Mapping) else said
    if isinstance(found, Found) and isinstance(found.text, str) and isinstance(found.facts, Mapping):
        return found
    log.error("tool %s returned %s; allowed: a string, a mapping of facts, Found(text, facts, image)", name, type(said))
    raise ToolError(f"{name} returned nothing that can be read ({type(said).__name__}); {GO_ON}")


async def _within(limit: float | None, tool: Tool, given: Mapping[str, Any]) -> Any:
    """What the coroutine function returns; raises what it raises, and `TookTooLong`.

    It runs in a task of its own, so that one which takes no notice of a cancellation holds nobody up.
    """
    task = asyncio.create_task(_outcome(tool, given))
    try:
        await asyncio.wait({task}, timeout=limit)
        if not task.done():
            raise concurrency.TookTooLong
    finally:
        if not task.done():
            task.cancel()
            if not (await asyncio.wait({task}, timeout=GRACE))[0]:
                log.warning("tool %s goes on although it was told to stop", tool.name)
    said, error = task.result()
    if error is not None:
        raise error
    return said


async def _outcome(tool: Tool, given: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """What the tool returned or raised: an exception that is none of an event loop's business ends no loop."""
    try:
        return await tool.run(**given), None
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return None, error
    except BaseException as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        return None, concurrency.foreign(error)
