"""Writes the folder with which verl trains on an environment: tasks, agent loop, settings, a script and a README."""

import json
import math
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...configs import schema, yaml_reader
from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...envs.from_config import build_envs, check_turns
from ...errors import ConfigError
from ...records import Task
from ...utils.files import check_out, create_whole
from ...utils.secrets import mask_message, mask_settings
from ...utils.templates import fill_template
from ...utils.terminal import make_line
from .trainer_config import (
    NAME,
    build_trainer_config,
    check_config,
    describe_left_out,
)

if TYPE_CHECKING:  # it imports torch
    from ...engines.hf.chat_tokens import ChatTokens

CONFIG, LOOP, TRAINER = "viewbox.yaml", "agent_loop.yaml", "trainer.yaml"
MODEL = "model"  # a shipped model is copied: verl does not know its name
MEASURED = 64  # tasks of each split whose prompts are measured
MARGIN, STEP = 1.25, 64  # the longest of them may be so much longer; rounded up
MAX_SHOWN = 200  # characters of a name or a setting in the README


@dataclass(frozen=True)
class VerlExport:
    """What was written.

    Args:
        folder: the folder.
        tasks: of training and of validation.
        prompt_length: `data.max_prompt_length`.
        longest_prompt: the longest prompt that was measured, in tokens.
        left_out: settings of the config that verl decides itself.
    """

    folder: Path
    tasks: tuple[int, int]
    prompt_length: int
    longest_prompt: int
    left_out: tuple[str, ...] = ()


def export_verl(name: str, out: str | Path, overrides: Sequence[str] = ()) -> VerlExport:
    """Write the folder of a config, whole or not at all. It holds no images and no references: workers make them.

    Args:
        name: a config file, or the name of a shipped config.
        out: the folder; it must not exist.
        overrides: `key.path=value`.

    Raises:
        ConfigError: verl cannot run the config, a setting is invalid, a package is missing, or `out` exists.
        ModelError: the model cannot be loaded.
    """
    out, config = check_out(out, "new"), schema.load(name, overrides)
    with schema.locate_errors(config):
        check_config(config)
        check_secrets(config)
        return _write(config, out)


def check_secrets(config: Config) -> None:
    """Raise `ConfigError` if a section that the agent loop reads holds a key, which is not written."""
    for section in ("env", "reward", "rollout"):
        given = config.model_dump(mode="json", exclude_unset=True).get(section) or {}
        for name, value in given.items():
            if mask_settings({name: value}) != {name: value}:
                key = f"{section}.{name}"
                raise ConfigError(
                    f"{key}: looks like a key, and keys are not written; allowed: the name of an environment variable",
                    key=key,
                )


def _write(config: Config, out: Path) -> VerlExport:
    try:
        import pyarrow
        from pyarrow import parquet

        from ...assets import PACKAGE
        from ...engines.hf import loading
        from ...engines.hf.chat_tokens import ChatTokens
    except ImportError as error:
        raise ConfigError(f"an export to verl needs more packages ({error}): pip install 'viewbox[verl]'") from error
    model_config, processor = loading.load_processor(config.model)
    env, held_out = build_envs(config, loading.get_view_settings(model_config, processor))
    loading.set_max_pixels(processor, config.model.max_pixels or env.max_pixels)
    tokens, size = ChatTokens(processor, model_config), processor.image_processor.size
    check_turns(env, "env")
    check_turns(held_out, "env.eval" if config.env.eval else "env")
    tasks = to_sequence(env.tasks, env.name, "env")
    wanted = max(1, config.log.eval_tasks)  # verl reads the file even if it never validates
    held_out_tasks = to_sequence(held_out.tasks, held_out.name, "env.eval")[:wanted]
    longest = max(measure_prompts(tokens, env, tasks), measure_prompts(tokens, held_out, held_out_tasks))
    prompt_length = math.ceil(longest * MARGIN / STEP) * STEP
    settings = build_trainer_config(
        config,
        env,
        prompt_length=prompt_length,
        pixels={"min_pixels": int(size["shortest_edge"]), "max_pixels": int(size["longest_edge"])},
    )
    numbers = choose_numbers(config, settings, len(tasks))
    counts = (len(numbers), len(held_out_tasks))
    report = VerlExport(out, counts, prompt_length, longest, tuple(describe_left_out(config)))
    with create_whole(out) as folder:
        folder.mkdir()
        rows = {
            "train": build_rows(env, tasks, numbers, "train"),
            "held_out": build_rows(held_out, held_out_tasks, range(counts[1]), "held_out"),
        }
        for split, some in rows.items():
            parquet.write_table(pyarrow.Table.from_pylist([*some]), folder / f"{split}.parquet")
        _dump(folder / CONFIG, mask_settings(config.model_dump(mode="json", exclude_unset=True)))
        _dump(folder / LOOP, [build_loop()])
        _dump(folder / TRAINER, mask_settings(settings))
        is_shipped = str(config.model.name).startswith(PACKAGE)
        shipped = loading.find_model_folder(str(config.model.name)) if is_shipped else None
        if shipped is not None:
            shutil.copytree(shipped, folder / MODEL, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
        script = folder / "run.sh"
        script.write_text(write_script(MODEL if is_shipped else None), encoding="utf-8")
        script.chmod(0o755)
        (folder / "README.md").write_text(write_readme(config, env, report), encoding="utf-8")
    return report


def measure_prompts(tokens: "ChatTokens", env: BaseMultiTurnEnv, tasks: Sequence[Task]) -> int:
    """Return the tokens of the longest prompt among `MEASURED` tasks, evenly spaced."""

    def measure(task: Task) -> int:
        played = env.for_task(task)
        state = played.reset(task, seed=0)
        return len(tokens.encode_prompt(state.messages, state.tool_schemas, played.reply_format, played.prompts)[0])

    return max(measure(tasks[number]) for number in range(0, len(tasks), max(1, len(tasks) // MEASURED)))


# ---------------------------------------------------------------------- files
def build_loop() -> dict[str, object]:
    """Return the entry of the agent-loop YAML."""
    return {"name": NAME, "_target_": "viewbox.integrations.verl.agent_loop.ViewboxAgentLoop", "config": CONFIG}


def choose_numbers(config: Config, settings: Mapping[str, Any], count: int) -> Sequence[int]:
    """Return the places of the tasks that the training needs: all of `count`, or at random as many as its steps
    draw."""
    steps, prompts = settings["trainer"]["total_training_steps"], settings["data"]["train_batch_size"]
    if steps is None or steps * prompts >= count:
        return range(count)
    return random.Random(config.train.seed).sample(range(count), steps * prompts)


def build_rows(
    env: BaseMultiTurnEnv, tasks: Sequence[Task], numbers: Sequence[int], split: str
) -> Iterator[dict[str, object]]:
    """Yield the rows of verl's data set: where each task is found, and nothing of what it shows or asks."""
    for number in numbers:
        task = tasks[number]
        yield {
            "data_source": env.for_task(task).name if not hasattr(env, "parts") else str(task.metadata["environment"]),
            "prompt": [{"role": "user", "content": task.id}],  # verl wants one; the agent loop makes the real one
            "agent_name": NAME,
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": number, "split": split, "task": task.id},
        }


def _dump(path: Path, values: Any) -> None:
    path.write_text(yaml_reader.write(json.loads(json.dumps(values))), encoding="utf-8")


def write_script(model: str | None = None) -> str:
    """Return the script that starts verl; `model` is the folder of the model inside the exported one, if it is
    there."""
    return fill_template(Path(__file__).with_name("run_template.sh"), model=model)


def write_readme(config: Config, env: BaseMultiTurnEnv, report: VerlExport) -> str:
    """Return the README of an exported folder."""
    return fill_template(
        Path(__file__).with_name("readme_template.md"),
        environment=_quote(env.name),
        model=_quote(config.model.name),
        run=_quote(config.log.name or env.name),
        lora=config.lora is not None,
        restricted=env.restricted,
        train=f"{report.tasks[0]:,}",
        held_out=f"{report.tasks[1]:,}",
        prompt=report.prompt_length,
        longest=report.longest_prompt,
        response=config.rollout.max_completion_tokens,
        left_out=[_quote(line) for line in report.left_out],
    )


def _quote(text: object) -> str:
    """Return a text of others as a line of Markdown's code."""
    return make_line(mask_message(str(text)), MAX_SHOWN).replace("`", "'")
