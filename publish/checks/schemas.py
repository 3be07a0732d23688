"""Rows about what the model is told: the schema of the answer, and the descriptions of tools."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .opening import list_tasks
from .rows import Failed, check, shorten


@check(
    "schemas",
    needs=("environment",),
    inside=True,
    mend="`answer` is a pydantic model or a JSON Schema of an object that holds what `gold_answer` returns",
)
def check_schemas(env: Any, project: Mapping[str, Any]) -> str:
    """The schemas of answer and tools are valid, and the right answer fits the first."""
    from viewbox.errors import ConfigError
    from viewbox.utils.frozen import thaw
    from viewbox.utils.json_schema import check_schema

    schemas = [thaw(tool)["function"]["parameters"] for tool in env.tool_schemas]
    for schema in [*schemas, *([thaw(env.answer_schema)] if env.answer_schema is not None else [])]:
        check_schema(schema)
    for task in list_tasks(env):
        try:
            answer = env.write_answer(task)
        except ConfigError:
            continue  # the row `gold answer` says so
        if env.read_answer(answer, task) is None:
            _, problem = env.check_answer(json.loads(answer), task) if env.answer_schema is not None else ({}, "")
            raise Failed(f"task {task.id}: the right answer {answer:.200} is not accepted: {problem}")
    form = "plain text" if env.answer_schema is None else env.answer_format.splitlines()[0]
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

    own = [thaw(schema)["function"] for schema in env.tool_schemas if _is_own(env, thaw(schema)["function"]["name"])]
    bare = [name for function in own for name in _list_bare(function)]
    if bare:
        raise Failed(f"without a description: {shorten(bare, 6)}")
    return f"{len(own)} tools of your own, and their arguments, are described; {len(env.tool_schemas)} in all"


def _is_own(env: Any, name: str) -> bool:
    """Whether an author wrote a tool; those of viewbox are described in docs/tools.md."""
    return not str(getattr(env.get_tool(name).function, "__module__", "")).startswith("viewbox.")


def _list_bare(function: Mapping[str, Any]) -> Iterator[str]:
    name = function["name"]
    if not str(function.get("description", "")).strip():
        yield name
    for argument, schema in function["parameters"].get("properties", {}).items():
        words = str(function.get("description", "")).replace("`", " ").split()
        if not str(schema.get("description", "")).strip() and argument not in words:
            yield f"{name}({argument})"
