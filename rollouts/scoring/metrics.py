"""Rates and means over episodes. Training logs them at every step; `summary.py` adds intervals."""

from collections.abc import Sequence
from typing import get_args

from viewbox.records import EndReason, Episode
from viewbox.rewards.base import AnyReward
from viewbox.rewards.remote import take_counts

END_REASONS: tuple[str, ...] = get_args(EndReason)
RATES = ("tools/rate", "tools/calls", "episodes/turns", "episodes/malformed", "episodes/truncated", "tokens/sampled")
MAX_COUNT = 2**31  # a larger number of replies is forged
NAMES = ("reward", *RATES, *(f"end/{reason}" for reason in END_REASONS))


def compute_episode_metrics(episodes: Sequence[Episode], reward: AnyReward | None = None) -> dict[str, float]:
    """Compute means over `episodes`; 0 if there are none. The names of the rates do not depend on the episodes.

    `reward` and `rewards/<component>/mean` are in [0, 1]. `tools/rate` is the share of episodes with a tool call,
    `tools/calls` the calls per episode. `episodes/turns` is the turns per episode; `episodes/malformed`,
    `episodes/truncated` and `end/<reason>` are shares of episodes; `replies/well_formed` is a share of replies;
    `tokens/sampled` is the tokens per episode.

    >>> from viewbox.records import Scores, Task
    >>> metrics = compute_episode_metrics([Episode(Task("a"), scores=Scores(0.5, {"label": 1.0}))])
    >>> metrics["reward"], metrics["rewards/label/mean"], metrics["end/answered"]
    (0.5, 1.0, 1.0)
    """
    count = max(1, len(episodes))
    values = [get_episode_values(episode) for episode in episodes]
    replies = max(1, sum(e.num_turns for e in episodes))
    metrics = {
        **{name: sum(row[name] or 0.0 for row in values) / count for name in NAMES},
        "replies/well_formed": 1 - sum(count_malformed(e) for e in episodes) / replies,
        **take_counts(reward),  # an LLM judge: judge/calls, judge/cached, judge/unreachable, judge/unreadable
    }
    for name in list(getattr(reward, "components", {})) or _list_components(episodes):
        scored = [row.get(f"rewards/{name}/mean") for row in values]
        applying = [value for value in scored if value is not None]
        metrics[f"rewards/{name}/mean"] = sum(applying) / len(applying) if applying else 0.0
    return metrics


def count_malformed(episode: Episode) -> int:
    """The episode's malformed replies; 0 if it does not say, or says what is not a count.

    >>> from viewbox.records import Task
    >>> [count_malformed(Episode(Task("a"), info={"malformed": value})) for value in (2, "x", -1, 10**400)]
    [2, 0, 0, 0]
    """
    value = episode.info.get("malformed", 0)
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else 0


def get_episode_values(episode: Episode) -> dict[str, float | None]:
    """The values of one episode, by `NAMES` and the components of its scores; None if one does not apply."""
    scores = episode.scores
    return {
        "reward": scores.total if scores else None,
        "tools/rate": float(episode.tool_call_count > 0),
        "tools/calls": float(episode.tool_call_count),
        "episodes/turns": float(episode.num_turns),
        "episodes/malformed": float(count_malformed(episode) > 0),
        "episodes/truncated": float(episode.truncated),
        "tokens/sampled": float(sum(episode.tokens.mask)) if episode.tokens else None,
        **{f"end/{reason}": float(episode.end_reason == reason) for reason in END_REASONS},
        **{f"rewards/{name}/mean": value for name, value in (scores.components if scores else {}).items()},
    }


def _list_components(episodes: Sequence[Episode]) -> list[str]:
    return sorted({name for e in episodes if e.scores for name in e.scores.components})
