"""The YAML of a run as checked settings: sections, overrides, and errors that name the key.

Sections: `model`, `env`, `reward`, `rollout`, `train` (anything TRL's `GRPOConfig` takes), `lora`, `log`. The
environment's own settings stand beside its name under `env`; `eval` inside it overrides them for held-out tasks.
"""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from viewbox.errors import ConfigError, unknown

Method = Literal["grpo", "sft"]


class Section(BaseModel):
    """A section refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TinyModel(Section):
    """A small Qwen3-VL built from scratch instead of loaded (`rollouts/tiny.py`)."""

    vocab_size: Annotated[int, Field(ge=280)] = 896
    hidden: Annotated[int, Field(ge=16)] = 128
    layers: Annotated[int, Field(ge=1)] = 3
    vision_hidden: Annotated[int, Field(ge=16)] = 64
    vision_layers: Annotated[int, Field(ge=2)] = 4
    patch: Annotated[int, Field(ge=4)] = 8


class ModelSection(Section):
    """Which policy is trained."""

    name: str | None = Field(
        default=None, description="a folder, a hub name, or `package:tiny_viewer` for the shipped one"
    )
    tiny: TinyModel | None = Field(default=None, description="build a small one instead of loading")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attention: Literal["sdpa", "eager"] = Field(default="sdpa", description="what takes the engine's attention mask")
    max_pixels: int | None = Field(
        default=None, description="the processor's largest image; default: the environment's"
    )
    revision: str | None = None


class EnvSection(BaseModel):
    """Which environment; further keys are its own settings."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    eval: dict[str, Any] = Field(default_factory=dict, description="settings that differ for held-out tasks")

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class RolloutSection(Section):
    """How episodes are generated."""

    slots: Annotated[int, Field(ge=1)] = 64
    temperature: Annotated[float, Field(ge=0)] = 1.0
    max_reply_tokens: Annotated[int, Field(ge=1)] = 512
    max_completion_tokens: Annotated[int, Field(ge=1)] = 4096
    prefill_tokens: Annotated[int, Field(ge=1)] = 16384
    time_limit: Annotated[float, Field(gt=0)] | None = None


class Demonstrations(Section):
    """Episodes of the environment's scripted viewer, made for `method: sft`."""

    count: Annotated[int, Field(ge=1)] = 10_000
    habits: dict[str, float] = Field(default_factory=dict, description="how often the viewer does what")


class VisionSection(Section):
    """sft from scratch: auxiliary tasks that teach a new vision tower to read and find (`rollouts/vision.py`)."""

    weight: Annotated[float, Field(gt=0)] = 1.0
    batch: Annotated[int, Field(ge=2)] = 64
    label: str = Field(default="label", description="the reference field that is told from a close look")
    box: str = Field(default="bbox", description="the reference box that is found in the overview")


class TrainSection(BaseModel):
    """How the policy is trained; keys not listed here are TRL's `GRPOConfig` (grpo) or `TrainingArguments` (sft)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    method: Method = "grpo"
    seed: Annotated[int, Field(ge=0)] = 0
    episodes: str | None = Field(default=None, description="sft: a folder of saved episodes")
    demonstrations: Demonstrations | None = Field(default=None, description="sft: make them with the scripted viewer")
    vision: VisionSection | None = Field(default=None, description="sft: teach a new vision tower to see meanwhile")
    informative_weight: Annotated[float, Field(ge=1)] = Field(
        default=12.0, description="sft: of each JSON value in a reply"
    )

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class LoraSection(Section):
    """Low-rank adapters (peft); leave the section out to train every weight."""

    r: Annotated[int, Field(ge=1)] = 16
    alpha: Annotated[int, Field(ge=1)] = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target_modules: str | list[str] = "all-linear"


class LogSection(Section):
    """What a run leaves behind."""

    dir: str = "runs"
    name: str | None = Field(
        default=None, description="the run's folder in `dir`; default: the config's file name and seed"
    )
    episodes_per_step: Annotated[int, Field(ge=0)] = 8
    eval_tasks: Annotated[int, Field(ge=0)] = 200
    eval_temperature: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="default: rollout.temperature"
    )
    eval_seed: Annotated[int, Field(ge=0)] = 0
    export: str | None = Field(default=None, description="also save the trained model and its card to this folder")
    report_to: list[str] = Field(default_factory=list)


class Config(Section):
    """A whole run."""

    model: ModelSection
    env: EnvSection
    reward: dict[str, Any] | None = None
    rollout: RolloutSection = RolloutSection()
    train: TrainSection = TrainSection()
    lora: LoraSection | None = None
    log: LogSection = LogSection()


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice and reads 1e-4 as the number it is."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict:
    seen: dict[Any, int] = {}
    for key_node, _ in node.value:
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node)
        if key in seen:
            line = key_node.start_mark.line + 1
            raise ConfigError(
                f"{node.start_mark.name}, line {line}: the key {key!r} is given twice (first: line {seen[key]})"
            )
        seen[key] = key_node.start_mark.line + 1
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# YAML 1.1 wants a point and a signed exponent (1.0e-4) and takes anything else for a string
_EXPONENT = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


def _read(text: str, name: str) -> Any:
    loader = _Loader(text)
    loader.name = name
    return loader.get_single_data()


def find(name: str) -> Path:
    """A config by path, or by the name of one that ships with viewbox (`quickstart`)."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = Path(str(resources.files("viewbox.configs")))
    inside = shipped / f"{path.stem}.yaml"
    if path.parent in (Path(), Path("configs")) and inside.is_file():
        return inside
    names = [one.stem for one in shipped.glob("*.yaml")]
    raise ConfigError(f"{name}: no such file; {unknown('shipped config', path.stem, names)}")


def load(name: str, overrides: Sequence[str] = ()) -> Config:
    """The config of a file with `key.path=value` overrides; raises `ConfigError` naming file, key and value.

    >>> load("quickstart", ["train.learning_rate=1e-4", "env.noise=10"]).env.settings["noise"]
    10
    """
    path = find(name)
    text = path.read_text(encoding="utf-8")
    try:
        raw = _read(text, path.name)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: a config is a mapping of sections; allowed: {', '.join(Config.model_fields)}")
    for override in overrides:
        _override(raw, override)
    return parse(raw, str(path))


def _override(raw: dict, override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"override {override!r}: write key.path=value")
    at: Any = raw
    *path, last = key.split(".")
    for part in path:
        if at.get(part) is None:
            at[part] = {}
        at = at[part]
        if not isinstance(at, dict):
            raise ConfigError(f"override {override!r}: {part!r} is not a section")
    try:
        at[last] = _read(value, f"override {override!r}")
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not YAML: {error}") from error


def parse(raw: Mapping[str, Any], where: str = "config") -> Config:
    """A checked config from plain dicts."""
    try:
        config = Config.model_validate(dict(raw))
    except ValidationError as error:
        raise ConfigError("\n".join(f"{where}: {_explain(one)}" for one in error.errors())) from error
    if (config.model.name is None) == (config.model.tiny is None):
        raise ConfigError(f"{where}: model needs exactly one of `name` and `tiny`")
    if config.train.method == "sft" and (config.train.episodes is None) == (config.train.demonstrations is None):
        raise ConfigError(f"{where}: train with method sft needs exactly one of `episodes` and `demonstrations`")
    return config


def _explain(error: Any) -> str:
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        section: Any = Config
        for part in error["loc"][:-1]:
            section = _section(section, part)
        return f"{path}: {unknown('key', str(error['loc'][-1]), getattr(section, 'model_fields', {}))}"
    if error["type"] == "missing":
        return f"{path}: is missing"
    return f"{path} = {error['input']!r}: {error['msg']}"


def _section(section: Any, name: Any) -> Any:
    field = getattr(section, "model_fields", {}).get(name)
    options = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
    return next((one for one in options if isinstance(one, type) and issubclass(one, BaseModel)), None)
