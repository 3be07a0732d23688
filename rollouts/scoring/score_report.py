"""What `score_run` finds: scores as stored and as computed now, with their paired change."""

from dataclasses import asdict, dataclass, field
from typing import Any

from ...utils.secrets import mask_settings
from ...version import __version__
from .bootstrap import CONFIDENCE, Interval


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
    saved: str | None = None  # the part of the episodes of each step that is stored, such as "8 of 64"; None: all

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, for `--json`."""
        return {**asdict(self), "reward": mask_settings(self.reward), "confidence": CONFIDENCE, "viewbox": __version__}
