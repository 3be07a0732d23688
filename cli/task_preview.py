"""Prompts of tasks as text and as a page of HTML."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..configs import schema
from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..envs.from_config import build_envs, prepare_env
from ..errors import ConfigError, ViewboxError
from ..records import Task
from ..training.checks.prompt_page import Prompt, build_prompt, render_parts, write_page
from .task_sheet import load_config


@dataclass(frozen=True)
class Preview:
    """The prompt of a task; `answer` is the right one, or why it cannot be written."""

    task: str
    prompt: Prompt
    tools: tuple[str, ...]
    answer: str

    @property
    def title(self) -> str:
        count = "" if self.prompt.tokens is None else f", {self.prompt.tokens} tokens"
        return f"{self.task} (tools: {', '.join(self.tools) or 'none'}{count})"

    def to_text(self) -> str:
        """The prompt, with the size of each image in its place."""
        parts = (
            part if isinstance(part, str) else f"<{part.width} x {part.height} pixels>" for part in self.prompt.parts
        )
        return f"== {self.title}\n{''.join(parts).strip()}\n-- right answer: {self.answer}"


def list_previews(name: str, overrides: Sequence[str], *, first: int, count: int, held_out: bool) -> list[Preview]:
    """The prompts of `count` tasks of a config.

    Raises:
        ViewboxError: the config cannot be used, or has no task with the number `first`.
    """
    config, model = load_config(name, overrides)
    with schema.locate_errors(config):
        env = build_envs(config, model.view_settings if model else {})[int(held_out)]
        prepare_env(env)
        tasks = to_sequence(env.tasks, env.name)
        if first >= len(tasks):
            allowed = f"0 to {len(tasks) - 1}, the tasks of {env.name}"
            raise ConfigError(f"--first = {first}; allowed: {allowed}", key="first")
    shown = []
    for number in range(first, min(first + count, len(tasks))):
        task = tasks[number]
        try:
            state = env.reset(task, seed=0)
        except ViewboxError as error:
            shown.append(Preview(task.id, Prompt((f"cannot be opened: {error}",), None), (), "none"))
            continue
        shown.append(Preview(task.id, build_prompt(config, env, model, state), state.tools, _write_answer(env, task)))
    return shown


def _write_answer(env: BaseMultiTurnEnv, task: Task) -> str:
    env = env.for_task(task)
    try:
        return env.write_answer(task) if env.answer is not None else str(dict(task.reference))
    except ViewboxError as error:
        return f"unknown ({error})"


def write_previews(shown: Sequence[Preview], path: Path) -> None:
    """Write all prompts, with their images, as one page."""
    bodies = (
        f"<h2>{html.escape(one.title)}</h2>{render_parts(one.prompt.parts)}\n<b>right answer: "
        f"{html.escape(one.answer)}</b><hr>"
        for one in shown
    )
    write_page(path, "preview", "".join(bodies))
