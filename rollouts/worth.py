"""What the pictures are worth: the same tasks with the same seeds, played with the real ones and with others.

The whole folder is the cache: what is stored in it is not played again.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.swaps import PICTURES, Pictures, swap_pictures
from ..errors import ConfigError, describe_unknown
from ..records import Episode
from .job import RolloutJob
from .scoring.blind import measure_blind
from .scoring.compare import Comparison, compare_runs
from .scoring.table import Interval, Table
from .store.reader import load

REAL = "real"


@dataclass(frozen=True)
class Part:
    """Tasks that are played with other pictures, into a folder of its name; `reply`: only the calls of it."""

    name: str
    pictures: Pictures
    job: RolloutJob
    reply: int | None = None


@dataclass(frozen=True)
class CallWorth:
    """What the pictures of a tool are worth in a reply (None: in all): the reward of the episodes that called it there,
    less what they get when these calls work on other pictures. `apart`: left out, as they differ before the call."""

    reply: int | None
    pictures: str
    calls: int
    reward: Interval | None
    apart: int


@dataclass(frozen=True)
class Worth:
    """What `viewbox evaluate --pictures` finds: by the name of the pictures, `compare_runs` of them and the real ones;
    or of a tool, by reply. `blind` is the reward of the best answer that knows only the question."""

    pictures: dict[str, Comparison] = field(default_factory=dict)
    of: str | None = None
    calls: tuple[CallWorth, ...] = ()
    blind: float | None = None

    def to_dict(self) -> dict[str, Any]:
        found = {name: one.to_dict() for name, one in self.pictures.items()}
        return {"pictures": found, "of": self.of, "calls": [asdict(one) for one in self.calls], "blind": self.blind}


def read_pictures(text: str) -> list[Pictures]:
    """Return the kinds in a list such as "real,blank,other", without the real ones, which are always played.

    >>> read_pictures("real,blank")
    ['blank']
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in (REAL, *PICTURES):
            raise ConfigError(f"--pictures: {describe_unknown('pictures', name, (REAL, *PICTURES))}", key="pictures")
    found: list[Pictures] = [name for name in PICTURES if name in names]
    if not found:
        raise ConfigError(f"--pictures {text}; allowed: {REAL}, and {', '.join(PICTURES)} or some of these")
    return found


def list_parts(job: RolloutJob, names: Sequence[Pictures], of: str | None = None) -> list[Part]:
    """Return what is played beside the real pictures; raise `ConfigError` if it cannot be."""
    if of is not None and job.group > 1:
        raise ConfigError(f"--of {of}: compares single episodes; allowed: --group 1", key="group")
    return [Part(name, name, _swap(job, name, of)) for name in names]


def list_call_parts(job: RolloutJob, names: Sequence[Pictures], tool: str, folder: Path) -> list[Part]:
    """Return what is played to know what each call of a tool is worth: for each reply in which the tool ran with the
    real pictures, the tasks that called it there."""
    replies = defaultdict[int, list[int]](list)
    for episode in load(folder / REAL):
        for number in _find_replies(episode, tool):
            replies[number].append(int(episode.info["index"]))
    return [
        Part(f"{name}_{reply}", name, _swap(job, name, tool, reply, only), reply)
        for reply, only in sorted(replies.items())
        for name in names
    ]


def _swap(
    job: RolloutJob,
    pictures: Pictures,
    tool: str | None = None,
    reply: int | None = None,
    only: Sequence[int] | None = None,
) -> RolloutJob:
    record = {**job.record, "pictures": pictures, **({} if tool is None else {"of": tool, "reply": reply})}
    env = swap_pictures(job.env, pictures, job.tasks, tool, reply)
    return replace(job, env=env, record=record, only=only)


def measure_worth(job: RolloutJob, folder: Path, parts: Sequence[Part], of: str | None, resamples: int) -> Worth:
    """Compare what was played."""
    blind = measure_blind(job.env, job.tasks)
    if of is None:
        found = {one.name: compare_runs(folder / one.name, folder / REAL, resamples=resamples) for one in parts}
        return Worth(found, blind=blind)
    real = {int(episode.info["index"]): episode for episode in load(folder / REAL)}
    calls = []
    for name in dict.fromkeys(part.pictures for part in parts):
        own = [part for part in parts if part.pictures == name]
        for reply, some in ((None, own), *((part.reply, [part]) for part in own)):
            calls.append(_compare_calls(reply, some, real, folder, resamples > 0))
    return Worth(of=of, calls=tuple(calls), blind=blind)


def _compare_calls(
    reply: int | None, parts: Sequence[Part], real: Mapping[int, Episode], folder: Path, intervals: bool
) -> CallWorth:
    table, apart = Table(), 0
    for part in parts:
        for episode in load(folder / part.name):
            pair = real[int(episode.info["index"])], episode
            before, after = ([turn.content for turn in one.turns if turn.role == "assistant"] for one in pair)
            if before[: part.reply] != after[: part.reply]:
                apart += 1
                continue
            score, other = (None if one.is_fault or not one.scores else one.scores.total for one in pair)
            if score is not None and other is not None:
                table.add(episode.task.id, {"worth": score - other})
    worth = table.compute_intervals(intervals).get("worth")
    return CallWorth(reply, parts[0].pictures, table.rows, worth, apart)


def _find_replies(episode: Episode, tool: str) -> Iterator[int]:
    """Yield the numbers of the replies, from 1, of which a call of the tool ran."""
    number = 0
    for turn in episode.turns:
        number += turn.role == "assistant"
        if any(result.was_run and result.tool_name == tool for result in turn.tool_results):
            yield number
