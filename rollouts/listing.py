"""The runs below a folder, each with its figures, newest first. What a run's files say is not trusted."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..errors import ConfigError, ViewboxError
from ..records import Episode
from ..utils.values import to_finite_float
from .scoring.table import Table
from .store.layout import LINES
from .store.reader import load
from .store.run_folder import read_config, read_json, read_metrics

MAX_DEPTH = 3  # folders between the folder that is listed and a run
MAX_FOLDERS = 10_000
_MARKS = ("config.yaml", LINES, os.path.join("episodes", LINES))  # a folder with one of these is a run


@dataclass(frozen=True)
class RunFigures:
    """What `viewbox runs` shows of a run; None: its files do not say."""

    path: str
    environment: str | None = None
    model: str | None = None
    method: str | None = None  # "grpo", "sft", or "rollout" for a run that was only played
    steps: int | None = None
    episodes: int | None = None  # that are stored
    first_reward: float | None = None  # the mean over tasks of the first step; of a rollout that of all episodes
    last_reward: float | None = None
    modified: str | None = None  # when its files were last written, in UTC
    size: int = 0  # bytes
    skipped: int = 0  # lines of its episodes that cannot be read
    saved: str | None = None  # what part of the episodes of a step is stored, such as "8 of 64"; None: all
    scored: float | None = None  # the share of the episodes that `last_reward` is the mean of
    first_search: float | None = None  # the share of the same episodes that end wrong without having found the target
    last_search: float | None = None


@dataclass(frozen=True)
class RunList:
    """The runs below `folder`, newest first; `broken` gives the reason of those that cannot be read, by path."""

    folder: str
    runs: list[RunFigures] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def list_runs(folder: str | Path = "runs") -> RunList:
    """List the runs below a folder, newest first: `viewbox runs` alone does the same.

    The reward is that of the first and of the last step. Links are not followed, and nothing is written. The status is
    1 if a run or a line of it cannot be read, and 2 if there is no run.

    Args:
        folder: the folder that holds the runs, at any of three levels, or a run itself.

    Raises:
        ConfigError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(f"{folder}: no such folder; give the folder that holds your runs")
    runs: list[RunFigures] = []
    broken: dict[str, str] = {}
    for run in _find_runs(folder):
        try:
            runs.append(_read_figures(run))
        except ViewboxError as error:
            broken[str(run)] = str(error)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            broken[str(run)] = f"{type(error).__name__}: {error}"
    runs.sort(key=lambda run: (run.modified or "", run.path), reverse=True)
    return RunList(str(folder), runs, broken)


def _find_runs(folder: Path) -> Iterator[Path]:
    waiting, seen = [(folder, 0)], 0
    while waiting and seen < MAX_FOLDERS:
        path, depth = waiting.pop()
        seen += 1
        if any(os.path.lexists(path / mark) for mark in _MARKS):
            yield path
        elif depth <= MAX_DEPTH:
            try:
                with os.scandir(path) as entries:
                    inner = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
            except OSError:  # another's folder
                continue
            waiting += [(Path(child), depth + 1) for child in inner if not os.path.basename(child).startswith(".")]


def _read_figures(run: Path) -> RunFigures:
    episodes = run if os.path.lexists(run / LINES) else run / "episodes"
    _, config = read_config(run, episodes)
    steps, first, last, scored, searches = _read_metrics(run / "metrics.jsonl")
    summary = read_json(run / "summary.json", limit=2**24) if os.path.lexists(run / "summary.json") else {}
    reader = load(episodes, errors="skip") if os.path.lexists(episodes / LINES) else None
    stored = _Stored(() if reader is None else reader)
    if first is None and steps is None and stored.count:
        first, last, scored = stored.reward, stored.reward, stored.scored
    elif first is None:
        first = last = _get_number(summary.get("metrics"), "reward")
        scored = _get_number(summary.get("metrics"), "episodes/scored")
        searches = (_get_number(summary.get("metrics"), "verdict/search"),) * 2
    env, model, train = (config.get(name) for name in ("env", "model", "train"))
    size, modified = _measure(run)
    tiny = "tiny" if isinstance(model, Mapping) and model.get("tiny") is not None else None
    environment = _get_text(env, "name") or _get_text(summary, "environment")
    environment = environment or _name("environments", stored.environments)
    model_name = _get_text(model, "name") or _get_text(summary, "model") or tiny or _name("models", stored.models)
    method = _get_text(train, "method") or ("grpo" if train is not None or steps is not None else "rollout")
    count, skipped = (None, 0) if reader is None else (stored.count, reader.skipped)
    written = datetime.fromtimestamp(modified, UTC).isoformat(timespec="seconds") if modified else None
    named, rewards = (str(run), environment, model_name, method, steps, count), (first, last)
    return RunFigures(*named, *rewards, written, size, skipped, stored.saved, scored, *searches)


class _Stored:
    """What the lines of a run say: the mean reward over tasks, and the share of the episodes that have one."""

    def __init__(self, episodes: Iterable[Episode]) -> None:
        table, self.saved = Table(), None
        self.environments, self.models = set[str](), set[str]()
        for one in episodes:
            table.add(one.task.id, {"reward": None if one.is_fault or not one.scores else one.scores.total})
            self.saved = self.saved or _get_text(one.info, "saved")
            self.environments.add(one.environment)
            self.models.add(one.run_config.model_name)
        reward = table.compute_intervals(intervals=False).get("reward")
        self.count, self.reward = table.rows, reward.mean if reward else None
        self.scored = reward.count / table.rows if reward else None


def _name(noun: str, names: set[str]) -> str | None:
    """Return the only name, or how many there are."""
    names = names - {""}
    return f"{len(names)} {noun}" if len(names) > 1 else next(iter(names), None)


def _read_metrics(path: Path) -> tuple[int | None, float | None, float | None, float | None, tuple[float | None, ...]]:
    """Return the last step, the rewards of the first and the last step that have one, and the share of the episodes
    that the last is the mean of; and `verdict/search` of both."""
    step, first, last, scored = None, None, None, None
    searches: list[float | None] = []
    for data in read_metrics(path) if os.path.lexists(path) else ():
        number, reward = data.get("step"), _get_number(data, "reward")
        step = number if type(number) is int else step
        if reward is not None:
            first, last, scored = reward if first is None else first, reward, _get_number(data, "episodes/scored")
            searches.append(_get_number(data, "verdict/search"))
    return step, first, last, scored, (*searches[:1], *searches[-1:]) if searches else (None, None)


def _measure(run: Path) -> tuple[int, float]:
    """Return the bytes of the files of a run, and when the last of them was written."""

    def refuse(error: OSError) -> None:
        raise error

    files = (os.path.join(folder, name) for folder, _, names in os.walk(run, onerror=refuse) for name in names)
    known = [status for path in files if stat.S_ISREG((status := os.lstat(path)).st_mode)]
    return sum(info.st_size for info in known), max((info.st_mtime for info in known), default=0.0)


def _get_text(values: Any, key: str) -> str | None:
    value = values.get(key) if isinstance(values, Mapping) else None
    return value[:200] if isinstance(value, str) and value else None


def _get_number(values: Any, key: str) -> float | None:
    return to_finite_float(values.get(key)) if isinstance(values, Mapping) else None
