"""Writes the folder with which verl trains on an environment: tasks, agent loop, settings, a script and a README.

verl reads its settings from YAML with hydra (`trainer/config/ppo_trainer.yaml`); only those that differ are written.
What verl cannot run is refused.
"""

import json
import logging
import math
import random
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...configs import schema, yaml_reader
from ...configs.schema import Config
from ...configs.train_sections import GONE
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...envs.from_config import build_envs, check_turns
from ...errors import ConfigError
from ...records import Task
from ...utils.files import check_out, create_whole, fill_template
from ...utils.secrets import mask_message, mask_settings
from ...utils.terminal import describe_error, make_line

if TYPE_CHECKING:  # it imports torch
    from ...engines.hf.chat_tokens import ChatTokens

log = logging.getLogger("viewbox.rollouts")
CONFIG, LOOP, TRAINER = "viewbox.yaml", "agent_loop.yaml", "trainer.yaml"
MODEL = "model"  # a shipped model is copied: verl does not know its name
MEASURED = 64  # tasks of each split whose prompts are measured
MARGIN, STEP = 1.25, 64  # the longest of them may be so much longer; rounded up
MAX_SHOWN = 200  # characters of a name or a setting in the README
NAME = "viewbox"  # of the agent loop
GROUP = 8  # TRL's default of `num_generations`, and of `per_device_train_batch_size`
LOSSES = {
    "dapo": "token-mean",
    "bnpo": "token-mean",
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
SCALES = {"group": True, True: True, "none": False, False: False}
SCHEDULES = {"constant": "constant", "constant_with_warmup": "constant", "cosine": "cosine"}
# Arguments of our trainer that become settings of verl; `describe_left_out` lists the others.
CARRIED = frozenset(
    (
        *("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations"),
        *("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm"),
        *("max_steps", "num_train_epochs", "save_steps", "save_total_limit", "gradient_checkpointing"),
        *("beta", "epsilon", "epsilon_high", "loss_type", "scale_rewards", "mask_truncated_completions"),
    )
)


@dataclass(frozen=True)
class VerlExport:
    """What was written: the tasks of training and of validation, and the settings that verl decides itself."""

    folder: Path
    tasks: tuple[int, int]
    prompt_length: int
    longest_prompt: int
    left_out: tuple[str, ...] = ()


def export_verl(name: str, out: str | Path, overrides: Sequence[str] = ()) -> VerlExport:
    """Write the folder of a config, whole or not at all. It holds no images and no references: workers make them. Raise
    `ConfigError` if verl cannot run the config, `ModelError` if the model cannot be loaded."""
    out, config = check_out(out, "new"), schema.load(name, overrides)
    with schema.locate_errors(config):
        check_config(config)
        check_secrets(config)
        return _write(config, out)


def check_secrets(config: Config) -> None:
    """Raise `ConfigError` if a section that the agent loop reads holds a key, which is not written."""
    for section in ("env", "reward", "rollout"):
        values = config.model_dump(mode="json", exclude_unset=True).get(section) or {}
        for key in (f"{section}.{name}" for name, item in values.items() if mask_settings({name: item})[name] != item):
            problem = "looks like a key, and keys are not written"
            raise ConfigError(f"{key}: {problem}; allowed: the name of an environment variable", key=key)


def _write(config: Config, out: Path) -> VerlExport:
    try:
        import pyarrow
        from pyarrow import parquet

        from ...assets import PACKAGE, find_model_folder
        from ...engines.hf import loading
        from ...engines.hf.chat_tokens import ChatTokens
    except ImportError as error:
        raise ConfigError(f"an export to verl needs more packages ({error}): pip install 'viewbox[verl]'") from error
    model_config, processor = loading.load_processor(config.model)
    check_processor(config, processor)
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
        for split, split_rows in rows.items():
            parquet.write_table(pyarrow.Table.from_pylist([*split_rows]), folder / f"{split}.parquet")
        _dump(folder / CONFIG, mask_settings(config.model_dump(mode="json", exclude_unset=True)))
        target = "viewbox.integrations.verl.agent_loop.ViewboxAgentLoop"
        _dump(folder / LOOP, [{"name": NAME, "_target_": target, "config": CONFIG}])
        _dump(folder / TRAINER, mask_settings(settings))
        is_shipped = str(config.model.name).startswith(PACKAGE)
        shipped = find_model_folder(str(config.model.name)) if is_shipped else None
        if shipped is not None:
            shutil.copytree(shipped, folder / MODEL, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
        script = folder / "run.sh"
        script.write_text(write_script(MODEL if is_shipped else None), encoding="utf-8")
        script.chmod(0o755)
        (folder / "README.md").write_text(write_readme(config, env, report), encoding="utf-8")
    return report


def measure_prompts(tokens: "ChatTokens", env: BaseMultiTurnEnv, tasks: Sequence[Task]) -> int:
    """Return the tokens of the longest prompt among `MEASURED` tasks, evenly spaced; one that fails costs itself."""
    lengths, problem = [], ""
    for number in range(0, len(tasks), max(1, len(tasks) // MEASURED)):
        task = tasks[number]
        played = env.for_task(task)
        try:
            state = played.reset(task, seed=0)
            ids = tokens.encode_prompt(state.messages, state.tool_schemas, played.reply_format, played.prompts)[0]
        except Exception as error:  # an author's code, or a picture that is away: such an episode will end as a fault
            problem = f"task {task.id}: {describe_error(error, MAX_SHOWN)}"
            log.warning("%s; its prompt is not measured", problem)
        else:
            lengths.append(len(ids))
    if not lengths:
        raise ConfigError(f"env: no prompt could be made; {problem}", key="env")
    return max(lengths)


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
    return make_line(mask_message(str(text)), MAX_SHOWN).replace("`", "'")


def check_config(config: Config) -> None:
    """Raise `ConfigError` if verl cannot run a config as it is meant; the error names the setting."""
    train, rollout = config.train, config.rollout
    arguments = train.arguments

    def refuse(key: str, given: object, allowed: str) -> None:
        raise ConfigError(f"{key} = {given!r}: verl cannot do this; allowed: {allowed}", key=key)

    steps = arguments.get("max_steps", -1)
    if type(steps) is not int or (steps < 1 and steps != -1):
        refuse("train.max_steps", steps, "a whole number from 1, or -1 for train.num_train_epochs")
    if train.method != "grpo":
        refuse("train.method", train.method, "grpo")
    if config.model.name is None:
        refuse("model.tiny", "a new model", "`model.name`, of a saved one")
    if config.model.revision is not None:
        refuse("model.revision", config.model.revision, "none; download it and name its folder")
    if config.model.freeze != "none":  # its `actor.freeze_vision_tower` counts another set of parts
        refuse("model.freeze", config.model.freeze, "none; see verl's actor.freeze_vision_tower")
    for name in GONE.keys() & arguments.keys():
        raise ConfigError(f"train.{name}: cannot be used; {GONE[name]}", key=f"train.{name}")
    if train.credit.type != "episode":
        refuse("train.credit.type", train.credit.type, "episode; see verl's algorithm.adv_estimator")
    if config.lora is not None and config.lora.quantize:
        refuse("lora.quantize", config.lora.quantize, "none")
    if rollout.temperature == 0:
        refuse("rollout.temperature", 0, "above 0")
    for name, value in rollout.list_filters().items():  # verl's log-probs would be of the filtered distribution
        refuse(f"rollout.{name}", value, "the default: sampled as the loss sees it")
    for name, choices in (("loss_type", LOSSES), ("scale_rewards", SCALES)):
        if name in arguments and arguments[name] not in choices:
            refuse(f"train.{name}", arguments[name], ", ".join(str(choice) for choice in choices))


def check_processor(config: Config, processor: Any) -> None:
    """Raise `ConfigError` if the image processor does not take the two bounds that verl can set."""
    kind = type(processor.image_processor)
    if not {"min_pixels", "max_pixels"} <= kind.valid_kwargs.__annotations__.keys():
        raise ConfigError(
            f"model.name = {config.model.name!r}: its {kind.__name__} takes no min_pixels and max_pixels, by which "
            "verl's server and trainer make the same tokens of a picture; allowed: a model whose image processor takes "
            "them (Qwen's); or `viewbox train`, also with rollout.engine=vllm",
            key="model.name",
        )


def describe_left_out(config: Config) -> list[str]:
    """Return the settings of a config that verl's trainer decides itself, one `key = value` a line."""
    arguments = mask_settings(dict(config.train.arguments))
    lines = [f"train.{key} = {value}" for key, value in arguments.items() if key not in CARRIED]
    schedule = config.train.arguments.get("lr_scheduler_type")
    if schedule is not None and schedule not in SCHEDULES:
        lines.append(f"train.lr_scheduler_type = {schedule} (verl has {', '.join(sorted(set(SCHEDULES.values())))})")
    if "dtype" in config.model.model_fields_set:
        lines.append(f"model.dtype = {config.model.dtype} (verl trains float32 weights in bfloat16)")
    for name in sorted(config.log.model_fields_set - {"eval_tasks", "eval_steps", "eval_temperature", "report_to"}):
        lines.append(f"log.{name} = {mask_settings(getattr(config.log, name))}")
    return lines


def build_trainer_config(
    config: Config, env: BaseMultiTurnEnv, *, prompt_length: int, pixels: Mapping[str, int]
) -> dict[str, Any]:
    """Return the settings of verl's trainer; `pixels` are `min_pixels` and `max_pixels` of an image, for server and
    trainer."""
    arguments, log = config.train.arguments, config.log
    group = arguments.get("num_generations", GROUP)
    samples = arguments.get("per_device_train_batch_size", GROUP) * arguments.get("gradient_accumulation_steps", 1)
    text = fill_template(
        Path(__file__).with_name("trainer_template.yaml"),
        prompt_length=prompt_length,
        response_length=config.rollout.max_completion_tokens,
        pixels=dict(pixels),
        group=group,
        prompts=max(1, samples // group),
        model=config.model.name,
        lora=config.lora,
        train=config.train,
        arguments=arguments,
        rollout=config.rollout,
        log=log,
        eval_temperature=config.rollout.temperature if log.eval_temperature is None else log.eval_temperature,
        is_scaled=SCALES[arguments.get("scale_rewards", "group")],
        loss=LOSSES[arguments.get("loss_type", "dapo")],
        schedule=SCHEDULES.get(arguments.get("lr_scheduler_type", "constant")),
        run=log.name or env.name,
        loggers=["console", *(name for name in log.report_to if not env.restricted)],
    )
    settings: dict[str, Any] = yaml_reader.parse(text, "trainer_template.yaml")[0]
    return settings
