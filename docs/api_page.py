"""Prints the page of the Python interface: signatures and docstrings of the public names (`make docs`)."""

import ast
import inspect
import re
import tokenize
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from io import StringIO
from typing import Any

import viewbox

HEAD = """# The Python interface

Printed by `python docs/api_page.py` from the docstrings; do not edit. Every name is `viewbox.NAME`, except
those that say from where they come. Boxes are (x1, y1, x2, y2) in fractions of the original image unless a
line says otherwise. [authoring.md](authoring.md) shows an environment from beginning to end."""

SECTIONS: dict[str, tuple[str, ...]] = {
    "Asking": ("ask", "ask_async", "open_session", "viewbox.rollouts.ask:Session", "Answer", "connect", "load_model"),
    "Environments": (
        "make", "BaseMultiTurnEnv", "viewbox.core.contract:AuthoredEnv", "StepResult", "viewbox.envs.data.env:DataEnv",
    ),
    "Tasks, episodes and what is in them": (
        "Task", "Episode", "Turn", "ToolCall", "ToolResult", "Scores", "Message", "Reply", "RunConfig", "EpisodeTokens",
        "viewbox.core.tasks:ProceduralTasks",
    ),
    "Images": ("open_image", "viewbox.images.source:Source", "View", "ImageRef"),
    "Tools": ("tool", "Tool", "ToolOutput", "Point", "Box", "Picture", "Hidden", "Range"),
    "Rewards": (
        "CombinedReward", "ExactMatchReward", "TokenF1Reward", "IoUReward", "LabelSetF1Reward", "RankingReward",
        "BrierReward", "FormatReward", "ToolUseReward", "check_rewards",
    ),
    "Metrics": (
        "viewbox.rewards.metrics:Accuracy", "viewbox.rewards.metrics:MacroF1",
        "viewbox.rewards.metrics:MeanAveragePrecision", "summarize",
    ),
    "Playing and storing": ("play_many", "ScriptedPolicy", "EpisodeWriter", "load"),
    "Errors": ("ViewboxError", "ConfigError", "ImageError", "ModelError", "StoreError", "ToolError", "ToolFault"),
}  # fmt: skip
_ITEM = re.compile(r"(\w[\w, ]*): (.+)")
_HEADINGS = {"Args:": "Arguments", "Returns:": "Returns", "Raises:": "Raises", "Yields:": "Yields"}


def build_page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _describe(name)
    return "\n\n".join(parts) + "\n"


def _describe(name: str) -> Iterator[str]:
    """Yield the heading and description of a public name, and of its public methods if it is a class."""
    module, _, attribute = name.rpartition(":")
    value = getattr(import_module(module), attribute) if module else getattr(viewbox, name)
    yield f"### `{attribute}`"
    if module:
        yield f"`from {module} import {attribute}`"
    if not inspect.isclass(value) and not callable(value):
        yield f"`{value}`"
        return
    yield f"```text\n{attribute}{_format_signature(value)}\n```"
    yield from _format_docstring(value)
    if inspect.isclass(value):
        attributes = _list_attributes(value)
        if attributes:
            rows = [f"| `{field}` | {text} |" for field, text in attributes]
            yield "\n".join(["| attribute | what it is |", "|---|---|", *rows])
        for method, function in _list_methods(value):
            yield f"**`{method}{_format_signature(function)}`**"
            yield from _format_docstring(function)


def _format_signature(value: Any) -> str:
    if isinstance(value, property | cached_property):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    parameters = [
        parameter.replace(annotation=parameter.empty, default=_Shown(parameter.default))
        if parameter.default is not parameter.empty
        else parameter.replace(annotation=parameter.empty)
        for name, parameter in signature.parameters.items()
        if name not in ("self", "cls")
    ]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))


class _Shown:
    """A default as a signature shows it: values without a readable form become dots."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        text = repr(self.value)
        return "…" if "<" in text or len(text) > 40 else text


def _format_docstring(value: Any) -> Iterator[str]:
    """Yield the docstring as Markdown: arguments as a list, examples as code."""
    lines = (inspect.getdoc(value) or "").splitlines()
    paragraph: list[str] = []
    while lines:
        line = lines.pop(0)
        if line.strip() in _HEADINGS:
            yield from _flush(paragraph)
            items: list[str] = []
            while lines and (not lines[0].strip() or lines[0].startswith(" ")):
                items.append(lines.pop(0))
            yield f"{_HEADINGS[line.strip()]}:\n\n" + "\n".join(_format_items(items))
        elif line.startswith(">>>"):
            yield from _flush(paragraph)
            code = [line.partition("  # doctest:")[0]]
            while lines and lines[0].strip():
                code.append(lines.pop(0).partition("  # doctest:")[0])
            yield "```python\n" + "\n".join(code) + "\n```"
        elif line.startswith("    "):
            yield from _flush(paragraph)
            code = [line]
            while lines and (lines[0].startswith("    ") or not lines[0].strip()):
                code.append(lines.pop(0))
            yield "```python\n" + inspect.cleandoc("\n".join(code)) + "\n```"
        elif line.strip():
            paragraph.append(line.strip())
        else:
            yield from _flush(paragraph)
    yield from _flush(paragraph)


def _flush(paragraph: list[str]) -> Iterator[str]:
    if paragraph:
        yield " ".join(paragraph)
    paragraph.clear()


def _format_items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in inspect.cleandoc("\n".join(lines)).splitlines():
        found = _ITEM.fullmatch(line)
        if found and not line.startswith(" "):
            items.append(f"- `{found[1]}`: {found[2]}")
        elif items:
            items[-1] += f" {line.strip()}"
        else:
            items.append(f"- {line.strip()}")
    return items


def _list_attributes(cls: type) -> list[tuple[str, str]]:
    """Return the annotated attributes of a class whose line ends with a comment: (name, comment)."""
    try:
        source = inspect.cleandoc("\n" + inspect.getsource(cls))
    except (OSError, TypeError):
        return []
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = getattr(ast.parse(source).body[0], "body", [])
    return [
        (node.target.id, comments[node.lineno].replace("|", "\\|"))
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if not node.target.id.startswith("_") and node.lineno in comments
    ]


def _list_methods(cls: type) -> list[tuple[str, Any]]:
    """Return the public methods and properties that a class defines itself and documents, in the order of the
    source."""
    found = []
    for name, value in vars(cls).items():
        inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        known = inspect.isfunction(inner) or isinstance(inner, property | cached_property)
        if known and not name.startswith("_") and inspect.getdoc(inner):
            found.append((name, inner))
    return found


if __name__ == "__main__":
    print(build_page(), end="")
