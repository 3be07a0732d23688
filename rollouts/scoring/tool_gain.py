"""What tools are worth: the same tasks played with and without them, compared task by task.

    print(compare_tools(viewbox.load("runs/mine/with_tools"), viewbox.load("runs/mine/without_tools")))

The scores are those of `compare.py`: a task counts once, with the mean of its episodes each way.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...records import Episode, Scores
from . import MIN_TASKS, RULE
from .compare import TOTAL, Difference, compare_scores, list_scores
from .table import CONFIDENCE, Table, pair_tasks

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
class ToolGain:
    """The gain in reward and in each of its components, `a` without tools and `b` with them, and the use of each tool.

    `tasks` is the number of tasks that have a reward both ways.
    """

    tasks: int
    gains: dict[str, Difference]
    tools: dict[str, ToolUse]
    unanswered: float  # the share of episodes without tools that end without an answer, faults left out
    faults: tuple[int, int]  # episodes with tools, and without, that a fault ended: they say nothing about the policy

    def explain(self) -> str:
        aided, bare = self.faults
        faults = f" Faults ended {aided} episodes with tools and {bare} without; they are left out."
        return self._find(self.gains.get(TOTAL)) + faults * any(self.faults)

    def _find(self, reward: Difference | None) -> str:
        if reward is None:
            return "No task has a reward both with and without tools, so nothing can be compared."
        if self.tasks < MIN_TASKS:
            number = f"{self.tasks} task{'s'[: self.tasks != 1]}"
            return f"{number} can be compared: too few to say what the tools are worth (at least {MIN_TASKS})."
        used = sum(use.calls for use in self.tools.values())
        if not used:
            return "No tool was called: the policy answers from the first view, and its tools are worth nothing to it."
        low, high = reward.difference.low, reward.difference.high
        if low is None or high is None:
            return "Without an interval nothing is said about what the tools are worth."
        if low <= 0 <= high:
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
        return {**asdict(self), "average": RULE, "confidence": CONFIDENCE, "finding": self.explain()}


def compare_tools(
    with_tools: Iterable[Episode],
    without_tools: Iterable[Episode],
    tools: Sequence[str] = (),
    *,
    intervals: bool = True,
) -> ToolGain:
    """Compare episodes that were played with tools with those of the same tasks without.

    Args:
        with_tools, without_tools: each read once.
        tools: the names of the tools that were offered; those that were called are added.
        intervals: whether to compute the 95 % intervals.

    >>> from viewbox.records import Task
    >>> played = [Episode(Task(f"t{n}"), scores=Scores(0.75)) for n in range(20)]
    >>> bare = [Episode(Task(f"t{n}"), scores=Scores(0.25)) for n in range(20)]
    >>> gain = compare_tools(played, bare, ["zoom"])
    >>> str(gain.gains["reward"].difference), gain.tools["zoom"].calls
    ('0.500 [0.448, 0.552]', 0)
    """
    calls, successes, users = Counter[str](), Counter[str](), Counter[str]()
    aided, bare = Table(), Table()
    faults = bare_faults = unanswered = 0
    for episode in with_tools:
        if episode.is_fault:
            faults += 1
            continue
        results = [result for turn in episode.turns for result in turn.tool_results]
        calls.update(result.tool_name for result in results)
        successes.update(result.tool_name for result in results if result.success)
        users.update({result.tool_name for result in results})
        aided.add(episode.task.id, list_scores(episode.scores or Scores(None)))
    for episode in without_tools:
        if episode.is_fault:
            bare_faults += 1
            continue
        unanswered += episode.answer is None
        bare.add(episode.task.id, list_scores(episode.scores or Scores(None)))
    gains = compare_scores(pair_tasks(bare, aided), intervals)
    used = list(dict.fromkeys([*tools, *(name for name, _ in calls.most_common(MAX_TOOLS))]))
    uses = {
        name: ToolUse(
            calls[name],
            calls[name] / max(1, aided.rows),
            users[name] / max(1, aided.rows),
            successes[name] / calls[name] if calls[name] else None,
        )
        for name in used
    }
    share = unanswered / max(1, bare.rows)
    paired = gains[TOTAL].difference.tasks if TOTAL in gains else 0
    return ToolGain(paired, gains, uses, share, (faults, bare_faults))
