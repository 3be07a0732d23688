"""Two sets of saved episodes, compared on the tasks that both played.

    print(compare_runs("runs/a", "runs/b").scores["reward"].difference)

A task counts once, with the mean of its episodes on each side (`table.py`): the seed and number of a sample couple no
two models.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...records import Scores
from ...rewards.looks import FIGURES, VERDICTS, read_looks
from ...utils.conditions import format_value, sort_key
from ...utils.values import reaches
from ..store.layout import LINES
from ..store.reader import load
from ..store.run_folder import HELD_OUT, list_held_out
from . import MIN_TASKS, RULE, filters
from .saved_run import RewardArgument, SavedRun
from .table import CONFIDENCE, MAX_GROUPS, Interval, Table, pair_tasks

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
    a_verdict: str | None = None  # of its episodes (`rewards/looks.py`); "(several)" if they differ
    b_verdict: str | None = None


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
        moved: the number of tasks by the verdict in the first and that in the second: {"search": {"seen": 12}}.
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
    moved: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    rewards: tuple[TaskReward, ...] = field(default=(), repr=False)

    @property
    def is_clear(self) -> bool:
        """Whether enough tasks say that the reward differs: the interval does not hold 0."""
        change = self.scores[TOTAL].difference if TOTAL in self.scores else None
        if change is None or change.low is None or change.high is None or self.tasks < MIN_TASKS:
            return False
        return not change.low <= 0 <= change.high

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
        if low is None or high is None:
            return "Without an interval (of one task, or not computed) nothing is said about the difference in reward."
        few = f" {self.tasks} tasks are too few to conclude from." if self.tasks < MIN_TASKS else ""
        if low <= 0 <= high:
            return f"No clear difference in reward: the interval of the difference holds 0.{few}"
        verb = "higher" if reward.difference.mean > 0 else "lower"
        return f"Reward is {abs(reward.difference.mean):.3f} {verb} in the second run.{few}"

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, without the single tasks."""
        values = asdict(replace(self, rewards=()))
        del values["rewards"]
        about = {"average": RULE, "confidence": CONFIDENCE, "few_tasks": MIN_TASKS, "solved_at": SOLVED}
        return {**values, **about, "finding": self.explain()}


def compare_runs(
    a: str | Path,
    b: str | Path | None = None,
    *,
    reward: RewardArgument = None,
    where: Sequence[str] = (),
    by: str | None = None,
    resamples: int = 1000,
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
        resamples: no intervals if this is 0; those of means need no bootstrap draws.
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
    read_a = _SideReader(Path(a), reward, conditions, by, ask_judge)
    read_b = _SideReader(Path(b), reward, conditions, None, ask_judge)
    pairs = pair_tasks(read_a.table, read_b.table, read_a.groups)
    rewards = _list_rewards(pairs, read_a, read_b)
    side_a, side_b = (read.describe([item.task for item in rewards]) for read in (read_a, read_b))
    groups = {} if by is None else _compare_groups(pairs, by, resamples > 0)
    warnings = [*_list_warnings(side_a, side_b, read_a, read_b, pairs, rescored=reward is not None)]
    if by is not None and [*groups] == ["null"]:
        why = filters.explain_missing(load(a, errors="skip"), by)
        warnings += [f"--by {by}: {why}"] if why else []
    elif SEVERAL in groups:
        number = groups[SEVERAL].difference.count
        warnings.append(f"--by {by}: the episodes of {number} tasks differ in this field; they are in {SEVERAL}")
    scores, moved = compare_scores(pairs, resamples > 0), _count_moves(rewards)
    found = (len(rewards), scores, by, groups, *_find_flips(rewards), moved, tuple(warnings), rewards)
    return Comparison(side_a, side_b, *found)


def find_held_out(run: str | Path) -> tuple[Path, Path]:
    """Return the first and the last held-out episodes that a training run has stored. Raise `ConfigError` if it has
    stored none, or only once."""
    folder, steps = Path(run) / HELD_OUT, list_held_out(Path(run))
    if len(steps) < 2:
        found = f"only step {steps[0].name}" if steps else "none"
        raise ConfigError(f"{run}: allowed: two runs, or one that stored held-out episodes twice; in {folder}: {found}")
    return steps[0], steps[-1]


class _SideReader:
    """Reads one run; keeps a few numbers of each episode that has a score."""

    def __init__(self, run: Path, reward: RewardArgument, conditions: Sequence[Any], by: str | None, ask_judge: bool):
        self.run, self.table = run, Table()
        self.lines: dict[str, list[int]] = {}  # by task
        self.groups: dict[str, str] = {}  # by task
        self.verdicts: dict[str, str] = {}  # by task
        self.names: dict[str, set[str]] = {}  # of components, by task
        self.without_score = 0
        self.environments: Counter[str] = Counter()
        self._all_tasks: set[str] = set()
        self.stored = load(run, errors="skip")
        saved = SavedRun(run, self.stored.folder, reward, ask_judge=ask_judge)
        for line, _, episode, scores in saved.score(self.stored, conditions, stored=reward is None):
            task = episode.task.id
            self.environments[episode.environment] += 1
            self._all_tasks.add(task)
            if scores is not None and not episode.is_fault:
                looked = read_looks(episode, scores=scores)
                rate = {"tools/rate": float(episode.run_call_count > 0)}
                self.table.add(task, {**list_scores(scores), **rate, **looked.measure()})
                _keep(self.verdicts, task, looked.verdict)
                self.names.setdefault(task, set()).update(scores.components)
            if scores is None or scores.total is None or episode.is_fault:
                self.without_score += 1
                continue
            self.lines.setdefault(task, []).append(line)
            if by is not None:
                _keep(self.groups, task, format_value(filters.get_field(episode, by)))

    def describe(self, paired: Sequence[str]) -> Side:
        tasks, unpaired = len(self._all_tasks), len(self._all_tasks.difference(paired))
        names = tuple(name for name, _ in self.environments.most_common(5))
        episodes, unreadable = self.environments.total(), self.stored.skipped
        return Side(str(self.run), episodes, tasks, self.without_score, unpaired, unreadable, names)


def _keep(values: dict[str, str], task: str, value: str | None) -> None:
    """Note a value of an episode of a task, whose others may have another one."""
    if value is not None:
        values[task] = value if values.setdefault(task, value) == value else SEVERAL


def _list_rewards(pairs: Table, a: _SideReader, b: _SideReader) -> tuple[TaskReward, ...]:
    columns = pairs.get_columns()
    totals = [columns.get(f"{side}/{TOTAL}", np.empty(0)).tolist() for side in ("a", "b")]
    return tuple(
        TaskReward(
            *(task, total, other, a.lines[task][0], b.lines[task][0], len(a.lines[task]), len(b.lines[task])),
            *(side.verdicts.get(task) for side in (a, b)),
        )
        for task, total, other in zip(pairs.task_ids, *totals, strict=False)
        if not math.isnan(total)
    )


def _find_flips(rewards: Sequence[TaskReward]) -> tuple[tuple[TaskReward, ...], tuple[TaskReward, ...]]:
    """Return the tasks that only b solves, and those that only a solves; the largest changes first."""
    flips = [flip for flip in rewards if reaches(flip.a, SOLVED) != reaches(flip.b, SOLVED)]
    flips.sort(key=lambda flip: (-abs(flip.b - flip.a), flip.task))
    gained, lost = (tuple(flip for flip in flips if (flip.b > flip.a) == up) for up in (True, False))
    return gained[:MAX_FLIPS], lost[:MAX_FLIPS]


def _count_moves(rewards: Sequence[TaskReward]) -> dict[str, dict[str, int]]:
    pairs = Counter((reward.a_verdict, reward.b_verdict) for reward in rewards if reward.a_verdict and reward.b_verdict)
    names = (*VERDICTS, SEVERAL)
    moves = {a: {b: pairs[a, b] for b in names if pairs[a, b]} for a in names}
    return {a: counts for a, counts in moves.items() if counts}


def list_scores(scores: Scores) -> dict[str, float | None]:
    """Return the total and the components by name; none has that of the total."""
    return {TOTAL: scores.total} | {name: score for name, score in scores.components.items() if name != TOTAL}


def compare_scores(pairs: Table, intervals: bool) -> dict[str, Difference]:
    """Return the differences of the columns `a/NAME` and `b/NAME`: of the total, and of each component."""
    columns, differences = pairs.get_columns(), {}
    for name, (a, b, change) in pairs.compute_changes("a", "b", intervals).items():
        if a is not None and b is not None and change is not None and (name not in FIGURES or a.mean or b.mean):
            moved = columns[f"b/{name}"] - columns[f"a/{name}"]
            outcomes = (moved >= SAME, abs(moved) < SAME, moved <= -SAME)
            differences[name] = Difference(a, b, change, *(int(outcome.sum()) for outcome in outcomes))
    return differences


def _compare_groups(pairs: Table, by: str, intervals: bool) -> dict[str, Difference]:
    if len(pairs.groups) > MAX_GROUPS:
        raise ConfigError(f"--by {by}: more than {MAX_GROUPS} values; choose another field", key="by")
    groups = pairs.by_group((f"a/{TOTAL}", f"b/{TOTAL}"))
    compared = {value: compare_scores(groups[value], intervals) for value in sorted(groups, key=sort_key)}
    return {value: scores[TOTAL] for value, scores in compared.items() if TOTAL in scores}


def _list_warnings(
    a: Side, b: Side, read_a: _SideReader, read_b: _SideReader, pairs: Table, *, rescored: bool
) -> Iterator[str]:
    for side, read in ((a, read_a), (b, read_b)):
        if side.unreadable:
            first = next(f"line {line}: {why:.200}" for line, why in read.stored.unreadable.items())
            yield f"{side.run}: {side.unreadable} lines of {LINES} cannot be read and were skipped; the first: {first}"
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
