"""What a page shows: the sets of episodes in the folders that were named, and the figures of their training."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from viewbox.errors import StoreError, ViewboxError
from viewbox.files import read_regular
from viewbox.records import Episode
from viewbox.rollouts.scoring.compare import compare_runs
from viewbox.rollouts.store.layout import LINES, find_episodes_folder
from viewbox.rollouts.store.run_folder import list_held_out
from viewbox.rollouts.view.episode_page import build_episode_page
from viewbox.rollouts.view.index import EpisodeIndex
from viewbox.rollouts.view.plain import to_plain
from viewbox.rollouts.view.reasons import find_trusted_reward

METRICS = "metrics.jsonl"
MAX_METRICS = 64 * 2**20  # bytes of metrics.jsonl
MAX_SETS, MAX_SERIES, MAX_POINTS = 50, 40, 5_000
PLOTTED = ("reward", "held_out/reward", "tools/rate")


class EpisodeSet:
    """A set of episodes on the page: a run's own, its held-out ones, or one side of an evaluation."""

    def __init__(self, run: Path, folder: Path, name: str) -> None:
        self.run, self.name = run, name
        self.index = EpisodeIndex(folder, name)

    def build_page(self, line: int) -> dict[str, Any] | None:
        """The page of an episode; None if there is none in this line."""
        episode = self.index.read(line, tokens=True)
        return None if episode is None else build_episode_page(episode, line=line, reward=self._find_reward(episode))

    def _find_reward(self, episode: Episode) -> Any:
        try:
            return find_trusted_reward(str(self.run), episode.environment)
        except (ViewboxError, OSError, ValueError, TypeError):
            return None

    def read_curves(self) -> dict[str, Any] | None:
        """The figures of training by step, if the run has any and these are its training episodes."""
        path = self.run / METRICS
        return _read_curves(path) if path.is_file() and self.index.folder.parent == self.run.resolve() else None


def find_sets(runs: Sequence[str | Path]) -> list[EpisodeSet]:
    """The sets of episodes in the named folders: of each its episodes, then its held-out ones by step.

    A folder that only holds folders of episodes, such as that of an evaluation, has a set for each of them.

    Raises:
        StoreError: a folder has no episodes, or there are more than 50 sets.
    """
    sets: list[EpisodeSet] = []
    for given in runs:
        run = Path(given)
        found = list(_list_folders(run))
        if not found:
            find_episodes_folder(run)  # raises, and says what was expected
        base = run.resolve()
        for folder in found:
            extra = folder.resolve().relative_to(base).parts
            label = " ".join(part for part in extra if part != "episodes").replace("_", " ")
            sets.append(EpisodeSet(base, folder, f"{base.name} {label}".strip()))
    if len(sets) > MAX_SETS:
        raise StoreError(f"{len(sets)} sets of episodes; allowed: at most {MAX_SETS} at a time")
    return sets


def _list_folders(run: Path) -> list[Path]:
    try:
        own = [find_episodes_folder(run)]
    except StoreError:
        own = []
    below = [] if own else sorted(path.parent for part in ("*", "*/episodes") for path in run.glob(f"{part}/{LINES}"))
    return [*own, *below, *(folder for folder in list_held_out(run) if (folder / LINES).is_file())]


def compare_sets(a: EpisodeSet, b: EpisodeSet) -> dict[str, Any]:
    """The comparison of two sets, or why there is none: {"error": …}."""
    try:
        found = compare_runs(a.index.folder, b.index.folder)
        return {**to_plain(found.to_dict()), "rewards": [to_plain(asdict(one)) for one in found.rewards]}
    except (ViewboxError, OSError) as error:
        return {"error": str(error)}


def _read_curves(path: Path) -> dict[str, Any] | None:
    """The plotted figures of metrics.jsonl, by step; a line that cannot be read is left out."""
    try:
        text = read_regular(path, limit=MAX_METRICS, inside=path.parent).decode(errors="replace")
    except (OSError, ValueError):
        return None
    steps: dict[int, dict[str, float]] = {}
    for line in text.splitlines():
        try:
            values = json.loads(line)
            step = values["step"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(step, int) and isinstance(values, dict):
            numbers = {str(name)[:80]: one for name, one in values.items() if _is_plotted(str(name), one)}
            steps.setdefault(step, {}).update(numbers)
    order = sorted(steps)[:: max(1, math.ceil(len(steps) / MAX_POINTS))]
    names = list(dict.fromkeys(name for step in order for name in steps[step]))[:MAX_SERIES]
    return {"step": order, "series": {name: [steps[step].get(name) for step in order] for name in names}}


def _is_plotted(name: str, value: Any) -> bool:
    parts = name.split("/")
    kind = (parts[0], parts[-1]) in (("rewards", "mean"), ("tools", "calls"), ("end", parts[-1]))
    return (name in PLOTTED or kind) and isinstance(value, int | float) and math.isfinite(value)


def read_all(sets: Sequence[EpisodeSet], on_progress: Callable[[int], None] | None = None) -> int:
    """Read what was appended to each set; returns the number of episodes of all."""
    for one in sets:
        one.index.refresh(on_progress)
    return sum(len(one.index) for one in sets)
