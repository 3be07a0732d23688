"""Plays a job into a folder: every episode is stored as it ends, and a later session plays what is missing.

    with open_session(job, create_rollout_folder(job)) as session:
        async for episode in session.play():
            print(episode.scores)
        session.write_summary()

The process can be killed at any moment: episodes that have ended are on disk.
"""

import json
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..records import Episode
from ..utils.exit_status import log_failures
from ..utils.files import check_out, write_atomically
from ..utils.secrets import mask_values
from .job import RolloutJob
from .play import play_many
from .scoring import RULE
from .scoring.metrics import compute_environment_metrics, drop_undefined
from .scoring.summary import summarize
from .store import run_folder
from .store.lines import MAX_COUNT
from .store.reader import load
from .store.writer import EpisodeWriter


@dataclass
class RolloutSession:
    """One process that plays a job into a folder."""

    job: RolloutJob
    folder: Path
    writer: EpisodeWriter
    retried: int = 0  # failed episodes that are played again
    started: float = field(default_factory=time.monotonic)

    @property
    def total(self) -> int:
        """How many episodes the job has."""
        return len(self.job.tasks) * self.job.group

    def load_saved(self) -> Iterator[Episode]:
        yield from load(self.folder / run_folder.EPISODES)

    async def play(self) -> AsyncGenerator[Episode, None]:
        """Play what is missing; yields each episode after it is stored, and closes the generator at the end."""
        job = self.job
        episodes = play_many(
            job.env,
            job.tasks,
            job.generator,
            group=job.group,
            concurrency=job.concurrency,
            timeout=job.timeout,
            seed=job.seed,
            skip={(episode.info.get("index", -1), episode.info.get("sample", -1)) for episode in self.load_saved()},
        )
        try:
            async for episode in episodes:
                yield self.writer.append_or_error(episode)
        finally:
            await episodes.aclose()
            await job.generator.close()

    def write_summary(self) -> dict[str, Any]:
        """Write summary.json, the figures of all stored episodes; returns its content."""
        episodes = list(self.load_saved())
        usage = [use for episode in episodes if isinstance(use := episode.info.get("usage"), Mapping)]
        summary = {
            "environment": self.job.env.name,
            "model": self.job.config.model.name,
            "episodes": len(episodes),
            "average": RULE,
            "faults": sum(episode.is_fault for episode in episodes),
            "metrics": drop_undefined(compute_environment_metrics(episodes, self.job.env)),
            "counts": summarize(episodes, {}, resamples=0).get_counts(),
            "errors": count_failures(episodes),
            "tokens": {
                name: sum(_get_count(use, name) for use in usage) for name in ("prompt_tokens", "completion_tokens")
            },
            "seconds": time.monotonic() - self.started,
        }
        write_atomically(self.folder / "summary.json", json.dumps(mask_values(summary), indent=2) + "\n")
        return summary


@contextmanager
def open_session(job: RolloutJob, folder: Path, *, retry_failed: bool = False) -> Iterator[RolloutSession]:
    """Locks the folder and prepares it: a new one is started, an unfinished one is resumed.

    Raises:
        ConfigError: another process writes this folder, or it was started with other settings.
    """
    started = time.monotonic()
    with run_folder.lock_folder(folder), log_failures(folder):
        run_folder.start_rollout(folder, job.config.model_dump(mode="json", exclude_unset=True), job.record)
        (folder / "summary.json").unlink(missing_ok=True)  # of what was stored before; the run has not ended
        retried = run_folder.move_failed_episodes(folder) if retry_failed else 0
        with EpisodeWriter(folder / run_folder.EPISODES) as writer:
            yield RolloutSession(job, folder, writer, retried, started)


def create_rollout_folder(job: RolloutJob, out: str | Path | None = None, *, kind: str = "rollout") -> Path:
    """Return the folder `out`, or a new one in `runs/` named after its kind, environment and model."""
    if out is not None:
        folder = check_out(out, "folder")
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    model = (job.config.model.name or "").rstrip("/").rpartition("/")[2]
    return run_folder.create_folder(Path("runs"), re.sub(r"[^\w.-]+", "-", f"{kind}-{job.config.env.name}-{model}"))


def _get_count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name, 0)
    return value if isinstance(value, int) and 0 <= value <= MAX_COUNT else 0


def count_failures(episodes: Sequence[Episode]) -> dict[str, int]:
    """Return how many episodes ended as `error` or `timeout`, by reason; the five most frequent reasons."""
    failed = (episode for episode in episodes if episode.end_reason in ("error", "timeout"))
    reasons = Counter(str(e.info.get("error") or e.info.get("last_failure") or "out of time") for e in failed)
    return dict(reasons.most_common(5))
