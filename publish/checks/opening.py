"""Rows about the code of a package: what its import and an episode do, and what a model is told.

The functions of `inside` rows run in the fresh environment, where this module, `playing.py` and `rows.py` are loaded in
the package `viewbox_checks`, and a published package brings its own viewbox. So they import from `viewbox` by its name.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

from .rows import Check, Failed, check, shorten

if TYPE_CHECKING:
    from .trial import Inside, Trial

NUM_TASKS = 3  # tasks that are checked
JUNK = "I cannot see it."  # a reply of no use
# Variables that programs of the field read keys from; a check sets them to a word that must not be printed.
KEYS = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "PRIME_API_KEY", "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY", "NCBI_API_KEY",
)  # fmt: skip
CANARY = "viewbox-check-canary-3f9d1c77"


@check(
    "import",
    needs=("dependencies",),
    mend="move work from the top of the module into functions; declare what it imports in `dependencies`",
)
def check_import(trial: "Trial") -> str:
    """The package is imported in the fresh environment, in bounded time and memory."""
    found = trial.look_inside("import").get()
    return f"in a fresh environment, {found['seconds']:.1f} s, {found['memory'] / 2**20:.0f} MiB"


@check(
    "no network at import",
    needs=("dependencies",),
    mend="fetch data where it is first needed (`tasks`, `images`), or ship it in the package",
)
def check_network(trial: "Trial") -> str:
    """Importing connects to nothing and looks no name up."""
    inside = trial.look_inside("import")
    if refused := inside.list_refused("network"):
        raise Failed(f"importing it calls out: {shorten(refused)}")
    inside.require_end()
    return "no connection, no look-up of a name"


@check("no torch at import", needs=("import",), mend="import torch inside the function that uses it")
def check_torch(trial: "Trial") -> str:
    """Importing does not load torch, which takes seconds and gigabytes in every worker."""
    if trial.look_inside("import").get()["torch"]:
        raise Failed("importing it loads torch")
    return "torch is not loaded"


@check(
    "writes nothing outside",
    needs=("dependencies",),
    mend="write into `tempfile.mkdtemp()` or the user's cache folder (below HOME), never beside the code or elsewhere",
)
def check_writes(trial: "Trial") -> str:
    """Importing and playing write into the home and temporary folder only."""
    watched = _watch(trial)
    refused = [path for inside in watched.values() for path in inside.list_refused("write")]
    if refused:
        raise Failed(f"it writes {shorten(list(dict.fromkeys(refused)))}")
    watched["play"].require_end()
    return "importing and an episode write at most into home and temporary folder"


@check(
    "prints no secrets",
    needs=("dependencies",),
    mend="never print the environment or a variable that holds a key",
)
def check_secrets(trial: "Trial") -> str:
    """Importing and playing print no value of a variable in which keys are kept."""
    watched = _watch(trial)
    output = watched["import"].outcome.output
    if CANARY in output:
        line = next(line for line in output.splitlines() if CANARY in line)
        named = [key for key in KEYS if key in line]
        raise Failed(f"it prints the value of {shorten(named) or 'a variable that holds a key'}")
    watched["play"].require_end()
    return f"{len(KEYS)} variables that hold keys: none is printed"


def play_first(env: Any, project: Mapping[str, Any]) -> None:
    """Play one episode with the right answer."""
    for task in list_tasks(env)[:1]:
        env.play(task, script_policy([*env.for_task(task).oracle(task), write_gold(env, task)]))


def _watch(trial: "Trial") -> "Mapping[str, Inside]":
    """Import the package and play an episode, with keys in the variables and without a network."""
    if not trial.watched:
        play = Check("play", play_first, needs=("import",))
        trial.watched = trial.run_inside([play], offline=True, variables=dict.fromkeys(KEYS, CANARY))
    return trial.watched


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
    """Import the environment's module; returns seconds, the most bytes of memory, and whether torch was loaded."""
    started = time.monotonic()
    load_environment(project)
    return {"seconds": time.monotonic() - started, "memory": measure_memory(), "torch": "torch" in sys.modules}


def measure_memory() -> int:
    """The most bytes that this process took so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def write_gold(env: Any, task: Any) -> str:
    """The right answer; an answer of no use if none can be written, which is the finding of another row."""
    from viewbox.errors import ConfigError

    try:
        return str(env.for_task(task).write_answer(task))
    except ConfigError:
        return JUNK


def script_policy(replies: Sequence[str]) -> Any:
    """A policy that gives these replies, and then nothing of use."""
    waiting: Iterator[str] = iter(replies)
    return lambda messages: next(waiting, JUNK)


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
            env.for_task(task).reset(task, seed=0)
        except Exception as error:
            raise Failed(f"task {task.id} cannot be opened: {type(error).__name__}: {error}") from error
    count = f"{len(env.tasks)} tasks" if hasattr(env.tasks, "__len__") else "tasks without end"
    return f"{env.name}: {count}; the first {len(tasks)} open"


@check(
    "schemas",
    needs=("environment",),
    inside=True,
    mend="`answer` is a pydantic model or a JSON Schema of an object that holds what `gold_answer` returns",
)
def check_schemas(env: Any, project: Mapping[str, Any]) -> str:
    """The schemas of answer and tools are valid, and the right answer fits the first."""
    from viewbox.core.answers import check_answer
    from viewbox.errors import ConfigError
    from viewbox.utils.json_schema import check_schema

    schemas = [tool["function"]["parameters"] for tool in env.tool_schemas]
    schema = env.answer_format.schema
    for one in (*schemas, *([schema] if schema is not None else [])):
        check_schema(one)
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
    inside=True,
    mend='a docstring for each tool, and Annotated[int, "what it is"] for each argument: the model reads both',
)
def check_tool_docs(env: Any, project: Mapping[str, Any]) -> str:
    """The author's tools have a docstring that describes or names each argument: the model reads nothing else."""
    from viewbox.utils.frozen import thaw

    schemas = [thaw(schema)["function"] for schema in env.tool_schemas]
    own = [function for function in schemas if _is_own(env, function["name"])]
    bare = [name for function in own for name in _list_bare(function)]
    if bare:
        raise Failed(f"without a description: {shorten(bare, 6)}")
    return f"{len(own)} tools of your own, and their arguments, are described; {len(schemas)} in all"


def _is_own(env: Any, name: str) -> bool:
    """Whether an author wrote a tool; those of viewbox are described in docs/tools.md."""
    return not str(getattr(env.toolbox[name].function, "__module__", "")).startswith("viewbox.")


def _list_bare(function: Mapping[str, Any]) -> Iterator[str]:
    name = function["name"]
    if not str(function.get("description", "")).strip():
        yield name
    for argument, schema in function["parameters"].get("properties", {}).items():
        words = str(function.get("description", "")).replace("`", " ").split()
        if not str(schema.get("description", "")).strip() and argument not in words:
            yield f"{name}({argument})"
