"""Imports a package in a fresh environment and makes its environment, an author's own or a published one."""

import sys
from collections.abc import Mapping
from importlib import import_module
from itertools import islice
from typing import Any

from .rows import Failed

NUM_TASKS = 3  # tasks that are checked


def load_environment(project: Mapping[str, Any]) -> Any:
    """The object that the entry point of a package names."""
    module, _, name = project["environment"].partition(":")
    loaded: Any = import_module(module)
    for part in name.split("."):
        loaded = getattr(loaded, part)
    return loaded


def make_environment(loaded: Any, project: Mapping[str, Any]) -> Any:
    """The environment with the settings of its package: of a class, or of the taskset of a published package."""
    from viewbox.envs.base import BaseMultiTurnEnv

    if isinstance(loaded, type) and issubclass(loaded, BaseMultiTurnEnv):
        return loaded()
    if hasattr(loaded, "environment") and hasattr(loaded, "settings"):
        from viewbox.envs.adapters.verifiers import ViewboxTasksetConfig

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
