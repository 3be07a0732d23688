"""A run before it starts: its config, and what is asked about it. Each part is made once, when it is first asked for.

`findings.py` asks whether it will run, `run.py` runs it, `memory/forecast.py` says what it needs. No weights are loaded
but by `Plan.load`, and torch is not loaded before the model is asked for.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..assets import find_model_folder, resolve_model_path
from ..configs.schema import Config
from ..configs.sections import ModelSection
from ..core.base import BaseMultiTurnEnv, count_shown
from ..core.contract import EpisodeState
from ..core.tasks import to_sequence
from ..engines.model_profiles import get_model_defaults
from ..envs.from_config import build_envs
from ..errors import BadRow, ConfigError, ImageError, ModelError, ViewboxError, describe_unknown
from ..images.ref import ImageRef
from ..records import Task

if TYPE_CHECKING:
    from ..engines.hf.chat_tokens import ChatTokens
    from ..engines.hf.loading import LoadedPolicy

T = TypeVar("T")
CROWDED = 64  # tasks whose images are counted
FIRST = 8  # tasks with bad rows, after which a run is refused


def part(make: "Callable[[Plan], T]") -> cached_property[T]:
    """Make an attribute of a plan once; the error of one that cannot be made is raised to all who ask."""

    @wraps(make)
    def once(plan: "Plan") -> T:
        if make.__name__ in plan.errors:
            raise plan.errors[make.__name__]
        try:
            return make(plan)
        except ViewboxError as error:
            plan.errors[make.__name__] = error
            raise

    return cached_property(once)


class Envs(NamedTuple):
    """The environment that is trained in, and the held-out one."""

    env: BaseMultiTurnEnv
    held_out: BaseMultiTurnEnv


class Plan:
    """A run of a config.

    Attributes:
        config: what runs: as it was read, but for defaults that `fit` has changed.
        lines, notes, warnings: what `findings.check` has found; lines by topic.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lines: dict[str, Any] = {}
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self.errors: dict[str, ViewboxError] = {}  # of parts, by name
        self._fitted: set[str] = set()
        self._built: list[tuple[dict[str, Any], Envs]] = []  # by the settings that follow from a model

    def problem(self, key: str, why: str, allowed: str, given: object = None) -> ConfigError:
        """Return the error about a setting, whose value is looked up unless it is `given`."""
        name, _, field = key.partition(".")
        if given is None:
            section = getattr(self.config, name)
            given = section.arguments.get(field) if name == "train" else getattr(section, field)
        shown = "true" if given is True else f"{given:g}" if isinstance(given, float) else given
        return ConfigError(f"{key} = {shown}: {why}; allowed: {allowed}", key=key)

    def fit(self, key: str, most: int, why: str) -> None:
        """Lower a setting that nobody wrote, and note it. Raise `ConfigError` if it was written."""
        name, _, field = key.partition(".")
        section = getattr(self.config, name)
        if field in section.model_fields_set and key not in self._fitted:
            raise self.problem(key, why, f"at most {most}")
        self._fitted.add(key)
        self.notes.append(f"{key} = {most}, not its default {type(section).model_fields[field].default}: {why}")
        self.config = self.config.model_copy(update={name: section.model_copy(update={field: most})})

    @part
    def model_type(self) -> str | None:
        """Return the `model_type` of a model's folder; None for a hub name and for `model.tiny`."""
        return read_model_type(self.config.model)

    @part
    def draft(self) -> Envs:
        """Return the environments, before the model's processor is asked how it shows pictures."""
        if self.config.model.tiny is not None:
            return self.build_for({"coordinates": "per_mille", "pixel_multiple": 2 * self.config.model.tiny.patch})
        return self.build_for({} if self.model_type is None else get_model_defaults(self.model_type).to_settings())

    @part
    def first_task(self) -> Task:
        return open_first_task(self.draft.env, "env")

    @part
    def model(self) -> "LocalModel | None":
        """Return the model of a folder, which holds its weights and no others; None for others."""
        return find_model(self.config.model)

    @property
    def envs(self) -> Envs:
        """The environments as they are played."""
        return self.draft if self.model is None else self.build_for(self.model.view_settings)

    def build_for(self, settings: Mapping[str, Any]) -> Envs:
        """Return the environments with settings that follow from a model; rows that were read are not read again."""
        for known, envs in self._built:
            if known == settings:
                return envs
        envs = Envs(*build_envs(self.config, settings))
        for _, others in self._built[:1]:
            for new, old in zip(envs, others, strict=True):
                _share_rows(new, old)
        self._built.append((dict(settings), envs))
        return envs

    @part
    def known_model(self) -> "LocalModel":
        """Return a model that is known here; a folder needs no weights."""
        asked: LocalModel | None = vars(self).get("model")
        return asked or find_model_shapes(self.config.model, self.config.model.max_pixels or 512 * 512)

    @part
    def shapes(self) -> Any:
        """Return the model with its adapters, without numbers."""
        from .precision import build_model

        return build_model(self.config, self.known_model.config)

    @part
    def arguments(self) -> Any:
        """Return the trainer's arguments; their folder is not known yet."""
        from .trainer_args import build_trainer_arguments

        return build_trainer_arguments(self.config, "runs")

    def load(self) -> "LoadedPolicy":
        """Return the model with its weights, loaded or built, and its environments. Raise as
        `loading.load_processor`."""
        from ..engines.hf import loading
        from .precision import resolve_dtype
        from .sft.trainer import build_corpus

        section, quantize = self.config.model, self.config.lora and self.config.lora.quantize
        if section.tiny is not None:
            env, held_out = self.envs
            built = loading.build_tiny_model(section, build_corpus(env), env.max_pixels, self.config.train.seed)
            return loading.LoadedPolicy(env, held_out, *built)
        section = section.model_copy(update={"dtype": resolve_dtype(self.config)})
        model = self.model or read_model(section)  # of the hub
        env, held_out = self.build_for(model.view_settings)
        loading.set_max_pixels(model.processor, section.max_pixels or env.max_pixels)
        return loading.LoadedPolicy(env, held_out, loading.load_model(section, quantize or None), model.processor)


def _share_rows(new: Any, old: Any) -> None:
    """Let an environment have the rows that another one of the same data has read."""
    for key, env in getattr(new, "parts", {}).items():
        _share_rows(env, getattr(old, "parts", {}).get(key))
    if "rows" in vars(old or object) and getattr(new, "data", None) == getattr(old, "data", ...):
        vars(new)["rows"] = old.rows


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
            task = tasks[number]  # which may be a bad row
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
    crowded, tasks = open_first_task(env, section), to_sequence(env.tasks, env.name)
    most = count_shown(env.for_task(crowded), crowded)
    for number in range(min(CROWDED, len(tasks))):
        with suppress(BadRow, ImageError):  # it costs its own episodes
            task = tasks[number]
            if (shown := count_shown(env.for_task(task), task)) > most:
                env.for_task(task).reset(task, seed=0)
                crowded, most = task, shown
    return crowded


@dataclass(frozen=True)
class LocalModel:
    """A model without its weights; its processor is None if it is not on this machine.
    `view_settings` are the environment settings that suit it, such as `coordinates` and `pixel_multiple`."""

    config: Any
    processor: Any
    view_settings: dict[str, Any]

    def encode_prompt(
        self, config: Config, env: BaseMultiTurnEnv, state: EpisodeState
    ) -> "tuple[ChatTokens, list[int], list[ImageRef]]":
        """Return (the chat tokens, ids, images) of the prompt of an episode that was just opened."""
        from ..engines.hf.chat_tokens import ChatTokens
        from ..engines.hf.loading import set_max_pixels

        set_max_pixels(self.processor, config.model.max_pixels or env.max_pixels)
        tokens, env = ChatTokens(self.processor, self.config), env.for_task(state.task)
        return tokens, *tokens.encode_prompt(state.messages, state.tool_schemas, env.reply_format, env.prompts)


def read_model_type(section: ModelSection) -> str | None:
    """Return what the config.json of a model's folder says that it is; None for a hub name and for `model.tiny`.

    Raises:
        ConfigError: nothing is there, no folder, or none with a config.json.
        ModelError: no shipped model has this name, or the folder holds an adapter.
    """
    path = None if section.name is None else find_model_folder(section.name)
    if path is None:
        return None
    setting = f"model.name = {section.name!r}"
    if not path.is_dir():
        allowed = "a folder with config.json, weights and processor, or a hub name"
        raise ConfigError(f"{setting}: is a file; allowed: {allowed}", key="model.name")
    try:
        return str(json.loads((path / "config.json").read_bytes())["model_type"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        files = ", ".join(sorted(file.name for file in path.iterdir())[:8]) or "nothing"
        missing = isinstance(error, FileNotFoundError)
        reason = "has no config.json" if missing else f"config.json cannot be read ({error})"
        allowed = f"a folder written by save_pretrained (found: {files})"
        raise ConfigError(f"{setting}: {reason}; allowed: {allowed}", key="model.name") from error


def find_model(section: ModelSection) -> LocalModel | None:
    """Return the model of a folder; None for a hub name and for `model.tiny`. Raise `ConfigError` and `ModelError`."""
    model_type = read_model_type(section)
    if model_type is None:
        return None
    from transformers import CONFIG_MAPPING

    from ..engines.hf.architectures import Architecture
    from ..engines.hf.loading import load_model

    if model_type not in CONFIG_MAPPING:
        text = describe_unknown("model_type", model_type, CONFIG_MAPPING)
        raise ModelError(f"model.name = {section.name!r}: {text}", key="model.name")
    model = read_model(section)
    Architecture(model.config).check_forward()
    load_model(section, with_numbers=False)
    return model


def read_model(section: ModelSection) -> LocalModel:
    """Return a named model, from its folder or the hub. Raise as `loading.load_processor`."""
    from ..engines.hf.loading import get_view_settings, load_processor

    config, processor = load_processor(section)
    return LocalModel(config, processor, get_view_settings(config, processor))


def find_model_shapes(section: ModelSection, max_pixels: int) -> LocalModel:
    """Return a model, from this machine alone. A folder needs no weights; those in it must be the model's. A hub name
    is looked up among downloaded files, then among the known models.

    Raises:
        ModelError: the config is not on this machine, or the architecture is not supported; or what it makes of a
            picture cannot be told without its processor.
    """
    from transformers import AutoConfig, AutoProcessor

    from ..engines.hf import loading
    from ..engines.hf.architectures import Architecture
    from ..engines.hf.picture_settings import show_whole

    def complete(config: Any, processor: Any) -> LocalModel:
        if processor is not None:
            return LocalModel(config, processor, loading.get_view_settings(config, processor))
        side = config.vision_config.patch_size * config.vision_config.spatial_merge_size
        return LocalModel(config, None, get_model_defaults(config.model_type).to_settings() | {"pixel_multiple": side})

    if section.name is None:
        return complete(*loading.build_tiny_config(section, max_pixels))
    name, setting = resolve_model_path(section.name), f"model.name = {section.name!r}"
    try:
        config = loading.load_config(section, local_files_only=True)
    except ModelError:
        raise
    except (OSError, ValueError) as error:
        if (known := read_known_models().get(section.name)) is None:
            raise ModelError(f"{setting}: {_explain_missing(section.name)}", key="model.name") from error
        return complete(AutoConfig.for_model(**known["config"]), None)
    vision = Architecture(config).config.vision_config
    loading.check_weights(section)
    try:
        here = {"revision": section.revision, "local_files_only": True, **loading.SAFE}
        processor = AutoProcessor.from_pretrained(name, **here)
    except ImportError as error:  # of a package that it needs
        raise ModelError(f"{setting}: {str(error).strip()}", key="model.name") from error
    except (OSError, ValueError) as error:
        if all(hasattr(vision, name) for name in ("patch_size", "spatial_merge_size", "temporal_patch_size")):
            return complete(config, None)
        raise ModelError(f"{setting}: its processor is not on this machine", key="model.name") from error
    show_whole(processor.image_processor)
    return complete(config, processor)


def _explain_missing(name: str) -> str:
    if Path(name).exists():
        return "has no config.json that can be read; allowed: a folder with one (it needs no weights)"
    return (
        "its config.json is not on this machine; allowed: a folder with config.json, a name whose file was downloaded "
        f"(`hf download {name} config.json preprocessor_config.json`), or one of {', '.join(read_known_models())}"
    )


@cache
def read_known_models() -> dict[str, Any]:
    """Return the config.json of models of shipped configs and of docs/scaling.md, with its source, by hub name."""
    known: dict[str, Any] = json.loads((Path(__file__).parent / "memory" / "known_models.json").read_bytes())
    return known
