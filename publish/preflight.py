"""What is tried before a published environment is written: that it can be played, and that its package can be used."""

import json
import math
import subprocess
import sys
from collections.abc import Sized
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.records import Episode, Message, Task

FIRST = 3  # tasks that are tried

# Loads the copies that came along, not what is installed here, then the package as verifiers does.
USE = """
import importlib, sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

root, module, name = sys.argv[1:]
sys.path.insert(0, root)
copies = [path for path in Path(root, module, "_vendor").iterdir() if (path / "__init__.py").is_file()]
for copy in sorted(copies, key=lambda path: path.name != "viewbox"):
    spec = spec_from_file_location(copy.name, copy / "__init__.py", submodule_search_locations=[str(copy)])
    sys.modules[copy.name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[copy.name])

import verifiers.v1 as vf
from viewbox.envs.adapters.verifiers import ViewboxTasksetConfig

found, package = vf.environment_class(name), importlib.import_module(module)
assert found is package.ViewboxEnv, f"in verifiers {name!r} is {found}"
taskset = getattr(package, package.__all__[0])(ViewboxTasksetConfig(id=name))
data = next(iter(taskset)).data
data.env().reset(data.task(), seed=0)
"""


def playable(env: BaseMultiTurnEnv) -> str:
    """Opens the first tasks and scores the right answer and none; a line about it, or `ConfigError`."""
    tasks = list(islice(iter(env.tasks), FIRST))
    if not tasks:
        raise ConfigError(f"{env.name}: there are no tasks to publish")
    for task in tasks:
        try:
            env.reset(task, seed=0)
        except Exception as error:
            raise ConfigError(f"{env.name}: task {task.id} cannot be opened: {error}") from error
    gold = [_gold(env, task) for task in tasks]
    none = [env.score(Episode(task, end_reason="max_turns", truncated=True)).total for task in tasks]
    many = len(env.tasks) if isinstance(env.tasks, Sized) else "many"
    if None in gold:
        return f"{many} tasks; the first {len(tasks)} open; no answer scores {_mean(none):.2f}"
    right = _mean([score or 0.0 for score in gold])
    if not right > _mean(none):
        raise ConfigError(f"{env.name}: the right answer scores {right:.2f}, no answer at all {_mean(none):.2f}")
    return f"{many} tasks; the first {len(tasks)} open; the right answer scores {right:.2f}, none {_mean(none):.2f}"


def usable(root: Path, module: str, name: str) -> str:
    """Imports the written package in a process of its own, as verifiers does, and opens a task."""
    if find_spec("verifiers") is None:
        return "not tried in verifiers, which is not installed here"
    command = [sys.executable, "-c", USE, str(root), module, name]
    tried = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    if tried.returncode:
        raise ConfigError(f"the package that was written cannot be used:\n{tried.stderr.strip()[-2000:]}")
    return "verifiers finds the package and opens its first task, with only what the package holds"


def _gold(env: BaseMultiTurnEnv, task: Task) -> float | None:
    """The score of a play that looks where the oracle looks and gives the right answer, where the author states one."""
    right = getattr(env, "gold_answer", None)
    if right is None:
        return None
    replies = [*env.oracle(task), json.dumps(right(task))]

    def policy(messages: list[Message]) -> str:
        return replies.pop(0) if replies else ""

    scores = env.play(task, policy).scores
    return scores.total if scores else None


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)
