"""Scores saved episodes again, with the reward of their environment or with a new reward.

    report = score_run("runs/mine", reward="reward.yaml", where=["end_reason=answered"])
    report.total.change.mean

Needs no model and no torch. Episodes are read one at a time, and only their numbers are kept; token files are not
opened. The new scores become a column beside the stored ones (`columns.py`), which are never changed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...core.base import BaseMultiTurnEnv
from ...errors import ConfigError, StoreError, describe_unknown
from ...records import Episode, Scores
from ...rewards.remote import iter_rewards, take_counts
from ...utils.conditions import format_value, sort_key
from ...utils.files import check_out, write_atomically
from ...utils.secrets import mask_settings
from ...version import __version__
from ..store.columns import ScoreColumnWriter
from ..store.layout import LINES
from ..store.reader import EpisodeReader, load
from . import MIN_TASKS, RULE, filters
from .saved_run import RewardArgument, SavedRun, ScoredEpisode
from .summary import EnvironmentMetrics, EpisodeTally
from .table import CONFIDENCE, MAX_GROUPS, Change, Interval, Table

SCORES = ("stored", "new")
ABOUT = {"average": RULE, "confidence": CONFIDENCE, "few_tasks": MIN_TASKS, "viewbox": __version__}
SIDES = ("stored/", "new/")  # the columns of these names are the totals


@dataclass(frozen=True)
class ScoreChange:
    """A component, or the total, over the `episodes` it applies to: as stored, as scored now, and the paired change."""

    episodes: int
    tasks: int
    stored: Interval | None
    new: Interval | None
    change: Interval | None


@dataclass(frozen=True)
class EpisodeGroup:
    """The total of the episodes with one value of the field given as `group_by`."""

    value: str
    episodes: int
    tasks: int
    total: ScoreChange


@dataclass(frozen=True)
class RewardFailure:
    """A failure of a reward: the episode's line and task, and the error."""

    line: int
    task: str
    error: str


@dataclass(frozen=True)
class ScoreReport:
    """The result of `score_run`. `column` is the file written, if any; `unreadable` gives reasons by line number."""

    run: str
    file: str
    name: str
    reward: Any
    where: tuple[str, ...]
    column: str | None
    episodes: int
    tasks: int
    resamples: int
    seed: int
    total: ScoreChange
    components: dict[str, ScoreChange]
    groups: tuple[EpisodeGroup, ...] = ()
    group_by: str | None = None
    skipped: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    failures: int = 0
    changed: int = 0  # episodes whose stored scores are others
    first_failure: RewardFailure | None = None
    counts: dict[str, float] = field(default_factory=dict)  # counted by the reward: `judge/calls`, …
    metrics: dict[str, Interval] = field(default_factory=dict)  # rates, and the environment's own metrics
    fewer_draws: dict[str, int] = field(default_factory=dict)  # bootstrap draws of figures with fewer than `resamples`
    problems: tuple[str, ...] = ()  # why metrics of an environment are missing
    saved: str | None = None  # the part of the episodes of each step that is stored, such as "8 of 64"; None: all

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "reward": mask_settings(self.reward), **ABOUT}


def score_run(
    run: str | Path,
    *,
    reward: RewardArgument = None,
    where: Sequence[str] = (),
    group_by: str | None = None,
    name: str | None = None,
    replace: bool = False,
    env: str | Path | None = None,
    resamples: int = 1000,
    seed: int = 0,
    ask_judge: bool = False,
    task_rewards: str | Path | None = None,
) -> ScoreReport:
    """Score saved episodes again, without the model.

    Means are over tasks, each with the mean of its episodes that have a score. One that a fault ended
    (`Episode.is_fault`) has none, nor has one on which the reward fails, which is reported. The stored scores stay; a
    `name` stores the new ones beside them.

    A run may come from somebody else. Its own files may therefore name environments and rewards of viewbox only; its
    images and templates are not opened or rendered. What you give as `reward` and `env` is your own. The status is 1 if
    lines of the run cannot be used.

    Args:
        run: a run folder, or a folder of saved episodes. A line that cannot be read is skipped and reported.
        reward: a YAML file, module:name or file.py:name; in Python also a reward object, or a function of (answer,
            reference). Default: the environment's own.
        where: only episodes with FIELD OP VALUE, such as end_reason=answered; may be repeated.
        group_by: a field of the episodes; the reward is also reported for each of its values.
        name: store the scores in the run, as a column that `load(run, scores=name)` reads. Default: nothing is written.
        replace: replace an existing column of that name.
        env: the environment whose reward and metrics are used: a registered name, package.module:Class, file.py:Class,
            or a config whose section `env` names it. Default: the one that the run names.
        resamples: number of bootstrap draws over tasks for the 95 % intervals of metrics; 0: no intervals at all.
        seed: seed of the bootstrap.
        ask_judge: ask the judge that the run's own files name: answers and references are sent to its address.
        task_rewards: a file for the mean reward of each task; a data block's `difficulty: {rewards: …}` reads it.

    Raises:
        ConfigError: an argument is not allowed, or no episode meets the filters.
        StoreError: there are no episodes.
    """
    if task_rewards is not None:
        check_out(task_rewards, "file", "--task-rewards")
    conditions = [filters.parse_filter(text) for text in where]
    if group_by is not None:
        filters.check_field(group_by)
    episodes = load(run, errors="skip")
    saved = SavedRun(run, episodes.folder, reward, env=env, ask_judge=ask_judge)
    source = saved.source
    if reward is not None:
        selected = (item for item in load(run, errors="skip") if all(condition(item) for condition in conditions))
        check_reward_fields(source.reward, selected, saved.try_environment())
    metrics = EnvironmentMetrics(saved.find_metrics(), foreign=True)
    written = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"viewbox": __version__, "written": written, "reward": source.about, "where": list(where)}
    column = None if name is None else ScoreColumnWriter(episodes.folder, name, about, replace=replace)

    take_counts(source.reward)  # discard the counts of earlier scoring
    rescored = _Found(EpisodeTally(scores=False, metrics=metrics))
    with column or nullcontext():
        for item in saved.score(episodes, conditions):
            assert item.scores is not None
            rescored.add(item, item.scores, group_by)
            if column is not None:
                column.add(item.line, item.crc, item.episode.task.id, item.scores)
        table = rescored.tally.table
        if not table.rows:
            raise _explain_empty(episodes, where)
    if task_rewards is not None:
        write_task_rewards(Path(task_rewards), rescored.totals)
    summary = rescored.tally.summarize(resamples, seed=seed, change=SCORES)
    changes = {kind: _describe_change(item) for kind, item in table.collect_changes(summary.figures, *SCORES).items()}
    groups = () if group_by is None else _compare_groups(table, resamples > 0)
    problems = list(summary.problems)
    if group_by is not None and [item.value for item in groups] == ["null"]:
        why = filters.explain_missing(load(run, errors="skip"), group_by)
        problems += [f"--group-by {group_by}: {why}"] if why else []
    return ScoreReport(
        run=str(run),
        file=str(episodes.folder / LINES),
        name=source.name if name is None else name,
        reward=source.about,
        where=tuple(where),
        column=None if column is None else str(column.path),
        episodes=table.rows,
        tasks=table.tasks,
        resamples=resamples,
        seed=seed,
        total=changes.pop(""),
        components=changes,
        groups=groups,
        saved=rescored.saved,
        group_by=group_by,
        skipped=episodes.skipped,
        unreadable=episodes.unreadable,
        failures=rescored.failures,
        changed=rescored.changed,
        first_failure=rescored.first_failure,
        counts=take_counts(source.reward),
        metrics={name: item for name, item in summary.figures.items() if not name.startswith(("change/", *SIDES))},
        fewer_draws=summary.fewer_draws,
        problems=tuple(problems),
    )


@dataclass
class _Found:
    """What was found in a run: the new totals by task, on how many episodes the reward failed, and what part of a step
    is stored. Scores are the columns `stored/NAME` and `new/NAME` of the tally, the total is `stored/` and `new/`."""

    tally: EpisodeTally
    totals: dict[str, list[float]] = field(default_factory=dict)
    saved: str | None = None
    failures: int = 0
    first_failure: RewardFailure | None = None
    changed: int = 0

    def add(self, one: ScoredEpisode, scores: Scores, group_by: str | None) -> None:
        episode, stored = one.episode, one.episode.scores
        for component, fault in list(scores.faults.items())[:1]:
            self.failures += 1
            failure = RewardFailure(one.line, episode.task.id, f"reward component {component!r} {fault}")
            self.first_failure = self.first_failure or failure
        values = {"new/": scores.total, **{f"new/{name}": value for name, value in scores.components.items()}}
        if stored is not None and not episode.is_fault:  # which says nothing about the policy
            before = {**scores.components, **stored.components}
            self.changed += stored.total != scores.total or any(before[n] != v for n, v in scores.components.items())
            values |= {"stored/": stored.total, **{f"stored/{name}": one for name, one in stored.components.items()}}
        group = "" if group_by is None else format_value(filters.get_field(episode, group_by))
        self.tally.add(episode, values, group, scores)
        if len(self.tally.table.groups) > MAX_GROUPS:
            raise ConfigError(f"--group-by {group_by}: more than {MAX_GROUPS} values; choose another field")
        if scores.total is not None:
            self.totals.setdefault(episode.task.id, []).append(scores.total)
        self.saved = self.saved or (str(episode.info["saved"]) if "saved" in episode.info else None)


def _describe_change(one: Change) -> ScoreChange:
    main = one.new or one.old
    return ScoreChange(main.count if main else 0, main.tasks if main else 0, *one)


def _compare_groups(table: Table, intervals: bool) -> tuple[EpisodeGroup, ...]:
    """Return the total of each group, in the order of their values."""
    groups = table.by_group(SIDES)
    compared = []
    for value in sorted(groups, key=sort_key):
        total = groups[value].compute_changes(*SCORES, intervals)[""]
        compared.append(EpisodeGroup(value, groups[value].rows, groups[value].tasks, _describe_change(total)))
    return tuple(compared)


def write_task_rewards(path: Path, totals: Mapping[str, Sequence[float]]) -> None:
    """Write the mean reward of each task as a line of JSON; `totals` has those of its episodes, by task id."""
    lines = (
        {"task": task, "reward": sum(rewards) / len(rewards), "episodes": len(rewards)}
        for task, rewards in totals.items()
    )
    write_atomically(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def _explain_empty(reader: EpisodeReader, where: Sequence[str]) -> ConfigError | StoreError:
    """Return the error if no episode was scored."""
    file = reader.folder / LINES
    if where:
        return ConfigError(f"{file}: no episode meets --where {' and '.join(map(repr, where))}")
    reason = next((f"; line {line}: {reason}" for line, reason in reader.unreadable.items()), "")
    lost = f" ({reader.skipped} lines cannot be read{reason})" if reader.skipped else ""
    return StoreError(f"{file}: holds no episodes{lost}")


MAX_NAMES = 1000  # of fields that are kept for the message


def check_reward_fields(reward: object, episodes: Iterable[Episode], env: BaseMultiTurnEnv | None = None) -> None:
    """Raise `ConfigError` if a reward reads a field that no answer of these episodes has.

    Episodes are read until each field was found, there or in the schema of `env`; without any answer, nothing is
    refused.

    >>> from viewbox.records import Task
    >>> from viewbox.rewards import ExactMatchReward
    >>> check_reward_fields(ExactMatchReward("lable"), [Episode(Task("t"), answer={"label": 1})])
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward: reads a field that no answer of these episodes has: unknown answer field \
'lable'; allowed: label (did you mean 'label'?)
    """
    schema = None if env is None else env.answer_format.schema
    known: set[str] = set(schema.get("properties", ())) if isinstance(schema, dict) else set()
    missing = {first: field for field in _list_fields(reward) if (first := _get_first(field)) and first not in known}
    answers = 0
    for episode in episodes if missing else ():
        if episode.answer is None:
            continue
        answers += 1
        if len(known) < MAX_NAMES:
            known.update(episode.answer)
        missing = {first: field for first, field in missing.items() if first not in episode.answer}
        if not missing:
            return
    if missing and answers:
        field = next(iter(missing.values()))
        raise ConfigError(
            "reward: reads a field that no answer of these episodes has: "
            + describe_unknown("answer field", field, known),
            key="reward",
        )


def _list_fields(reward: Any) -> Iterator[str]:
    for inner in iter_rewards(reward):
        field = getattr(inner, "field", None)
        if isinstance(field, str) and type(inner).__module__.startswith("viewbox.rewards."):
            yield field


def _get_first(field: str) -> str:
    """Return the field of the answer that a path begins with.

    >>> _get_first("findings[].box"), _get_first("size.mm")
    ('findings', 'size')
    """
    return field.partition(".")[0].partition("[")[0]
