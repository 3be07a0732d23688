"""What a page about one saved episode shows, as plain JSON: its turns, its pictures with boxes, its scores, its tokens.

The episode may be somebody else's. Nothing of it is opened or run, whatever it holds: what cannot be shown is left out
and named in "problems". All text is as the episode has it; whoever renders it escapes it.
"""

import math
from collections.abc import Callable
from typing import Any

from viewbox.records import Episode
from viewbox.rewards import CombinedReward
from viewbox.rollouts.view.picture_page import describe_pictures
from viewbox.rollouts.view.pictures import Pictures
from viewbox.rollouts.view.plain import to_plain, to_text
from viewbox.rollouts.view.reasons import explain_saved
from viewbox.rollouts.view.turns import build_tokens, build_turns


def build_episode_page(episode: Episode, *, line: int, reward: CombinedReward | None = None) -> dict[str, Any]:
    """The content of an episode's page; never raises.

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

    def attempt(what: str, build: Callable[[], Any], otherwise: Any) -> Any:
        """A part of the page; what an author's objects raise costs that part alone."""
        try:
            return build()
        except Exception as error:
            problems.append(f"{what} cannot be shown: {type(error).__name__}: {to_text(error)[:200]}")
            return otherwise

    pictures = attempt("pictures", lambda: Pictures.of(episode), None) or _list_no_pictures(episode)
    page = {
        "line": line,
        "task": attempt("task", lambda: to_plain(episode.task.id), ""),
        "environment": to_plain(episode.environment),
        "question": attempt("question", lambda: _get_question(episode), ""),
        "prompt": attempt("prompt", lambda: to_plain(episode.task.prompt), {}),
        "metadata": attempt("metadata", lambda: to_plain(episode.task.metadata), {}),
        "end_reason": to_plain(episode.end_reason),
        "flags": attempt("flags", lambda: to_plain(episode.flags), []),
        "system_prompt": to_plain(episode.system_prompt),
        "answer": attempt("answer", lambda: to_plain(episode.answer), None),
        "reference": attempt("reference", lambda: to_plain(episode.task.reference), {}),
        "scores": attempt("scores", lambda: _build_scores(episode), None),
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


def _list_no_pictures(episode: Episode) -> Pictures:
    return Pictures(of_turns=[[] for _ in episode.turns])


def _get_question(episode: Episode) -> str:
    asked = episode.task.prompt.get("question")
    if isinstance(asked, str) and asked:
        return str(to_plain(asked))
    return str(to_plain(next((turn.content for turn in episode.turns if turn.role == "user"), "")))


def _build_scores(episode: Episode) -> dict[str, Any] | None:
    scores = episode.scores
    if scores is None:
        return None

    def keep(value: Any) -> float | None:
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None

    return {
        "total": keep(scores.total),
        "components": {to_text(name): keep(value) for name, value in scores.components.items()},
        "faults": to_plain(scores.faults),
    }
