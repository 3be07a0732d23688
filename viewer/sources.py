"""What a page shows: the sets of episodes in the folders that were named, and the figures of their training.

A run in progress is followed: `refresh` reads the lines that were appended since.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import StoreError, ViewboxError
from ..records import Episode
from ..rewards.looks import VERDICTS, read_looks
from ..rollouts.scoring import filters
from ..rollouts.scoring.compare import compare_runs
from ..rollouts.store.layout import LINES, find_episodes_folder
from ..rollouts.store.lines import LinePart, open_lines, read_lines
from ..rollouts.store.reader import load
from ..rollouts.store.run_folder import list_held_out, read_metrics
from ..utils.conditions import parse_condition
from .episode_page import build_episode_page, find_trusted_reward
from .page import to_plain
from .unplayed import UNPLAYED

METRICS = "metrics.jsonl"
MAX_METRICS = 64 * 2**20  # bytes of metrics.jsonl
MAX_SETS, MAX_SERIES, MAX_POINTS = 50, 40, 5_000
PLOTTED = ("reward", "held_out/reward", "held_out/blind", "tools/rate", *(f"verdict/{name}" for name in VERDICTS))


class EpisodeSet:
    """A set of episodes on the page: a run's own, its held-out ones, or one side of an evaluation.
    `place` is where the page says they come from, if that is not their folder."""

    def __init__(self, run: Path, folder: Path, name: str, place: str | None = None) -> None:
        self.run, self.name, self.place = run, name, place or str(folder)
        self.index = EpisodeIndex(folder)

    def describe(self) -> dict[str, object]:
        """Return what the page says of the whole set."""
        return {"name": self.name, "path": self.place, "curves": self.read_curves()}

    def build_page(self, line: int) -> dict[str, object] | None:
        """Return the page of an episode; None if there is none in this line."""
        episode = self.index.read(line, tokens=True)
        if episode is None:
            return None
        return build_episode_page(episode, line=line, reward=find_trusted_reward(self.run, episode.environment))

    def read_curves(self) -> dict[str, object] | None:
        """Return the figures of training by step, if the run has any and these are its training episodes."""
        path = self.run / METRICS
        return _read_curves(path) if path.is_file() and self.index.folder.parent.resolve() == self.run else None


def find_sets(runs: Sequence[str | Path]) -> list[EpisodeSet]:
    """Return the sets of episodes in the named folders: of each its episodes, then its held-out ones by step. A folder
    that only holds folders of episodes, such as that of an evaluation, has a set for each of them. Raise `StoreError`
    if a folder has no episodes, or there are more than 50 sets."""
    sets: list[EpisodeSet] = []
    for path in runs:
        run = Path(path or "''")  # an empty name is no folder, and not this one
        folders = list(_list_folders(run))
        if not folders:
            find_episodes_folder(run)  # raises, and says what was expected
        base = run.resolve()
        for folder in folders:
            extra = folder.absolute().relative_to(run.absolute()).parts  # a run may be linked from elsewhere
            label = " ".join(word for word in extra if word != "episodes").replace("_", " ")
            sets.append(EpisodeSet(base, folder, f"{base.name} {label}".strip()))
    if len(sets) > MAX_SETS:
        raise StoreError(f"{len(sets)} sets of episodes; allowed: at most {MAX_SETS} at a time")
    return sets


def _list_folders(run: Path) -> list[Path]:
    own = [find_episodes_folder(run)] if any((place / LINES).exists() for place in (run, run / "episodes")) else []
    below = [] if own else sorted(path.parent for part in ("*", "*/episodes") for path in run.glob(f"{part}/{LINES}"))
    return [*own, *below, *(folder for folder in list_held_out(run) if (folder / LINES).is_file())]


def compare_sets(a: EpisodeSet, b: EpisodeSet) -> dict[str, Any]:
    """Return the comparison of two sets, or why there is none: {"error": …}."""
    try:
        comparison = compare_runs(a.index.folder, b.index.folder)
        return {
            **to_plain(comparison.to_dict()),
            "rewards": [to_plain(asdict(reward)) for reward in comparison.rewards],
        }
    except (ViewboxError, OSError) as error:
        return {"error": str(error)}


def _read_curves(path: Path) -> dict[str, Any] | None:
    """Return the plotted figures of metrics.jsonl, by step; a line that cannot be read is left out."""
    steps: dict[int, dict[str, float]] = {}
    try:
        for values in read_metrics(path, limit=MAX_METRICS):
            numbers = {name[:80]: value for name, value in values.items() if _is_plotted(name, value)}
            if isinstance(values.get("step"), int):
                steps.setdefault(values["step"], {}).update(numbers)
    except OSError:
        return None
    order = sorted(steps)[:: max(1, math.ceil(len(steps) / MAX_POINTS))]
    names = list(dict.fromkeys(name for step in order for name in steps[step]))[:MAX_SERIES]
    return {"step": order, "series": {name: [steps[step].get(name) for step in order] for name in names}}


def _is_plotted(name: str, value: Any) -> bool:
    parts = name.split("/")
    kind = (parts[0], parts[-1]) in (("rewards", "mean"), ("tools", "calls"), ("end", parts[-1]))
    return (name in PLOTTED or kind) and isinstance(value, int | float) and math.isfinite(value)


def read_all(sets: Sequence[EpisodeSet]) -> int:
    """Read what was appended to each set; return the number of episodes of all."""
    for episode_set in sets:
        episode_set.index.refresh()
    return sum(len(episode_set.index) for episode_set in sets)


MAX_COLUMNS = 100
MAX_TEXT = 200  # characters of a cell
MAX_ITEMS = 50  # of a list in a cell
INFO = ("step", "sample", "index", "advantage", "saved")  # keys of `info` that get a column
EXACT = {"scores.total", "end_reason", "verdict", "num_turns", "tool_call_count"}  # columns of the values themselves


class EpisodeIndex:
    """The table of the episodes of one folder. A line that cannot be read has no row, and is named in `unreadable`.

    >>> import tempfile
    >>> from viewbox.records import Task
    >>> from viewbox.rollouts.store.writer import EpisodeWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with EpisodeWriter(folder) as writer:
    ...         writer.append(Episode(Task("t1"), answer={"label": 3}))
    ...     index = EpisodeIndex(Path(folder))
    ...     index.refresh(), index.columns["task.id"], index.columns["answer.label"]
    (1, ['t1'], [3])
    """

    def __init__(self, folder: Path) -> None:
        self.reader = load(folder, errors="skip")
        self.folder = self.reader.folder
        self.columns: dict[str, list[Any]] = {"line": []}
        self._places: dict[int, int] = {}  # the byte at which a line begins
        self._next = LinePart()  # the lines that are not read yet

    def __len__(self) -> int:
        return len(self.columns["line"])

    def refresh(self) -> int:
        """Read the lines that were appended since; return the number of new rows."""
        before, count = len(self), self._scan_lines()
        for episode in self.reader.walk(LinePart(self._next.start, count, self._next.first)):
            self._add_row(self.reader.line, episode)
        self._next = LinePart(self._end, None, self._next.first + count)
        self.reader.check_whole(len(self) + self.reader.skipped)
        return len(self) - before

    def read(self, line: int, *, tokens: bool = False) -> Episode | None:
        """Return the episode in a line, or None if it cannot be read or is not in the table."""
        place = self._places.get(line)
        if place is None:
            return None
        episode = next(load(self.folder, errors="skip", tokens=tokens).walk(LinePart(place, 1, line)), None)
        return self.read(line) if episode is None and tokens else episode  # its tokens may be what cannot be read

    def select(self, where: Sequence[str]) -> list[int]:
        """Return the lines of the episodes that meet all conditions, which are those of `--where`; raise
        `ConfigError`."""
        bare = [parse_condition(text, "filter", "reward<0.5") for text in where]
        tests = [filters.parse_filter(text, "filter") for text in where]
        fields = [filters.expand_field(one.field) for one in bare]
        if all(field in EXACT for field in fields):
            columns = [self.columns.get(field, [None] * len(self)) for field in fields]
            rows = zip(self.columns["line"], *columns, strict=True)
            return [line for line, *cells in rows if all(one.test(cell) for one, cell in zip(bare, cells, strict=True))]
        reader, lines = load(self.folder, errors="skip"), self._search_lines(where)
        few = len(lines) < len(self) / 10  # else reading all at once is quicker
        parts = [LinePart(self._places[line], 1, line) for line in lines] if few else [LinePart()]
        episodes = (episode for part in parts for episode in reader.walk(part))
        return [reader.line for episode in episodes if all(test(episode) for test in tests)]

    def _search_lines(self, where: Sequence[str]) -> list[int]:
        """Return the lines that may meet all conditions, by their letters: the others need not be decoded."""
        sure = [pattern for text in where if (pattern := filters.find_letters(text))]
        if not sure:
            return [*self._places]
        with open_lines(self.folder) as file:
            lines = enumerate(read_lines(file), 1)
            texts = ((n, line.decode(errors="replace")) for n, line in lines if line and n in self._places)
            return [n for n, text in texts if "\\u" in text or all(pattern.search(text) for pattern in sure)]

    def to_dict(self, start: int = 0) -> dict[str, Any]:
        """Return the rows from `start` on, by column, and what could not be read."""
        columns = {name: values[start:] for name, values in self.columns.items()}
        return {
            "start": start,
            "columns": columns,
            "skipped": self.reader.skipped,
            "unreadable": self.reader.unreadable,
        }

    def _scan_lines(self) -> int:
        """Note where the next lines begin; return how many there are."""
        count, self._end = 0, self._next.start
        with open_lines(self.folder) as file:
            file.seek(self._next.start)
            for line in read_lines(file):
                if line is not None and not line.endswith(b"\n"):
                    break  # it is being written
                self._places[self._next.first + count] = self._end
                self._end, count = file.tell(), count + 1
        return count

    def _add_row(self, line: int, episode: Episode) -> None:
        row = {"line": line, **dict(_list_cells(episode))}
        rows = len(self)
        for name in row:
            if name not in self.columns and len(self.columns) < MAX_COLUMNS:
                self.columns[name] = [None] * rows
        for name, values in self.columns.items():
            values.append(row.get(name))


def _list_cells(episode: Episode) -> Iterator[tuple[str, Any]]:
    """Yield the cells of a row, under the names of `--where`."""
    scores = episode.scores
    yield "task.id", _to_cell(episode.task.id)
    if UNPLAYED not in episode.info:
        if scores is not None:
            yield "scores.total", _to_cell(scores.total)
        yield "end_reason", _to_cell(episode.end_reason)
        if (verdict := read_looks(episode).verdict) is not None:
            yield "verdict", verdict
        yield "tools_used", _to_cell(episode.tools_used())
        yield "num_turns", episode.num_turns
        yield "tool_call_count", episode.tool_call_count
    for name in INFO:
        if name in episode.info:
            yield f"info.{name}", _to_cell(episode.info[name])
    yield "environment", _to_cell(episode.environment)
    yield "flags", _to_cell(episode.flags)
    yield "question", _to_cell(episode.task.prompt.get("question"))
    if scores is not None:
        yield from ((f"scores.components.{name}", _to_cell(value)) for name, value in scores.components.items())
    yield from _list_fields("answer", episode.answer)
    yield from _list_fields("task.reference", episode.task.reference)
    yield from _list_fields("task.metadata", episode.task.metadata)


def _list_fields(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(values, Mapping):
        yield name, _to_cell(values)
        return
    yield from ((f"{name}.{str(key)[:MAX_TEXT]}", _to_cell(value)) for key, value in values.items())


def _to_cell(value: Any) -> Any:
    """Return a value as JSON, short enough for a cell."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        is_exact = math.isfinite(value) if isinstance(value, float) else abs(value) < 2**53
        return value if is_exact else str(to_plain(value))[:MAX_TEXT]
    plain = to_plain(value)
    if isinstance(plain, str):
        return plain[:MAX_TEXT]
    if isinstance(plain, list) and len(plain) <= MAX_ITEMS and not any(isinstance(item, list | dict) for item in plain):
        return [item[:MAX_TEXT] if isinstance(item, str) else item for item in plain]
    return str(plain)[:MAX_TEXT]
