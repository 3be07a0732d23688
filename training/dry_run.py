"""What `--dry-run` shows beside what every run is asked: the first images, right answers and the memory."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from ..configs import yaml_reader
from ..core.base import BaseMultiTurnEnv, count_shown
from ..core.tasks import to_sequence
from ..envs.data.check import describe_splits
from ..envs.reward_check import score_right_answers
from ..errors import BadRow, ImageError, ModelError, ViewboxError
from ..utils.frozen import thaw
from ..utils.secrets import mask_settings
from .findings import MAX_COMPARED, Row, make_tasks
from .plan import Plan, open_first_task

OPENED = 3  # tasks of each environment whose images are opened
SEVERAL = ("splits", "right answers", "resume")  # topics of some lines


def list_opened(plan: Plan) -> dict[str, BaseMultiTurnEnv]:
    """Return the environments that are played, by what they are called."""
    held_out = {"env.eval" if plan.config.env.eval else "held out": plan.envs.held_out}
    return {"env": plan.envs.env} | (held_out if plan.config.log.eval_tasks else {})


def show_images(plan: Plan) -> None:
    plan.lines["images"] = "; ".join(f"{key}: {_open_images(env, key)}" for key, env in list_opened(plan).items())


def _open_images(env: BaseMultiTurnEnv, key: str) -> str:
    """Return the sizes of the first tasks' images, as they are and as the model first sees them."""
    sizes = []
    for task in islice(to_sequence(env.tasks, env.name), OPENED):
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
    return f"the first {OPENED} tasks show {len(sizes)} image{'s' * (len(sizes) != 1)} ({shown} pixels)"


def show_splits(plan: Plan) -> None:
    if splits := describe_splits(*plan.envs):
        plan.lines["splits"] = splits


def play_right_answers(plan: Plan) -> None:
    """Play the right answers of each environment; a warning that several give is said once."""
    played = [(key, answers) for key, env in list_opened(plan).items() for answers in score_right_answers(env)]
    plan.lines["right answers"] = [f"{key}: {answers.describe()}" for key, answers in played]
    first_keys = {warning: key for key, answers in reversed(played) for warning in reversed(answers.warnings)}
    plan.warnings += [f"{key}: {warning}" for warning, key in reversed(first_keys.items())]


def show_memory(plan: Plan) -> None:
    """Say the largest memory of the run; for a model whose config is not here, what is needed to tell."""
    from .memory.forecast import find_device_memory, predict

    try:
        plan.lines["memory"] = predict(plan, find_device_memory()).describe()
    except ModelError as error:
        plan.lines["memory"] = f"not known: {error}"


def list_long_prompts(plan: Plan) -> None:
    """Warn of tasks whose prompt leaves less of the model's context than an episode may have.
    A token has at least one byte, so only tasks with a text that may be too long are opened and counted."""
    for key, env in list_opened(plan).items() if plan.model else ():
        plan.warnings += _describe_long(plan, key, env)


def _describe_long(plan: Plan, key: str, env: BaseMultiTurnEnv) -> list[str]:
    from ..engines.hf.picture_settings import find_largest_view

    assert plan.model is not None
    first = open_first_task(env, key)
    tokens, ids, _ = plan.model.encode_prompt(plan.config, env, env.for_task(first).reset(first, seed=0))
    budget, looked, long = plan.config.rollout.max_completion_tokens, 0, []
    largest = find_largest_view(tokens.architecture, env.max_pixels, env.pixel_multiple)[1]
    image = len(tokens.encode_plain(largest.text)) + 2
    for task in make_tasks(env, MAX_COMPARED):
        looked += 1
        with suppress(BadRow, ImageError):  # it costs its own episodes
            played = env.for_task(task)
            most = len(ids) + len(str(thaw(task.prompt)).encode()) + 2 * image * count_shown(played, task)
            if most > tokens.context - budget:
                count = len(plan.model.encode_prompt(plan.config, env, played.reset(task, seed=0))[1])
                long += [f"{task.id} ({count} tokens)"] if count > tokens.context - budget else []
    if not long:
        return []
    return [
        f"{key}: {len(long)} of {looked} tasks have prompts that leave fewer than rollout.max_completion_tokens = "
        f"{budget} of the model's context of {tokens.context}, such as {long[0]}; one that leaves none costs its "
        "episodes"
    ]


ROWS = tuple(
    Row("shown", ask) for ask in (show_images, show_splits, play_right_answers, show_memory, list_long_prompts)
)


def render_report(plan: Plan) -> str:
    """Return the report as lines: the settings as YAML, then what was found, then notes and warnings."""
    lines = [yaml_reader.write(mask_settings(plan.config.model_dump(mode="json", exclude_none=True)))]
    for topic, value in plan.lines.items():
        rows = value if topic in SEVERAL else [_format(value)]
        lines += [f"{topic if number == 0 else '':<14} {row}" for number, row in enumerate(rows)]
    lines += [f"note: {note}" for note in plan.notes]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in plan.warnings)])


def _format(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format(inner)}" for name, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "+".join(_format(inner) for inner in value) or "none"
    return str(value)
