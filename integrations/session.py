"""One episode at a time, for adapters of frameworks that call `reset` and `step` themselves.

`env.step` is a coroutine function. A framework that has no event loop, or runs inside one that it does not share (a
notebook), waits here for an event loop in a thread.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral

from ..core.base import BaseMultiTurnEnv
from ..core.contract import EpisodeState, StepResult
from ..core.messages import render_tools
from ..core.tasks import to_sequence
from ..envs import make
from ..errors import ConfigError
from ..network import background
from ..network.data_policy import check_may_leave, keep_on_this_machine
from ..records import Episode, Message, Reply, RunConfig, Task
from ..utils.concurrency import contain_exit


class EpisodeSession:
    """An environment and its episode in progress; `open` starts another. An exception of the environment's code ends
    the episode as `error`, as in viewbox's own driver."""

    def __init__(self, env: BaseMultiTurnEnv) -> None:
        self.env = env  # of all tasks
        self.played = env  # of the task in play: a mixture hands each task to another
        self.state: EpisodeState | None = None
        self.problem: str | None = None

    def open(self, task: Task, *, seed: int) -> list[Message]:
        """Start an episode; its first messages. Raise `ImageError` if the task's image cannot be opened."""
        self.state, self.problem = None, None
        with keep_on_this_machine(self.env), contain_exit():
            self.env.prepare()
            self.played = self.env.for_task(task)
            self.state = self.played.reset(task, seed=seed)
        return list(self.state.messages)

    def step(self, reply: Reply | str) -> StepResult:
        return background.run(self.step_async(reply), "viewbox-adapter")  # a user may ask a judge

    async def step_async(self, reply: Reply | str) -> StepResult:
        """Answer one reply of the model. Raise `RuntimeError` if no episode is in progress."""
        state = self.get_state()
        try:
            with keep_on_this_machine(self.env), contain_exit():
                return await self.played.step(state, reply)
        except Exception as error:
            if state.end_reason is not None:
                raise
            self.problem = f"{type(error).__name__}: {error}"
            return state.end("error")

    def get_state(self) -> EpisodeState:
        if self.state is None:
            raise RuntimeError("no episode is open; call reset() first")
        return self.state

    def describe_tools(self) -> str:
        return render_tools(self.get_state().tool_schemas, self.played.reply_format, self.played.prompts)

    def build_episode(self) -> Episode:
        """Return the scored record; an episode that has not ended is recorded as `cancelled`."""
        state = self.get_state()
        info = {} if self.problem is None else {"error": self.problem}
        return self.played.build_episode(state, RunConfig(seed=state.seed, max_turns=state.max_turns), info=info)


@lru_cache(maxsize=16)
def make_cached(name: str, settings: str) -> BaseMultiTurnEnv:
    """Make an environment once a process; `settings` are JSON with sorted keys."""
    return make(name, **json.loads(settings))


def list_tasks(env: BaseMultiTurnEnv) -> Sequence[Task]:
    tasks = to_sequence(env.tasks, env.name)
    if not len(tasks):
        raise ConfigError(f"{env.name}: it has no tasks", key="environment")
    return tasks


def pick_task(tasks: Sequence[Task], number: object, name: str = "task") -> Task:
    if not isinstance(number, Integral) or not 0 <= int(number) < len(tasks):
        raise ConfigError(f"{name}: {number!r}; allowed: 0 to {len(tasks) - 1}", key="task")
    return tasks[int(number)]


def check_served(env: BaseMultiTurnEnv) -> None:
    """Raise `ConfigError` if an environment cannot be served: its data is restricted, or it has no tasks."""
    check_may_leave(
        env, "an OpenEnv server", action="whoever reaches it would see the images of", allowed="viewbox rollout"
    )
    list_tasks(env)


def check_installed(package: str, wanted: str, supported: str | None = None, replaces: str | None = None) -> None:
    """Raise `ConfigError` unless a package is installed, and in the minor version `supported` if one is given. `wanted`
    is what pip is told to install. `replaces` is the package's former name, which has to go first: both write into the
    same folder."""
    needed = f"{package} {supported or ''}".strip() + f" is needed: pip install '{wanted}'"
    if replaces is not None and (old := _find_version(replaces)) is not None:
        again = f"pip uninstall -y {replaces} {package} && pip install '{wanted}'"
        raise ConfigError(
            f"{replaces} {old} is installed, which {package} replaced under the same import name: {again}"
        )
    installed = _find_version(package)
    if installed is None:
        raise ConfigError(needed)
    if supported is not None and installed.split(".")[:2] != supported.split("."):
        raise ConfigError(f"{package} {installed} is installed; {needed}")


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
