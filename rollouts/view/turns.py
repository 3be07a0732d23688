"""The turns of an episode as parts: text, thinking, pictures, tool calls, results, nudges."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from viewbox.envs.model_profiles import MODELS
from viewbox.records import Episode, EpisodeTokens, ToolResult, Turn
from viewbox.rewards.fields import to_finite_float
from viewbox.rollouts.view.plain import to_plain

MAX_TOKENS = 200_000  # of an episode on its page
MAX_PARTS = 1_000  # of a reply
# The tags of every known model. A part without its last tag goes to the end, so that no text is read twice.
THINKING = tuple(sorted({tags for profile in MODELS.values() for tags in profile.thinking or ()}))
_THOUGHT = re.compile(
    "|".join(f"{re.escape(first)}.*?(?:{re.escape(last)}|\\Z)" for first, last in THINKING), re.DOTALL
)
_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)|```tool\n.*?(?:```|\Z)", re.DOTALL)
_END = re.compile(r"\s*\[/data [0-9a-f]{8}\]\s*\Z|\A\s*\[/data [0-9a-f]{8}\]")


def build_turns(episode: Episode, pictures: Sequence[Sequence[str | None]]) -> list[dict[str, Any]]:
    """Every turn as {"role", "parts"}; `pictures` has the ids of each turn's pictures (`Pictures.of_turns`)."""
    build = {"assistant": _build_reply, "tool_result": _build_results}
    return [
        {"role": str(turn.role), "parts": list(build.get(turn.role, _build_message)(turn, ids))}
        for turn, ids in zip(episode.turns, pictures, strict=True)
    ]


def _build_message(turn: Turn, ids: Sequence[str | None]) -> Iterator[dict[str, Any]]:
    pictures = [{"type": "picture", "picture": name} for name in ids if name is not None]
    text = {"type": "text", "text": to_plain(turn.content)}
    if turn.nudge:
        text = {**text, "type": "nudge", "reason": turn.nudge}
    yield from [text, *pictures] if turn.nudge else [*pictures, text]


def _build_reply(turn: Turn, ids: Sequence[str | None]) -> Iterator[dict[str, Any]]:
    """The thinking, the text and the calls of a reply. A call that stands in the text is a part in its place."""
    calls = [
        {"type": "call", "id": to_plain(call.id), "name": to_plain(call.name), "arguments": to_plain(call.arguments)}
        for call in turn.tool_calls
    ]
    for kind, text in split_thinking(to_plain(turn.content)):
        written = list(islice(_CALL.finditer(text), len(calls) + 1)) if kind == "text" else []
        if len(written) != len(calls):
            written = []
        start = 0
        for match in written:
            yield from _build_text(kind, text[start : match.start()])
            yield {**calls.pop(0), "written": match[0]}
            start = match.end()
        yield from _build_text(kind, text[start:])
    yield from calls


def _build_text(kind: str, text: str) -> Iterator[dict[str, Any]]:
    if text.strip():
        yield {"type": kind, "text": text}


def split_thinking(text: str) -> Iterator[tuple[str, str]]:
    """The parts of a reply in order, each "thinking" or "text". Thinking may lack its first or its last tag.

    >>> list(split_thinking("<think>Left?</think>Right."))
    [('thinking', 'Left?'), ('text', 'Right.')]
    >>> list(split_thinking("Left?</think>Right.<think>Or"))
    [('thinking', 'Left?'), ('text', 'Right.'), ('thinking', 'Or')]
    """
    for first, last in THINKING:
        closing = text.find(last)
        if closing >= 0 and not 0 <= text.find(first) < closing:  # the chat template wrote the first tag
            yield "thinking", text[:closing]
            text = text[closing + len(last) :]
            break
    start = 0
    for match in islice(_THOUGHT.finditer(text), MAX_PARTS):
        if match.start() > start:
            yield "text", text[start : match.start()]
        first, last = next(tags for tags in THINKING if match[0].startswith(tags[0]))
        yield "thinking", match[0].removeprefix(first).removesuffix(last)
        start = match.end()
    if start < len(text):
        yield "text", text[start:]


def _build_results(turn: Turn, ids: Sequence[str | None]) -> Iterator[dict[str, Any]]:
    count = len(turn.tool_results)
    for result, picture in zip(turn.tool_results, ids, strict=False):
        yield {
            "type": "result",
            "call_id": to_plain(result.call_id),
            "name": to_plain(result.tool_name),
            "text": _get_text(result),
            "error": to_plain(result.error),
            "arguments": to_plain(result.arguments),
            "picture": picture,
        }
    yield from _build_notice(turn)
    yield from ({"type": "picture", "picture": name} for name in ids[count:] if name is not None)


def _build_notice(turn: Turn) -> Iterator[dict[str, Any]]:
    """What the environment said after the results: the request to answer before the last turn."""
    if not turn.tool_results:
        yield from _build_text("text", to_plain(turn.content))
        return
    content, end = to_plain(turn.content), 0
    for result in turn.tool_results:
        start = content.find(text := _get_text(result), end)
        if start < 0:
            return  # it was cut or cleaned
        end = start + len(text)
    notice = _END.sub("", content[end:]).strip()
    if notice:
        yield {"type": "nudge", "reason": "last_turn", "text": notice}


def _get_text(result: ToolResult) -> str:
    try:
        return str(to_plain(result.text))
    except (TypeError, ValueError, OverflowError):  # facts that nothing can format
        return str(to_plain(result.description))


# ---------------------------------------------------------------------- tokens
def build_tokens(tokens: EpisodeTokens, advantage: Any) -> list[dict[str, Any]]:
    """Every token, prompt first: its id, whether the policy sampled it, its log-prob, the episode's advantage."""
    value = to_finite_float(advantage)
    rows: list[dict[str, Any]] = [
        {"id": token, "mask": 0, "logprob": None, "advantage": None} for token in tokens.prompt_ids[:MAX_TOKENS]
    ]
    sampled = zip(tokens.completion_ids, tokens.mask, tokens.logprobs, strict=True)
    for (token, mask, logprob), _ in zip(sampled, range(MAX_TOKENS - len(rows)), strict=False):
        own = bool(mask)
        rows.append(
            {
                "id": token,
                "mask": int(own),
                "logprob": to_finite_float(logprob) if own else None,
                "advantage": value if own else None,
            }
        )
    return rows
