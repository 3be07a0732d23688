"""Collects the stored and new scores of episodes, and compares them."""

from collections.abc import Mapping

from viewbox.conditions import format_value, sort_key
from viewbox.errors import ConfigError
from viewbox.records import Episode, Scores
from viewbox.rollouts.scoring import filters
from viewbox.rollouts.scoring.bootstrap import Interval, TaskSamples
from viewbox.rollouts.scoring.score_report import EpisodeGroup, RewardFailure, ScoreChange

TOTAL = ""  # the name under which the total stands among the components
MAX_GROUPS = 100


class ScoreCollector:
    """Collects the stored and new scores of episodes, of all and by group."""

    def __init__(self, group_by: str | None) -> None:
        self.group_by = group_by
        self.samples = TaskSamples()
        self.groups: dict[str, TaskSamples] = {}
        self.saved: str | None = None
        self.failures = 0
        self.first_failure: RewardFailure | None = None

    def extend(self, other: "ScoreCollector") -> None:
        """Add the episodes of another collector after those of this one."""
        self.samples.extend(other.samples)
        self.saved = self.saved or other.saved
        self.failures += other.failures
        self.first_failure = self.first_failure or other.first_failure
        for group, samples in other.groups.items():
            self._get_group(group).extend(samples)

    def add_failure(self, line: int, task: str, error: str) -> None:
        """Count a reward that failed."""
        self.failures += 1
        self.first_failure = self.first_failure or RewardFailure(line, task, error)

    def add(self, episode: Episode, scores: Scores) -> None:
        """Add an episode, whose stored scores it holds, with its new scores."""
        values = {f"new/{TOTAL}": scores.total}
        for part, value in scores.components.items():
            values[f"new/{part}"] = value
        self.saved = self.saved or (str(episode.info["saved"]) if "saved" in episode.info else None)
        stored = episode.scores
        if stored is not None:
            values[f"stored/{TOTAL}"] = stored.total
            for part, value in stored.components.items():
                values[f"stored/{part}"] = value
        self.samples.add(episode.task.id, values)
        if self.group_by is not None:
            group = format_value(filters.get_field(episode, self.group_by))
            totals = {key: values[key] for key in (f"new/{TOTAL}", f"stored/{TOTAL}") if key in values}
            self._get_group(group).add(episode.task.id, totals)

    def _get_group(self, group: str) -> TaskSamples:
        if group not in self.groups and len(self.groups) == MAX_GROUPS:
            raise ConfigError(f"--group-by {self.group_by}: more than {MAX_GROUPS} values; choose another field")
        return self.groups.setdefault(group, TaskSamples())

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
        """The total of each group, in the order of their values."""
        return tuple(
            EpisodeGroup(value, samples.rows, samples.tasks, self.compare_scores(samples, resamples, seed)[0])
            for value, samples in sorted(self.groups.items(), key=lambda group: sort_key(group[0]))
        )


def _build_change(intervals: Mapping[str, Interval], part: str) -> ScoreChange:
    new, stored = intervals.get(f"new/{part}"), intervals.get(f"stored/{part}")
    main = new or stored
    return ScoreChange(main.count if main else 0, stored, new, intervals.get(f"change/{part}"))
