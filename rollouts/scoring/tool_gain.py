"""What tools are worth: the same tasks played with and without them, compared task by task.

    print(compare_tools(viewbox.load("runs/mine/with_tools"), viewbox.load("runs/mine/without_tools")))

The gain is the mean difference of the rewards over pairs of episodes that have the same task and sample number. Its
interval is a bootstrap over tasks (`table.py`).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...records import Episode
from .metrics import get_episode_values
from .table import CONFIDENCE, MIN_PAIRS, Interval, Table

MAX_UNANSWERED = 0.2  # a larger share of unanswered episodes is told
MAX_TOOLS = 64  # names: more than any environment has come from forged episodes


@dataclass(frozen=True)
class ToolUse:
    """How one tool was used."""

    calls: int
    per_episode: float
    episodes: float  # the share of episodes that called it
    success: float | None  # the share of calls that succeeded; None without calls


@dataclass(frozen=True)
class Gain:
    """One score with and without tools, and the difference over pairs of episodes that have both."""

    with_tools: Interval
    without_tools: Interval
    difference: Interval

    @property
    def is_clear(self) -> bool:
        """Whether the interval of the difference leaves out 0."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and (low > 0 or high < 0)


@dataclass(frozen=True)
class ToolGain:
    """The gain in reward and in each of its components, and the use of each tool.

    `pairs` is the number of episodes that were played both ways and have a reward both ways.
    """

    pairs: int
    tasks: int
    gains: dict[str, Gain]
    tools: dict[str, ToolUse]
    unanswered: float  # the share of episodes without tools that end without an answer, faults left out
    faults: tuple[int, int]  # episodes with tools, and without, that a fault ended: they say nothing about the policy
    resamples: int
    seed: int

    def explain(self) -> str:
        reward = self.gains.get("reward")
        faults = ""
        if any(self.faults):
            faults = (
                f" Faults ended {self.faults[0]} episodes with tools and {self.faults[1]} without; they are left out."
            )
        return self._find(reward) + faults

    def _find(self, reward: Gain | None) -> str:
        if reward is None:
            return "No episode has a reward both with and without tools, so nothing can be compared."
        if self.pairs < MIN_PAIRS:
            number = f"{self.pairs} pair{'s'[: self.pairs != 1]} of episodes"
            return f"{number} can be compared: too few to say what the tools are worth (at least {MIN_PAIRS})."
        used = sum(use.calls for use in self.tools.values())
        if not used:
            return "No tool was called: the policy answers from the first view, and its tools are worth nothing to it."
        if reward.difference.low is None:
            return "Without an interval (of one task, or of no draws) nothing is said about what the tools are worth."
        if not reward.is_clear:
            return "The tools make no clear difference to the reward: the interval of the difference holds 0."
        verb = "raise" if reward.difference.mean > 0 else "lower"
        finding = f"The tools {verb} the reward by {abs(reward.difference.mean):.3f}."
        if self.unanswered > MAX_UNANSWERED:
            finding += (
                f" But {self.unanswered:.0%} of the episodes without tools end without an answer, so a part of this is "
                "that the policy does not answer without them."
            )
        return finding

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "confidence": CONFIDENCE, "finding": self.explain()}


def compare_tools(
    with_tools: Iterable[Episode],
    without_tools: Iterable[Episode],
    tools: Sequence[str] = (),
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> ToolGain:
    """Compare episodes that were played with tools with those of the same tasks without.

    Args:
        with_tools, without_tools: each read once.
        tools: the names of the tools that were offered; those that were called are added.
        resamples: bootstrap draws over tasks for the 95 % percentile intervals; 0: no intervals.
        seed: seed of the bootstrap.

    >>> from viewbox.records import Scores, Task
    >>> played = [Episode(Task(f"t{n}"), scores=Scores(0.75)) for n in range(20)]
    >>> bare = [Episode(Task(f"t{n}"), scores=Scores(0.25)) for n in range(20)]
    >>> gain = compare_tools(played, bare, ["zoom"])
    >>> str(gain.gains["reward"].difference), gain.tools["zoom"].calls
    ('0.500 [0.500, 0.500]', 0)
    """
    count = faults = 0
    calls, successes, users = Counter[str](), Counter[str](), Counter[str]()
    pairs: dict[tuple[str, Any], list[dict[str, float | None]]] = {}
    for episode in with_tools:
        if episode.is_fault:
            faults += 1
            continue
        count += 1
        results = [result for turn in episode.turns for result in turn.tool_results]
        calls.update(result.tool_name for result in results)
        successes.update(result.tool_name for result in results if result.success)
        users.update({result.tool_name for result in results})
        pairs[_identify(episode)] = [_get_scores(episode)]
    unanswered = total = bare_faults = 0
    for episode in without_tools:
        if episode.is_fault:
            bare_faults += 1
            continue
        total += 1
        unanswered += episode.answer is None
        if (key := _identify(episode)) in pairs:
            pairs[key].append(_get_scores(episode))
    table = Table()
    for (task, _), scores in pairs.items():
        if len(scores) == 2 and None not in (one.get("reward") for one in scores):
            ways = zip(("with", "without"), scores, strict=True)
            table.add(task, {f"{way}/{name}": value for way, one in ways for name, value in one.items()})
    changes = table.compute_changes("without", "with", resamples, seed=seed)
    gains = {
        name: Gain(one.new, one.old, one.change)
        for name, one in changes.items()
        if one.new is not None and one.old is not None and one.change is not None
    }
    used = list(dict.fromkeys([*tools, *(name for name, _ in calls.most_common(MAX_TOOLS))]))
    uses = {
        name: ToolUse(
            calls[name],
            calls[name] / max(1, count),
            users[name] / max(1, count),
            successes[name] / calls[name] if calls[name] else None,
        )
        for name in used
    }
    share = unanswered / max(1, total)
    return ToolGain(table.rows, table.tasks, gains, uses, share, (faults, bare_faults), resamples, seed)


def count_calls(episodes: Iterable[Episode], tool: str) -> float:
    """Return how many calls of a tool ran, per episode without a fault."""
    played = [episode for episode in episodes if not episode.is_fault]
    ran = sum(r.was_run for e in played for turn in e.turns for r in turn.tool_results if r.tool_name == tool)
    return ran / max(1, len(played))


def _identify(episode: Episode) -> tuple[str, Any]:
    sample = episode.info.get("sample")
    return episode.task.id, sample if isinstance(sample, int) else 0


def _get_scores(episode: Episode) -> dict[str, float | None]:
    values = get_episode_values(episode)
    return {name: value for name, value in values.items() if name == "reward" or name.startswith("rewards/")}
