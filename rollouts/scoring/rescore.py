"""Scores saved episodes again, with the reward of their environment or with a new reward.

    report = score_run("runs/mine", reward="reward.yaml", where=["end_reason=answered"])
    report.total.change.mean

Needs no model and no torch. Episodes are read one at a time, and only their numbers are kept; token files are not
opened. The new scores become a column beside the stored ones (`columns.py`), which are never changed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from viewbox import __version__
from viewbox.conditions import format_value, sort_key
from viewbox.errors import ConfigError, StoreError
from viewbox.files import write_atomically
from viewbox.network.data_policy import guard_sending
from viewbox.network.secrets import mask_settings
from viewbox.records import Episode, Scores
from viewbox.rewards.remote import count_threads, take_counts
from viewbox.rollouts.scoring import filters
from viewbox.rollouts.scoring.bootstrap import CONFIDENCE, Interval, TaskSamples
from viewbox.rollouts.scoring.data_policy import build_sharing_check, read_environment
from viewbox.rollouts.scoring.field_check import check_reward_fields
from viewbox.rollouts.scoring.parallel import map_in_order
from viewbox.rollouts.scoring.reward_source import RewardArgument, find_reward, open_environment, try_environment
from viewbox.rollouts.scoring.summary import EpisodeTally
from viewbox.rollouts.scoring.trust import Trust
from viewbox.rollouts.store.columns import ScoreColumnWriter
from viewbox.rollouts.store.reader import LINES, EpisodeReader, load

TOTAL = ""  # the name under which the total stands among the components
MAX_GROUPS = 100


@dataclass(frozen=True)
class ScoreChange:
    """A component, or the total, over the `episodes` it applies to: as stored, as scored now, and the paired change."""

    episodes: int
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
    """The first failure of a reward: the episode's line and task, and the error."""

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
    first_failure: RewardFailure | None = None
    counts: dict[str, float] = field(default_factory=dict)  # counted by the reward: `judge/calls`, …
    metrics: dict[str, Interval] = field(default_factory=dict)  # rates, and the environment's own metrics
    fewer_draws: dict[str, int] = field(default_factory=dict)  # bootstrap draws of figures with fewer than `resamples`
    problems: tuple[str, ...] = ()  # why metrics of an environment are missing

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, for `--json`."""
        return {**asdict(self), "reward": mask_settings(self.reward), "confidence": CONFIDENCE, "viewbox": __version__}


class _ScoredEpisode(NamedTuple):
    line: int
    crc: int
    episode: Episode
    scores: Scores | None
    refusal: str = ""  # if there are no scores: what the episode names is not allowed, or cannot be made


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
    trust: bool = False,
    ask_judge: bool = False,
    task_rewards: str | Path | None = None,
) -> ScoreReport:
    """Score saved episodes again. A reward that fails on an episode leaves it without a score, and is reported.

    Means are over the episodes that have a score. One that a fault ended (`Episode.is_fault`) has none.

    A run may come from somebody else. Its own files may therefore name registered environments and built-in rewards
    only; its images and templates are not opened or rendered. What you give as `reward` is your own.

    Args:
        run: a run folder, or a folder of episodes. A line that cannot be read is skipped and reported.
        reward: a reward object, a function of (answer, reference), a YAML file, an import path, or None for the
            environment's own.
        where: filters (`filters.py`); only episodes that meet all of them are scored.
        group_by: a field; the total is also reported for each of its values.
        name: store the scores in the run, as a column that `load(run, scores=name)` reads. Default: nothing is written.
        replace: replace an existing column of that name.
        env: the environment whose reward and metrics are used, instead of the one that the run names: a registered
            name, `package.module:Class`, `file.py:Class`, or a config whose section `env` names it.
        resamples: bootstrap draws over tasks for the intervals (`bootstrap.py`); 0: no intervals.
        seed: seed of the bootstrap.
        trust: import the code that the run's own files name: its environment, its `python` rewards.
        ask_judge: ask the judge that the run's own files name: answers and references are sent to its address.
        task_rewards: a file to which the mean reward of each task is written, for `data.difficulty.rewards`.

    Raises:
        ConfigError: an argument is not allowed, or no episode meets the filters.
        StoreError: there are no episodes.
    """
    conditions = [filters.parse_filter(text) for text in where]
    if group_by is not None:
        filters.check_field(group_by)
    episodes = load(run, errors="skip")
    allowed = Trust(code=trust, judge=ask_judge)
    given = None if env is None else open_environment(env, Path(run), episodes.folder)
    source = find_reward(reward, Path(run), episodes.folder, allowed, given)
    if reward is not None:
        known = given or try_environment(Path(run), episodes.folder, allowed)
        selected = (one for one in load(run, errors="skip") if all(condition(one) for condition in conditions))
        check_reward_fields(source.reward, selected, known)
    collector = _ScoreCollector(group_by)
    environment = given or read_environment(Path(run), episodes.folder, allowed)
    tally = EpisodeTally(environment, scores=False, trust=allowed, foreign=True)
    written = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"viewbox": __version__, "written": written, "reward": source.about, "where": list(where)}
    column = None if name is None else ScoreColumnWriter(episodes.folder, name, about, replace=replace)
    check_sharing = build_sharing_check(source.reward, Path(run), episodes.folder, allowed)

    def select_episodes() -> Iterator[tuple[int, int, Episode]]:
        for episode in episodes:
            if all(condition(episode) for condition in conditions):
                check_sharing(episode)
                yield episodes.line, episodes.crc, episode

    def score_episode(selected: tuple[int, int, Episode]) -> _ScoredEpisode:
        guard = guard_sending(partial(check_sharing, selected[2]))  # of a reward that does not say where it sends
        with guard:
            try:
                return _ScoredEpisode(*selected, source.score(selected[2]))
            except ConfigError as error:
                return _ScoredEpisode(*selected, None, str(error))

    refusal: str | None = None
    totals: dict[str, list[float]] = {}
    take_counts(source.reward)  # discard the counts of earlier scoring
    with column or nullcontext():
        for scored in map_in_order(score_episode, select_episodes(), threads=count_threads(source.reward)):
            if scored.scores is None:
                refusal = refusal or scored.refusal
                episodes.skip(scored.line, scored.refusal)
                continue
            for component, fault in list(scored.scores.faults.items())[:1]:
                collector.add_failure(scored.line, scored.episode.task.id, f"reward component {component!r} {fault}")
            collector.add(scored.episode, scored.scores)
            if scored.scores.total is not None:
                totals.setdefault(scored.episode.task.id, []).append(scored.scores.total)
            tally.add(scored.episode)
            if column is not None:
                column.add(scored.line, scored.crc, scored.episode.task.id, scored.scores)
        if not collector.samples.rows:
            raise ConfigError(refusal) if refusal else _explain_empty(episodes, where)
    if task_rewards is not None:
        write_task_rewards(Path(task_rewards), totals)
    total, components = collector.compare_scores(collector.samples, resamples, seed)
    summary = tally.summarize(resamples, seed=seed)
    return ScoreReport(
        run=str(run),
        file=str(episodes.folder / LINES),
        name=source.name if name is None else name,
        reward=source.about,
        where=tuple(where),
        column=None if column is None else str(column.path),
        episodes=collector.samples.rows,
        tasks=collector.samples.tasks,
        resamples=resamples,
        seed=seed,
        total=total,
        components=components,
        groups=collector.compare_groups(resamples, seed),
        group_by=group_by,
        skipped=episodes.skipped,
        unreadable=episodes.unreadable,
        failures=collector.failures,
        first_failure=collector.first_failure,
        counts=take_counts(source.reward),
        metrics=summary.figures,
        fewer_draws=summary.fewer_draws,
        problems=(*summary.problems, *collector.samples.describe_dropped()),
    )


def write_task_rewards(path: Path, totals: Mapping[str, Sequence[float]]) -> None:
    """Write the mean reward of each task as a line of JSON; `totals` has those of its episodes, by task id."""
    lines = (
        {"task": task, "reward": sum(rewards) / len(rewards), "episodes": len(rewards)}
        for task, rewards in totals.items()
    )
    write_atomically(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


class _ScoreCollector:
    """Collects the stored and new scores of episodes, of all and by group."""

    def __init__(self, group_by: str | None) -> None:
        self.group_by = group_by
        self.samples = TaskSamples()
        self.groups: dict[str, TaskSamples] = {}
        self.failures = 0
        self.first_failure: RewardFailure | None = None

    def add_failure(self, line: int, task: str, error: str) -> None:
        self.failures += 1
        self.first_failure = self.first_failure or RewardFailure(line, task, error)

    def add(self, episode: Episode, scores: Scores) -> None:
        values = {f"new/{part}": value for part, value in ((TOTAL, scores.total), *scores.components.items())}
        stored = episode.scores
        if stored is not None:
            values[f"stored/{TOTAL}"] = stored.total
            values |= {f"stored/{part}": value for part, value in stored.components.items()}
        self.samples.add(episode.task.id, values)
        if self.group_by is not None:
            group = format_value(filters.get_field(episode, self.group_by))
            if group not in self.groups and len(self.groups) == MAX_GROUPS:
                raise ConfigError(f"--group-by {self.group_by}: more than {MAX_GROUPS} values; choose another field")
            totals = {key: values[key] for key in (f"new/{TOTAL}", f"stored/{TOTAL}") if key in values}
            self.groups.setdefault(group, TaskSamples()).add(episode.task.id, totals)

    def compare_scores(
        self, samples: TaskSamples, resamples: int, seed: int
    ) -> tuple[ScoreChange, dict[str, ScoreChange]]:
        """The total and every component; components of the new scores come first."""
        names = samples.get_names()
        parts = list(dict.fromkeys(key.partition("/")[2] for key in sorted(names, key=lambda key: key[:3] != "new")))
        both = [part for part in parts if {f"new/{part}", f"stored/{part}"} <= set(names)]
        intervals = samples.compute_intervals(
            resamples, seed=seed, differences={f"change/{part}": (f"new/{part}", f"stored/{part}") for part in both}
        )
        changes = {part: _build_change(intervals, part) for part in parts}
        return changes.pop(TOTAL), changes

    def compare_groups(self, resamples: int, seed: int) -> tuple[EpisodeGroup, ...]:
        return tuple(
            EpisodeGroup(value, samples.rows, samples.tasks, self.compare_scores(samples, resamples, seed)[0])
            for value, samples in sorted(self.groups.items(), key=lambda group: sort_key(group[0]))
        )


def _build_change(intervals: Mapping[str, Interval], part: str) -> ScoreChange:
    new, stored = intervals.get(f"new/{part}"), intervals.get(f"stored/{part}")
    main = new or stored
    return ScoreChange(main.count if main else 0, stored, new, intervals.get(f"change/{part}"))


def _explain_empty(episodes: EpisodeReader, where: Sequence[str]) -> ConfigError | StoreError:
    """The error if no episode was scored."""
    file = episodes.folder / LINES
    if where:
        return ConfigError(f"{file}: no episode meets --where {' and '.join(map(repr, where))}")
    reason = next((f"; line {line}: {reason}" for line, reason in episodes.unreadable.items()), "")
    lost = f" ({episodes.skipped} lines cannot be read{reason})" if episodes.skipped else ""
    return StoreError(f"{file}: holds no episodes{lost}")
