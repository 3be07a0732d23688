"""The turn loop: what an environment says to one reply.

Nothing here raises for what a model said. Tool calls run in order on one view; an answer beside calls is set aside,
except on the last turn, where calls are refused and the answer counts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from viewbox.envs import prompts, reply, settings, tools
from viewbox.envs.frozen import FrozenDict
from viewbox.envs.state import EpisodeState, Reply, StepResult
from viewbox.envs.types import Message, ToolResult, Turn
from viewbox.errors import unknown

if TYPE_CHECKING:
    from viewbox.envs.base import BaseMultiTurnEnv

NUDGES_IN_A_ROW = 2  # after that many malformed replies in a row the stricter message
MALFORMED_LIMIT = 5  # malformed replies in all that end the episode
IDLE_TURNS = 3  # turns without any tool call after which "go on" becomes "answer now"
TOOL_TEXT_LIMIT = 8000  # characters


async def step(env: "BaseMultiTurnEnv", state: EpisodeState, given: Reply) -> StepResult:
    """One reply of the policy → what it is told, or the end."""
    if state.end_reason is not None:
        raise RuntimeError(f"step() on an episode that has ended ({state.end_reason})")
    last = state.last_turn
    state.turn += 1
    parsed = parse(env, given.text, given.finish_reason)
    native = tuple(reply.ParsedCall(call) for call in given.tool_calls)
    calls = native + (parsed.calls if isinstance(parsed, reply.ToolCalls) else ())
    state.turns.append(Turn("assistant", given.text, tool_calls=tuple(call.call for call in calls)))
    if calls and not last:
        return await _run_tools(env, state, calls)
    if calls:  # last turn: they are not run, but an answer beside them counts
        beside = value(env, parsed)
        if beside is None:
            return state.end("max_turns")
        parsed = reply.Answer(beside)
        state.flags.add("salvaged")
    assert not isinstance(parsed, reply.ToolCalls)
    if isinstance(parsed, reply.Malformed):
        return _malformed(env, state, parsed.reason)
    state.flags |= parsed.flags
    if parsed.wants_more and not last:
        state.malformed_in_a_row = 0
        idle = bool(state.tools) and state.tool_calls == 0 and state.turn >= IDLE_TURNS
        words = _finalise(env) if idle else prompts.NOTES.format(turn=state.turn, max_turns=env.max_turns)
        return _say(env, state, words)
    answer, problem = env.check_answer(parsed.value, state.task, state.views)
    if problem is not None:
        return _malformed(env, state, problem)
    words_back = None if last else env.on_answer(state, answer)
    if words_back is not None:
        state.malformed_in_a_row = 0
        return _say(env, state, words_back)
    state.answer = FrozenDict(answer)
    return state.end("answered")


def parse(
    env: "BaseMultiTurnEnv", text: str, finish_reason: str = "stop"
) -> reply.ToolCalls | reply.Answer | reply.Malformed:
    """`reply.parse`, but where plain text answers, any reply without a call is the answer."""
    parsed = reply.parse(text, finish_reason=finish_reason)
    if env.answer is not None or isinstance(parsed, reply.ToolCalls) or not text.strip():
        return parsed
    too_long = isinstance(parsed, reply.Malformed) and parsed.kind == "too_long"
    return parsed if too_long else reply.Answer({"text": text})


def value(
    env: "BaseMultiTurnEnv", parsed: reply.ToolCalls | reply.Answer | reply.Malformed
) -> Mapping[str, Any] | None:
    """The answer in a reply after which nothing more can be said."""
    if isinstance(parsed, reply.ToolCalls):
        return None if env.answer is None else parsed.answer
    return parsed.value if isinstance(parsed, reply.Answer) else None


def _finalise(env: "BaseMultiTurnEnv") -> str:
    return prompts.FINALISE.format(skeleton=env.skeleton)


def _say(env: "BaseMultiTurnEnv", state: EpisodeState, words: str) -> StepResult:
    if state.last_turn:
        words = f"{words}\n{_last_turn_words(env)}"
    state.turns.append(Turn("user", words))
    state.messages.append(Message("user", (words,)))
    return StepResult((state.messages[-1],))


def _last_turn_words(env: "BaseMultiTurnEnv") -> str:
    keys = (env.answer_schema or {}).get("properties", {})
    return prompts.LAST_TURN.format(keys=", ".join([*keys, "continue"]) if keys else "plain text")


def _malformed(env: "BaseMultiTurnEnv", state: EpisodeState, reason: str) -> StepResult:
    state.malformed += 1
    state.malformed_in_a_row += 1
    if state.turn >= env.max_turns:
        return state.end("max_turns")
    if state.malformed >= MALFORMED_LIMIT:
        return state.end("malformed")
    if state.malformed_in_a_row > NUDGES_IN_A_ROW:
        return _say(env, state, _finalise(env))
    words = prompts.MALFORMED.format(reason=reason, skeleton=env.skeleton)
    return _say(env, state, words)


async def _run_tools(env: "BaseMultiTurnEnv", state: EpisodeState, calls: Sequence["reply.ParsedCall"]) -> StepResult:
    results: list[ToolResult] = []
    for parsed in calls:  # image tools work on one view: in order
        result = await _run_tool(env, state, parsed)
        results.append(settings.replace(result, call_id=parsed.call.id))
    state.tool_calls += len(calls)
    if any(result.success for result in results):
        state.malformed_in_a_row = 0
    else:
        state.malformed += all(parsed.error is not None for parsed in calls)
    ended = state.malformed >= MALFORMED_LIMIT
    said: list[Message] = []
    for result in results:
        words = _clean(result.text)
        if result is results[-1] and state.last_turn:
            words = f"{words}\n{_last_turn_words(env)}"
        content = (words,) if result.image is None else (words, result.image)
        said.append(Message("tool", content, tool_call_id=result.call_id, name=result.tool_name))
    state.messages += said
    state.turns.append(
        Turn(
            "tool_result",
            "\n".join(message.text for message in said),
            tool_results=tuple(results),
            images=tuple(result.image for result in results if result.image is not None),
        )
    )
    return state.end("malformed") if ended else StepResult(tuple(said))


async def _run_tool(env: "BaseMultiTurnEnv", state: EpisodeState, parsed: "reply.ParsedCall") -> ToolResult:
    call = parsed.call
    if parsed.error is not None:
        return ToolResult(call.name or "tool_call", error=parsed.error)
    if call.name not in state.tools:
        return ToolResult(call.name, error=unknown("tool", call.name, state.tools))
    used_up = _used_up(env, state, call.name)
    if used_up is not None:
        return ToolResult(call.name, error=used_up)
    state.calls[call.name] += 1
    if state.view is None:
        return ToolResult(call.name, error="this task has no image")
    hidden = {"images": state.images, **env.hidden_arguments(state.task, call.name)}
    view, result = await asyncio.to_thread(
        tools.call, call.name, state.view, call.arguments, coordinates=env.coordinates, hidden=hidden
    )
    if not result.success:
        return result
    state.view = view
    told = tools.located(result, view, env.coordinates, None if env.view_field is None else len(state.views))
    if told is not result:
        state.views.append(view)
    return told


def _used_up(env: "BaseMultiTurnEnv", state: EpisodeState, name: str) -> str | None:
    """Why a tool may not be called any more, in words; None where it may."""
    if env.total_calls is not None and state.calls.total() >= env.total_calls:
        return f"no tool may be called any more: {tools.times(env.total_calls)} were allowed in all; give the answer"
    limit = env.limit(name)
    if limit is None or state.calls[name] < limit:
        return None
    left = [one for one in state.tools if (most := env.limit(one)) is None or state.calls[one] < most]
    others = f"still allowed: {', '.join(left)}" if left else "give the answer"
    return f"{name} may not be called any more: {tools.times(limit)} were allowed; {others}"


def _clean(text: str) -> str:
    """Tool text as the model may read it: no control characters but tab and newline, at most 8,000 characters."""
    return "".join(ch for ch in text if ch in "\t\n" or ch.isprintable())[:TOOL_TEXT_LIMIT]
