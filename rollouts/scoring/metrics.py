"""Rates and means over episodes: what training logs at every step, and what `summary.py` adds intervals to."""

from collections.abc import Sequence
from typing import Any, get_args

from viewbox.records import EndReason, Episode
from viewbox.rewards.remote import take_counts

END_REASONS: tuple[str, ...] = get_args(EndReason)
RATES = ("tools/rate", "tools/calls", "episodes/turns", "episodes/malformed", "episodes/truncated", "tokens/sampled")
NAMES = ("reward", *RATES, *(f"end/{reason}" for reason in END_REASONS))


def episode_metrics(episodes: Sequence[Episode], reward: Any = None) -> dict[str, float]:
    """Means over `episodes`, under the same names whatever happened in them.

    `reward` and `rewards/<component>/mean` (in [0, 1]); `tools/rate` (episodes with a call), `tools/calls` (of an
    episode); `episodes/turns`, `episodes/malformed` and `episodes/truncated` (rates);
    `replies/well_formed` (share of replies);
    `tokens/sampled` (an episode); `end/<reason>` (rates).

    >>> from viewbox.records import Scores, Task
    >>> found = episode_metrics([Episode(Task("a"), scores=Scores(0.5, {"label": 1.0}))])
    >>> found["reward"], found["rewards/label/mean"], found["end/answered"]
    (0.5, 1.0, 1.0)
    """
    count = max(1, len(episodes))
    values = [episode_values(episode) for episode in episodes]
    replies = max(1, sum(e.num_turns for e in episodes))
    found = {
        **{name: sum(one[name] or 0.0 for one in values) / count for name in NAMES},
        "replies/well_formed": 1 - sum(e.info.get("malformed", 0) for e in episodes) / replies,
        **take_counts(reward),  # of a judge: judge/calls, judge/cached, judge/unreachable, judge/unreadable
    }
    for name in list(getattr(reward, "components", {})) or _components(episodes):
        scored = [one.get(f"rewards/{name}/mean") for one in values]
        applying = [value for value in scored if value is not None]
        found[f"rewards/{name}/mean"] = sum(applying) / len(applying) if applying else 0.0
    return found


def episode_values(episode: Episode) -> dict[str, float | None]:
    """What one episode adds to each mean, by `NAMES` and the components of its scores; None where it does not apply."""
    scores = episode.scores
    return {
        "reward": scores.total if scores else None,
        "tools/rate": float(episode.tool_call_count > 0),
        "tools/calls": float(episode.tool_call_count),
        "episodes/turns": float(episode.num_turns),
        "episodes/malformed": float(episode.info.get("malformed", 0) > 0),
        "episodes/truncated": float(episode.truncated),
        "tokens/sampled": float(sum(episode.tokens.mask)) if episode.tokens else None,
        **{f"end/{reason}": float(episode.end_reason == reason) for reason in END_REASONS},
        **{f"rewards/{name}/mean": value for name, value in (scores.components if scores else {}).items()},
    }


def _components(episodes: Sequence[Episode]) -> list[str]:
    return sorted({name for e in episodes if e.scores for name in e.scores.components})
