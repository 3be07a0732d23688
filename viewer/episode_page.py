"""What a page about one saved episode shows, as plain JSON: its turns, its pictures with boxes, its scores, its tokens.

The episode may be somebody else's. Nothing of it is opened or run, whatever it holds: what cannot be shown is left out
and named in "problems". All text is as the episode has it; whoever renders it escapes it.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

from ..engines.model_profiles import MODELS
from ..errors import ViewboxError
from ..images.shown import ShownView
from ..images.view import WHOLE
from ..records import Episode, EpisodeTokens, ToolResult, Turn
from ..rewards import CombinedReward
from ..rewards.explain import explain_score
from ..rewards.looks import read_looks
from ..rewards.marks import CLOSE, Mark, place_on
from ..rewards.remote import is_blocking
from ..rollouts.scoring.saved_run import SavedRun, make_environment
from ..rollouts.store.layout import find_episodes_folder
from ..utils.values import to_finite_float
from .page import to_plain, to_text
from .pictures import Picture, Pictures
from .unplayed import UNPLAYED


def build_episode_page(episode: Episode, *, line: int, reward: CombinedReward | None = None) -> dict[str, Any]:
    """Return the content of an episode's page; never raises.

    "pictures" has what each picture shows and the boxes on it. "outline" are the corners of what it shows, fractions of
    its original ("original": the id of the picture that shows all of it, "image": that one's hash). The corners of
    "boxes" are fractions of the picture itself, clipped to it. A picture that shows no image of the task has neither.
    One that shows several side by side has the first in these fields, and the others in "beside", each with its "area".

    Args:
        episode: the episode; its tokens are shown if they were loaded.
        line: its line number in episodes.jsonl, from 1.
        reward: explains the scores; see `find_trusted_reward`.

    >>> from viewbox.records import Task, Turn
    >>> page = build_episode_page(Episode(Task("a"), (Turn("assistant", "<think>Hm.</think>No."),)), line=1)
    >>> page["task"], page["turns"][0]["parts"]
    ('a', [{'type': 'thinking', 'text': 'Hm.'}, {'type': 'text', 'text': 'No.'}])
    """
    problems: list[str] = []

    def attempt(what: str, build: Callable[[], Any], otherwise: object) -> Any:
        """Return a part of the page; what an author's objects raise costs that part alone."""
        try:
            return build()
        except Exception as error:
            problems.append(f"{what} cannot be shown: {type(error).__name__}: {to_text(error)[:200]}")
            return otherwise

    pictures = attempt("pictures", lambda: Pictures.of(episode), Pictures(of_turns=[[] for _ in episode.turns]))
    page = {
        "line": line,
        "task": attempt("task", lambda: to_plain(episode.task.id), ""),
        "environment": to_plain(episode.environment),
        "question": attempt("question", lambda: _get_question(episode), ""),
        "prompt": attempt("prompt", lambda: to_plain(episode.task.prompt), {}),
        "metadata": attempt("metadata", lambda: to_plain(episode.task.metadata), {}),
        "end_reason": None if UNPLAYED in episode.info else to_plain(episode.end_reason),
        "flags": attempt("flags", lambda: to_plain(episode.flags), []),
        "system_prompt": to_plain(episode.system_prompt),
        "answer": attempt("answer", lambda: to_plain(episode.answer), None),
        "reference": attempt("reference", lambda: to_plain(episode.task.reference), {}),
        "scores": attempt("scores", lambda: _build_scores(episode), None),
        "looks": attempt("looks", lambda: describe_looks(episode), None),
        "info": attempt("info", lambda: to_plain(episode.info), {}),
        "run_config": attempt("run_config", lambda: to_plain(episode.run_config), {}),
        "previous": None,
        "next": None,
        "pictures": attempt("pictures", lambda: describe_pictures(pictures), {}),
        "turns": attempt("turns", lambda: build_turns(episode, pictures.of_turns), []),
        "tokens": None,
    }
    if page["scores"] is not None:
        page["scores"]["reasons"] = attempt("reasons", lambda: to_plain(explain_saved(episode, reward)), {})
    if episode.tokens is not None:
        tokens, advantage = episode.tokens, episode.info.get("advantage")
        page["tokens"] = attempt("tokens", lambda: build_tokens(tokens, advantage), None)
    page["problems"] = [*pictures.problems, *problems]
    return page


def _get_question(episode: Episode) -> str:
    asked = episode.task.prompt.get("question")
    if isinstance(asked, str) and asked:
        return str(to_plain(asked))
    return str(to_plain(next((turn.content for turn in episode.turns if turn.role == "user"), "")))


def _build_scores(episode: Episode) -> dict[str, Any] | None:
    scores = episode.scores
    if scores is None:
        return None

    def keep(value: object) -> float | None:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    return {
        "total": keep(scores.total),
        "components": {to_text(name): keep(value) for name, value in scores.components.items()},
        "faults": to_plain(scores.faults),
        "turns": [keep(value) for value in scores.turns],
    }


def describe_looks(episode: Episode) -> dict[str, Any] | None:
    """Return what the pictures showed of what was asked; None without a target."""
    looks = read_looks(episode)
    if not looks.targets:
        return None
    figures = {name.partition("/")[2]: value for name, value in looks.measure().items() if name.startswith("looks/")}
    return {"verdict": looks.verdict, "why": to_text(looks.explain())[:MAX_REASON], "figures": figures}


MAX_PLACED = 50_000  # marks times pictures
MAX_WINDOW = 200  # characters
DIGITS = 6  # decimals of a fraction on a page
OF_VIEW = ("image", "original", "outline", "index", "plane", "slice", "slices", "time", "window")


def describe_pictures(pictures: Pictures) -> dict[str, dict[str, Any]]:
    """Return the pictures by id; see `build_episode_page`."""
    originals: dict[tuple[Any, ...], Picture | None] = {}
    page = {}
    budget = MAX_PLACED
    for picture in pictures.by_id.values():
        boxes, parts = [], []
        for view in picture.views:
            key = view.image, view.plane, view.slice, view.time
            if key not in originals:
                originals[key] = pictures.find_original(view)
            parts.append(_describe_view(view, originals[key]))
            budget -= len(pictures.marks)
            if budget >= 0:
                boxes += _draw_marks(pictures.marks, view)
            else:
                pictures.leave_out("too many boxes and pictures: the later pictures have none", once=True)
        page[picture.id] = {
            "hash": to_plain(picture.ref.hash),
            "mode": to_plain(picture.ref.mode),
            "width": picture.ref.width,
            "height": picture.ref.height,
            **{name: parts[0][name] if parts else None for name in OF_VIEW},
            "boxes": boxes,
            "beside": parts[1:],
            "dropped_at": picture.dropped_at,
        }
    return page


def _draw_marks(marks: Sequence[Mark], view: ShownView) -> list[dict[str, Any]]:
    pairs = ((mark, place_on(mark, view)) for mark in marks)
    return [
        _describe_mark(mark, drawn.corners, drawn.is_clipped)
        for mark, drawn in pairs
        if drawn is not None and not (mark.kind == "tool" and _covers(drawn.corners, view))
    ]


def _covers(corners: Sequence[tuple[float, float]], view: ShownView) -> bool:
    """Return whether a drawn box is all that a view shows: its outline would be the edge of the picture."""
    if len(corners) < 4:
        return False
    (x1, y1), (x2, y2) = corners[0], corners[2]
    left, top, right, bottom = view.area or WHOLE
    return x1 <= left + CLOSE and y1 <= top + CLOSE and x2 >= right - CLOSE and y2 >= bottom - CLOSE


def _describe_mark(mark: Mark, corners: Sequence[tuple[float, float]], is_clipped: bool) -> dict[str, Any]:
    points = [[round(x, DIGITS), round(y, DIGITS)] for x, y in corners]
    four = {4: points, 2: [points[0], points[-1], points[-1], points[0]], 1: points * 4}[len(points)]
    shape = {4: "box", 2: "line", 1: "point"}[len(points)]
    described = {"kind": mark.kind, "label": to_plain(mark.label), "shape": shape, "corners": four}
    described["clipped"] = is_clipped
    return described | ({"turn": mark.turn, "on": mark.on} if mark.kind == "tool" else {})


def _describe_view(view: ShownView, original: Picture | None) -> dict[str, Any]:
    left, top, right, bottom = area = view.area or WHOLE
    flat = view.to_original((left, top, right, top, right, bottom, left, bottom))
    return {
        "image": None if original is None else to_plain(original.ref.hash),
        "original": None if original is None else original.id,
        "outline": [[round(x, DIGITS), round(y, DIGITS)] for x, y in zip(flat[::2], flat[1::2], strict=True)],
        "index": view.image,
        "plane": view.plane,
        "slice": view.slice,
        "slices": view.slices,
        "time": view.time,
        "window": None if view.window is None else to_plain(view.window)[:MAX_WINDOW],
        "area": list(area),
    }


MAX_TOKENS = 200_000  # of an episode on its page
MAX_PARTS = 1_000  # of a reply
# The tags of every known model. A part without its last tag goes to the end, so that no text is read twice.
THINKING = tuple(sorted({tags for profile in MODELS for tags in profile.thinking or ()}))
_THOUGHT = re.compile(
    "|".join(f"{re.escape(first)}.*?(?:{re.escape(last)}|\\Z)" for first, last in THINKING), re.DOTALL
)
_CALL = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)|```tool\n.*?(?:```|\Z)", re.DOTALL)
_END = re.compile(r"\s*\[/data [0-9a-f]{8}\]\s*\Z|\A\s*\[/data [0-9a-f]{8}\]")


def build_turns(episode: Episode, pictures: Sequence[Sequence[str | None]]) -> list[dict[str, Any]]:
    """Return every turn as {"role", "parts"}; `pictures` has the ids of each turn's pictures (`Pictures.of_turns`)."""
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
    """Yield the thinking, the text and the calls of a reply, and why it ended. A call that stands in the text is a part
    in its place."""
    calls = [
        {"type": "call", "id": to_plain(call.id), "name": to_plain(call.name), "arguments": to_plain(call.arguments)}
        for call in turn.tool_calls
    ]
    yield from _build_text("thinking", to_plain(turn.reasoning))
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
    yield from _build_text("finish", to_plain(turn.finish_reason))


def _build_text(kind: str, text: str) -> Iterator[dict[str, Any]]:
    if text.strip():
        yield {"type": kind, "text": text}


def split_thinking(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a reply in order, each "thinking" or "text". Thinking may lack its first or its last tag.

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
    """Yield what the environment said after the results: the request to answer before the last turn."""
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


def build_tokens(tokens: EpisodeTokens, advantage: object) -> list[dict[str, Any]]:
    """Return every token, prompt first: its id, whether the policy sampled it, its log-prob, the advantage of the
    episode or of its reply."""
    whole = to_finite_float(advantage)
    by_turn = zip(advantage, tokens.replies, strict=False) if isinstance(advantage, list | tuple) else ()
    by_token = chain.from_iterable(repeat(to_finite_float(value), count) for value, count in by_turn)
    prompt = ((token, 0, None) for token in tokens.prompt_ids)
    sampled = zip(tokens.completion_ids, tokens.mask, tokens.logprobs, strict=True)
    return [
        {"id": token, "mask": 1, "logprob": to_finite_float(logprob), "advantage": next(by_token, whole)}
        if mask
        else {"id": token, "mask": 0, "logprob": None, "advantage": None}
        for token, mask, logprob in islice(chain(prompt, sampled), MAX_TOKENS)
    ]


MAX_REASON = 1_000  # characters
SAME = 1e-6  # difference up to which two scores are equal


@lru_cache(maxsize=64)
def find_trusted_reward(run: str | Path, environment: str = "") -> CombinedReward | None:
    """Return the reward that a run's own files name, if it is made of built-in parts and asks nobody; else None.
    No code of the run is run."""
    try:
        source = SavedRun(run, find_episodes_folder(run)).source
        reward = source.reward or make_environment(environment, {}, "").reward
    except (ViewboxError, OSError, ValueError, TypeError):
        return None
    return None if not isinstance(reward, CombinedReward) or is_blocking(reward) else reward


def explain_saved(episode: Episode, reward: CombinedReward | None) -> dict[str, str]:
    """Return the reason of each component that an episode was scored on, by name.
    A reason that explains another score than the stored one is left out: the episode was scored by another reward."""
    scores = episode.scores
    if reward is None or scores is None or episode.is_fault:
        return {}
    return {
        one.name: one.why[:MAX_REASON]
        for one in explain_score(reward, episode.answer, episode.task.reference, episode).components
        if one.why and one.name in scores.components and _is_same(scores.components[one.name], one.score)
    }


def _is_same(stored: float | None, now: float | None) -> bool:
    return stored is now if stored is None or now is None else abs(stored - now) <= SAME
