"""What tools and pictures are worth: the same tasks with the same seeds, played as they are and in other ways.

Each way is a job of its own, played into a folder of its own beside the others, and what is there is not played again.
The first is the tasks as they are; every other is compared with it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..core.base import remove_tools
from ..core.swaps import PICTURES, Pictures, swap_pictures
from ..errors import ConfigError, describe_unknown
from ..records import Episode
from .job import RolloutJob
from .scoring.compare import TOTAL, Comparison, compare_runs
from .store.reader import load

WITH, WITHOUT, REAL = "with_tools", "without_tools", "real"  # ways, and their folders
MAX_UNANSWERED = 0.2  # a larger share of the episodes is told
MAX_TOOLS = 64  # names: more than any environment has come from forged episodes


def read_pictures(text: str) -> list[Pictures]:
    """Return the kinds in a list such as "real,blank,other", without the real ones, which are always played.

    >>> read_pictures("real,blank")
    ['blank']
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (REAL, *PICTURES):
            raise ConfigError(f"--pictures: {describe_unknown('pictures', name, (REAL, *PICTURES))}", key="pictures")
    chosen: list[Pictures] = [name for name in PICTURES if name in names]
    if not chosen:
        raise ConfigError(f"--pictures {text}; allowed: {REAL}, and {', '.join(PICTURES)} or some of these")
    return chosen


def leave_tools(job: RolloutJob, *, refuse: bool = False) -> dict[str, RolloutJob]:
    """Return the job with tools and without: they are not offered, or every call is refused. Raise `ConfigError`."""
    if not job.env.tools:
        raise ConfigError(f"{job.env.name}: has no tools, so nothing can be compared; play it with `viewbox rollout`")
    record = {**job.record, "tools": "refused" if refuse else "hidden"}
    return {WITH: job, WITHOUT: replace(job, env=remove_tools(job.env, refuse=refuse), record=record)}


def swap_all(job: RolloutJob, names: Sequence[Pictures], tool: str | None = None) -> dict[str, RolloutJob]:
    """Return the job with the real pictures and with the others: of all that is shown, or of the calls of a tool."""
    return {REAL: job, **{name: _swap(job, name, tool) for name in names}}


def swap_calls(job: RolloutJob, names: Sequence[Pictures], tool: str, folder: Path) -> dict[str, RolloutJob]:
    """Return the jobs that say what the calls of a tool are worth, of the tasks that called it with the real pictures:
    all calls with other pictures, and if several replies have some, those of each reply alone."""
    replies = defaultdict[int, list[int]](list)
    for episode in load(folder / REAL):
        for reply in _find_replies(episode, tool):
            replies[reply].append(int(episode.info["index"]))
    callers = sorted({index for indices in replies.values() for index in indices})
    jobs: dict[str, RolloutJob] = {}
    for name in names if callers else ():
        jobs[name] = replace(_swap(job, name, tool), only=callers)
    for reply, indices in sorted(replies.items()) if len(replies) > 1 else ():
        jobs |= {f"{name}_{reply}": replace(_swap(job, name, tool, reply), only=indices) for name in names}
    return jobs


def _swap(job: RolloutJob, pictures: Pictures, tool: str | None, reply: int | None = None) -> RolloutJob:
    record = {**job.record, "pictures": pictures, **({} if tool is None else {"of": tool, "reply": reply})}
    return replace(job, env=swap_pictures(job.env, pictures, job.tasks, tool, reply), record=record)


def _find_replies(episode: Episode, tool: str) -> Iterator[int]:
    """Yield the numbers of the replies, from 1, of which a call of the tool ran."""
    number = 0
    for turn in episode.turns:
        number += turn.role == "assistant"
        if any(result.was_run and result.tool_name == tool for result in turn.tool_results):
            yield number


@dataclass(frozen=True)
class Worth:
    """What the tasks as they are differ in from each other way.

    Args:
        base: the way of the tasks as they are, `WITH` or `REAL`.
        found: by way, its comparison with the base, which is second.
        faults: by way, episodes that a fault ended: they say nothing about the policy.
        unanswered: by way, the share of the other episodes without an answer.
        uses: with tools, how each was used (`count_uses`).
        of: the tool whose calls alone had other pictures.
        blind: the mean reward of the best answer that knows only the question.
        refused: without tools, they were offered all the same.
    """

    base: str
    found: Mapping[str, Comparison]
    faults: Mapping[str, int]
    unanswered: Mapping[str, float]
    uses: Mapping[str, Mapping[str, float | None]]
    of: str | None = None
    blind: float | None = None
    refused: bool = False

    def explain(self) -> Iterator[str]:
        """Yield the finding of each way, and what it rests on."""
        what = "tools" if self.base == WITH else "pictures"
        if not self.found:
            yield f"{self.of} was not called: nothing can be compared"
        for name, comparison in self.found.items():
            if reward := comparison.scores.get(TOTAL):
                rest = f"; {reward.a.mean / reward.b.mean:.0%} of it stays without" if reward.b.mean else ""
                yield f"against {name}: the {what} are worth {reward.difference.format('+')} of reward{rest}"
            if self.base == WITH and not any(use["calls"] for use in self.uses.values()):
                yield "No tool was called: the policy answers from the first view."
            elif not comparison.is_clear:
                yield comparison.explain()
            if (share := self.unanswered[name]) > MAX_UNANSWERED:
                can_refuse = self.base == WITH and not self.refused
                advice = "; to refuse the calls instead: --refuse, and another --out" if can_refuse else ""
                yield f"{share:.0%} of the episodes of {name} end without an answer, which is a part of this{advice}"
        if any(self.faults.values()):
            counts = ", ".join(f"{count} of {name}" for name, count in self.faults.items())
            yield f"faults ended episodes, which are left out: {counts}"
        if self.blind is not None:
            yield f"blind: the best answer that knows only the question gets {self.blind:.3f}"

    def to_dict(self) -> dict[str, Any]:
        gains = {name: comparison.to_dict() for name, comparison in self.found.items()}
        if self.base == REAL:
            return {"of": self.of, "blind": self.blind, "pictures": gains}
        ((name, gain),) = gains.items()
        about = {"tools": self.uses, "unanswered": self.unanswered[name], "faults": [*self.faults.values()]}
        return {"gains": gain.pop("scores"), **gain, **about}


def measure_worth(
    folder: Path, ways: Sequence[str], tools: Sequence[str] = (), resamples: int = 1000, **more: Any
) -> Worth:
    """Compare what is stored of each way with the first of them. Without `resamples` there are no intervals; `more` are
    fields of `Worth`."""
    base, *others = ways
    comparisons = {name: compare_runs(folder / name, folder / base, resamples=resamples) for name in others}
    answered = {name: [one.answer is not None for one in load(folder / name) if not one.is_fault] for name in ways}
    faults = {name: len(load(folder / name)) - len(answers) for name, answers in answered.items()}
    unanswered = {name: answers.count(False) / max(1, len(answers)) for name, answers in answered.items()}
    return Worth(base, comparisons, faults, unanswered, count_uses(folder / base, tools), **more)


def count_uses(run: Path, tools: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """Return of each tool, those of `tools` first, its calls, those per episode, the share of episodes with one, that
    of calls that succeeded (None without calls), and the calls in which the tool failed."""
    episodes = [[one for turn in each.turns for one in turn.tool_results] for each in load(run) if not each.is_fault]
    results, most = [one for called in episodes for one in called], max(1, len(episodes))
    calls = Counter(one.tool_name for one in results)
    successes = Counter(result.tool_name for result in results if result.success)
    faults = Counter(result.tool_name for result in results if result.is_fault)
    users = Counter(name for called in episodes for name in {one.tool_name for one in called})
    return {
        name: {
            "calls": calls[name],
            "per_episode": calls[name] / most,
            "episodes": users[name] / most,
            "success": successes[name] / calls[name] if calls[name] else None,
            "faults": faults[name],
        }
        for name in dict.fromkeys([*tools, *(name for name, _ in calls.most_common(MAX_TOOLS))])
    }
