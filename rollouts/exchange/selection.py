"""Which episodes of a run are taken: conditions on each, a band of difficulty of its task, and the best ones."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ...errors import ConfigError
from ...records import Episode
from ...utils.files import create_whole, read_regular, write_atomically
from ..scoring.filters import parse_filter
from ..store.reader import EpisodeReader, load
from ..store.run_folder import read_config
from ..store.writer import EpisodeWriter, UnstorableError

MAX_LISTED = 100  # broken episodes that are kept with their reason
MAX_CONFIG = 2**20


@dataclass
class SelectionReport:
    """How many episodes were taken and why the others were not."""

    path: str  # what was written
    kept: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # how many, by reason
    skipped: int = 0  # of those, that nobody asked to leave out: they cannot be read, or the form cannot hold them
    broken: dict[str, str] = field(default_factory=dict)  # reason by place, for the first 100 that cannot be read
    not_held: Counter[str] = field(default_factory=Counter)  # what the new form cannot say, and how often
    pushed: str = ""  # the address on the hub

    def skip(self, reason: str, count: int = 1) -> None:
        """Count episodes that nobody asked to leave out."""
        self.left_out[reason] += count
        self.skipped += count

    def check_any(self) -> None:
        """Raise `ConfigError` if nothing was taken, so that nothing is written."""
        if not self.kept:
            first = next((f"; {place}: {reason}" for place, reason in self.broken.items()), "")
            raise ConfigError(f"{self.describe()}{first}; no episode is left, so nothing is written", key="out")

    def add_broken(self, place: str, reason: object) -> None:
        """Count an episode that cannot be read or written."""
        self.skip("broken")
        if len(self.broken) < MAX_LISTED:
            self.broken[place] = str(reason)

    def describe(self) -> str:
        """Return the counts in one line.

        >>> SelectionReport("out", 2, Counter({"not reward>0.5": 3})).describe()
        'out: 2 of 5 episodes; left out: 3 (not reward>0.5)'
        """
        reasons = ", ".join(f"{count:,} ({reason})" for reason, count in self.left_out.items() if count)
        total = self.kept + sum(self.left_out.values())
        pushed = f"; {self.pushed}" if self.pushed else ""
        left_out = f"; left out: {reasons}" if reasons else ""
        return f"{self.path}: {self.kept:,} of {total:,} episodes{left_out}{pushed}"


@dataclass(frozen=True)
class Choice:
    """What `--where`, `--best`, `--per-task` and `--reward-between` say. Of equal rewards the first is the better. The
    mean of `reward_between` is that of all episodes of a task with a score, whatever `where` says."""

    where: Sequence[str] = ()
    best: int | None = None
    per_task: bool = False
    reward_between: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.best is not None and self.best < 1:
            raise ConfigError(f"--best {self.best}; allowed: at least 1", key="best")
        if self.per_task and self.best is None:
            raise ConfigError("--per-task says of what --best is the best; give --best as well", key="per_task")
        band = self.reward_between
        if band is not None and not band[0] <= band[1]:
            raise ConfigError(f"--reward-between {band[0]} {band[1]}; allowed: the lower number first")


EVERY = Choice()


def select_episodes(reader: EpisodeReader, choice: Choice, report: SelectionReport) -> Iterator[Episode]:
    """Yield the chosen episodes in their order; the run is read twice if they are compared with each other.
    `report` counts those that are left out. `reader` must skip what cannot be read (`errors="skip"`)."""
    conditions = [(text, parse_filter(text)) for text in choice.where]
    compared = choice.best is not None or choice.reward_between is not None
    reasons = _compare_episodes(reader, choice) if compared else {}
    for episode in reader:
        failed = next((text for text, meets in conditions if not meets(episode)), None)
        reason = f"not {failed}" if failed else reasons.get(reader.line)
        if reason is None:
            yield episode
        else:
            report.left_out[reason] += 1
    for line, why in reader.unreadable.items():
        report.add_broken(f"line {line}", why)
    report.skip("broken", reader.skipped - len(reader.unreadable))


def _compare_episodes(reader: EpisodeReader, choice: Choice) -> Mapping[int, str]:
    """Return why lines are left out, by line, as far as it depends on other episodes."""
    conditions = [parse_filter(text) for text in choice.where]
    rewards: dict[str, list[float]] = defaultdict(list)
    ranked: dict[str, list[tuple[float, int]]] = defaultdict(list)
    tasks: dict[int, str] = {}
    reasons: dict[int, str] = {}
    for episode in reader:
        total = None if episode.scores is None or episode.is_fault else episode.scores.total
        tasks[reader.line] = task = episode.task.id
        if total is None:
            reasons[reader.line] = "without a score"
            continue
        rewards[task].append(total)
        if all(meets(episode) for meets in conditions):
            ranked[task].append((-total, reader.line))
    if choice.reward_between is not None:
        low, high = choice.reward_between
        out = {task for task, totals in rewards.items() if not low <= sum(totals) / len(totals) <= high}
        reasons |= {line: "its task is outside --reward-between" for line, task in tasks.items() if task in out}
        ranked = defaultdict(list, {task: totals for task, totals in ranked.items() if task not in out})
    if choice.best is not None:
        groups = list(ranked.values()) if choice.per_task else [list(chain.from_iterable(ranked.values()))]
        of = "of its task" if choice.per_task else "of the run"
        worse = {line: f"not among the best {choice.best} {of}" for g in groups for _, line in sorted(g)[choice.best :]}
        reasons |= worse
    return reasons


def filter_run(run: str | Path, out: str | Path, choice: Choice) -> SelectionReport:
    """Write the chosen episodes as a run of their own, with the config of the old one. Nothing in `run` is changed.
    Raise `StoreError` if there are no episodes in `run`. Raise `ConfigError` if `out` exists, a condition cannot be
    read, or no episode is left."""
    reader = load(run, tokens=True, errors="skip")
    report = SelectionReport(str(out))
    with create_whole(out) as draft:
        with EpisodeWriter(draft / "episodes") as writer:
            for episode in select_episodes(reader, choice, report):
                try:
                    writer.append(episode)
                    report.kept += 1
                except UnstorableError as error:  # its image is missing or damaged
                    report.add_broken(f"line {reader.line}", str(error).partition("was not stored: ")[2])
        config, _ = read_config(Path(run), reader.folder)
        if config is not None:
            write_atomically(draft / "config.yaml", read_regular(config, limit=MAX_CONFIG))
        report.check_any()
    return report
