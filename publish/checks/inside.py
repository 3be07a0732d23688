"""Rows about what a model meets: the environment opens, answers earn what they should, and episodes repeat.

These functions run in the process of the author's code (`child.py`), where a published package brings its own viewbox.
So they import from `viewbox` by its name.
"""

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import islice
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .rows import Failed, check, shorten

NUM_TASKS = 3  # tasks that are checked
JUNK = "I cannot see it."  # a reply of no use
# The lowest score of the right answer in a component. An IoU, and a reward of one's own where answers have boxes, may
# be lower: rounding a small box to whole pixels or to thousandths changes it much. The exact answer scores 1.0 below.
MIN_GOLD, MIN_GOLD_BOX = 0.999, 0.5
STORABLE = "let prompt, reference and metadata of a task, and facts of a tool, hold only what JSON can: no objects"
REPEAT = (
    "draw from np.random.default_rng(seed) with the number of the task; never from `random`, `hash`, a set's order, "
    "the time or a counter of your own"
)


def load_environment(project: Mapping[str, Any]) -> object:
    """Import the object that the entry point of a package names."""
    module, _, name = project["environment"].partition(":")
    return attrgetter(name)(import_module(module))


def make_environment(loaded: Any, project: Mapping[str, Any]) -> object:
    """Make the environment with the settings of its package: of a class, or of the taskset of a published package."""
    from viewbox.core.base import BaseMultiTurnEnv

    if isinstance(loaded, type) and issubclass(loaded, BaseMultiTurnEnv):
        return loaded()
    if hasattr(loaded, "environment") and hasattr(loaded, "settings"):
        from viewbox.integrations.verifiers import ViewboxTasksetConfig

        first = next(iter(loaded(ViewboxTasksetConfig(id=project["name"]))), None)
        if first is None:
            raise Failed("there are no tasks")
        return first.data.env()
    raise Failed(
        f"{project['environment']} is not an environment",
        "let the entry point viewbox.environments name a subclass of viewbox.BaseMultiTurnEnv",
    )


def list_tasks(env: Any) -> list[Any]:
    """Return the first tasks."""
    return list(islice(iter(env.tasks), NUM_TASKS))


def import_package(project: Mapping[str, Any]) -> dict[str, object]:
    """Import the environment's module; return seconds, the most bytes of memory, and whether torch was loaded."""
    started = time.monotonic()
    load_environment(project)
    return {"seconds": time.monotonic() - started, "memory": measure_memory(), "torch": bool(sys.modules.get("torch"))}


def measure_memory() -> int:
    """Return the most bytes that this process took so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def write_gold(env: Any, task: Any) -> str:
    """Return the right answer; an answer of no use if none can be written, which is the finding of another row."""
    from viewbox.errors import ConfigError

    try:
        return str(env.for_task(task).write_answer(task))
    except ConfigError:
        return JUNK


def script_policy(replies: Sequence[str]) -> Any:
    """Return a policy that gives these replies, and then nothing of use."""
    waiting: Iterator[str] = iter(replies)
    return lambda messages: next(waiting, JUNK)


@check(
    "environment",
    needs=("import",),
    mend="`tasks` returns a sequence of viewbox.Task, `images(task)` their images: docs/authoring.md",
)
def check_environment(env: Any, project: Mapping[str, Any]) -> str:
    """The environment is made with its own settings, and its first tasks open."""
    tasks = list_tasks(env)
    if not tasks:
        raise Failed("there are no tasks")
    for task in tasks:
        try:
            env.for_task(task).reset(task, seed=0)
        except Exception as error:
            raise Failed(f"task {task.id} cannot be opened: {type(error).__name__}: {error}") from error
    count = f"{len(env.tasks)} tasks" if hasattr(env.tasks, "__len__") else "tasks without end"
    return f"{env.name}: {count}; the first {len(tasks)} open"


@check(
    "schemas",
    needs=("environment",),
    mend="`answer` is a pydantic model or a JSON Schema of an object that holds what `gold_answer` returns",
)
def check_schemas(env: Any, project: Mapping[str, Any]) -> str:
    """The schemas of answer and tools are valid, and the right answer fits the first."""
    from viewbox.core.answers import check_answer
    from viewbox.errors import ConfigError
    from viewbox.utils.json_schema import check_schema

    schemas = [tool["function"]["parameters"] for tool in env.tool_schemas]
    schema = env.answer_format.schema
    for checked in (*schemas, *([schema] if schema is not None else [])):
        check_schema(checked)
    for task in list_tasks(env):
        played = env.for_task(task)
        try:
            answer = played.write_answer(task)
        except ConfigError:
            continue  # the row `gold answer` says so
        if played.read_answer(answer, task) is None:
            _, problem = check_answer(played, json.loads(answer), task) if schema is not None else ({}, "")
            raise Failed(f"task {task.id}: the right answer {answer:.200} is not accepted: {problem}")
    form = "plain text" if schema is None else env.answer_format.text.splitlines()[0]
    return f"the answer is {form:.100}; {len(schemas)} tools"


@check(
    "tool docs",
    needs=("environment",),
    mend='a docstring for each tool, and Annotated[int, "what it is"] for each argument: the model reads both',
)
def check_tool_docs(env: Any, project: Mapping[str, Any]) -> str:
    """The author's tools have a docstring that describes or names each argument: the model reads nothing else."""
    from viewbox.utils.frozen import thaw

    schemas = [thaw(schema)["function"] for schema in env.tool_schemas]
    # those of viewbox are described in docs/tools.md
    homes = [str(getattr(env.toolbox[schema["name"]].function, "__module__", "")) for schema in schemas]
    authored = [entry for entry, home in zip(schemas, homes, strict=True) if not home.startswith("viewbox.")]
    bare = [name for function in authored for name in _list_bare(env.toolbox[function["name"]])]
    if bare:
        raise Failed(f"without a description: {shorten(bare, 6)}")
    return f"{len(authored)} tools of your own, and their arguments, are described; {len(schemas)} in all"


def _list_bare(tool: Any) -> Iterator[str]:
    if not tool.description.strip():
        yield tool.name
    for argument, spec in tool.parameters.items():
        words = tool.description.replace("`", " ").split()
        if not str(spec.get("description", "")).strip() and argument not in words:
            yield f"{tool.name}({argument})"


@check("episode", needs=("environment",), mend="make images and tools cheaper; load what is large once, in `prepare`")
def check_episode(env: Any, project: Mapping[str, Any]) -> str:
    """An episode ends in its time and memory, with the right answer and with a model that writes nothing of use; it can
    be stored, also in a trace of verifiers, and is read back the same."""
    task, limit = list_tasks(env)[0], project["episode_seconds"]
    ends, slowest = [], 0.0
    for replies in ([*env.for_task(task).oracle(task), write_gold(env, task)], []):
        started = time.monotonic()
        episode = env.play(task, script_policy(replies))
        ends.append(episode.end_reason)
        _store(episode)
        slowest = max(slowest, time.monotonic() - started)
    if slowest > limit:
        raise Failed(f"an episode takes {slowest:.1f} s; allowed: {limit:g} s")
    return f"at most {slowest:.2f} s and {measure_memory() / 2**20:.0f} MiB; ends: {', '.join(ends)}"


def _store(episode: Any) -> None:
    """Raise `Failed` if an episode cannot be stored, or is another one when it is read back."""
    from pydantic_core import to_json

    from viewbox.records import Episode
    from viewbox.utils.frozen import thaw

    def describe(one: Any) -> list[Any]:
        return [one.end_reason, *map(thaw, (one.answer, one.task.prompt, one.task.reference, one.task.metadata))]

    try:
        read = [Episode.from_dict(json.loads(to_json(episode.to_dict())))]  # as pydantic writes a trace of verifiers
        with suppress(ImportError), TemporaryDirectory() as folder:  # a published package does not carry the store
            from viewbox.rollouts.store.reader import load
            from viewbox.rollouts.store.writer import EpisodeWriter

            with EpisodeWriter(folder) as writer:
                writer.append(episode)
            read += load(folder)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise Failed(f"the episode of task {episode.task.id} cannot be stored: {why:.300}", STORABLE) from error
    if any(describe(one) != describe(episode) for one in read):
        raise Failed(f"the episode of task {episode.task.id} is not the same when it is read back", STORABLE)


@check(
    "gold answer",
    needs=("episode", "schemas"),
    mend="check what `gold_answer(task)` returns, and the coordinates of answer and reference",
)
def check_gold(env: Any, project: Mapping[str, Any]) -> str:
    """The right answer, played, scores 1.0 in every component that reads the answer (0.5 where a box is rounded)."""
    from viewbox import rewards
    from viewbox.errors import ConfigError

    built_in = {value for value in vars(rewards).values() if isinstance(value, type)} - {rewards.IoUReward}
    totals, low = [], []
    for task in list_tasks(env):
        try:
            played = env.for_task(task)
            answer = played.write_answer(task)
        except ConfigError as error:
            raise Failed(str(error)) from error
        episode = played.play(task, script_policy([*played.oracle(task), answer]))
        if episode.scores.total is None:
            mend = "the reward raised: score(answer, task.reference) must work for `gold_answer(task)`"
            problem = f"task {task.id}: no score: {episode.explain_missing_score()}"
            raise Failed(problem, mend if episode.scores.faults else None)
        totals.append(episode.scores.total)
        for name, component in played.reward.components.items():
            has_boxes = isinstance(component.reward, rewards.IoUReward) or played.boxes or played.boxes_3d
            least = MIN_GOLD_BOX if has_boxes and built_in.isdisjoint(type(component.reward).__mro__) else MIN_GOLD
            score = episode.scores.components.get(name)
            if component.weight > 0 and getattr(component.reward, "of_episode", None) is None and score is not None:
                low += [f"task {task.id}: {name} {score:.3f} ({episode.end_reason})"] if score < least else []
    if low:
        raise Failed(f"the right answer scores too little: {shorten(low)}")
    return f"{sum(totals) / len(totals):.2f} in the mean of {len(totals)} played tasks"


@check(
    "wrong answers",
    needs=("gold answer",),
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
    """Return an answer with every value changed; its form stays.

    >>> _change({"label": "cyst", "count": 3, "sure": True, "box": [0.5, 0.5, 1.0, 1.0]})
    {'label': 'not cyst', 'count': 1007, 'sure': False, 'box': [0.0, 0.0, 0.01, 0.01]}
    """
    if isinstance(value, Mapping):
        return {key: _change(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if len(value) == 4 and all(isinstance(item, float) for item in value):
            return [0.0, 0.0, 0.01, 0.01] if value[2] > 0.1 else [0.98, 0.98, 0.99, 0.99]
        return [_change(item) for item in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 2 * value + 1001
    if isinstance(value, float):
        return (value + 0.5) % 1.0 if 0 <= value <= 1 else -value - 1001.0
    return f"not {value}" if isinstance(value, str) else value


@check("same by seed", needs=("gold answer",), mend=REPEAT)
def check_seed(env: object, project: Mapping[str, object]) -> dict[str, object]:
    """Two plays of the same tasks in one process are equal, and their images, which are made twice."""
    first, second = describe_plays(env, project), describe_plays(env, project)
    compare_plays(first, second, "the second time")
    return {"finding": f"{len(first)} tasks, played twice: equal messages, pixels and scores", "plays": first}


def describe_plays(env: Any, project: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return what playing the first tasks gives, as hashes: the task, its images and messages, and the end and
    scores."""
    from viewbox.images.task_images import open_source

    plays = {}
    for number, task in enumerate(list_tasks(env)):
        task_env = env.for_task(task)
        played = task_env.play(task, script_policy([*task_env.oracle(task), task_env.write_answer(task)]), seed=number)
        state = task_env.reset(task, seed=number)
        pictures = [hashlib.sha256(open_source(image).pixels.tobytes()).hexdigest() for image in task_env.images(task)]
        plays[f"{number}"] = {
            "task": _hash([task.id, dict(task.prompt), task.reference]),
            "first messages": _hash([message.text for message in state.messages]),
            "pixels": _hash(pictures),
            "turns": _hash([[turn.role, turn.content] for turn in played.turns]),
            "scores": _hash([played.end_reason, played.scores.to_dict()]),
        }
    return plays


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def compare_plays(first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]], when: str) -> None:
    """Raise `Failed` if a task was played otherwise `when` it was played again."""
    for number, record in first.items():
        differ = [name for name, value in record.items() if second.get(number, {}).get(name) != value]
        if differ:
            raise Failed(f"task number {number} differs {when}: {', '.join(differ)}")


@check(
    "verifiers",
    needs=("environment",),
    mend="publish the environment again with the installed viewbox and verifiers (pip install 'viewbox[hub]')",
    applies=lambda trial: trial.project.is_published,
)
def check_verifiers(env: Any, project: Mapping[str, Any]) -> str:
    """verifiers finds the environment under the name of the package and opens its first task."""
    import verifiers.v1 as vf

    resolved, package = vf.environment_class(project["name"]), import_module(project["module"])
    if resolved is not package.ViewboxEnv:
        raise Failed(f"verifiers resolves {project['name']!r} to {resolved}")
    task = next(iter(env.tasks))
    env.for_task(task).reset(task, seed=0)
    place = str(import_module("viewbox").__file__).rpartition("site/")[2]  # the copy in the package
    return f"verifiers finds the package and opens its first task; viewbox is {place}"


@check(
    "carried files",
    needs=("environment",),
    mend="publish the environment again from the machine that has the models",
    applies=lambda trial: (
        trial.project.is_published
        and any(path.parts[1:2] in (("models",), ("snapshots",)) for path in trial.project.list_files())
    ),
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
