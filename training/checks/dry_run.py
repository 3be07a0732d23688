"""What `--dry-run` shows: the settings, what was checked, the first images, and a page with the first prompt."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from ...configs import yaml_reader
from ...configs.schema import Config, locate_errors
from ...core.base import BaseMultiTurnEnv, count_shown
from ...core.tasks import to_sequence
from ...envs.data.check import describe_splits
from ...envs.from_config import build_envs
from ...envs.right_answers import score_right_answers
from ...errors import BadRow, ImageError, ModelError, ViewboxError
from ...utils.frozen import thaw
from ...utils.secrets import mask_settings
from . import prompt_page
from .outline import make_tasks
from .preflight import LocalModel, find_model, open_first_task

FIRST = 3  # tasks of each environment whose images are opened


def inspect(config: Config) -> dict[str, Any]:
    """Open the first images, renders the first prompt and play right answers; return what was found by topic.

    Raises:
        ViewboxError: an image cannot be opened.
    """
    with locate_errors(config):
        model = find_model(config.model)
        env, held_out = build_envs(config, model.view_settings if model else {})
        opened = {"env": env}
        if config.log.eval_tasks:
            opened["env.eval" if config.env.eval else "held out"] = held_out
        images = "; ".join(f"{key}: {_open_images(one, key)}" for key, one in opened.items())
        shown: dict[str, Any] = {"images": images, "prompt": str(write_prompt(config, env, model))}
        if splits := describe_splits(env, held_out):
            shown["splits"] = splits
        answers = [(key, one) for key, some in opened.items() for one in score_right_answers(some)]
        shown["right answers"] = [f"{key}: {one.describe()}" for key, one in answers]
        found = reversed([(warning, key) for key, one in answers for warning in one.warnings])
        warnings = [f"{key}: {warning}" for warning, key in reversed(dict(found).items())]
        warnings += [line for key, one in opened.items() if model for line in _describe_long(config, one, key, model)]
        return shown | {"memory": _describe_memory(config), "warnings": warnings}


def _describe_memory(config: Config) -> str:
    """Return the largest memory of the run; for a model whose config is not here, what is needed to tell."""
    from ..memory.forecast import find_device_memory, predict

    try:
        return predict(config, find_device_memory()).describe()
    except ModelError as error:
        return f"not known: {error}"


def _open_images(env: BaseMultiTurnEnv, key: str) -> str:
    """Return the sizes of the first tasks' images, as they are and as the model first sees them."""
    sizes = []
    for task in islice(to_sequence(env.tasks, env.name), FIRST):
        try:
            state = env.for_task(task).reset(task, seed=0)
        except ViewboxError as error:
            if isinstance(error, BadRow) and not error.ends_run:
                continue
            error.args = (f"{key}: {env.name}: task {task.id} cannot be opened: {error}",)
            error.key = key
            raise
        sizes += [f"{image.width} x {image.height}" for message in state.messages for image in message.images]
    shown = ", ".join(dict.fromkeys(sizes)) or "none"
    return f"the first {FIRST} tasks show {len(sizes)} image{'s' * (len(sizes) != 1)} ({shown} pixels)"


def _describe_long(config: Config, env: BaseMultiTurnEnv, key: str, model: LocalModel) -> Iterator[str]:
    """Yield a warning of tasks whose prompt leaves less of the model's context than an episode may have.

    A token has at least one byte, so only tasks with a text that may be too long are opened and counted.
    """
    from ...engines.hf.picture_settings import find_largest_view

    first = open_first_task(env, key)
    tokens, ids, _ = model.encode_prompt(config, env, env.for_task(first).reset(first, seed=0))
    room, looked, found = tokens.context - config.rollout.max_completion_tokens, 0, []
    largest = find_largest_view(tokens.architecture, env.max_pixels, env.pixel_multiple)[1]
    image = len(tokens.tokenizer.encode(largest.text, add_special_tokens=False)) + 2
    for task in make_tasks(env):
        looked += 1
        with suppress(BadRow, ImageError):  # it costs its own episodes
            played = env.for_task(task)
            most = len(ids) + len(str(thaw(task.prompt)).encode()) + 2 * image * count_shown(played, task)
            if most > room:
                count = len(model.encode_prompt(config, env, played.reset(task, seed=0))[1])
                found += [f"{task.id} ({count} tokens)"] if count > room else []
    if found:
        yield (
            f"{key}: {len(found)} of {looked} tasks have prompts that leave fewer than rollout.max_completion_tokens = "
            f"{config.rollout.max_completion_tokens} of the model's context of {tokens.context}, such as {found[0]}; "
            "one that leaves none costs its episodes"
        )


def write_prompt(config: Config, env: BaseMultiTurnEnv, model: LocalModel | None) -> Path:
    """Write the first prompt with its images as a page of HTML, readable by this user only; return its path."""
    task = open_first_task(env, "env")
    state = env.for_task(task).reset(task, seed=0)
    path = Path(tempfile.mkdtemp(prefix="viewbox-dry-run-")) / "prompt.html"
    body = prompt_page.render_parts(prompt_page.build_prompt(config, env, model, state).parts)
    prompt_page.write_page(path, f"first prompt of {env.name}", body)
    return path


def render_report(config: Config, resolved: Mapping[str, Any]) -> str:
    """Return the report as lines: the settings as YAML, then what was found, then notes.

    >>> from viewbox.configs.schema import parse
    >>> config = parse({"model": {"name": "m"}, "env": {"name": "digits"}})
    >>> render_report(config, {"trainer": "GRPOConfig", "notes": ["a hub name"]}).splitlines()[-2:]
    ['trainer        GRPOConfig', 'note: a hub name']
    """
    settings = mask_settings(config.model_dump(mode="json", exclude_none=True))
    lines = [yaml_reader.write(settings)]
    for topic, value in resolved.items():
        if topic not in ("notes", "warnings"):
            rows = value if topic in ("splits", "right answers", "resume") else [_format(value)]
            lines += [f"{topic if number == 0 else '':<14} {row}" for number, row in enumerate(rows)]
    said = [f"{topic[:-1]}: {line}" for topic in ("notes", "warnings") for line in resolved.get(topic, ())]
    return "\n".join([*lines, *said])


def _format(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format(inner)}" for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(_format(inner) for inner in value) or "none"
    return str(value)
