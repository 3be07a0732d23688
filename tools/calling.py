"""The one place that runs tools, stateful and stateless.

A `ToolError` becomes the `error` of that call's `ToolResult`: the model asked for what cannot be done. Any other
exception is the environment's and is raised: `core/tool_calls.py` tries the call once more.

    @tool
    async def find_nodules(image: Picture, at_least: Annotated[float, Range(0, 1)] = 0.5) -> ToolOutput:
        "Nodules in a chest X-ray, with a box each."

A stateless tool runs at the same time as the other calls of a reply: an `async def` on the event loop, a `def` in a
thread. The model names a picture ("view_3"), and the function receives the `View` (its `.source` holds the native
pixels). `apply_tools` runs stateful tools outside an episode, for notebooks, tests and the command line.

An author's tool may return anything. What a program would choke on later (a NaN in an episode's JSON, a gigabyte of
values, an image without pixels) is corrected or refused here, so that it harms only that call.
"""

import asyncio
import inspect
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from ..errors import ArgumentError, ImageError, ToolError, ToolFault, describe_value
from ..images.coordinates import Coordinates, from_unit
from ..images.files import open_image
from ..images.ref import ImageRef
from ..images.shown import ShownView
from ..images.source import Source
from ..images.task_images import find_number
from ..images.view import View
from ..records import ToolResult
from ..utils import concurrency
from ..utils.frozen import to_plain
from ..utils.sanitize import replace_surrogates
from .arguments import ViewFractions
from .tool import Tool, get_tool

log = logging.getLogger("viewbox.envs")

ViewInArea = tuple[View, Sequence[float] | None]  # a view, and the box of the picture in which it is shown (None: all)

GRACE = 1.0  # seconds that a cancelled tool has to clean up; after that it is abandoned
MAX_PIXELS = 512 * 512
MAX_VALUES: Final = 100_000  # numbers and strings in the facts of one call
MAX_CHARACTERS: Final = 65_536  # of one string
MAX_DEPTH: Final = 8
MAX_BITS: Final = 1024  # of an integer


@dataclass(frozen=True)
class ToolOutput:
    """What a tool returns.
    text: what the tool did or found, in words.
    facts: numbers and strings by name. Points and boxes are `ViewFractions`: of the current view for a stateful tool,
        of the first picture of the call for a stateless one.
    image: a picture to show, never a path. It does not change the view.
    of_view: whether `image` shows what the view shows, pixel for pixel, such as the view with an outline on it.
    beside: if `image` shows several views side by side: each with its box of the image, in fractions.
    tells_facts: whether the model reads the facts behind the text; if not, they are for rewards only.
    view: the new view; only a stateful tool returns one, and it is then shown in place of `image`."""

    text: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    image: Image.Image | np.ndarray | Source | View | None = None
    view: View | None = None
    of_view: bool = True
    beside: Sequence[tuple[View, Sequence[float]]] = ()
    tells_facts: bool = True


def call_stateful(
    tool: str | Tool,
    view: View,
    arguments: Mapping[str, object] | str,
    *,
    coordinates: Coordinates = "unit",
    hidden: Mapping[str, object] | None = None,
) -> tuple[View, ToolResult]:
    """Run a stateful tool (a `Tool` or its registered name) on a view; raise what the tool raises but `ToolError`.
    Returns the view after the call and the result; after an error, the view is unchanged. If the picture of the result
    is of the view, the fact `shows` is the box of the open image that it shows. `arguments` come from the model,
    `hidden` from the environment: the tool receives the hidden arguments that it declares.

    >>> from PIL import Image
    >>> view, result = call_stateful("zoom", View.of(Image.new("L", (64, 64))), {"factor": 9})
    >>> result.error
    'zoom: factor = 9: out of range; allowed: 0.5 to 4'
    """
    name = tool if isinstance(tool, str) else tool.name
    used = None
    try:
        tool = get_tool(tool) if isinstance(tool, str) else tool
        if not tool.stateful:
            why = "it does not work on a view and can only be called in an episode"
            raise ToolError(f"{name} is a stateless tool: {why}")
        parsed = parse_arguments(name, arguments)
        checked = tool.check_arguments(parsed, coordinates, view.size)
        used = tool.record_arguments(parsed, checked)
        output = read_output(tool, tool.function(view, **checked, **_select_hidden(tool, hidden)))
        image = output.image if output.view is None else output.view
        shown = None if image is None else render_image(image, name)
        facts = to_plain_facts(output.facts, coordinates, view.size)
        after = output.view or view
        same_size = shown is not None and (shown.width, shown.height) == after.size
        views: list[ViewInArea] = list(output.beside) if shown is not None else []
        if same_size and (output.of_view or output.view is not None):  # not a sheet of many slices, for example
            facts["shows"] = from_unit(after.window, coordinates, after.reset().size)
            views = [(after, None)]
        text, shows = _describe_output(output), _record_views(views, hidden)
        return after, ToolResult(name, text, image=shown, facts=facts, arguments=used, views=shows)
    except ToolError as error:
        return view, _build_refusal(name, error, used)


async def call_stateless(
    tool: Tool,
    arguments: Mapping[str, object] | str,
    *,
    find_picture: Callable[[str], View],
    hidden: Mapping[str, object] | None = None,
    coordinates: Coordinates = "unit",
    timeout: float | None = None,
    max_pixels: int = MAX_PIXELS,
    multiple: int = 1,
) -> ToolResult:
    """Run a stateless tool; raise what the tool raises but `ToolError`.
    Arguments are checked before anything runs. `find_picture` returns a picture by the name that the model wrote, or
    raises `ToolError`; it is called in a thread. After `timeout` seconds the call ends as a `ToolFault`: a coroutine is
    cancelled, a thread is abandoned. A returned image is shown with at most `max_pixels` pixels and sides that are
    multiples of `multiple`.

    >>> import numpy as np
    >>> from viewbox.tools.arguments import Picture
    >>> def mean(image: Picture) -> dict:
    ...     "The mean gray value."
    ...     return {"mean": image.to_gray().mean()}
    >>> views = {"view_0": View.of(np.full((2, 2), 7, np.uint8))}
    >>> call = call_stateless(Tool.from_function(mean), {"image": "view_0"}, find_picture=views.__getitem__)
    >>> asyncio.run(call).text
    'found (mean: 7.0)'
    """
    call = _StatelessCall(tool, arguments, find_picture, hidden, coordinates, max_pixels, multiple)
    try:
        if tool.is_async:
            return await call.run_on_loop(timeout)
        return await concurrency.run_in_thread(call.run_in_thread, timeout=timeout)
    except concurrency.CallTimeout:
        raise build_timeout(tool.name, timeout) from None
    except ToolError as error:
        return _build_refusal(tool.name, error, call.used)


@dataclass
class _StatelessCall:
    tool: Tool
    arguments: Mapping[str, Any] | str
    find_picture: Callable[[str], View]
    hidden: Mapping[str, Any] | None
    coordinates: Coordinates
    max_pixels: int
    multiple: int
    used: dict[str, Any] | None = None  # the arguments for the record, once they are checked

    def run_in_thread(self) -> ToolResult:
        checked = self.check_arguments()
        return self.build_result(checked, self.tool.function(**self._sharpen(checked)))

    def _sharpen(self, checked: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments with pictures as large as the tool wants them; fractions of them stay what they are."""
        most, every = self.tool.max_pixels, self.tool.all_levels
        return {
            name: value.at_resolution(most, all_levels=every) if most is not None and isinstance(value, View) else value
            for name, value in checked.items()
        }

    async def run_on_loop(self, timeout: float | None) -> ToolResult:
        """Run a coroutine function. Pictures are opened and drawn in a thread: that may take a while."""
        if self.tool.takes_pictures:
            checked = await concurrency.run_in_thread(self.check_arguments, timeout=timeout)
        else:
            checked = self.check_arguments()
        returned = await _await_within(timeout, self.tool, self._sharpen(checked))
        if isinstance(returned, ToolOutput) and returned.image is not None:
            return await concurrency.run_in_thread(self.build_result, checked, returned, timeout=timeout)
        return self.build_result(checked, returned)

    def check_arguments(self) -> dict[str, object]:
        """Return the checked arguments with the hidden arguments."""
        if self.tool.stateful:
            why = "it works on the view and never runs beside other calls"
            raise ToolError(f"{self.tool.name} is a stateful tool: {why}")
        arguments = parse_arguments(self.tool.name, self.arguments)
        checked = self.tool.check_arguments(arguments, self.coordinates, None, self.find_picture)
        self.used = self.tool.record_arguments(arguments, checked)
        return checked | _select_hidden(self.tool, self.hidden)

    def build_result(self, checked: Mapping[str, Any], returned: Any) -> ToolResult:
        """Return the record of what the function returned. Its facts refer to the first picture of the call."""
        name, output = self.tool.name, read_output(self.tool, returned)
        kinds = {key: spec.get("x-kind") for key, spec in self.tool.parameters.items()}
        pictures = [checked[key] for key, kind in kinds.items() if kind == "picture" and key in checked]
        facts = to_plain_facts(output.facts, self.coordinates, pictures[0].size if pictures else (1, 1))
        shown = None if output.image is None else render_image(output.image, name, self.max_pixels, self.multiple)
        views: list[ViewInArea] = list(output.beside) if shown is not None else []
        if isinstance(output.image, View) and shown is not None:
            views = [(output.image, None)]
        text = _describe_output(output)
        return ToolResult(
            name,
            text if output.tells_facts else "",
            image=shown,
            facts=facts,
            formatted_results=None if output.tells_facts else text,
            arguments=self.used,
            views=_record_views(views, self.hidden),
        )


async def _await_within(timeout: float | None, tool: Tool, checked: Mapping[str, Any]) -> Any:
    """Return what the coroutine function returns, or raise its exception, or `CallTimeout` after `timeout` seconds.
    It runs in its own task, so that a tool which ignores its cancellation does not hold up the others."""
    task = asyncio.create_task(_capture_outcome(tool, checked))
    try:
        await asyncio.wait({task}, timeout=timeout)
        if not task.done():
            raise concurrency.CallTimeout
    finally:
        if not task.done():
            task.cancel()
            if not (await asyncio.wait({task}, timeout=GRACE))[0]:
                log.warning("tool %s ignores its cancellation and is still running", tool.name)
    returned, error = task.result()
    if error is not None:
        raise error
    return returned


async def _capture_outcome(tool: Tool, checked: Mapping[str, Any]) -> tuple[Any, Exception | None]:
    """Return what the tool returned or raised: no exception of a tool, `SystemExit` included, stops the event loop."""
    try:
        return await concurrency.await_foreign(tool.function(**checked)), None
    except Exception as error:
        return None, error


def build_timeout(name: str, timeout: float | None) -> ToolFault:
    """Return the fault of a tool that takes longer than `timeout` seconds. It may still be running: it is not tried
    again."""
    return ToolFault(f"{name} took longer than {timeout or 0:g} seconds and was stopped")


def _build_refusal(name: str, error: ToolError, used: Mapping[str, Any] | None) -> ToolResult:
    run_with = None if isinstance(error, ArgumentError) else used
    return ToolResult(name, error=replace_surrogates(str(error)), arguments=run_with)


def parse_arguments(name: str, arguments: Mapping[str, object] | str) -> Mapping[str, object]:
    """Return the arguments of a call, which some models write as a string of JSON; raise `ArgumentError`."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"{name}: the arguments are not JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise ArgumentError(f"{name}: the arguments must be a JSON object")
    return arguments


def _select_hidden(tool: Tool, hidden: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (hidden or {}).items() if key in tool.hidden}


def _record_views(views: Iterable[ViewInArea], hidden: Mapping[str, Any] | None) -> tuple[ShownView, ...]:
    """Return what a picture shows of the task's images, which are the hidden argument `images`."""
    images = (hidden or {}).get("images") or ()
    return tuple(ShownView.of(view, find_number(images, view.source), area) for view, area in views)


def _describe_output(output: ToolOutput) -> str:
    return replace_surrogates(output.text) or ("found" if output.facts else "done")


Openable = str | Path | Image.Image | np.ndarray | Source | View


def apply_tool(
    name: str, image: Openable, /, *, coordinates: Coordinates = "unit", max_pixels: int = MAX_PIXELS, **arguments: Any
) -> tuple[View, ToolResult]:
    """Call one stateful tool on an image; return the view after the call and the result. `image` is a path (any file
    that viewbox opens), a PIL image, an array, a `Source` or a `View`. `max_pixels` bounds the view unless `image` is a
    `View`. If the call fails, `result.error` says why. Raise `ImageError` if the image cannot be opened.

    >>> view, result = apply_tool("crop", Image.new("L", (100, 100)), box=[0.1, 0.1, 0.6, 0.6])
    >>> result.image.open().size, result.facts["area_percentage"]
    ((50, 50), 25.0)
    >>> result.text
    'cropped (original_size: [100, 100], new_size: [50, 50], area_percentage: 25.0, shows: [0.1, 0.1, 0.6, 0.6])'
    """
    return apply_tools(image, [(name, arguments)], coordinates=coordinates, max_pixels=max_pixels)[0]


def apply_tools(
    image: Openable,
    calls: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    coordinates: Coordinates = "unit",
    max_pixels: int = MAX_PIXELS,
    hidden: Mapping[str, object] | None = None,
) -> list[tuple[View, ToolResult]]:
    """Call stateful tools in order, each on the view that the call before it left; stop after the first error.
    `hidden` are arguments that the environment would fill in.

    >>> steps = apply_tools(Image.new("L", (80, 40)), [("zoom", {"factor": 2}), ("crop", {"box": [0, 0, 1, 1]})])
    >>> [view.size for view, result in steps]
    [(160, 80), (40, 20)]
    """
    view = open_view(image, max_pixels)
    steps: list[tuple[View, ToolResult]] = []
    for name, arguments in calls:
        view, result = call_stateful(name, view, arguments, coordinates=coordinates, hidden=hidden)
        steps.append((view, result))
        if result.error is not None:
            break
    return steps


def open_view(image: Openable, max_pixels: int = MAX_PIXELS) -> View:
    """Return the overview of an image; a `View` is returned as it is."""
    if isinstance(image, View):
        return image
    source = open_image(image) if isinstance(image, str | Path) else Source.of(image)
    return View.of(source, max_pixels=max_pixels)


def read_output(tool: Tool, returned: object) -> ToolOutput:
    """Return what a tool's function returned, as a `ToolOutput`; raise `ToolFault` for any other type.
    A string becomes the text, a mapping the facts."""
    if inspect.iscoroutine(returned):
        returned.close()  # otherwise Python warns that it was never awaited
    if isinstance(returned, str):
        return ToolOutput(returned)
    if isinstance(returned, Mapping):
        return ToolOutput(facts=returned)
    if isinstance(returned, ToolOutput):
        may_change_view = returned.view is None or (tool.stateful and isinstance(returned.view, View))
        if may_change_view and isinstance(returned.text, str) and isinstance(returned.facts, Mapping):
            return returned
    kind = "ToolOutput(text, facts, image, view)" if tool.stateful else "ToolOutput(text, facts, image)"
    raise ToolFault(f"{tool.name} returned {describe_value(returned)}; allowed: a string, a mapping of facts, {kind}")


def to_plain_facts(facts: Mapping[str, object], coordinates: Coordinates, size: tuple[int, int]) -> dict[str, object]:
    """Facts in JSON's own types, with points and boxes (`ViewFractions`) in the environment's coordinates.

    >>> facts = {"p": np.float32(0.5), "worst": float("nan"), "at": [ViewFractions((0.5, 0.25))]}
    >>> to_plain_facts(facts, "pixel", (64, 64))
    {'p': 0.5, 'worst': 'nan', 'at': ((32, 16),)}
    """
    return _FactReader(coordinates, size).read_mapping(facts, 0)


class _FactReader:
    """Turns the facts of one call into JSON's types, up to a number of values and a depth."""

    def __init__(self, coordinates: Coordinates, size: tuple[int, int]) -> None:
        self.coordinates, self.size = coordinates, size
        self.values_left = MAX_VALUES

    def read_mapping(self, facts: Mapping[Any, Any], depth: int) -> dict[str, object]:
        pairs = islice(facts.items(), self.values_left + 1)
        return {replace_surrogates(str(key)[:MAX_CHARACTERS]): self.read_value(item, depth + 1) for key, item in pairs}

    def read_value(self, value: object, depth: int) -> object:
        self.values_left -= 1
        if self.values_left < 0 or depth > MAX_DEPTH:
            return "…"
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return replace_surrogates(value[:MAX_CHARACTERS])
        if isinstance(value, int):
            return value if value.bit_length() <= MAX_BITS else f"a number of {value.bit_length()} bits"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, ViewFractions):
            return from_unit(value, self.coordinates, self.size)
        return self._read_other(value, depth)

    def _read_other(self, value: Any, depth: int) -> Any:
        if hasattr(value, "tolist") and math.prod(value.shape) > self.values_left:
            return f"array of shape {tuple(value.shape)}"
        if (plain := to_plain(value)) is not value:
            return self.read_value(plain, depth)
        if isinstance(value, Mapping):
            return self.read_mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset):  # a set in an order that is the same in every process
            items = tuple(self.read_value(item, depth + 1) for item in islice(value, self.values_left + 1))
            return items if isinstance(value, list | tuple) else tuple(sorted(items, key=str))
        return replace_surrogates(str(value)[:MAX_CHARACTERS])


def render_image(image: object, name: str, max_pixels: int | None = None, multiple: int = 1) -> ImageRef:
    """Return the image that the tool `name` returned, in mode L or RGB; raise `ToolFault` if it cannot be shown.
    `image` is a Pillow image, an array as `Source` takes it, a `Source` or a `View`. A path is refused: the text of a
    tool must not choose which files are opened. `max_pixels` and `multiple` bound the size as they do for a view."""
    try:
        if isinstance(image, View):
            drawn = image.to_ref()
            if drawn.width * drawn.height == 0:
                raise ImageError(f"{drawn.width}x{drawn.height} pixels")
            if max_pixels is None or drawn.width * drawn.height <= max_pixels:
                return drawn
            image = drawn.open()
        if not isinstance(image, Image.Image | np.ndarray | Source):
            raise ImageError(f"{type(image).__name__} is not an image")
        source = Source.of(image)
        if max_pixels is None:
            return ImageRef.of(source.render())
        return View.of(source, max_pixels=max_pixels, multiple=multiple).to_ref()
    except ImageError as error:
        raise ToolFault(f"{name} returned an image that cannot be shown ({error})") from error
