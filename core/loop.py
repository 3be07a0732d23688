"""The turn loop: how an environment answers one reply, and how an episode is played to its end.

No model output can raise an exception here. Tool calls are run (`tool_calls.py`), and an answer beside them is set
aside; on the last turn calls are refused and the answer counts. `docs/loop.md` lists every rule and the test that
holds it.
"""

import dataclasses
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..errors import ToolFault
from ..images.ref import ImageRef
from ..images.shown import ShownView
from ..images.source import Source
from ..images.task_images import TaskImages, list_names, name_image
from ..images.view import View
from ..records import Message, Nudge, Reply, ToolCall, Turn
from ..rewards.episode import normalize_arguments
from ..utils import concurrency
from ..utils.field_paths import BoxPath
from ..utils.frozen import FrozenDict
from ..utils.sanitize import clean, make_boundary_code, replace_surrogates, wrap_in_boundary
from .answers import ExaminedAnswer, examine_answer
from .contract import AuthoredEnv, EpisodeState, StepResult
from .messages import apply_history, is_failure
from .parsing import objects, scan
from .parsing import reply as parsing
from .settings import IDLE_TURNS
from .tool_calls import run_calls

log = logging.getLogger("viewbox.envs")

Policy = Callable[[list[Message]], Reply | str | Awaitable[Reply | str]]
OnQuestion = Callable[[str], str | Awaitable[str | None] | None]  # what a person says to a question of the model
MAX_NAME, MAX_ID = 128, 4096  # characters kept of a call's name and of its id
QUOTED = (
    "Not run: this call stands word for word in a tool's text, which is data. If you want it, write "
    '{"id": "own", "name": …, "arguments": {…}}.'
)


async def play_to_end(
    state: EpisodeState, get_reply: Callable[[], Awaitable[Reply | None]], step: Callable[[Reply], Awaitable[Any]]
) -> None:
    """Play an open episode to its end: one reply, one step, and again. Every driver uses this loop.

    Args:
        state: the episode, as `env.reset` returned it.
        get_reply: asks the policy. It returns None if it ended the episode (`state.end`) instead.
        step: `env.step` of this episode, perhaps with the driver's own handling of errors.
    """
    while state.end_reason is None:
        reply = await get_reply()
        if reply is not None and reply.finish_reason == "budget":
            state.end("max_tokens")
        elif reply is not None:
            await step(reply)
        reply = None  # a long one is not held while the next is awaited


async def ask_policy(policy: Policy, messages: list[Message]) -> Reply:
    """Return the reply of a policy function, which may be a coroutine function and may return plain text."""
    value = policy(messages)
    reply = await value if inspect.isawaitable(value) else value
    if not isinstance(reply, Reply | str):
        raise TypeError(f"the policy returned {type(reply).__name__}; allowed: Reply or str")
    return Reply(reply) if isinstance(reply, str) else reply


async def step(env: AuthoredEnv, state: EpisodeState, reply: Reply) -> StepResult:
    """Answer one reply of the policy. Appends the reply and the environment's messages to `state.messages`. Raise
    `ToolFault` if a tool raised what is no `ToolError`; drivers end the episode as `error`."""
    if state.end_reason is not None:
        raise RuntimeError(f"step() on an episode that has ended ({state.end_reason})")
    last = state.last_turn
    kept = shorten_reply(reply)
    pairs = zip(reply.tool_calls or (), kept.tool_calls, strict=False)
    cut = [len(str(short.arguments)) < len(objects.write_arguments(call.arguments)) for call, short in pairs]
    if len(kept.text) < len(reply.text) or len(kept.tool_calls) < len(reply.tool_calls or ()) or any(cut):
        state.flags.add("reply_cut")
    state.messages.append(kept.to_message())
    state.turn += 1
    text = reply.text if len(kept.text) < len(reply.text) else kept.text  # a long one is refused by its length
    parsed = parse_reply(env, text, reply.finish_reason, last=last)
    if isinstance(parsed, parsing.Malformed) and kept.reasoning and not kept.text.strip():
        parsed = parsing.Malformed(_describe_thinking(kept), "empty")
    calls = _collect_calls(env, state, kept, cut, parsed)
    made = tuple(call.call for call in calls)
    reason = "" if reply.finish_reason in (None, "stop", "tool_calls") else str(reply.finish_reason)
    state.turns.append(Turn("assistant", kept.text, made, reasoning=kept.reasoning, finish_reason=reason))
    state.flags |= {"ignored"} if any(call.ignored for call in calls) else set()
    if reply.finish_reason == "content_filter" or is_failure(reply.finish_reason):
        filtered = reply.finish_reason == "content_filter"
        ended = "the server's content filter ended the reply" if filtered else "the server broke the reply off"
        state.error = f"{ended} (finish_reason: {reason})"
        return state.end("error")
    if calls and not last:
        return await _run_tools(env, state, calls)
    if calls:  # last turn: calls are not run, but an answer beside them counts
        answer_beside = None if env.answer is None else _get_answer_beside_calls(env, parsed)
        if answer_beside is None:
            return state.end("max_turns")
        parsed = replace(answer_beside, wants_more=False, flags=answer_beside.flags | {"salvaged"})
    if isinstance(parsed, parsing.Malformed):
        return _handle_malformed(env, state, parsed.reason)
    assert isinstance(parsed, parsing.ParsedAnswer)
    if parsed.wants_more and not last and not state.finalized:
        return _save_notes(env, state, parsed.value)
    answer, problem, has_unread = await _check_answer(env, state, parsed.value)
    if problem is not None:
        return _handle_malformed(env, state, problem)
    user_text = None if last or state.has_person else env.on_answer(state, answer)
    user_text = await user_text if inspect.isawaitable(user_text) else user_text
    if user_text is not None:
        if not isinstance(user_text, str):
            raise TypeError(f"{env.name}: on_answer returned {type(user_text).__name__}; allowed: a string or None")
        state.malformed_in_a_row, state.finalized = 0, False
        return _send_user_message(env, state, user_text)
    state.answer = FrozenDict(answer)
    state.flags |= parsed.flags | ({"forced_final"} if parsed.wants_more else set())
    state.flags |= {"ignored"} if has_unread else set()
    return state.end("answered")


def ask_person(env: AuthoredEnv, state: EpisodeState) -> str | None:
    """Return what the answer that ended an episode asks back, if there is a turn left for what is said to it."""
    return None if state.answer is None or state.turn >= state.max_turns else env.find_question(state.answer) or None


async def hear(env: AuthoredEnv, state: EpisodeState, person: OnQuestion) -> str | None:
    """Return what a person says to what the model asks back; None if it asks nothing, or they say nothing."""
    asked = ask_person(env, state)
    said = None if asked is None else person(asked)
    return await said if inspect.isawaitable(said) else said


def go_on(
    env: AuthoredEnv, state: EpisodeState, text: str, sources: Sequence[Source] = (), *, is_reply: bool = False
) -> StepResult:
    """Continue an episode that has ended: its user says more, and perhaps shows more images.
    The messages grow as they do after an answer that a simulated user replies to. Turns and calls are counted anew, but
    for a reply to a question of the model."""
    state.task = env.continue_task(state.task, state.answer, text)
    state.end_reason, state.terminated, state.truncated, state.answer, state.error = None, False, False, None, ""
    state.finalized, state.malformed_in_a_row = False, 0
    if not is_reply:
        state.max_turns, state.first_turn = state.turn + env.max_turns, len(state.turns)
        state.calls.clear()
        state.malformed_before += state.malformed
        state.malformed = state.refused = state.tool_calls = 0
    views = tuple(View.of(source, max_pixels=env.max_pixels, multiple=env.pixel_multiple) for source in sources)
    shown = []
    for view in views:
        if not state.images:
            state.images = TaskImages([], 0, tuple)
        shown.append(ShownView.of(view, state.images.add([view.source])))
        state.view = state.overview = view
        state.views.append(view)
    if views:
        first = len(state.images) - len(views)
        names = " and ".join(name_image(first + number) for number in range(len(views)))
        can_switch = "open_image" in state.tools
        text = (
            f"{text}\n{env.prompts.render('more_images', names=names, several=len(views) > 1, switchable=can_switch)}"
        )
    return _send_user_message(env, state, text, pictures=[view.to_ref() for view in views], views=shown)


def shorten_reply(reply: Reply, max_bytes: int = parsing.MAX_BYTES) -> Reply:
    """Return the reply with at most `max_bytes` of text, as much of thinking beside it, and as much in all its calls;
    calls beyond that are left out. A lone surrogate becomes U+FFFD, because no file can hold it. Tokens and log-probs
    stay as they are.

    >>> shorten_reply(Reply("fine"), 3).text
    'fin'
    """
    _check_texts(reply, "reply", "text", "reasoning")
    text, reasoning = (_shorten_text(replace_surrogates(one), max_bytes) for one in (reply.text, reply.reasoning))
    calls: list[ToolCall] = []
    left = max_bytes
    for call in reply.tool_calls or ():
        if left <= 0:
            break
        calls.append(_shorten_call(call, left))
        left -= 64 + len(f"{calls[-1].id}{calls[-1].name}{calls[-1].arguments}".encode())
    return dataclasses.replace(reply, text=text, reasoning=reasoning, tool_calls=tuple(calls))


def _check_texts(given: object, kind: str, *fields: str) -> None:
    for field in fields:
        if not isinstance(value := getattr(given, field), str):
            raise TypeError(f"the {field} of a {kind} is {type(value).__name__}; allowed: str")


def _shorten_call(call: ToolCall, max_bytes: int) -> ToolCall:
    if not isinstance(call, ToolCall):
        raise TypeError(f"a call of a reply is {type(call).__name__}; allowed: ToolCall")
    _check_texts(call, "call of a reply", "id", "name")
    short = _shorten_text(replace_surrogates(objects.write_arguments(call.arguments)), max_bytes)
    return ToolCall(replace_surrogates(call.id[:MAX_ID]), replace_surrogates(call.name[:MAX_NAME]), short)


def _shorten_text(text: str, max_bytes: int) -> str:
    if len(text) <= max_bytes and (text.isascii() or len(text.encode()) <= max_bytes):
        return text
    return text[: max(0, max_bytes)].encode()[: max(0, max_bytes)].decode(errors="ignore")


def _collect_calls(
    env: AuthoredEnv, state: EpisodeState, kept: Reply, cut: Sequence[bool], parsed: parsing.ParsedReply
) -> tuple[objects.ParsedCall, ...]:
    """Native calls, then those of the text that are no echo of them. Results are matched by id, so a call whose id is
    taken gets another. A call of the text that a tool wrote is a quote."""
    tools = parsing.get_parameters(env.tool_schemas)
    native = tuple(
        objects.ParsedCall(call, f"the arguments are longer than {parsing.MAX_BYTES} bytes")
        if is_cut
        else objects.parse_native_call(call, tools)
        for call, is_cut in zip(kept.tool_calls, cut, strict=True)
    )
    echoed = Counter(_identify_call(call) for call in native)
    taken = {call.id for call in kept.tool_calls}
    from_text: list[objects.ParsedCall] = []
    in_text = parsed if isinstance(parsed, parsing.ToolCalls) else parsing.ToolCalls(())
    shown = "\n".join(message.text for message in state.messages if in_text.calls and message.role == "tool")
    for call, written in zip(in_text.calls, in_text.written, strict=True):
        if echoed[_identify_call(call)]:
            echoed[_identify_call(call)] -= 1
            continue
        if written.strip() in shown and len(from_text) < env.max_calls_per_turn:
            call = objects.ParsedCall(replace(call.call, arguments=written), QUOTED)
        call_id = call.call.id
        while call_id in taken:
            call_id = f"text_{call_id}"
        from_text.append(call if call_id == call.call.id else replace(call, call=replace(call.call, id=call_id)))
    return native + tuple(from_text)


def _identify_call(call: objects.ParsedCall) -> tuple[str, str]:
    return call.call.name, normalize_arguments(call.call.arguments)


def _describe_thinking(reply: Reply) -> str:
    """Return why a reply whose text is empty, but not its thinking, cannot be used."""
    size = f"{len(reply.reasoning):,} characters"
    if reply.finish_reason == "length":
        return f"the reply was cut off while thinking, after {size}: think less, so that there is room for the answer"
    return f"the reply has no text, only {size} in a field for thinking, which is not read as the answer"


def parse_reply(env: AuthoredEnv, text: str, finish_reason: str = "stop", *, last: bool = False) -> parsing.ParsedReply:
    """Parse a reply. Without an answer schema, any reply without a tool call is the answer."""
    parsed = parsing.parse_reply(
        text,
        answer_fields=env.answer_format.fields,
        last=last,
        finish_reason=finish_reason,
        thinking=env.thinking,
        tools=env.tool_schemas,
    )
    if env.answer is not None or isinstance(parsed, parsing.ToolCalls):
        return parsed
    return _parse_plain_text(env, text, parsed, cut=finish_reason == "length", last=last)


def _parse_plain_text(
    env: AuthoredEnv, text: str, parsed: parsing.ParsedReply, *, cut: bool, last: bool
) -> parsing.ParsedAnswer | parsing.Malformed:
    """Return the reply without its thinking as the answer."""
    if isinstance(parsed, parsing.Malformed) and parsed.kind == "too_long":
        return parsed
    stripped = text.strip()
    for opening, closing in (*env.thinking, *scan.OTHER_THINKING, *scan.CHANNELS):
        text = text.rpartition(closing)[2].partition(opening)[0]
    answer = text.removesuffix("<|return|>").strip()
    if not answer:
        reason = "there is no text but the thinking, which is not read" if stripped else "the reply is empty"
        return parsing.Malformed(reason, "empty")
    if cut and not last:
        return parsing.Malformed("the reply was cut off before its end", "truncated")
    return parsing.ParsedAnswer({"text": answer}, flags=frozenset({"salvaged"} if cut else ()))


def _get_answer_beside_calls(env: AuthoredEnv, parsed: parsing.ParsedReply) -> parsing.ParsedAnswer | None:
    """Return the answer given together with tool calls; plain text does not count."""
    if isinstance(parsed, parsing.ToolCalls) and parsed.answer is not None and env.answer is not None:
        return parsing.ParsedAnswer(parsed.answer, flags=parsed.flags)
    return parsed if isinstance(parsed, parsing.ParsedAnswer) else None


def get_final_value(env: AuthoredEnv, text: str) -> Mapping[str, object] | None:
    """Return the answer of a reply that is read as the last one; None if it has none."""
    answer = _get_answer_beside_calls(env, parse_reply(env, replace_surrogates(text), last=True))
    return None if answer is None else answer.value


async def _check_answer(env: AuthoredEnv, state: EpisodeState, value: Mapping[str, Any]) -> ExaminedAnswer:
    """`examine_answer`; an author's code runs in a thread, which is abandoned after `tool_timeout` seconds."""
    images = (state.images or None,) if env.place or env.boxes_3d else ()
    if not env._checks_in_thread:
        return examine_answer(env, value, state.task, state.views, *images)
    try:
        return await concurrency.run_in_thread(
            examine_answer, env, value, state.task, state.views, *images, timeout=env.tool_timeout
        )
    except concurrency.CallTimeout:
        log.warning("%s: checking an answer took longer than %s s", env.name, env.tool_timeout)
        return ExaminedAnswer(
            {}, f"checking the answer took longer than {env.tool_timeout or 0:g} seconds; give another"
        )


def _send_user_message(
    env: AuthoredEnv,
    state: EpisodeState,
    text: str,
    nudge: Nudge = "",
    *,
    pictures: Sequence[ImageRef] = (),
    views: Sequence[ShownView] = (),
) -> StepResult:
    content: list[str | ImageRef] = [replace_surrogates(text)]
    message = Message("user", (*pictures, *_add_last_turn_notice(env, state, content, state.messages)))
    state.turns.append(Turn("user", message.text, images=message.images, nudge=nudge, views=tuple(views)))
    state.messages.append(message)
    return StepResult((message,))


def _add_last_turn_notice(
    env: AuthoredEnv, state: EpisodeState, content: list[str | ImageRef], before: Sequence[Message]
) -> tuple[str | ImageRef, ...]:
    """Return the content of a message; before the last turn with the request to answer, and with the pictures of the
    start if the model no longer sees them."""
    if not state.last_turn:
        return tuple(content)
    changed = state.view is not None and state.overview is not None and state.view != state.overview
    whole, is_placed = "the original image", bool(env.place)
    if state.view is not None and state.view.source.volume is not None:
        whole = "the whole slice" if is_placed else "the slice that was shown first"
        changed = changed and (not is_placed or state.view != state.view.reset())  # another slice may be named
        is_placed = False
    elif state.view is not None and state.images and state.images.count_own() > 1:
        whole = "the whole image" if "image" in env.place else name_image(0)
        changed = changed and ("image" not in env.place or state.view != state.view.reset())
    fields = [] if env.view_field is not None or is_placed else [BoxPath.parse(path).field for path in env.boxes]
    keys = env.answer_format.keys
    notice = env.prompts.render("last_turn", keys=keys, changed=changed, whole=whole, fields=fields)
    content = [f"{content[0]}\n{notice}", *content[1:]]
    originals = next((message.images for message in state.messages if message.images), ())
    if originals and env.history != "full":
        visible = apply_history(env, [*before, Message("user", tuple(content))])
        if {image.hash for image in originals} - {image.hash for message in visible for image in message.images}:
            names = list_names(len(originals)) if len(originals) > 1 else None
            content += [env.prompts.render("original", names=names), *originals]
    return tuple(content)


def _demand_answer(env: AuthoredEnv, state: EpisodeState) -> StepResult:
    """Tell the model to finish: its next answer is accepted whatever its `continue` says."""
    state.finalized = True
    return _send_user_message(
        env, state, env.prompts.render("finalize", answer_format=env.answer_format.text), "finalize"
    )


def _save_notes(env: AuthoredEnv, state: EpisodeState, value: Mapping[str, Any]) -> StepResult:
    """Keep an object with `continue: true` as the model's working notes."""
    state.malformed_in_a_row = 0
    state.notes.append(FrozenDict(value))
    if state.turn >= IDLE_TURNS and state.tools and not state.tool_calls:
        return _demand_answer(env, state)
    text = env.prompts.render("notes", turn=state.turn, max_turns=state.max_turns)
    return _send_user_message(env, state, text, "notes")


def _handle_malformed(env: AuthoredEnv, state: EpisodeState, reason: str) -> StepResult:
    state.malformed += 1
    state.malformed_in_a_row += 1
    if state.turn >= state.max_turns:
        return state.end("max_turns")
    if _has_failed_too_often(env, state):
        return state.end("malformed")
    if state.malformed_in_a_row >= env.max_consecutive_malformed:
        return _demand_answer(env, state)
    reason = clean(reason, env.max_tool_chars)
    text = env.prompts.render("malformed", reason=reason, answer_format=env.answer_format.text, tools=bool(state.tools))
    return _send_user_message(env, state, text, "malformed")


def _has_failed_too_often(env: AuthoredEnv, state: EpisodeState) -> bool:
    return state.malformed + state.refused >= env.max_malformed


async def _run_tools(env: AuthoredEnv, state: EpisodeState, calls: Sequence[objects.ParsedCall]) -> StepResult:
    results = await run_calls(env, state, calls)
    state.tool_calls += len(calls)
    if any(result.success for result in results):
        state.malformed_in_a_row, state.finalized = 0, False
    elif all(parsed.error is not None for parsed in calls):
        state.malformed += 1
    else:
        state.refused += not any(result.was_run for result in results)
    messages: list[Message] = []
    for number, result in enumerate(results):
        text = clean(result.text, env.max_tool_chars)
        if env.boundary:
            text = wrap_in_boundary(text, make_boundary_code(state.seed, state.turn, number))
        content: list[str | ImageRef] = [text] if result.image is None else [text, result.image]
        if number == len(results) - 1:
            content = list(_add_last_turn_notice(env, state, content, [*state.messages, *messages]))
        messages.append(Message("tool", tuple(content), tool_call_id=result.call_id, name=result.tool_name))
    state.messages += messages
    images = tuple(image for message in messages for image in message.images)
    text = "\n".join(message.text for message in messages)
    state.turns.append(Turn("tool_result", text, tool_results=tuple(results), images=images))
    for result in results:
        if result.is_fault and not state.tells_faults:  # drivers treat it as any exception of an environment
            raise ToolFault(str(result.error))
    return state.end("malformed") if _has_failed_too_often(env, state) else StepResult(tuple(messages))
