"""What the pictures are worth: the same tasks with the same seeds, played with the real ones and with others.

Everything is stored in one folder, and what is there is not played again.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.swaps import PICTURES, Pictures, swap_pictures
from ..errors import ConfigError, describe_unknown
from ..records import Episode
from .job import RolloutJob
from .store.reader import load

REAL = "real"


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


def swap_all(job: RolloutJob, names: Sequence[Pictures], tool: str | None = None) -> dict[str, RolloutJob]:
    """Return the job with the other pictures, by their name: of all that is shown, or of the calls of a tool."""
    return {name: _swap(job, name, tool) for name in names}


def swap_calls(job: RolloutJob, names: Sequence[Pictures], tool: str, folder: Path) -> dict[str, RolloutJob]:
    """Return the jobs that say what the calls of a tool are worth, of the tasks that called it with the real pictures:
    all calls with other pictures, and if several replies have some, those of each reply alone."""
    replies = defaultdict[int, list[int]](list)
    for episode in load(folder / REAL):
        for reply in _find_replies(episode, tool):
            replies[reply].append(int(episode.info["index"]))
    callers = sorted({index for some in replies.values() for index in some})
    found: dict[str, RolloutJob] = {}
    for name in names if callers else ():
        found[name] = replace(_swap(job, name, tool), only=callers)
    for reply, some in sorted(replies.items()) if len(replies) > 1 else ():
        found |= {f"{name}_{reply}": replace(_swap(job, name, tool, reply), only=some) for name in names}
    return found


def _swap(job: RolloutJob, pictures: Pictures, tool: str | None, reply: int | None = None) -> RolloutJob:
    record = {**job.record, "pictures": pictures, **({} if tool is None else {"of": tool, "reply": reply})}
    return replace(job, env=swap_pictures(job.env, pictures, job.tasks, tool, reply), record=record)


def _find_replies(episode: Episode, tool: str) -> Iterator[int]:
    """Yield the numbers of the replies, from 1, of which a call of the tool ran."""
    number = 0
    for turn in episode.turns:
        number += turn.role == "assistant"
        if any(result.was_run and result.tool_name == tool for result in turn.tool_results):
            yield number
