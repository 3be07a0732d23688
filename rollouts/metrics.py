"""Rates and means over episodes: what training logs, evaluation reports and notebooks print, from one place."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from viewbox.envs.types import EndReason, Episode

END_REASONS: tuple[str, ...] = get_args(EndReason)


def episode_metrics(episodes: Sequence[Episode], reward: Any = None) -> dict[str, float]:
    """Means over `episodes`, under the same names whatever happened in them.

    `reward` and `rewards/<component>/mean` (in [0, 1]); `tools/rate` (episodes with a call), `tools/calls` (of an
    episode); `episodes/turns`, `episodes/malformed` and `episodes/truncated` (rates);
    `replies/well_formed` (share of replies);
    `tokens/sampled` (an episode); `end/<reason>` (rates).

    >>> from viewbox.envs.types import Scores, Task
    >>> found = episode_metrics([Episode(Task("a"), scores=Scores(0.5, {"label": 1.0}))])
    >>> found["reward"], found["rewards/label/mean"], found["end/answered"]
    (0.5, 1.0, 1.0)
    """
    count = max(1, len(episodes))

    def mean(values: Iterable[float]) -> float:
        return sum(values) / count

    replies = max(1, sum(e.num_turns for e in episodes))
    ends = Counter(e.end_reason for e in episodes)
    found = {
        "reward": mean(e.scores.total if e.scores else 0.0 for e in episodes),
        "tools/rate": mean(e.tool_call_count > 0 for e in episodes),
        "tools/calls": mean(e.tool_call_count for e in episodes),
        "episodes/turns": mean(e.num_turns for e in episodes),
        "episodes/malformed": mean(e.info.get("malformed", 0) > 0 for e in episodes),
        "episodes/truncated": mean(e.truncated for e in episodes),
        "replies/well_formed": 1 - sum(e.info.get("malformed", 0) for e in episodes) / replies,
        "tokens/sampled": mean(sum(e.tokens.mask) if e.tokens else 0 for e in episodes),
        **{f"end/{reason}": ends[reason] / count for reason in END_REASONS},  # type: ignore[index]
    }
    for name in list(getattr(reward, "components", {})) or _components(episodes):
        values = [e.scores.components.get(name) for e in episodes if e.scores]
        applying = [value for value in values if value is not None]
        found[f"rewards/{name}/mean"] = sum(applying) / len(applying) if applying else 0.0
    return found


def _components(episodes: Sequence[Episode]) -> list[str]:
    return sorted({name for e in episodes if e.scores for name in e.scores.components})
