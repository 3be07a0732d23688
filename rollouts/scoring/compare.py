"""Two sets of saved episodes, compared on the tasks that both played.

    print(compare_runs("runs/a", "runs/b").scores["reward"].difference)

A task counts once, with the mean of its episodes on each side: the seed and number of a sample couple no two models.
Intervals are those of a bootstrap over tasks (`table.py`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...errors import ConfigError
from ...rewards.looks import FIGURES, read_looks
from ...utils.conditions import format_value, sort_key
from ...utils.values import reaches
from ..store.layout import LINES
from ..store.reader import load
from ..store.run_folder import HELD_OUT, list_held_out
from . import filters
from .reward_source import RewardArgument, build_sharing_check, find_reward, score_episodes
from .table import CONFIDENCE, MAX_GROUPS, MIN_PAIRS, Interval, Table
from .trust import Trust

TOTAL = "reward"  # the name of the total among the scores
SOLVED = 0.5  # a task is solved if its mean reward is at least this
SAME = 1e-9  # a smaller difference is a tie
MAX_FLIPS = 1000  # tasks that are listed, of each direction
SEVERAL = "(several)"  # the group of a task whose episodes have different values


@dataclass(frozen=True)
class Side:
    """One of the two sets of episodes: what was read, and what of it is in no pair."""

    run: str
    episodes: int
    tasks: int
    without_score: int
    unpaired_tasks: int  # tasks that the other side has not, or has no score of
    unreadable: int
    environments: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A score on both sides, and the second minus the first: means over the tasks that have it on both."""

    a: Interval
    b: Interval
    difference: Interval
    wins: int  # tasks whose mean is higher in the second
    ties: int
    losses: int


@dataclass(frozen=True)
class TaskReward:
    """The mean reward of a task on both sides; `a_line` and `b_line` are the first of the lines of its episodes."""

    task: str
    a: float
    b: float
    a_line: int
    b_line: int
    a_episodes: int = 1
    b_episodes: int = 1


@dataclass(frozen=True)
class Comparison:
    """The result of `compare_runs`.

    Args:
        a, b: the two sides.
        tasks: that both have a reward of.
        rewards: of every task; not in `to_dict`.
        scores: the total as "reward", then each component.
        groups: of the total, by the value of `by`; "(several)" has the tasks whose episodes in `a` differ in it.
        gained, lost: tasks that only the second, or only the first, solves; the largest changes first.
        warnings: what makes the two sides hard to compare.
    """

    a: Side
    b: Side
    tasks: int
    scores: dict[str, Difference]
    by: str | None = None
    groups: dict[str, Difference] = field(default_factory=dict)
    gained: tuple[TaskReward, ...] = ()
    lost: tuple[TaskReward, ...] = ()
    warnings: tuple[str, ...] = ()
    resamples: int = 0
    seed: int = 0
    rewards: tuple[TaskReward, ...] = field(default=(), repr=False)

    def explain(self) -> str:
        """Return the finding in a sentence.

        >>> side = Side("a", 1, 1, 0, 1, 0, ())
        >>> Comparison(side, side, 0, {}).explain()
        'No task has a reward in both, so nothing can be compared.'
        """
        reward = self.scores.get(TOTAL)
        if reward is None:
            return "No task has a reward in both, so nothing can be compared."
        low, high = reward.difference.low, reward.difference.high
        if low is None or high is None or low <= 0 <= high:
            return "No clear difference in reward: the interval of the difference holds 0."
        verb = "higher" if reward.difference.mean > 0 else "lower"
        few = f" {self.tasks} tasks are too few to conclude from." if self.tasks < MIN_PAIRS else ""
        return f"Reward is {abs(reward.difference.mean):.3f} {verb} in the second run.{few}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, without the single tasks."""
        values = asdict(replace(self, rewards=()))
        del values["rewards"]
        return {**values, "confidence": CONFIDENCE, "solved_at": SOLVED, "finding": self.explain()}


def compare_runs(
    a: str | Path,
    b: str | Path | None = None,
    *,
    reward: RewardArgument = None,
    where: Sequence[str] = (),
    by: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
    trust: bool = False,
    ask_judge: bool = False,
) -> Comparison:
    """Compare two runs on the tasks that both played.

    A difference is the second minus the first. A task counts once, with the mean of its episodes on each side: it is
    solved if its mean reward is at least 0.5, and won if the second has the higher mean.

    Args:
        a: the first run: a run folder, or a folder of saved episodes. Lines that cannot be read are left out.
        b: the second run. Left out: the held-out episodes of the first run, first against last.
        reward: score both with this reward: a YAML file, module:name or file.py:name; in Python also a reward object.
            Default: as stored.
        where: only episodes with FIELD OP VALUE, such as end_reason=answered; may be repeated.
        by: also compare for each value of this field of the first run's episodes, such as reference.kind.
        resamples: number of bootstrap draws over tasks for the 95 % intervals; 0: no intervals.
        seed: seed of the bootstrap.
        trust: import and run code that a reward inside a run names. Only for runs you trust.
        ask_judge: ask the judge that a reward inside a run names.

    Raises:
        ConfigError: an argument is not allowed, or one run has no held-out episodes of two steps.
        StoreError: there are no episodes.
    """
    if b is None:
        a, b = find_held_out(a)
    conditions = [filters.parse_filter(text) for text in where]
    if by is not None:
        filters.check_field(by)
    allowed = Trust(code=trust, judge=ask_judge)
    read_a = _SideReader(Path(a), reward, conditions, by, allowed)
    read_b = _SideReader(Path(b), reward, conditions, None, allowed)
    pairs = _pair_tasks(read_a, read_b)
    side_a, side_b = read_a.describe(pairs.task_ids), read_b.describe(pairs.task_ids)
    groups = {} if by is None else _compare_groups(pairs, by, resamples, seed)
    warnings = [*_list_warnings(side_a, side_b, read_a, read_b, pairs, rescored=reward is not None)]
    if by is not None and [*groups] == ["null"]:
        why = filters.explain_missing(load(a, errors="skip"), by)
        warnings += [f"--by {by}: {why}"] if why else []
    elif SEVERAL in groups:
        number = groups[SEVERAL].difference.count
        warnings.append(f"--by {by}: the episodes of {number} tasks differ in this field; they are in {SEVERAL}")
    rewards = _list_rewards(pairs, read_a, read_b)
    gained, lost = _find_flips(rewards)
    return Comparison(
        side_a,
        side_b,
        tasks=pairs.tasks,
        scores=_compare_scores(pairs, resamples, seed),
        by=by,
        groups=groups,
        gained=gained,
        lost=lost,
        warnings=tuple(warnings),
        resamples=resamples,
        seed=seed,
        rewards=rewards,
    )


def find_held_out(run: str | Path) -> tuple[Path, Path]:
    """Return the first and the last held-out episodes that a training run has stored.

    Raises:
        ConfigError: it has stored none, or only once.
    """
    folder, steps = Path(run) / HELD_OUT, list_held_out(Path(run))
    if len(steps) < 2:
        found = f"only step {steps[0].name}" if steps else "none"
        raise ConfigError(f"{run}: allowed: two runs, or one that stored held-out episodes twice; in {folder}: {found}")
    return steps[0], steps[-1]


class _SideReader:
    """Reads one run; keeps a few numbers of each episode that has a score."""

    def __init__(self, run: Path, reward: RewardArgument, conditions: Sequence[Any], by: str | None, trust: Trust):
        self.run, self.table = run, Table()
        self.lines: dict[str, list[int]] = {}  # by task
        self.groups: dict[str, str] = {}  # by task
        self.names: dict[str, set[str]] = {}  # of components, by task
        self.episodes = self.without_score = 0
        self.environments: Counter[str] = Counter()
        self._all_tasks: set[str] = set()
        self._stored = load(run, errors="skip")
        source = None if reward is None else find_reward(reward, run, self._stored.folder, trust)
        check = build_sharing_check(source and source.reward, run, self._stored.folder, trust)
        for line, _, episode, scores in score_episodes(self._stored, conditions, source, check):
            task = episode.task.id
            self.episodes += 1
            self.environments[episode.environment] += 1
            self._all_tasks.add(task)
            if scores is None or scores.total is None or episode.is_fault:
                self.without_score += 1
                continue
            parts = {n: one for n, one in scores.components.items() if n != TOTAL}
            looked = read_looks(msgspec.structs.replace(episode, scores=scores)).measure()
            rate = {"tools/rate": float(episode.run_call_count > 0)}
            self.table.add(task, {TOTAL: scores.total} | parts | rate | looked)
            self.lines.setdefault(task, []).append(line)
            self.names.setdefault(task, set()).update(scores.components)
            if by is not None:
                group = format_value(filters.get_field(episode, by))
                self.groups[task] = group if self.groups.setdefault(task, group) == group else SEVERAL

    def describe(self, paired: Sequence[str]) -> Side:
        return Side(
            str(self.run),
            self.episodes,
            len(self._all_tasks),
            self.without_score,
            len(self._all_tasks.difference(paired)),
            self._stored.skipped,
            tuple(name for name, _ in self.environments.most_common(5)),
        )


def _pair_tasks(a: _SideReader, b: _SideReader) -> Table:
    """Return a row for each task of both, in the order of the first: its means, of the columns that apply on both
    sides."""
    pairs, others = Table(), b.table.average_tasks()
    for task, means in a.table.average_tasks().items():
        if task in others:
            row: dict[str, float | None] = {}
            for name, value in means.items():
                other = others[task].get(name)
                if value is not None and other is not None:
                    row |= {f"a/{name}": value, f"b/{name}": other}
            pairs.add(task, row, a.groups.get(task, ""))
    return pairs


def _list_rewards(pairs: Table, a: _SideReader, b: _SideReader) -> tuple[TaskReward, ...]:
    columns = pairs.get_columns()
    totals = [columns.get(f"{side}/{TOTAL}", np.empty(0)).tolist() for side in ("a", "b")]
    return tuple(
        TaskReward(task, one, other, a.lines[task][0], b.lines[task][0], len(a.lines[task]), len(b.lines[task]))
        for task, one, other in zip(pairs.task_ids, *totals, strict=True)
    )


def _find_flips(rewards: Sequence[TaskReward]) -> tuple[tuple[TaskReward, ...], tuple[TaskReward, ...]]:
    """Return the tasks that only b solves, and those that only a solves; the largest changes first."""
    flips = [one for one in rewards if reaches(one.a, SOLVED) != reaches(one.b, SOLVED)]
    flips.sort(key=lambda one: (-abs(one.b - one.a), one.task))
    gained, lost = (tuple(one for one in flips if (one.b > one.a) == up) for up in (True, False))
    return gained[:MAX_FLIPS], lost[:MAX_FLIPS]


def _compare_scores(pairs: Table, resamples: int, seed: int) -> dict[str, Difference]:
    """Return the differences of the total, and of each component that a pair has on both sides."""
    columns, found = pairs.get_columns(), {}
    for name, (a, b, change) in pairs.compute_changes("a", "b", resamples, seed=seed).items():
        if a is not None and b is not None and change is not None and (name not in FIGURES or a.mean or b.mean):
            moved = columns[f"b/{name}"] - columns[f"a/{name}"]
            outcomes = (moved >= SAME, abs(moved) < SAME, moved <= -SAME)
            found[name] = Difference(a, b, change, *(int(one.sum()) for one in outcomes))
    return found


def _compare_groups(pairs: Table, by: str, resamples: int, seed: int) -> dict[str, Difference]:
    if len(pairs.groups) > MAX_GROUPS:
        raise ConfigError(f"--by {by}: more than {MAX_GROUPS} values; choose another field", key="by")
    groups = pairs.by_group((f"a/{TOTAL}", f"b/{TOTAL}"))
    return {value: _compare_scores(groups[value], resamples, seed)[TOTAL] for value in sorted(groups, key=sort_key)}


def _list_warnings(
    a: Side, b: Side, read_a: _SideReader, read_b: _SideReader, pairs: Table, *, rescored: bool
) -> Iterator[str]:
    for side in (a, b):
        if side.unreadable:
            yield f"{side.run}: {side.unreadable} lines of {LINES} cannot be read and were skipped"
        if side.without_score:
            yield f"{side.run}: {side.without_score} episodes have no score and are left out"
    if a.unpaired_tasks or b.unpaired_tasks:
        counts = f"{a.unpaired_tasks} of {a.run}, {b.unpaired_tasks} of {b.run}"
        yield f"tasks with a reward on one side only, which are left out: {counts}"
    if set(a.environments) != set(b.environments):
        names = [", ".join(name or "(none)" for name in side.environments) for side in (a, b)]
        yield f"the environments differ: {names[0]} against {names[1]}"
    components = [{name for task in pairs.task_ids for name in read.names[task]} for read in (read_a, read_b)]
    if not rescored and components[0] != components[1]:
        odd = ", ".join(sorted(components[0] ^ components[1])[:5])
        yield f"the rewards differ: only one side has {odd}; --reward scores both with one reward"
