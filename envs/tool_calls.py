"""The tool calls of one reply, run: the viewer's in order on the episode's view, the others beside them.

Every call has a result, in the order of the calls, and no call can harm another: what raises, hangs, says too much or
shows what is no picture is an error of that call, in words.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from viewbox.envs import concurrency, tools
from viewbox.envs.parsing.reply import ParsedCall
from viewbox.envs.sanitize import clean
from viewbox.envs.settings import replace
from viewbox.envs.state import EpisodeState
from viewbox.envs.tools.results import build_timeout_result
from viewbox.errors import ImageError, ToolError, describe_unknown
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import ToolResult

if TYPE_CHECKING:
    from viewbox.envs.base import BaseMultiTurnEnv


async def run_calls(env: "BaseMultiTurnEnv", state: EpisodeState, calls: Sequence[ParsedCall]) -> list[ToolResult]:
    """One result a call, in their order; pictures that were shown are in `state.views` by number."""
    errors = [_refusal(env, state, parsed, place) for place, parsed in enumerate(calls)]
    ran = [place for place, error in enumerate(errors) if error is None]
    hidden = {
        place: _hidden(env, state, calls[place].call.name) for place in ran
    }  # here, where an author's bug is told
    before = tuple(state.views)  # what a call can name: what was shown when the reply was written
    viewer: list[int] = []
    results: dict[int, ToolResult] = {}
    views: dict[int, View] = {}
    async with asyncio.TaskGroup() as group:
        for place, (parsed, error) in enumerate(zip(calls, errors, strict=True)):
            if error is not None:
                results[place] = ToolResult(parsed.call.name or "tool_call", error=error)
            elif env.tool(parsed.call.name).stateful:
                viewer.append(place)
            elif len(ran) == 1:  # most replies: it needs no task of its own
                await _free(env, state, parsed, place, before, hidden[place], results)
            else:
                group.create_task(_free(env, state, parsed, place, before, hidden[place], results))
        for place in viewer:
            results[place] = await _viewer(env, state, calls[place], hidden[place])
            if state.view is not None:
                views[place] = state.view
    return [
        replace(
            _numbered(env, state, clipped(results[place], env.tool_text_limit), views.get(place)),
            call_id=parsed.call.id,
        )
        for place, parsed in enumerate(calls)
    ]


def _refusal(env: "BaseMultiTurnEnv", state: EpisodeState, parsed: ParsedCall, place: int) -> str | None:
    """Why a call is not run, in words; None where it is, and then it is counted."""
    name = parsed.call.name
    if parsed.error is not None:
        return parsed.error
    if place >= env.calls_per_reply:
        return f"not run: at most {tools.format_calls(env.calls_per_reply)} in one reply"
    if name not in state.tools:
        return describe_unknown("tool", name, state.tools)
    used_up = _used_up(env, state, name)
    if used_up is None:
        state.calls[name] += 1
    return used_up


def _used_up(env: "BaseMultiTurnEnv", state: EpisodeState, name: str) -> str | None:
    """Why a tool may not be called any more, in words; None where it may."""
    if env.total_calls is not None and state.calls.total() >= env.total_calls:
        return f"Tool budget used up ({tools.format_calls(env.total_calls)}). Give your final answer now."
    limit = env.limit(name)
    if limit is None or state.calls[name] < limit:
        return None
    left = [one for one in state.tools if (most := env.limit(one)) is None or state.calls[one] < most]
    others = f"still allowed: {', '.join(left)}" if left else "give the answer"
    return f"{name} may not be called any more: {tools.format_calls(limit)} were allowed; {others}"


def _hidden(env: "BaseMultiTurnEnv", state: EpisodeState, name: str) -> Mapping[str, Any]:
    return {"images": state.images, **env.hidden_arguments(state.task, name)}


async def _viewer(
    env: "BaseMultiTurnEnv", state: EpisodeState, parsed: ParsedCall, hidden: Mapping[str, Any]
) -> ToolResult:
    """A viewer's tool, on the view that the one before it left."""
    name = parsed.call.name
    if state.view is None:
        return ToolResult(name, error="this task has no image")
    given = {"coordinates": env.coordinates, "hidden": hidden}
    try:
        view, result = await concurrency.run(
            tools.call_stateful, env.tool(name), state.view, parsed.call.arguments, limit=env.tool_time_limit, **given
        )
    except TimeoutError:
        return build_timeout_result(name, env.tool_time_limit)
    if result.success:
        state.view = view
    return result


async def _free(
    env: "BaseMultiTurnEnv",
    state: EpisodeState,
    parsed: ParsedCall,
    place: int,
    before: Sequence[View],
    hidden: Mapping[str, Any],
    results: dict[int, ToolResult],
) -> None:
    """A tool that does not touch the view; it is beside the others."""
    name = parsed.call.name

    def picture(reference: str) -> View:
        return named(reference, state.images, before, env)

    results[place] = await tools.call_stateless(
        env.tool(name),
        parsed.call.arguments,
        find_picture=picture,
        hidden=hidden,
        coordinates=env.coordinates,
        timeout=env.tool_time_limit,
        max_pixels=env.max_pixels,
        multiple=env.pixel_multiple,
    )


def named(reference: str, images: Sequence[Source], views: Sequence[View], env: "BaseMultiTurnEnv") -> View:
    """The picture that a model calls `image_1` (the task's first image) or `view_3`; raises `ToolError` in words."""
    kind, _, number = reference.strip().lower().rpartition("_")
    there = {"image": range(1, len(images) + 1), "view": range(len(views))}.get(kind)
    if there is None or not number.isascii() or not number.isdigit() or int(number[:9]) not in there:
        names = [f"image_{i + 1}" for i in range(len(images))] + [f"view_{i}" for i in range(len(views))]
        allowed = ", ".join(names if len(names) <= 12 else [*names[:6], "…", *names[-5:]]) or "none: nothing was shown"
        raise ToolError(f"there is no picture {reference[:40]!r}; allowed: {allowed}")
    if kind == "view":
        return views[int(number)]
    try:
        return View.of(images[int(number) - 1], max_pixels=env.max_pixels, multiple=env.pixel_multiple)
    except ImageError as error:  # it names the file, which may say more than the model is to know
        raise ToolError(f"{reference} cannot be opened") from error


def _numbered(env: "BaseMultiTurnEnv", state: EpisodeState, result: ToolResult, view: View | None) -> ToolResult:
    """The result with what its picture covers and, where views have numbers, its number."""
    if result.image is None:
        return result
    number = len(state.views) if env.numbers_views(state.tools) else None
    if view is not None:
        told = tools.add_shown_box(result, view, env.coordinates, number)
        if told is not result:
            state.views.append(view)
        return told
    if number is None:
        return result
    state.views.append(View.of(Source.of(result.image.open()), max_pixels=env.max_pixels, multiple=env.pixel_multiple))
    if result.formatted_results is not None:  # its text is all there is
        return replace(result, formatted_results=f"{result.formatted_results}\nview: {number}")
    return replace(result, facts={**result.facts, "view": number})


def clipped(result: ToolResult, limit: int) -> ToolResult:
    """A result that says at most `limit` characters: it is kept, sent and stored, so it must not be megabytes."""
    if result.error is not None and len(result.error) > limit:
        return replace(result, error=clean(result.error, limit))
    if result.success and len(result.text) > limit:
        return replace(result, formatted_results=clean(result.text, limit), description="", facts={})
    return result
