"""The turn loop: what an environment says to one reply.

Nothing here raises for what a model said. Tool calls are run (`running.py`) and an answer beside them is set aside,
except on the last turn, where calls are refused and the answer counts. Every rule and the test that holds it:
`docs/loop.md`.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from viewbox.envs.parsing import reply
from viewbox.envs.sanitize import boundary, clean, wrapped
from viewbox.envs.settings import replace
from viewbox.envs.state import EpisodeState, Reply, StepResult
from viewbox.envs.tool_calls import run_calls
from viewbox.frozen import FrozenDict
from viewbox.images.ref import ImageRef
from viewbox.records import Message, Turn

if TYPE_CHECKING:
    from viewbox.envs.base import BaseMultiTurnEnv

Parsed = reply.ToolCalls | reply.Answer | reply.Malformed


async def step(env: "BaseMultiTurnEnv", state: EpisodeState, given: Reply) -> StepResult:
    """One reply of the policy → what it is told, or the end."""
    if state.end_reason is not None:
        raise RuntimeError(f"step() on an episode that has ended ({state.end_reason})")
    last = state.last_turn
    state.turn += 1
    parsed = parse(env, given.text, given.finish_reason, last=last)
    calls = _calls(given, parsed)
    state.turns.append(Turn("assistant", given.text, tool_calls=tuple(call.call for call in calls)))
    if calls and not last:
        return await _run_tools(env, state, calls)
    if calls:  # last turn: they are not run, but an answer beside them counts
        beside = None if env.answer is None else _beside(env, parsed)
        if beside is None:
            return state.end("max_turns")
        parsed = replace(beside, wants_more=False, flags=beside.flags | {"salvaged"})
    if isinstance(parsed, reply.Malformed):
        return _malformed(env, state, parsed.reason)
    assert isinstance(parsed, reply.Answer)
    if parsed.wants_more and not last and not state.finalized:
        return _notes(env, state, parsed.value)
    answer, problem = env.check_answer(parsed.value, state.task, state.views)
    if problem is not None:
        return _malformed(env, state, problem)
    words = None if last else env.on_answer(state, answer)
    words = await words if inspect.isawaitable(words) else words
    if words is not None:
        if not isinstance(words, str):
            raise TypeError(f"{env.name}: on_answer returned {type(words).__name__}; allowed: a string, or None")
        state.malformed_in_a_row, state.finalized = 0, False
        return _say(env, state, words)
    state.answer = FrozenDict(answer)
    state.flags |= parsed.flags | ({"forced_final"} if parsed.wants_more else set())
    return state.end("answered")


# ---------------------------------------------------------------------- reading a reply
def _calls(given: Reply, parsed: Parsed) -> tuple[reply.ParsedCall, ...]:
    """Native calls, then those of the text; where an id is taken, the text's call gets another: results go by it."""
    native = tuple(reply.parse_native_call(call) for call in given.tool_calls)
    taken = {call.id for call in given.tool_calls}
    written = []
    for one in parsed.calls if isinstance(parsed, reply.ToolCalls) else ():
        name = one.call.id
        while name in taken:
            name = f"text_{name}"
        written.append(one if name == one.call.id else replace(one, call=replace(one.call, id=name)))
    return native + tuple(written)


def parse(env: "BaseMultiTurnEnv", text: str, finish_reason: str = "stop", *, last: bool = False) -> Parsed:
    """`reply.parse_reply`, but where plain text answers, any reply without a call is the answer."""
    given: dict[str, Any] = {"finish_reason": finish_reason, "thinking": env.thinking, "max_bytes": env.max_reply_bytes}
    parsed = reply.parse_reply(text, answer_fields=env.answer_fields, last=last, **given)
    if env.answer is not None or isinstance(parsed, reply.ToolCalls):
        return parsed
    return _plain(env, text, parsed, cut=finish_reason == "length", last=last)


def _plain(
    env: "BaseMultiTurnEnv", text: str, parsed: Parsed, *, cut: bool, last: bool
) -> reply.Answer | reply.Malformed:
    """A reply as the text it is, without its thinking."""
    if isinstance(parsed, reply.Malformed) and parsed.kind == "too_long":
        return parsed
    for opening, closing in env.thinking:
        text = text.rpartition(closing)[2].partition(opening)[0]
    said = text.strip()
    if not said:
        return reply.Malformed("there is no text after the thinking" if text else "the reply is empty", "empty")
    if cut and not last:
        return reply.Malformed("the reply was cut off before its end", "truncated")
    return reply.Answer({"text": said}, flags=frozenset({"salvaged"} if cut else ()))


def _beside(env: "BaseMultiTurnEnv", parsed: Parsed) -> reply.Answer | None:
    """The answer beside tool calls; text beside a call is none."""
    if isinstance(parsed, reply.ToolCalls) and parsed.answer is not None and env.answer is not None:
        return reply.Answer(parsed.answer, flags=parsed.flags)
    return parsed if isinstance(parsed, reply.Answer) else None


def final_value(env: "BaseMultiTurnEnv", text: str) -> Mapping[str, Any] | None:
    """What a reply answers, read as the last one there is; None where it answers nothing."""
    found = _beside(env, parse(env, text, last=True))
    return None if found is None else found.value


# ---------------------------------------------------------------------- what the environment says
def _say(env: "BaseMultiTurnEnv", state: EpisodeState, words: str) -> StepResult:
    said = Message("user", _closing(env, state, [words], state.messages))
    state.turns.append(Turn("user", said.text, images=said.images))
    state.messages.append(said)
    return StepResult((said,))


def _closing(
    env: "BaseMultiTurnEnv", state: EpisodeState, content: list[str | ImageRef], before: Sequence[Message]
) -> tuple[str | ImageRef, ...]:
    """The content of a message, on the last turn with what is wanted now, and with the original where it is gone."""
    if not state.last_turn:
        return tuple(content)
    changed = state.view is not None and state.overview is not None and state.view != state.overview
    fields = [] if env.view_field is not None else list(env.boxes)
    words = env.prompts.render("last_turn", keys=env.answer_keys, changed=changed, fields=fields)
    content = [f"{content[0]}\n{words}", *content[1:]]
    original = next((image for message in state.messages for image in message.images), None)
    if original is not None and env.history != "full":
        now = env.shown([*before, Message("user", tuple(content))])
        if all(image.hash != original.hash for message in now for image in message.images):
            content += [env.prompts.render("original"), original]
    return tuple(content)


def _finalize(env: "BaseMultiTurnEnv", state: EpisodeState) -> StepResult:
    """The stricter message: what comes next is accepted whatever its `continue` says."""
    state.finalized = True
    return _say(env, state, env.prompts.render("finalize", skeleton=env.skeleton))


def _notes(env: "BaseMultiTurnEnv", state: EpisodeState, value: Mapping[str, Any]) -> StepResult:
    """An object that says `continue: true`: the model's working notes."""
    state.malformed_in_a_row = 0
    state.notes.append(FrozenDict(value))
    idle = env.idle_turns is not None and state.turn >= env.idle_turns
    if idle and state.tools and not state.tool_calls:
        return _finalize(env, state)
    return _say(env, state, env.prompts.render("notes", turn=state.turn, max_turns=env.max_turns))


def _malformed(env: "BaseMultiTurnEnv", state: EpisodeState, reason: str) -> StepResult:
    state.malformed += 1
    state.malformed_in_a_row += 1
    if state.turn >= env.max_turns:
        return state.end("max_turns")
    if state.malformed >= env.malformed_limit:
        return state.end("malformed")
    if state.malformed_in_a_row > env.nudges_in_a_row:
        return _finalize(env, state)
    reason = clean(reason, env.tool_text_limit)
    words = env.prompts.render("malformed", reason=reason, skeleton=env.skeleton, tools=bool(state.tools))
    return _say(env, state, words)


async def _run_tools(env: "BaseMultiTurnEnv", state: EpisodeState, calls: Sequence[reply.ParsedCall]) -> StepResult:
    results = await run_calls(env, state, calls)
    state.tool_calls += len(calls)
    if any(result.success for result in results):
        state.malformed_in_a_row, state.finalized = 0, False
    else:
        state.malformed += all(parsed.error is not None for parsed in calls)
    said: list[Message] = []
    for place, result in enumerate(results):
        words = clean(result.text, env.tool_text_limit)
        if env.boundary:
            words = wrapped(words, boundary(state.seed, state.turn, place))
        content: list[str | ImageRef] = [words] if result.image is None else [words, result.image]
        if place == len(results) - 1:
            content = list(_closing(env, state, content, [*state.messages, *said]))
        said.append(Message("tool", tuple(content), tool_call_id=result.call_id, name=result.tool_name))
    state.messages += said
    images = tuple(image for message in said for image in message.images)
    words = "\n".join(message.text for message in said)
    state.turns.append(Turn("tool_result", words, tool_results=tuple(results), images=images))
    return state.end("malformed") if state.malformed >= env.malformed_limit else StepResult(tuple(said))
