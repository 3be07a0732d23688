"""Rates and means over tasks. Training logs them at every step; `summary.py` adds intervals."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from ...core.base import BaseMultiTurnEnv
from ...records import EndReason, Episode, Task
from ...rewards.declare import AnyReward
from ...rewards.looks import FIGURES, read_looks
from ...rewards.remote import take_counts
from .table import Table

END_REASONS: tuple[str, ...] = get_args(EndReason)
MAX_COUNT = 2**31  # a larger number of replies is forged
_NO_END = {f"end/{reason}": 0.0 for reason in END_REASONS}


def compute_episode_metrics(
    episodes: Sequence[Episode], reward: AnyReward | None = None, tools: Iterable[str] = ()
) -> dict[str, float]:
    """Compute means over the tasks of `episodes`, each with the mean of its episodes (`table.py`); 0 if there are none.
    The names do not depend on the episodes.

    `reward` and `rewards/<component>/mean` are in [0, 1], over the episodes that have the score; NaN if none has it.
    `tools/rate` is the share of episodes in which a tool ran, `tools/calls` the calls per episode that a tool ran, and
    `tools/malformed` those that none ran: unreadable, refused, or of an unknown tool. For each name in `tools`,
    `tools/<name>/calls` is its calls per episode that ran, `tools/<name>/raised` the share of these in which it raised
    (a fault of the environment's), `tools/<name>/faults` the calls per episode that failed so, and
    `tools/<name>/success` the share of all its calls, refused ones included, that succeeded; NaN if there are none.
    `episodes/turns` is the turns per episode; `episodes/malformed`,
    `episodes/truncated` and `end/<reason>` are shares of episodes; `episodes/faults` is the share that a fault ended,
    `episodes/scored` the share with a score, `reward/faults` and `reward/faults/<component>` the share on which the
    reward failed; `replies/well_formed` is a share of replies; `tokens/sampled` is the tokens per episode, NaN if
    none was counted. `looks/…` and `verdict/…` are over the episodes with a target (`rewards/looks.py`); NaN if none
    has one.

    >>> from viewbox.records import Scores, Task
    >>> metrics = compute_episode_metrics([Episode(Task("a"), scores=Scores(0.5, {"label": 1.0}))])
    >>> metrics["reward"], metrics["rewards/label/mean"], metrics["end/answered"]
    (0.5, 1.0, 1.0)
    """
    components, tools = list(getattr(reward, "components", {})), list(tools)
    names = components or sorted({name for e in episodes if e.scores for name in e.scores.components})
    table = Table()
    for episode in episodes:
        faults = episode.scores.faults if episode.scores else {}
        results = [result for turn in episode.turns for result in turn.tool_results]
        row = get_episode_values(episode)
        for what, holds in _COUNTED.items():
            counts = Counter(result.tool_name for result in results if getattr(result, holds))
            row |= {f"tools/{name}/{what}": float(counts[name]) for name in tools}
        table.add(episode.task.id, row | {f"reward/faults/{name}": float(name in faults) for name in names})
    means = {name: interval.mean for name, interval in table.compute_intervals(intervals=False).items()}
    replies = max(1, sum(e.num_turns for e in episodes))
    metrics = {
        **{name: means.get(name, math.nan if name in _UNDEFINED else 0.0) for name in _NAMES},
        "replies/well_formed": 1 - sum(count_malformed(e) for e in episodes) / replies,
        **{key: means.get(key, 0.0) for name in tools for what in _COUNTED if (key := f"tools/{name}/{what}")},
        **_count_tool_calls(episodes, tools),
        **take_counts(reward),  # an LLM judge: judge/calls, judge/cached, judge/unreachable, judge/unreadable
    }
    for name in names:
        metrics[f"rewards/{name}/mean"] = means.get(f"rewards/{name}/mean", math.nan)
        metrics[f"reward/faults/{name}"] = means.get(f"reward/faults/{name}", 0.0)
    return metrics


def compute_environment_metrics(episodes: Sequence[Episode], env: BaseMultiTurnEnv) -> dict[str, float]:
    """`compute_episode_metrics` of the episodes of an environment; of a mixture, also of each one that it mixes.
    Those are under its key, such as `digits/reward`, and NaN if it has no episodes."""
    metrics = compute_episode_metrics(episodes, env.reward, env.tools)
    for key, part in getattr(env, "parts", {}).items():
        for name in (f"rewards/{key}/mean", f"reward/faults/{key}"):
            metrics.pop(name)
        part_episodes = [episode for episode in episodes if episode.environment == key]
        figures = compute_episode_metrics(part_episodes, part.reward, part.tools)
        metrics |= {f"{key}/{name}": value if part_episodes else math.nan for name, value in figures.items()}
    return metrics


def measure_sameness(episodes: Sequence[Episode]) -> dict[str, float]:
    """Return the share of the most frequent answer among those given, and by how much it exceeds that of the most
    frequent right answer, over the tasks; NaN without an answer."""

    def find_share(values: Iterable[object]) -> float:
        counts = Counter(map(repr, values)).most_common()
        return counts[0][1] / sum(count for _, count in counts) if counts else math.nan

    answered = [episode for episode in episodes if episode.answer is not None]
    share = find_share(episode.answer for episode in answered)
    right = find_share({episode.task.id: episode.task.reference for episode in answered}.values())
    return {"answers/most_frequent": share, "answers/beyond_right": share - min(share, right)}


def _count_tool_calls(episodes: Sequence[Episode], tools: Iterable[str]) -> dict[str, float]:
    results = [result for e in episodes for turn in e.turns for result in turn.tool_results]
    made = Counter(r.tool_name for r in results)
    ran, raised, succeeded = (
        Counter(r.tool_name for r in results if getattr(r, what)) for what in ("was_run", "raised", "success")
    )
    metrics = {}
    for name in tools:
        metrics[f"tools/{name}/raised"] = raised[name] / ran[name] if ran[name] else math.nan
        metrics[f"tools/{name}/success"] = succeeded[name] / made[name] if made[name] else math.nan
    return metrics


def drop_undefined(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics without those that no episode has: JSON knows no NaN.

    >>> drop_undefined({"reward": math.nan, "tools/rate": 0.5})
    {'tools/rate': 0.5}
    """
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def format_part(scored: float | None) -> str:
    """Return what stands behind a mean reward that is of a part of the episodes; empty if all have a score.

    >>> format_part(0.48), format_part(0.999), format_part(1.0)
    (' (of 48 %)', ' (of 99 %)', '')
    """
    return "" if scored is None or scored >= 1 else f" (of {min(99, round(100 * scored))} %)"


def count_malformed(episode: Episode) -> int:
    """Return the episode's malformed replies; 0 if it does not say, or says what is not a count.

    >>> from viewbox.records import Task
    >>> [count_malformed(Episode(Task("a"), info={"malformed": value})) for value in (2, "x", -1, 10**400)]
    [2, 0, 0, 0]
    """
    value = episode.info.get("malformed", 0)
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else 0


def get_episode_values(episode: Episode) -> dict[str, float | None]:
    """Return the values of one episode by name, the components of its scores among them; None if one does not apply."""
    scores = None if episode.is_fault else episode.scores
    return {
        "reward": scores.total if scores else None,
        **get_play_values(episode),
        **read_looks(episode).measure(),
        "reward/faults": float(bool(scores and scores.faults)),
        **{f"rewards/{name}/mean": value for name, value in (scores.components if scores else {}).items()},
    }


def get_play_values(episode: Episode) -> dict[str, float | None]:
    """`get_episode_values` without the scores."""
    scores, ran = None if episode.is_fault else episode.scores, episode.run_call_count
    return {
        "tools/rate": float(ran > 0),
        "tools/calls": float(ran),
        "tools/malformed": float(max(0, episode.tool_call_count - ran)),
        "episodes/turns": float(episode.num_turns),
        "episodes/malformed": float(count_malformed(episode) > 0),
        "episodes/truncated": float(episode.truncated),
        "episodes/faults": float(episode.is_fault),
        "episodes/scored": float(scores is not None and scores.total is not None),
        "tokens/sampled": float(sum(episode.tokens.mask)) if episode.tokens else None,
        **_NO_END,
        f"end/{episode.end_reason}": 1.0,
    }


_COUNTED = {"calls": "was_run", "faults": "is_fault"}  # of each tool
_NAMES = tuple(get_episode_values(Episode(Task(""))))
_UNDEFINED = ("reward", "tokens/sampled", *FIGURES)  # without an episode that has it
