"""Offline scoring: saved episodes judged again, with the reward of their environment or one written today.

    report = score("runs/mine", reward="reward.yaml", where=["end_reason=answered"])
    report.total.change.mean

Needs no model and no torch. Episodes are read one at a time and only their numbers are kept; token files are not
opened. The new scores go into a column beside the stored ones (`columns.py`), never over them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from viewbox import __version__
from viewbox.errors import ConfigError, StoreError
from viewbox.records import Episode, Scores
from viewbox.rewards.combined import refusals
from viewbox.rewards.remote import take_counts, threads_for
from viewbox.rollouts.scoring import filters
from viewbox.rollouts.scoring.bootstrap import CONFIDENCE, Interval, Samples
from viewbox.rollouts.scoring.data_policy import leave_to_judge, named_in
from viewbox.rollouts.scoring.parallel import in_order
from viewbox.rollouts.scoring.reward_source import judge_of
from viewbox.rollouts.scoring.summary import Tally
from viewbox.rollouts.store import columns
from viewbox.rollouts.store.reader import LINES, EpisodeReader, load

TOTAL = ""  # the total's place among the components
MOST_GROUPS = 100


@dataclass(frozen=True)
class Row:
    """One component, or the total: over `episodes` it applies to, as stored, as scored now, and the paired change."""

    episodes: int
    stored: Interval | None
    new: Interval | None
    change: Interval | None


@dataclass(frozen=True)
class Group:
    """The total of the episodes that have one value of the field asked for."""

    value: str
    episodes: int
    tasks: int
    total: Row


@dataclass(frozen=True)
class Failure:
    """The first thing a reward did wrong."""

    line: int
    task: str
    error: str


@dataclass(frozen=True)
class Report:
    """What scoring found. `column` is the file written, if any; `unreadable` says by line why (of the first 100)."""

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
    total: Row
    components: dict[str, Row]
    groups: tuple[Group, ...] = ()
    group_by: str | None = None
    skipped: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    failures: int = 0
    first_failure: Failure | None = None
    counts: dict[str, float] = field(default_factory=dict)  # what the reward counted: `judge/calls`, …
    metrics: dict[str, Interval] = field(default_factory=dict)  # rates, and what the environment declares
    fewer: dict[str, int] = field(default_factory=dict)  # drawings of the metrics that have fewer than `resamples`
    problems: tuple[str, ...] = ()  # why there are no metrics of an environment, or not all

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "confidence": CONFIDENCE, "viewbox": __version__}


def score(
    run: str | Path,
    *,
    reward: Any = None,
    where: Sequence[str] = (),
    group_by: str | None = None,
    name: str | None = None,
    replace: bool = False,
    write: bool = True,
    resamples: int = 1000,
    seed: int = 0,
) -> Report:
    """Scores the episodes in `run` (a run folder, or a folder of episodes) that meet every condition of `where`.

    `reward` is a reward object, a function of (answer, reference), a YAML file, an import path, or None: the
    environment's own. A reward that raises counts 0 for that episode and is reported. With `write` the scores become
    the column `name` (default: the reward's name), which `load(run, scores=name)` reads; an existing one is replaced
    with `replace` only. Intervals are of `resamples` bootstrap draws over tasks (`bootstrap.py`); 0: none.
    Raises `ConfigError` and `StoreError`; a line that cannot be read is skipped and reported.
    """
    conditions = [filters.where(text) for text in where]
    if group_by is not None:
        filters.check_field(group_by)
    episodes = load(run, errors="skip")
    judge = judge_of(reward, Path(run), episodes.folder)
    name = judge.name if name is None else name
    tally, others = _Tally(group_by), Tally(named_in(Path(run), episodes.folder), scores=False)
    written = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"viewbox": __version__, "written": written, "reward": judge.about, "where": list(where)}
    column = columns.ScoreColumnWriter(episodes.folder, name, about, replace=replace) if write else None
    may_leave = leave_to_judge(judge.reward, Path(run), episodes.folder)

    def wanted() -> Iterator[tuple[int, int, Episode]]:
        for episode in episodes:
            if all(condition(episode) for condition in conditions):
                may_leave(episode)
                yield episodes.line, episodes.crc, episode

    def judged(found: tuple[int, int, Episode]) -> tuple[int, int, Episode, Scores, list[str]]:
        with refusals() as refused:
            return *found, judge.score(found[2]), refused

    take_counts(judge.reward)  # those of earlier scoring are not of this
    with column or nullcontext():
        for line, crc, episode, scores, refused in in_order(judged, wanted(), threads=threads_for(judge.reward)):
            if refused:
                tally.fail(line, episode.task.id, refused[0])
            tally.add(episode, scores)
            others.add(episode)
            if column is not None:
                column.add(line, crc, episode.task.id, scores)
        if not tally.all.rows:
            raise _nothing(episodes, where)
    total, components = tally.rows(tally.all, resamples, seed)
    summary = others.summary(resamples, seed=seed)
    return Report(
        run=str(run),
        file=str(episodes.folder / LINES),
        name=name,
        reward=judge.about,
        where=tuple(where),
        column=None if column is None else str(column.path),
        episodes=tally.all.rows,
        tasks=tally.all.tasks,
        resamples=resamples,
        seed=seed,
        total=total,
        components=components,
        groups=tally.group_rows(resamples, seed),
        group_by=group_by,
        skipped=episodes.skipped,
        unreadable=episodes.unreadable,
        failures=tally.failures,
        first_failure=tally.first_failure,
        counts=take_counts(judge.reward),
        metrics=summary.figures,
        fewer=summary.fewer,
        problems=summary.problems,
    )


class _Tally:
    """The numbers of the episodes scored so far, in all and by group."""

    def __init__(self, group_by: str | None) -> None:
        self.group_by = group_by
        self.all = Samples()
        self.groups: dict[str, Samples] = {}
        self.failures = 0
        self.first_failure: Failure | None = None

    def fail(self, line: int, task: str, error: str) -> None:
        self.failures += 1
        self.first_failure = self.first_failure or Failure(line, task, error)

    def add(self, episode: Episode, scores: Scores) -> None:
        values = {f"new/{part}": value for part, value in ((TOTAL, scores.total), *scores.components.items())}
        stored = episode.scores
        if stored is not None:
            values[f"stored/{TOTAL}"] = stored.total
            values |= {f"stored/{part}": value for part, value in stored.components.items()}
        self.all.add(episode.task.id, values)
        if self.group_by is not None:
            group = filters.words(filters.value_of(episode, self.group_by))
            if group not in self.groups and len(self.groups) == MOST_GROUPS:
                raise ConfigError(f"--group-by {self.group_by}: more than {MOST_GROUPS} values; choose another field")
            totals = {key: values[key] for key in (f"new/{TOTAL}", f"stored/{TOTAL}") if key in values}
            self.groups.setdefault(group, Samples()).add(episode.task.id, totals)

    def rows(self, samples: Samples, resamples: int, seed: int) -> tuple[Row, dict[str, Row]]:
        """The total and every component, those scored now first."""
        names = samples.names()
        parts = list(dict.fromkeys(key.partition("/")[2] for key in sorted(names, key=lambda key: key[:3] != "new")))
        both = [part for part in parts if {f"new/{part}", f"stored/{part}"} <= set(names)]
        found = samples.intervals(
            resamples, seed=seed, differences={f"change/{part}": (f"new/{part}", f"stored/{part}") for part in both}
        )
        rows = {part: _row(found, part) for part in parts}
        return rows.pop(TOTAL), rows

    def group_rows(self, resamples: int, seed: int) -> tuple[Group, ...]:
        return tuple(
            Group(value, samples.rows, samples.tasks, self.rows(samples, resamples, seed)[0])
            for value, samples in sorted(self.groups.items())
        )


def _row(found: Mapping[str, Interval], part: str) -> Row:
    new, stored = found.get(f"new/{part}"), found.get(f"stored/{part}")
    main = new or stored
    return Row(main.count if main else 0, stored, new, found.get(f"change/{part}"))


def _nothing(episodes: EpisodeReader, where: Sequence[str]) -> Exception:
    file = episodes.folder / LINES
    if where:
        return ConfigError(f"{file}: no episode meets --where {' and '.join(map(repr, where))}")
    why = next((f"; line {line}: {why}" for line, why in episodes.unreadable.items()), "")
    lost = f" ({episodes.skipped} lines cannot be read{why})" if episodes.skipped else ""
    return StoreError(f"{file}: holds no episodes{lost}")
