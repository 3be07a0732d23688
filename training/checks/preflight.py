"""Checks before any weights are loaded whether the settings, the tasks and the model of a run fit together."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...configs.schema import Config, locate_errors
from ...configs.sections import ModelSection
from ...configs.train_sections import METHOD_OF, TrainSection
from ...core.base import BaseMultiTurnEnv, count_shown
from ...core.contract import EpisodeState
from ...core.tasks import to_sequence
from ...engines.hf.quantization import check_bitsandbytes
from ...engines.table import get_engine
from ...envs.from_config import build_envs, check_turns, prepare_env
from ...errors import BadRow, ConfigError, ImageError, ModelError, ViewboxError, describe_unknown
from ...images.coordinates import needs_size
from ...images.ref import ImageRef
from ...records import Task
from ...rewards.explain import describe_reward
from ...utils.secrets import mask_assignments
from ..precision import resolve_dtype
from ..sft.selection import check_selection
from ..trainer_args import list_problems
from .disk import check_folders, check_launch, check_space, estimate_bytes

if TYPE_CHECKING:
    from ...engines.hf.chat_tokens import ChatTokens

CROWDED = 64  # tasks whose images are counted
CONTEXT_KEY = "rollout.max_completion_tokens"
FIRST = 8  # tasks with bad rows, after which a run is refused


@dataclass(frozen=True)
class LocalModel:
    """A model in a folder, without its weights.

    `view_settings` are the environment settings that suit it, such as `coordinates` and `pixel_multiple`.
    """

    config: Any
    processor: Any
    view_settings: dict[str, Any]

    def encode_prompt(
        self, config: Config, env: BaseMultiTurnEnv, state: EpisodeState
    ) -> tuple["ChatTokens", list[int], list[ImageRef]]:
        """Return (the chat tokens, ids, images) of the prompt of an episode that was just opened."""
        from ...engines.hf.chat_tokens import ChatTokens
        from ...engines.hf.loading import set_max_pixels

        set_max_pixels(self.processor, config.model.max_pixels or env.max_pixels)
        tokens, env = ChatTokens(self.processor, self.config), env.for_task(state.task)
        return tokens, *tokens.encode_prompt(state.messages, state.tool_schemas, env.reply_format, env.prompts)


def check(config: Config) -> tuple[Config, dict[str, Any]]:
    """Check a run. Return its config, in which defaults that nobody wrote may have been fitted, and its resolved
    settings, which `--dry-run` prints.

    Raises:
        ViewboxError: all that can be told without torch, or the first other setting that is wrong, each with the line
            of the file that sets it.
    """
    _check_written(config)
    with locate_errors(config):
        return _check(config)


def _check_written(config: Config) -> None:
    """Raise `ConfigError` for what is wrong with the settings alone, a line each. Needs no torch."""
    problems = [(key, f"{key}{text}") for key, text in _list_contradictions(config)]
    problems += [(str(error.key), str(error)) for error in list_problems(config)]
    if problems:
        lines = [f"{config._document.find_place(key)}: {text}" for key, text in problems]
        raise ConfigError("\n".join(lines), key=problems[0][0])


def _check(config: Config) -> tuple[Config, dict[str, Any]]:
    from ...engines.hf.architectures import get_architecture
    from ..reporting.tracking import check_trackers, check_uploads, list_sources
    from ..trainer_args import build_trainer_arguments
    from .optimizer import check_optimizer
    from .outline import count_parameters, describe_filters, outline_run
    from .way import describe_pictures, describe_way

    notes: list[str] = []
    check_launch()
    if (most := config.rollout.max_completion_tokens) < config.rollout.max_reply_tokens:
        config = _fit(config, "rollout.max_reply_tokens", most, f"an episode has {CONTEXT_KEY} = {most}", notes)
    check_selection(config.train)
    check_trackers(config.log.report_to)
    resolve_dtype(config)
    if config.lora is not None and config.lora.quantize is not None:
        check_bitsandbytes(config.lora.quantize)
    check_folders(config)
    model = find_model(config.model)
    env, held_out = build_envs(config, model.view_settings if model else {})
    _check_reward_fields(config.reward, env, "reward")
    arguments = build_trainer_arguments(config, "runs")
    check_optimizer(arguments, config.train.arguments)
    for source in list_sources(config, env, held_out):
        check_uploads(config.log, source, arguments)
    beta = getattr(arguments, "beta", 0.0)
    if config.model.tiny is not None and config.lora is None and beta != 0:
        _refuse([("train.beta", f" = {beta}: model.tiny has no saved weights as a reference; allowed: 0, or add lora")])
    if getattr(arguments, "sync_ref_model", False) and (beta == 0 or config.lora is not None):
        none = " = true: there is no reference model to update; allowed: train.beta above 0, and no section lora"
        _refuse([("train.sync_ref_model", none)])
    _check_may_train(env)
    prepare_env(env)
    if config.log.eval_tasks:
        check_turns(held_out, "env.eval" if {"history", "max_turns", "tools"} & config.env.eval.keys() else "env")
        prepare_env(held_out, "env.eval" if "specialists" in config.env.eval else "env")
    get_engine(config.rollout.engine).check(config, (env, held_out))
    task = open_first_task(env, "env")
    if config.log.eval_tasks:
        open_first_task(held_out, "env.eval" if config.env.eval else "env")
        number = len(to_sequence(held_out.tasks, held_out.name))
        if config.log.eval_tasks > number:
            config = _fit(config, "log.eval_tasks", number, f"there are only {number} held-out tasks", notes)
    if config.train.episodes is not None:
        _check_episodes(config.train.episodes, env)
    if config.train.demonstrations is not None:
        _check_demonstrations(config.train.demonstrations.habits, env, task)
    outline = outline_run(config, env, held_out, arguments)
    if model is not None:
        config = _fit_context(model, config, env, notes)
        parameters = count_parameters(model.config, config)
        outline["parameters"] = parameters.describe()
        outline["model"] = describe_way(config, model.config)
        architecture = get_architecture(model.config, model.processor)
        outline["pictures"] = describe_pictures(config, env, architecture, model.view_settings)
        needed = estimate_bytes(config, arguments, parameters.total, parameters.trained)
        outline["disk"] = check_space(config, needed)
    on_hub = config.model.name is not None and model is None
    return config, {
        "environment": {
            name: getattr(env, name) for name in ("name", "max_turns", "tools", "coordinates", "max_pixels")
        },
        "reward": mask_assignments(describe_reward(env.reward)),
        "trainer": type(arguments).__name__,
        **outline,
        "notes": [
            *notes,
            *(
                [f"model.name = {config.model.name}: no folder here, so a hub name; checked at the start"]
                if on_hub
                else []
            ),
            *describe_filters(config.rollout, config.train.method),
        ],
    }


def _refuse(problems: Iterable[tuple[str, str]]) -> None:
    """Raise `ConfigError` for the first of (key, what is wrong with it)."""
    for key, text in problems:
        raise ConfigError(f"{key}{text}", key=key)


def _fit(config: Config, key: str, value: int, why: str, notes: list[str]) -> Config:
    """Return the config with a default that fits instead, and note it. Raise `ConfigError` if it was written."""
    name, _, field = key.partition(".")
    section = getattr(config, name)
    given = getattr(section, field)
    if field in section.model_fields_set:
        raise ConfigError(f"{key} = {given}: {why}; allowed: at most {value}", key=key)
    notes.append(f"{key} = {value}, not its default {given}: {why}")
    return config.model_copy(update={name: section.model_copy(update={field: value})})


def _list_contradictions(config: Config) -> Iterator[tuple[str, str]]:
    """Yield (key, text) of each setting that another one contradicts."""
    rollout, train, log = config.rollout, config.train, config.log
    if rollout.temperature == 0 and train.method != "sft":
        yield "rollout.temperature", f" = 0: {train.method} needs samples that differ; allowed: above 0"
    for name, method in METHOD_OF.items():
        written = method == "grpo" and name in train.model_fields_set  # a saved config has none of these
        is_given = written or getattr(train, name) != TrainSection.model_fields[name].default
        if train.method != method and is_given:
            yield f"train.{name}", f": only with train.method = {method}; given: {train.method}"
    if log.eval_patience is not None and log.eval_steps is None:
        given = f" = {log.eval_patience}: counts evaluations during training"
        yield "log.eval_patience", f"{given}; allowed: only with log.eval_steps"
    if log.eval_steps is not None and not log.eval_tasks:
        given = f" = {log.eval_steps}: log.eval_tasks = 0, so that there is nothing to play"
        yield "log.eval_steps", f"{given}; allowed: log.eval_tasks of at least 1"


def _check_may_train(env: BaseMultiTurnEnv) -> None:
    """Raise `ConfigError` if an environment, or one of a mixture, allows no training."""
    check_turns(env, "env")
    try:
        env.check_may_train()
    except ConfigError as error:
        raise ConfigError(f"env.{error}", key=f"env.{error.key}") from error


def open_first_task(env: BaseMultiTurnEnv, section: str) -> Task:
    """Return the first task of an environment that is no bad row, after an episode of it was opened. Raise
    `ViewboxError`."""
    try:
        tasks = to_sequence(env.tasks, f"{section}: {env.name}", section)
    except ConfigError as error:  # of the environment's own setting, such as `data.columns.image`
        if error.key and not error.key.startswith(section):
            error.args = (f"{section}: {error}",)
            error.key = f"{section}.{error.key}"
        raise
    if not tasks:
        raise ConfigError(f"{section}: {env.name}: has no tasks", key=section)
    problem: ViewboxError | None = None
    for number in range(min(FIRST, len(tasks))):
        try:
            task = tasks[number]
            env.for_task(task).reset(task, seed=0)
            return task
        except ViewboxError as error:
            problem = problem or error
            if not isinstance(error, BadRow) or error.ends_run:
                break
    assert problem is not None
    problem.args = (f"{section}: {env.name}: the first task cannot be opened: {problem}",)
    problem.key = section
    raise problem


def open_crowded_task(env: BaseMultiTurnEnv, section: str) -> Task:
    """Of the first tasks, the one that shows most images at the start, whose prompt is the longest."""
    task = open_first_task(env, section)
    tasks = to_sequence(env.tasks, env.name)
    found, most = task, count_shown(env.for_task(task), task)
    for number in range(min(CROWDED, len(tasks))):
        with suppress(BadRow, ImageError):  # it costs its own episodes
            one = tasks[number]
            if (shown := count_shown(env.for_task(one), one)) > most:
                env.for_task(one).reset(one, seed=0)
                found, most = one, shown
    return found


def _check_reward_fields(spec: Any, env: BaseMultiTurnEnv, path: str) -> None:
    """Raise if a reward reads a field that no answer can have: it would always be 0."""
    if not isinstance(spec, dict) or not isinstance(env.answer_format.schema, dict):
        return
    known = env.answer_format.schema.get("properties", {})
    field = spec.get("field")
    if known and isinstance(field, str) and field.split(".")[0] not in known:
        key = f"{path}.field"
        raise ConfigError(f"{key}: {describe_unknown(f'answer field of {env.name}', field, known)}", key=key)
    for name, part in (spec.get("components") or {}).items():
        _check_reward_fields(part, env, f"{path}.components.{name}")


def _check_demonstrations(habits: Mapping[str, float], env: BaseMultiTurnEnv, task: Task) -> None:
    key = "train.demonstrations.habits" if habits else "train.demonstrations"
    try:
        env.for_task(task).demonstration(task, 0, **habits)
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"{key}: {error}", key=key) from error


def _check_episodes(folder: str, env: BaseMultiTurnEnv) -> None:
    from ...rollouts.store.reader import load
    from ..sft.episodes import read_transcripts

    key = "train.episodes"
    try:
        if Path(folder).is_file():
            problems = Counter[str]()
            shown: dict[str, Any] = {"max_pixels": env.max_pixels, "multiple": env.pixel_multiple}
            if next(read_transcripts(Path(folder), **shown, left_out=problems), None) is None:
                reason = next(iter(problems), "it is empty")
                raise ConfigError(f"{folder}: no row of it can be learned from; {reason:.300}")
            return
        first = next(load(folder), None)
    except ViewboxError as error:
        raise ConfigError(f"{key}: {error}", key=key) from error
    if first is None:
        raise ConfigError(f"{key} = {folder!r}: holds no episodes; allowed: a folder with saved episodes", key=key)


def find_model(section: ModelSection) -> LocalModel | None:
    """Return the model of a folder; None for a hub name and for `model.tiny`. Raise `ConfigError` and `ModelError`."""
    if section.name is None:
        return None
    from transformers import CONFIG_MAPPING

    from ...engines.hf.architectures import get_architecture
    from ...engines.hf.loading import find_model_folder, get_view_settings, load_model, load_processor

    path, key, given = find_model_folder(section.name), "model.name", f"model.name = {section.name!r}"
    if path is None:
        return None
    if not path.is_dir():
        raise ConfigError(
            f"{given}: is a file; allowed: a folder with config.json, weights and processor, or a hub name", key=key
        )
    try:
        model_type = json.loads((path / "config.json").read_bytes())["model_type"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        files = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
        reason = (
            "has no config.json" if isinstance(error, FileNotFoundError) else f"config.json cannot be read ({error})"
        )
        raise ConfigError(
            f"{given}: {reason}; allowed: a folder written by save_pretrained (found: {files})", key=key
        ) from error
    if model_type not in CONFIG_MAPPING:
        raise ModelError(f"{given}: {describe_unknown('model_type', str(model_type), CONFIG_MAPPING)}", key=key)
    config, processor = load_processor(section)
    get_architecture(config).check_forward()
    load_model(section, with_numbers=False)
    return LocalModel(config, processor, get_view_settings(config, processor))


def _fit_context(model: LocalModel, config: Config, env: BaseMultiTurnEnv, notes: list[str]) -> Config:
    """Return the config with a default of tokens that fits the model's context behind the longest of the first prompts.

    Raises:
        ConfigError: what was written fits behind none of the first prompts: one that is longer costs its own episodes.
    """
    budget, reply = config.rollout.max_completion_tokens, config.rollout.max_reply_tokens
    length, context = _measure_prompt(model, config, env, open_crowded_task(env, "env"))
    if length + budget <= context:
        return config
    for task in islice(to_sequence(env.tasks, env.name), FIRST):
        with suppress(BadRow, ImageError, ConfigError):
            if _measure_prompt(model, config, env, task)[0] + budget <= context:
                return config
    room = int(context - length)
    why = f"with a prompt of {length} tokens an episode does not fit the model's context of {context}"
    if room <= 0:
        allowed = "a shorter prompt, or fewer and smaller images"
        raise ConfigError(f"{CONTEXT_KEY} = {budget}: {why}; allowed: {allowed}", key=CONTEXT_KEY)
    config = _fit(config, CONTEXT_KEY, room, why, notes)
    return config if reply <= room else _fit(config, "rollout.max_reply_tokens", room, why, notes)


def _measure_prompt(model: LocalModel, config: Config, env: BaseMultiTurnEnv, task: Task) -> tuple[int, float]:
    """Return the tokens of a task's prompt and those of the model's context. Raise `ConfigError` if an image does not
    fit an episode."""
    state = env.for_task(task).reset(task, seed=0)
    tokens, prompt, images = model.encode_prompt(config, env, state)
    budget = config.rollout.max_completion_tokens
    side = model.view_settings.get("pixel_multiple") or 0
    for ref in images if needs_size(env.for_task(task).coordinates) else ():
        if not side or tokens.count_image_tokens(ref) * side**2 != ref.width * ref.height:
            raise ConfigError(
                f"env.coordinates = pixel: the model's processor makes another size of a picture of {ref.width} x "
                f"{ref.height}, so that its pixels are not those of the view; allowed: unit or per_mille",
                key="env.coordinates",
            )
    image = max((tokens.get_pixels(ref).tokens for ref in images), default=0)
    if state.tool_schemas and image >= budget:
        raise ConfigError(
            f"env.max_pixels = {env.max_pixels}: an image shown by a tool takes {image} tokens and never fits an "
            f"episode; allowed: fewer than rollout.max_completion_tokens = {budget}",
            key="env.max_pixels",
        )
    return len(prompt), tokens.context
