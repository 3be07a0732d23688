"""Rows about playing in the fresh environment: what answers earn, that episodes repeat, and what is carried along."""

import hashlib
import json
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .opening import NUM_TASKS, list_tasks, measure_memory, script_policy, write_gold
from .rows import Check, Failed, check, shorten

if TYPE_CHECKING:
    from .trial import Trial

# The lowest score of the right answer in a component. An IoU, and a reward of one's own where answers have boxes, may
# be lower: rounding a small box to whole pixels or to thousandths changes it much. The exact answer scores 1.0 below.
MIN_GOLD, MIN_GOLD_BOX = 0.999, 0.5
REPEAT = (
    "draw from np.random.default_rng(seed) with the number of the task; never from `random`, `hash`, a set's order, "
    "the time or a counter of your own"
)


@check(
    "episode",
    needs=("environment",),
    inside=True,
    mend="make images and tools cheaper; load what is large once, in `prepare`",
)
def check_episode(env: Any, project: Mapping[str, Any]) -> str:
    """An episode ends in its time and memory, with the right answer and with a model that writes nothing of use."""
    task, limit = list_tasks(env)[0], project["episode_seconds"]
    ends, slowest = [], 0.0
    for replies in ([*env.for_task(task).oracle(task), write_gold(env, task)], []):
        started = time.monotonic()
        ends.append(env.play(task, script_policy(replies)).end_reason)
        slowest = max(slowest, time.monotonic() - started)
    if slowest > limit:
        raise Failed(f"an episode takes {slowest:.1f} s; allowed: {limit:g} s")
    return f"at most {slowest:.2f} s and {measure_memory() / 2**20:.0f} MiB; ends: {', '.join(ends)}"


@check(
    "gold answer",
    needs=("episode", "schemas"),
    inside=True,
    mend="check what `gold_answer(task)` returns, and the coordinates of answer and reference",
)
def check_gold(env: Any, project: Mapping[str, Any]) -> str:
    """The right answer, played, scores 1.0 in every component that reads the answer (0.5 where a box is rounded)."""
    from viewbox import rewards
    from viewbox.errors import ConfigError

    built_in = {getattr(rewards, name) for name in rewards.__all__} - {rewards.IoUReward}
    totals, low = [], []
    for task in list_tasks(env):
        try:
            played = env.for_task(task)
            answer = played.write_answer(task)
        except ConfigError as error:
            raise Failed(str(error)) from error
        episode = played.play(task, script_policy([*played.oracle(task), answer]))
        if episode.scores.total is None:
            raise Failed(f"task {task.id}: no score: {episode.explain_missing_score()}")
        totals.append(episode.scores.total)
        for name, part in played.reward.components.items():
            has_boxes = isinstance(part.reward, rewards.IoUReward) or played.boxes or played.boxes_3d
            least = MIN_GOLD_BOX if has_boxes and built_in.isdisjoint(type(part.reward).__mro__) else MIN_GOLD
            score = episode.scores.components.get(name)
            if part.weight > 0 and getattr(part.reward, "of_episode", None) is None and score is not None:
                low += [f"task {task.id}: {name} {score:.3f} ({episode.end_reason})"] if score < least else []
    if low:
        raise Failed(f"the right answer scores too little: {shorten(low)}")
    return f"{sum(totals) / len(totals):.2f} in the mean of {len(totals)} played tasks"


@check(
    "wrong answers",
    needs=("gold answer",),
    inside=True,
    mend="compare the answer with task.reference; a reward that reads neither gives everyone the same",
)
def check_wrong(env: Any, project: Mapping[str, Any]) -> str:
    """Answers in which everything is changed, and no answer, score less than the right one."""
    from viewbox.records import Episode

    problems, count = [], 0
    for task in list_tasks(env):
        played = env.for_task(task)
        reward = played.reward
        right = played.read_answer(played.write_answer(task), task)
        if right is None:
            raise Failed(f"task {task.id}: its own right answer is not accepted", "check `validate_answer`")
        best = reward.score(right, task.reference)[0]
        if best is None:  # the reward reads the whole episode
            best = (
                played.play(task, script_policy([*played.oracle(task), played.write_answer(task)])).scores.total or 0.0
            )
        silent = played.score(Episode(task, end_reason="max_turns", truncated=True)).total
        answers: list[Mapping[str, Any]] = [_change(right), {}]
        scored = {str(wrong): reward.score(wrong, task.reference)[0] for wrong in answers}
        for wrong, total in (*scored.items(), ("no answer", silent)):
            count += 1
            if total is not None and total >= best:
                problems.append(f"task {task.id}: {wrong} scores {total:.2f}, the right answer {best:.2f}")
    if problems:
        raise Failed(shorten(problems))
    return f"{count} wrong or missing answers score less"


@check(
    "check_rewards",
    needs=("gold answer",),
    inside=True,
    mend="viewbox.rewards.explain.check_rewards(env) says the same in a test; `perfect_answer(task)` returns the right "
    "answer if it is not the reference itself",
)
def check_reward(env: Any, project: Mapping[str, Any]) -> str:
    """`check_rewards` finds nothing: the exact gold answer scores 1.0, empty answers score 0."""
    from viewbox.rewards.explain import check_rewards

    problems = check_rewards(env, num_tasks=NUM_TASKS)
    if problems:
        raise Failed(shorten(problems))
    return "gold answers score 1.0, empty ones 0"


def _change(value: Any) -> Any:
    """An answer with every value changed; its form stays.

    >>> _change({"label": "cyst", "count": 3, "sure": True, "box": [0.5, 0.5, 1.0, 1.0]})
    {'label': 'not cyst', 'count': 1007, 'sure': False, 'box': [0.0, 0.0, 0.01, 0.01]}
    """
    if isinstance(value, Mapping):
        return {key: _change(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        if len(value) == 4 and all(isinstance(one, float) for one in value):
            return [0.0, 0.0, 0.01, 0.01] if value[2] > 0.1 else [0.98, 0.98, 0.99, 0.99]
        return [_change(one) for one in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 2 * value + 1001
    if isinstance(value, float):
        return (value + 0.5) % 1.0 if 0 <= value <= 1 else -value - 1001.0
    return f"not {value}" if isinstance(value, str) else value


@check("same by seed", needs=("gold answer",), inside=True, mend=REPEAT)
def check_seed(env: Any, project: Mapping[str, Any]) -> dict[str, Any]:
    """Two plays of the same tasks in one process are equal, and their images, which are made twice."""
    first, second = describe_plays(env, project), describe_plays(env, project)
    _compare(first, second, "the second time")
    return {"finding": f"{len(first)} tasks, played twice: equal messages, pixels and scores", "plays": first}


@check("same in another process", needs=("same by seed",), mend=REPEAT)
def check_processes(trial: "Trial") -> str:
    """Two processes, which order sets and hash words differently, play the same."""
    first = trial.look_inside("same by seed").get()["plays"]
    plays = Check("plays", describe_plays)
    second = trial.run_inside([plays], variables={"PYTHONHASHSEED": "2"})["plays"].get()
    _compare(first, second, "in another process")
    return f"{len(first)} tasks, played in two processes: equal messages, pixels and scores"


def describe_plays(env: Any, project: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What playing the first tasks gives, as hashes: the task, its images and messages, and the end and scores."""
    from viewbox.images.task_images import open_source

    found = {}
    for number, task in enumerate(list_tasks(env)):
        one = env.for_task(task)
        played = one.play(task, script_policy([*one.oracle(task), one.write_answer(task)]), seed=number)
        state = one.reset(task, seed=number)
        pictures = [hashlib.sha256(open_source(image).pixels.tobytes()).hexdigest() for image in one.images(task)]
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


def has_carried(trial: "Trial") -> bool:
    """Whether a published package holds models or snapshots."""
    return trial.project.is_published and any(
        path.parts[1:2] in (("models",), ("snapshots",)) for path in trial.project.list_files()
    )


@check(
    "verifiers",
    needs=("environment",),
    inside=True,
    mend="publish the environment again with the installed viewbox and verifiers (pip install 'viewbox[hub]')",
    applies=lambda trial: trial.project.is_published,
)
def check_verifiers(env: Any, project: Mapping[str, Any]) -> str:
    """verifiers finds the environment under the name of the package and opens its first task."""
    import verifiers.v1 as vf

    found, package = vf.environment_class(project["name"]), import_module(project["module"])
    if found is not package.ViewboxEnv:
        raise Failed(f"verifiers resolves {project['name']!r} to {found}")
    task = next(iter(env.tasks))
    env.for_task(task).reset(task, seed=0)
    place = str(import_module("viewbox").__file__).rpartition("site-packages/")[2]  # that of the fresh environment
    return f"verifiers finds the package and opens its first task; viewbox is {place}"


@check(
    "carried files",
    needs=("environment",),
    mend="publish the environment again from the machine that has the models",
    inside=True,
    applies=has_carried,
)
def check_carried(env: Any, project: Mapping[str, Any]) -> str:
    """The models and snapshots that a published package carries load."""
    from viewbox.tools.specialists.spec import find_hook

    loaded = []
    for name, spec in env.specialists.items():
        place = getattr(spec, "model", None) or getattr(spec, "snapshot", None)
        if isinstance(place, str) and Path(place).is_absolute() and Path(place).exists():
            for tool in spec.build_tools(name):
                prepare = find_hook(tool, "prepare")
                if prepare is not None:
                    prepare()
            loaded.append(name)
    if not loaded:
        raise Failed("no specialist uses the models and snapshots in the package")
    return f"load: {', '.join(loaded)}"
