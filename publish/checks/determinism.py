"""Rows about repeating: the same seed gives the same episode, here and in another process."""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .opening import list_tasks, script_policy
from .rows import Failed, check

if TYPE_CHECKING:
    from .trial import Trial

MEND = (
    "draw from np.random.default_rng(seed) with the number of the task; never from `random`, `hash`, a set's order, "
    "the time or a counter of your own"
)


@check("same by seed", needs=("gold answer",), inside=True, mend=MEND)
def check_seed(env: Any, project: Mapping[str, Any]) -> str:
    """Two plays of the same tasks in one process are equal, and their images, which are made twice."""
    first, second = describe_plays(env, project), describe_plays(env, project)
    _compare(first, second, "the second time")
    return f"{len(first)} tasks, played twice: equal messages, pixels and scores"


@check("same in another process", needs=("same by seed",), mend=MEND)
def check_processes(trial: "Trial") -> str:
    """Two processes, which order sets and hash words differently, play the same."""
    first, second = (
        trial.run_inside(
            "determinism", "describe_plays", name=f"process {seed}", variables={"PYTHONHASHSEED": str(seed)}
        ).get()
        for seed in (1, 2)
    )
    _compare(first, second, "in another process")
    return f"{len(first)} tasks, played in two processes: equal messages, pixels and scores"


def describe_plays(env: Any, project: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What playing the first tasks gives, as hashes: the task, its images and messages, and the end and scores."""
    from viewbox.images.task_images import open_source

    found = {}
    for number, task in enumerate(list_tasks(env)):
        policy = script_policy([*env.oracle(task), env.write_answer(task)])
        played = env.play(task, policy, seed=number)
        state = env.reset(task, seed=number)
        pictures = [hashlib.sha256(open_source(image).pixels.tobytes()).hexdigest() for image in env.images(task)]
        found[f"{number}"] = {
            "task": _hash([task.id, dict(task.prompt), task.reference]),
            "first messages": _hash([message.text for message in state.messages]),
            "pixels": _hash(pictures),
            "turns": _hash([[turn.role, turn.content] for turn in played.turns]),
            "scores": _hash([played.end_reason, played.scores.total, dict(played.scores.components)]),
        }
    return found


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _compare(first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]], when: str) -> None:
    for number, one in first.items():
        differ = [name for name, value in one.items() if second.get(number, {}).get(name) != value]
        if differ:
            raise Failed(f"task number {number} differs {when}: {', '.join(differ)}")
