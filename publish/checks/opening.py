"""Imports a package in a fresh environment and makes its environment, an author's own or a published one; one row."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

from .rows import Failed, check

NUM_TASKS = 3  # tasks that are checked
JUNK = "I cannot see it."  # a reply of no use


def load_environment(project: Mapping[str, Any]) -> Any:
    """The object that the entry point of a package names."""
    module, _, name = project["environment"].partition(":")
    loaded: Any = import_module(module)
    for part in name.split("."):
        loaded = getattr(loaded, part)
    return loaded


def make_environment(loaded: Any, project: Mapping[str, Any]) -> Any:
    """The environment with the settings of its package: of a class, or of the taskset of a published package."""
    from viewbox.core.base import BaseMultiTurnEnv

    if isinstance(loaded, type) and issubclass(loaded, BaseMultiTurnEnv):
        return loaded()
    if hasattr(loaded, "environment") and hasattr(loaded, "settings"):
        from viewbox.integrations.verifiers import ViewboxTasksetConfig

        tasks = iter(loaded(ViewboxTasksetConfig(id=project["name"])))
        first = next(tasks, None)
        if first is None:
            raise Failed("there are no tasks")
        return first.data.env()
    raise Failed(
        f"{project['environment']} is not an environment",
        "let the entry point viewbox.environments name a subclass of viewbox.BaseMultiTurnEnv",
    )


def list_tasks(env: Any) -> list[Any]:
    """The first tasks."""
    return list(islice(iter(env.tasks), NUM_TASKS))


def import_package(project: Mapping[str, Any]) -> dict[str, Any]:
    """Import the environment's module; runs inside."""
    import resource

    load_environment(project)
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"memory": usage * (1 if sys.platform == "darwin" else 1024), "torch": "torch" in sys.modules}


@check(
    "environment",
    needs=("import",),
    inside=True,
    mend="`tasks` returns a sequence of viewbox.Task, `images(task)` their images: docs/authoring.md",
)
def check_environment(env: Any, project: Mapping[str, Any]) -> str:
    """The environment is made with its own settings, and its first tasks open."""
    tasks = list_tasks(env)
    if not tasks:
        raise Failed("there are no tasks")
    for task in tasks:
        try:
            env.reset(task, seed=0)
        except Exception as error:
            raise Failed(f"task {task.id} cannot be opened: {type(error).__name__}: {error}") from error
    count = f"{len(env.tasks)} tasks" if hasattr(env.tasks, "__len__") else "tasks without end"
    return f"{env.name}: {count}; the first {len(tasks)} open"


def play_first(env: Any, project: Mapping[str, Any]) -> None:
    """Play one episode with the right answer."""
    for task in list_tasks(env)[:1]:
        env.play(task, script_policy([*env.oracle(task), write_gold(env, task)]))


def write_gold(env: Any, task: Any) -> str:
    """The right answer; an answer of no use if none can be written, which is the finding of another row."""
    from viewbox.errors import ConfigError

    try:
        return str(env.write_answer(task))
    except ConfigError:
        return JUNK


def script_policy(replies: Sequence[str]) -> Any:
    """A policy that gives these replies, and then nothing of use."""
    waiting: Iterator[str] = iter(replies)
    return lambda messages: next(waiting, JUNK)
