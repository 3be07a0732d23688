"""Checks before an environment is published: it can be played, and its package works without an installed viewbox."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence, Sized
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.records import Episode, Message, Scores, Task
from viewbox.rewards import IoUReward

NUM_TASKS = 3  # tasks that are checked
# The lowest mean score that the right answer may have in a component. It is lower for IoU, because rounding a small box
# to whole pixels changes its IoU much.
MIN_GOLD_SCORE, MIN_GOLD_IOU = 0.9, 0.5

# Imports the vendored copies, not the installed packages, and then the package as verifiers does.
USE_PACKAGE = """
import importlib, sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

root, module, name, *specialists = sys.argv[1:]
sys.path.insert(0, root)
copies = [path for path in Path(root, module, "_vendor").iterdir() if (path / "__init__.py").is_file()]
for copy in sorted(copies, key=lambda path: path.name != "viewbox"):
    spec = spec_from_file_location(copy.name, copy / "__init__.py", submodule_search_locations=[str(copy)])
    sys.modules[copy.name] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules[copy.name])

import verifiers.v1 as vf
from viewbox.envs.adapters.verifiers import ViewboxTasksetConfig

env_class, package = vf.environment_class(name), importlib.import_module(module)
assert env_class is package.ViewboxEnv, f"verifiers resolves {name!r} to {env_class}"
taskset = getattr(package, package.__all__[0])(ViewboxTasksetConfig(id=name))
data = next(iter(taskset)).data
data.env().reset(data.task(), seed=0)

from viewbox.envs.tools.specialist.spec import find_hook

for name in specialists:
    for tool in data.env().specialists[name].build_tools(name):
        find_hook(tool, "prepare")()
"""


def check_playable(env: BaseMultiTurnEnv) -> str:
    """Opens the first tasks, and scores the right answer and a missing answer.

    Returns:
        The result in one line.

    Raises:
        ConfigError: there are no tasks, a task cannot be opened, or the right answer scores too low.
    """
    tasks = list(islice(iter(env.tasks), NUM_TASKS))
    if not tasks:
        raise ConfigError(f"{env.name}: there are no tasks to publish")
    for task in tasks:
        try:
            env.reset(task, seed=0)
        except Exception as error:
            raise ConfigError(f"{env.name}: task {task.id} cannot be opened: {error}") from error
    missing = _compute_mean_total([env.score(Episode(task, end_reason="max_turns", truncated=True)) for task in tasks])
    count = f"{len(env.tasks)} tasks" if isinstance(env.tasks, Sized) else "many tasks"
    opened = f"{count}; the first {len(tasks)} open"
    scores = [_score_gold_answer(env, task) for task in tasks]
    if None in scores:
        return f"{opened}; a missing answer scores {missing:.2f}"
    gold = [score for score in scores if score is not None]
    right = _compute_mean_total(gold)
    low = _describe_low_components(env, gold)
    if not right > missing:
        raise ConfigError(
            f"{env.name}: the right answer scores {right:.2f}, a missing answer {missing:.2f}; allowed: more than that"
        )
    if low:
        raise ConfigError(
            f"{env.name}: the right answer (`gold_answer`) scores {right:.2f}, because of {low}. Check what "
            "`gold_answer` returns, and the coordinates of the answer and the reference"
        )
    return f"{opened}; the right answer scores {right:.2f}, a missing answer {missing:.2f}"


def check_package(root: Path, module: str, name: str, models: Sequence[str] = (), snapshots: Sequence[str] = ()) -> str:
    """Imports the written package in a new process, as verifiers does, and opens a task.

    Args:
        root: the folder of the package.
        module: its module.
        name: its name.
        models: the specialists whose model travels; each is loaded.
        snapshots: the specialists whose snapshot travels; each is opened.

    Returns:
        The result in one line.

    Raises:
        ConfigError: the process failed; the message holds the end of what it printed.
    """
    if find_spec("verifiers") is None:
        return "not checked with verifiers, which is not installed here"
    loaded = list(models) if find_spec("torch") is not None else []
    command = [sys.executable, "-c", USE_PACKAGE, str(root), module, name, *loaded, *snapshots]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    if done.returncode:
        raise ConfigError(f"the written package does not work:\n{done.stderr.strip()[-2000:]}")
    opened = "verifiers finds the package and opens its first task with the package's own copy of viewbox"
    opened += "; its snapshots open" if snapshots else ""
    if not models:
        return opened
    return f"{opened}; its models {'load' if loaded else 'were not tried: torch is not installed here'}"


def _score_gold_answer(env: BaseMultiTurnEnv, task: Task) -> Scores | None:
    """The scores of an episode with the oracle's looks and the right answer; None if the author states no answer."""
    gold_answer = getattr(env, "gold_answer", None)
    if gold_answer is None:
        return None
    replies = [*env.oracle(task), json.dumps(gold_answer(task))]

    def policy(messages: list[Message]) -> str:
        return replies.pop(0) if replies else ""

    return env.play(task, policy).scores


def _describe_low_components(env: BaseMultiTurnEnv, scores: Sequence[Scores]) -> str:
    """Names the components in which the right answer scores too low; those that read the whole episode do not count."""
    low = []
    for name, part in env.reward.components.items():
        values = [value for score in scores if (value := score.components.get(name)) is not None]
        if not values or part.weight <= 0 or getattr(part.reward, "of_episode", None) is not None:
            continue
        mean, least = _mean(values), MIN_GOLD_IOU if isinstance(part.reward, IoUReward) else MIN_GOLD_SCORE
        if mean < least:
            low.append(f"{name} {mean:.2f} (allowed: at least {least})")
    return ", ".join(low)


def _compute_mean_total(scores: Sequence[Scores]) -> float:
    """The mean total; an episode without one (no component applies) counts 0."""
    return _mean([score.total or 0.0 for score in scores])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
