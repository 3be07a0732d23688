"""The tool calls of one reply, run: stateful tools in order on the episode's view, stateless tools beside them.

Every call has a result, in the order of the calls. A `ToolError` is the model's own doing: it reads the message and
goes on. Any other exception is the environment's. The call is tried once more, with the same arguments, view and
pictures; after the second exception its result holds it (`raised`), and the loop ends the episode as a fault. A
`ToolFault`, a call that takes too long and a tool that wants to end the process are not tried again.
"""

import asyncio
import dataclasses
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from .. import tools
from ..errors import ArgumentError, ToolFault, describe_unknown, show_json
from ..images.source import Source
from ..images.task_images import list_names, match_slice, name_image
from ..images.view import View
from ..records import ToolResult
from ..tools.calling import build_timeout
from ..utils import concurrency
from ..utils.sanitize import clean
from ..utils.terminal import make_line
from .contract import AuthoredEnv, EpisodeState
from .parsing.objects import ParsedCall
from .places import show_whole
from .portable import hide_paths_in

log = logging.getLogger("viewbox.envs")

MAX_FOUND = 64  # images that tools found, in an episode; later ones are shown but cannot be opened
MAX_REASON = 500  # characters kept of a tool's exception
MAX_FAULTS = 3  # of a tool that are told before it is withdrawn


@dataclass
class _Call:
    """A call of a reply, what its tool found, its result, and the episode's view after it, if it shows that."""

    parsed: ParsedCall
    place: int
    found: list[Source] = field(default_factory=list)
    result: ToolResult | None = None
    view: View | None = None

    @property
    def name(self) -> str:
        return self.parsed.call.name


async def run_calls(env: AuthoredEnv, state: EpisodeState, calls: Sequence[ParsedCall]) -> list[ToolResult]:
    """Return one result for each call, in order. Views whose pictures are shown are added to `state.views`, and
    pictures that tools put in their hidden argument `found` to the episode's images.

    Only calls that ran are counted: one that its tool refuses for its arguments gives its place back. So a call for
    which there is no place waits for those before it in the reply."""
    views_before = tuple(state.views)  # the views a call can name: those shown when the reply was written
    all_calls = [_Call(parsed, place) for place, parsed in enumerate(calls)]
    waiting = all_calls
    while waiting:
        admitted: list[_Call] = []
        for number, call in enumerate(waiting):
            problem = _find_problem(env, state, call)
            if problem is None and (problem := _check_budget(env, state, call.name)) is not None and admitted:
                waiting = waiting[number:]
                break
            if problem is None:
                state.calls[call.name] += 1
                admitted.append(call)
            else:
                call.result = ToolResult(call.name or "tool_call", error=problem)
        else:
            waiting = []
        await _run_admitted(env, state, admitted, views_before)
        state.calls.subtract(call.name for call in admitted if call.result is None or not call.result.was_run)
        if state.tells_faults:
            _tell_faults(state, admitted)
    finished = []
    for call in all_calls:
        assert call.result is not None
        result = _add_note(_add_found_images(state, call.result, call.found), call.parsed.note)
        result = _add_view_number(env, state, clip_result(result, env.max_tool_chars), call.view)
        finished.append(replace(result, call_id=call.parsed.call.id))
    return finished


async def _run_admitted(
    env: AuthoredEnv, state: EpisodeState, admitted: Sequence[_Call], views_before: Sequence[View]
) -> None:
    """Run these calls: stateful tools in order on the episode's view, the others at the same time."""
    # Outside the task group, where an author's bug is raised as it is.
    hidden_of = {one.place: env.hidden_arguments(state.task, one.name) for one in admitted}

    async def run(one: _Call) -> None:
        hidden = {"found": one.found, "images": state.images, "windows": env.windows, **hidden_of[one.place]}
        one.result = await _run_twice(one.name, partial(_run_tool, env, state, one, hidden, views_before), one.found)
        if env.toolbox[one.name].stateful and state.view is not None and "shows" in one.result.facts:
            one.view = state.view

    async with asyncio.TaskGroup() as group:
        for one in admitted:
            if env.toolbox[one.name].stateful:
                continue
            if len(admitted) == 1:  # most replies: the call needs no task of its own
                await run(one)
            else:
                group.create_task(run(one))
        for one in admitted:
            if env.toolbox[one.name].stateful:
                await run(one)


async def _run_tool(
    env: AuthoredEnv, state: EpisodeState, one: _Call, hidden: Mapping[str, Any], views_before: Sequence[View]
) -> ToolResult:
    """Run a tool once; a stateful one on the view that the previous call left."""
    tool, arguments = env.toolbox[one.name], one.parsed.call.arguments
    reply = sum(turn.role == "assistant" for turn in state.turns)
    swap_view = partial(env.swap_view, state.task, one.name, reply, own=state.images)
    if not tool.stateful:
        return await tools.call_stateless(
            tool,
            arguments,
            find_picture=lambda name: swap_view(find_picture(name, state.images, views_before, env)),
            hidden=hidden,
            coordinates=env.coordinates,
            timeout=env.tool_timeout,
            max_pixels=env.max_pixels,
            multiple=env.pixel_multiple,
        )
    if state.view is None:
        return ToolResult(one.name, error="This task has no image.")
    shown = swap_view(state.view)
    try:
        call = partial(tools.call_stateful, tool, shown, arguments, coordinates=env.coordinates, hidden=hidden)
        after, result = await concurrency.run_in_thread(call, timeout=env.tool_timeout)
    except concurrency.CallTimeout:
        raise build_timeout(one.name, env.tool_timeout) from None
    if shown is not state.view and (after.source is shown.source or after.source.is_same_stack(shown.source)):
        after = dataclasses.replace(after, source=match_slice(state.view.source, after.source))
    state.view = after
    return result


def _tell_faults(state: EpisodeState, admitted: Sequence[_Call]) -> None:
    """Count the faults, which cost no quota; the third of a tool says that it is withdrawn."""
    for call in admitted:
        if call.result is None or not call.result.is_fault:
            continue
        state.calls[call.name] -= 1
        state.faults[call.name] += 1
        words = hide_paths_in(call.result.error or "")
        if state.faults[call.name] == MAX_FAULTS:
            words = f"{words.rstrip('.')}. {_describe_withdrawn(state, call.name)}"
        call.result = replace(call.result, error=words, raised=hide_paths_in(call.result.raised))


def _describe_withdrawn(state: EpisodeState, name: str) -> str:
    left = [tool for tool in state.tools if state.faults[tool] < MAX_FAULTS]
    advice = f"You can still call: {', '.join(left)}." if left else "Answer without tools, or say that you cannot."
    return f"{name} has failed {MAX_FAULTS} times and is withdrawn. {advice}"


def _find_problem(env: AuthoredEnv, state: EpisodeState, one: _Call) -> str | None:
    """Return why a call cannot be run, whatever was called before, in words; None if it can."""
    if one.parsed.error is not None:
        return one.parsed.error
    if one.place >= env.max_calls_per_turn:
        return f"Not run: at most {tools.format_calls(env.max_calls_per_turn)} per reply."
    if state.faults[one.name] >= MAX_FAULTS:
        return _describe_withdrawn(state, one.name)
    return None if one.name in state.tools else describe_unknown("tool", one.name, state.tools, show_json)


def _check_budget(env: AuthoredEnv, state: EpisodeState, name: str) -> str | None:
    """Return the reason why a tool may not be called again, in words; None if it may."""
    if env.max_total_calls is not None and state.calls.total() >= env.max_total_calls:
        return f"Tool budget used up ({tools.format_calls(env.max_total_calls)}). Give your final answer now."
    limit = env.toolbox.get_max_calls(name)
    if limit is None or state.calls[name] < limit:
        return None
    limits = {tool: env.toolbox.get_max_calls(tool) for tool in state.tools}
    left = [tool for tool, most in limits.items() if most is None or state.calls[tool] < most]
    advice = f"You can still call: {', '.join(left)}." if left else "Give your final answer now."
    return f"{name} is used up ({tools.format_calls(limit)}). {advice}"


async def _run_twice(name: str, run: Callable[[], Awaitable[ToolResult]], found: list[Source]) -> ToolResult:
    """Return the result of a call; if the tool raises, of a second try; if that raises, too, a result with `raised`.
    The record names the type of an exception only: its message may hold a path or a patient's name. The log has it."""
    raised = ""
    for is_last in (False, True):
        try:
            return replace(await run(), raised=raised)
        except Exception as error:
            is_fault = isinstance(error, ToolFault)
            raised = make_line(error, MAX_REASON) if is_fault else type(concurrency.unwrap(error)).__name__
            if is_fault or not is_last:
                log.warning("tool %s failed: %s", name, raised)
            else:
                log.error("tool %s failed again", name, exc_info=error)
            found.clear()
            if is_fault or isinstance(error, concurrency.ForeignError):
                break
    return ToolResult(name, error=raised if is_fault else f"{name} failed ({raised})", raised=raised)


def find_picture(reference: str, images: Sequence[Source], views: Sequence[View], env: AuthoredEnv) -> View:
    """Return the picture that the model calls `image_1` (the task's first image) or `view_3`; raise `ToolError`."""
    kind, _, number = reference.strip().lower().rpartition("_")
    allowed_numbers = {"image": range(1, len(images) + 1), "view": range(len(views))}.get(kind)
    if allowed_numbers is None or not re.fullmatch("[0-9]+", number) or int(number[:9]) not in allowed_numbers:
        names = [f"image_{i + 1}" for i in range(len(images))] + [f"view_{i}" for i in range(len(views))]
        allowed = (
            ", ".join(names if len(names) <= 12 else [*names[:6], "…", *names[-5:]]) or "none: no picture was shown"
        )
        raise ArgumentError(f"unknown picture {show_json(reference[:40])}; allowed: {allowed}")
    return views[int(number)] if kind == "view" else show_whole(env, images[int(number) - 1], views)


def _add_view_number(env: AuthoredEnv, state: EpisodeState, result: ToolResult, view: View | None) -> ToolResult:
    """Add what the picture of a result shows to `state.views`; if views are numbered, the result says its number.
    `view` is the episode's view after the call; None if the picture is not of it."""
    picture = result.image  # numbers are told where answers or tools refer to them
    is_numbered = env.view_field is not None or env.toolbox.takes_pictures(state.tools)
    if picture is None:
        return result
    if view is None or (picture.width, picture.height) != view.size:  # the picture is not of the view
        if not is_numbered:
            return result
        view = View.of(Source.of(picture.open()), max_pixels=env.max_pixels, multiple=env.pixel_multiple)
    number = len(state.views)
    state.views.append(view)
    if not is_numbered:
        return result
    if result.formatted_results is not None:  # the model reads this text instead of the facts
        return replace(result, formatted_results=f"{result.formatted_results}\nview: {number}")
    return replace(result, facts={**result.facts, "view": number})


def _add_found_images(state: EpisodeState, result: ToolResult, found: Sequence[Source]) -> ToolResult:
    """Make pictures that a tool found images of the episode, so that `open_image` shows them; the result says how.
    They are numbered here, in the order of the calls: calls of one reply run at the same time."""
    if not found or not result.success or not state.images or "open_image" not in state.tools:
        return result
    first = len(state.images)
    added = found[: max(0, MAX_FOUND + state.images.count_own() - first)]
    if not added:
        return result
    state.images.add(added)
    names = f"{name_image(first)} to {name_image(first + len(added) - 1)}, in this order"
    names = names if len(added) > 1 else name_image(first)
    count = state.images.count_own()
    those = f"{list_names(count)} {'is the image' if count == 1 else 'are the images'} of the task"
    return _add_note(result, f"To zoom in, call open_image first: {names}; {those}.")


def _add_note(result: ToolResult, note: str) -> ToolResult:
    """Return a result whose text ends with a note to the model."""
    if not note or not result.success:
        return result
    if result.formatted_results is not None:
        return replace(result, formatted_results=f"{result.formatted_results}\n{note}")
    return replace(result, description=f"{result.description}. {note}")


def clip_result(result: ToolResult, limit: int) -> ToolResult:
    """Return a result with at most `limit` characters of text: it is kept, sent and stored."""
    if result.error is not None and len(result.error) > limit:
        return replace(result, error=clean(result.error, limit))
    if result.success and len(result.text) > limit:
        return replace(result, formatted_results=clean(result.text, limit), description="", facts={})
    return result
