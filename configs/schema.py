"""The settings of a run: the sections of a YAML config, checked, with errors that name file, line and key.

Sections: `model`, `env`, `reward`, `rollout`, `train` (also any argument of TRL's `GRPOConfig`), `lora`, `log`. The
environment's own settings are written beside its name under `env`; `eval` inside it overrides them for held-out tasks.
`viewbox config` prints `docs/configuration.md` from this file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, PrivateAttr, ValidationError, model_serializer

from viewbox.configs import yaml_reader
from viewbox.configs.validation import describe_errors
from viewbox.configs.yaml_reader import Document
from viewbox.errors import ConfigError, ViewboxError, describe_unknown

Method = Literal["grpo", "sft", "rejection_sampling"]
GRPO_ONLY = ("importance_sampling_cap", "dynamic_sampling_rounds", "micro_batch_tokens")  # keys of `train`
SUPERVISED = ("sft", "rejection_sampling")
METHODS_OF = {  # keys of `train` that other methods do not read
    **dict.fromkeys(("episodes", "demonstrations", "vision"), ("sft",)),
    **dict.fromkeys(("where", "best_of_group"), SUPERVISED),
    "rejection_sampling": ("rejection_sampling",),
}
# strict: `true` is not the number 1, and "7" is text
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
Width = Annotated[int, Field(ge=16, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
PositiveFloat = Annotated[float, Field(gt=0, strict=True)]
NonNegativeFloat = Annotated[float, Field(ge=0, strict=True)]
Probability = Annotated[float, Field(ge=0, le=1, strict=True)]
Bytes = Annotated[ByteSize, Field(ge=1024)]


class Section(BaseModel):
    """A section of a config; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TinyModel(Section):
    """A small Qwen3-VL built from scratch instead of loaded (`rollouts/engine/tiny_model.py`)."""

    vocab_size: Annotated[int, Field(ge=280, strict=True)] = Field(
        default=896,
        description="tokens of the tokenizer, which is trained on the environment's prompts and demonstrations",
    )
    hidden: Width = Field(default=128, description="width of the language model")
    layers: PositiveInt = Field(default=3, description="layers of the language model")
    vision_hidden: Width = Field(default=64, description="width of the vision tower")
    vision_layers: Annotated[int, Field(ge=2, strict=True)] = Field(default=4, description="layers of the vision tower")
    patch: Annotated[int, Field(ge=4, strict=True)] = Field(
        default=8, description="side of a patch in pixels; an image token covers 2 x 2 patches"
    )


class ModelSection(Section):
    """The policy that is trained: exactly one of `name` and `tiny`."""

    name: str | None = Field(
        default=None, description="a folder, a hub name, or `package:tiny_viewer` for the shipped one"
    )
    tiny: TinyModel | None = Field(default=None, description="build a small model instead of loading one")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="precision of the weights; auto: the precision they were saved in, but float32 if every weight is "
        "trained (no section `lora`)",
    )
    attention: Literal["sdpa", "eager"] = Field(
        default="sdpa", description="attention implementation; these two accept the engine's mask"
    )
    max_pixels: PositiveInt | None = Field(
        default=None, description="the processor shrinks images with more pixels; default: `env.max_pixels`"
    )
    revision: str | None = Field(default=None, description="branch, tag or commit of a hub model")


class EnvSection(BaseModel):
    """The environment; all other keys are its own settings (listed below, by environment)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = Field(
        description="a registered environment, or `package.module:Class` or `path/to/file.py:Class` for your own"
    )
    eval: dict[str, Any] = Field(default_factory=dict, description="settings that replace others for held-out tasks")

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class SamplingParams(Section):
    """How the tokens of a reply are sampled. The engine, the endpoint client and the command line all take this object.

    `top_p`: nucleus sampling (Holtzman et al. 2020, arXiv 1904.09751). `min_p`: Nguyen et al. 2024, arXiv 2407.01082.
    `repetition_penalty`: Keskar et al. 2019, arXiv 1909.05858.

    >>> SamplingParams(temperature=0.7, stop=["</answer>"]).stop
    ('</answer>',)
    """

    temperature: NonNegativeFloat = Field(default=1.0, description="softmax temperature; 0: greedy (not for grpo)")
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        default=1.0, description="sample from the smallest set of tokens whose probabilities sum to this; 1: all tokens"
    )
    top_k: NonNegativeInt = Field(
        default=0, description="sample from this many of the most likely tokens; 0: all tokens"
    )
    min_p: Probability = Field(
        default=0.0, description="sample from tokens at least this fraction as likely as the most likely; 0: all tokens"
    )
    repetition_penalty: PositiveFloat = Field(
        default=1.0, description="above 1: tokens already in the episode become less likely; 1: no penalty"
    )
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="strings that end a reply; the engine keeps the string in the reply, endpoints remove it",
    )


class RolloutSection(SamplingParams):
    """How episodes are generated, by the local engine or by an endpoint (which ignores the engine's own settings)."""

    slots: PositiveInt = Field(default=64, description="episodes decoded together; the others wait for a free slot")
    max_reply_tokens: PositiveInt = Field(default=512, description="maximum tokens of one reply")
    max_completion_tokens: PositiveInt = Field(
        default=4096, description="maximum tokens after the prompt: replies, tool results and their images"
    )
    prefill_tokens: PositiveInt = Field(
        default=16384, description="maximum prompt tokens in one forward pass; bounds memory"
    )
    kv_cache_bytes: Bytes | None = Field(
        default=None,
        description="memory for keys and values; fewer slots are used if they do not all fit; default: 80 % of a GPU's "
        "free memory, half of a CPU's",
    )
    tool_wait_timeout: NonNegativeFloat = Field(
        default=5.0, description="seconds the engine waits for a late tool before it continues without that episode"
    )
    timeout: PositiveFloat | None = Field(default=None, description="maximum seconds of an episode; default: no limit")

    @property
    def sampling(self) -> SamplingParams:
        """The sampling settings alone; its `model_fields_set` are those that this section was given.

        >>> RolloutSection(top_k=5, slots=3).sampling.model_fields_set
        {'top_k'}
        """
        names = SamplingParams.model_fields.keys() & self.model_fields_set
        return SamplingParams(**{name: getattr(self, name) for name in names})


class Demonstrations(Section):
    """Demonstrations of the environment (its method `demonstration`), recorded for `method: sft`."""

    count: PositiveInt = Field(default=10_000, description="number of episodes")
    habits: dict[str, float] = Field(
        default_factory=dict,
        description="probability of each imperfection of a demonstration (digits: guess, too_far, astray)",
    )


class VisionSection(Section):
    """Auxiliary tasks of a warm start that teach a new vision tower to classify and locate."""

    weight: PositiveFloat = Field(
        default=1.0, description="weight of the auxiliary loss; that of the replies has weight 1"
    )
    batch: Annotated[int, Field(ge=2, strict=True)] = Field(
        default=64, description="close looks (last images of correct episodes) in each step"
    )
    label: str = Field(default="label", description="reference field that is classified from a close look")
    box: str = Field(default="bbox", description="reference field with the box that is located in the overview")


class RejectionSampling(Section):
    """Rounds of `method: rejection_sampling`: play episodes, keep the good ones, train on them."""

    rounds: PositiveInt = Field(default=1, description="rounds; `train.max_steps` is divided among them")
    tasks: PositiveInt = Field(default=256, description="tasks played in a round; the next round takes the next ones")
    samples: PositiveInt = Field(default=8, description="episodes of each task in a round")


class TrainSection(BaseModel):
    """How the policy is trained. All other keys are arguments of `GRPOConfig` (grpo) or `TrainingArguments` (other)."""

    model_config = ConfigDict(extra="allow", frozen=True)

    method: Method = Field(
        default="grpo",
        description="grpo: reinforcement learning; sft: supervised learning from saved or scripted episodes; "
        "rejection_sampling: supervised learning from the policy's own best episodes",
    )
    seed: NonNegativeInt = Field(default=0, description="seed of new weights, the order of tasks and sampling")
    episodes: str | None = Field(
        default=None,
        description="sft: a folder of saved episodes, or a .jsonl file of conversations as the OpenAI chat interface "
        "writes them",
    )
    demonstrations: Demonstrations | None = Field(
        default=None, description="sft: record demonstrations of the environment"
    )
    vision: VisionSection | None = Field(
        default=None, description="sft: also train a new vision tower with auxiliary tasks"
    )
    where: str | list[str] = Field(
        default=[],
        description="sft, rejection_sampling: conditions that an episode must meet, as in `viewbox score --where`, "
        "such as `scores.total>=0.9`; default: every episode that no fault ended",
    )
    best_of_group: bool = Field(
        default=False,
        description="sft, rejection_sampling: keep one episode of each task, the one with the highest score",
    )
    rejection_sampling: RejectionSampling | None = Field(
        default=None, description="rejection_sampling: its rounds; default: one round"
    )
    informative_weight: Annotated[float, Field(ge=1, strict=True)] = Field(
        default=1.0,
        description="sft, rejection_sampling: loss weight of each JSON value in a reply; its other tokens have weight "
        "1. Above 1 it helps a model that is built from scratch",
    )
    pure_bf16: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="train every weight in bfloat16, without float32 weights: half the memory, but small steps are "
        "rounded away; only without `lora`",
    )
    importance_sampling_cap: Annotated[float, Field(ge=1, strict=True)] | None = Field(
        default=2.0,
        description="grpo: largest importance weight of a token if a generation serves several updates "
        "(truncated importance sampling); null: no importance sampling",
    )
    dynamic_sampling_rounds: NonNegativeInt = Field(
        default=0, description="grpo: rounds in which groups of equal rewards are replaced by groups of other tasks"
    )
    micro_batch_tokens: PositiveInt | None = Field(
        default=None,
        description="grpo: maximum tokens of one forward and backward pass; default: the whole device batch",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def filters(self) -> tuple[str, ...]:
        """The conditions of `where`."""
        return (self.where,) if isinstance(self.where, str) else tuple(self.where)

    @model_serializer(mode="wrap")
    def _serialize(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leaves out keys that the method does not use; keeps a null that differs from the default."""
        values = handler(self)
        if self.importance_sampling_cap is None:
            values["importance_sampling_cap"] = None
        return {name: value for name, value in values.items() if self.method == "grpo" or name not in GRPO_ONLY}


class LoraSection(Section):
    """Low-rank adapters (peft); leave the section out to train every weight."""

    r: PositiveInt = Field(default=16, description="rank")
    alpha: PositiveInt = Field(default=32, description="the update is multiplied by alpha / r")
    dropout: Annotated[float, Field(ge=0, lt=1, strict=True)] = Field(
        default=0.0, description="dropout of the adapters' input; 0 keeps log-probs comparable with the engine's"
    )
    target_modules: str | list[str] = Field(default="all-linear", description="names of the adapted layers")


class LogSection(Section):
    """What a run saves and sends."""

    dir: str = Field(default="runs", description="folder in which each run creates its own folder")
    name: str | None = Field(
        default=None, description="name of the run's folder in `dir`; default: the config's file name and the seed"
    )
    episodes_per_step: NonNegativeInt = Field(default=8, description="training episodes saved in each step")
    eval_tasks: NonNegativeInt = Field(
        default=200, description="held-out tasks played before, during and after training; 0: no evaluation"
    )
    eval_steps: PositiveInt | None = Field(
        default=None,
        description="steps between evaluations on the held-out tasks during training; default: none during training",
    )
    eval_patience: PositiveInt | None = Field(
        default=None,
        description="training stops early after this many evaluations without a better reward; default: it never does",
    )
    keep_best: bool = Field(
        default=True,
        description="with eval_steps: the saved model is that of the evaluation with the highest reward; false: the "
        "last one",
    )
    eval_temperature: NonNegativeFloat | None = Field(
        default=None, description="temperature of held-out episodes; default: rollout.temperature"
    )
    eval_seed: NonNegativeInt = Field(default=0, description="seed of the held-out episodes")
    export: str | None = Field(
        default=None, description="folder to which the trained model and its card are also saved"
    )
    send_images: bool = Field(
        default=False, description="also send images of some episodes to W&B, away from this machine"
    )
    report_to: list[str] = Field(default_factory=list, description="trackers supported by transformers, such as wandb")


class Config(Section):
    """A whole run."""

    model: ModelSection
    env: EnvSection
    reward: dict[str, Any] | None = Field(
        default=None, description="a reward by its `type`; default: the environment's reward"
    )
    rollout: RolloutSection = RolloutSection()
    train: TrainSection = TrainSection()
    lora: LoraSection | None = None
    log: LogSection = LogSection()
    _document: Document = PrivateAttr(default_factory=Document)


def find(name: str) -> Path:
    """The path of a config: a file, or the name of a shipped one (`quickstart`)."""
    path = Path(name)
    if path.is_file():
        return path
    shipped = Path(str(resources.files("viewbox.configs")))
    inside = shipped / f"{path.stem}.yaml"
    if path.parent in (Path(), Path("configs")) and inside.is_file():
        return inside
    if path.is_dir():
        files = sorted(file.name for file in path.glob("*.yaml"))
        raise ConfigError(f"{name}: a folder, not a file; YAML files in it: {', '.join(files) or 'none'}")
    beside = get_close_matches(str(path), [str(file) for file in path.parent.glob("*.y*ml")], n=1)
    if beside:
        raise ConfigError(f"{name}: no such file (did you mean {beside[0]!r}?)")
    names = [file.stem for file in shipped.glob("*.yaml")]
    raise ConfigError(f"{name}: no such file; {describe_unknown('shipped config', path.stem, names)}")


def load(name: str, overrides: Sequence[str] = ()) -> Config:
    """Reads a config with `key.path=value` overrides; raises `ConfigError` naming file, line, key and value.

    >>> load("quickstart", ["train.learning_rate=1e-4", "env.noise=10"]).env.settings["noise"]
    10
    """
    document = yaml_reader.read(find(name))
    if not isinstance(document.values, dict):
        given = "is empty" if document.values is None else f"holds a {type(document.values).__name__}"
        raise ConfigError(
            f"{document.name}: {given}; allowed: a mapping of the sections {', '.join(Config.model_fields)}"
        )
    for override in overrides:
        document.override(override)
    return parse(document.values, document)


def parse(raw: Mapping[str, Any], document: Document | None = None) -> Config:
    """Checks a config given as plain dicts; `document` knows where each key was written."""
    document = document or Document()
    try:
        config = Config.model_validate(dict(raw))
    except ValidationError as error:
        problems = describe_errors(error, Config, raw)
        text = "\n".join(f"{document.find_place(problem.key)}: {problem}" for problem in problems)
        raise ConfigError(text, key=problems[0].key) from error
    config._document = document
    with locate_errors(config):
        _check_exactly_one("model", config.model, ("name", "tiny"))
        if config.train.method == "sft":
            _check_exactly_one("train.method = sft", config.train, ("episodes", "demonstrations"), key="train")
    return config


def _check_exactly_one(label: str, section: BaseModel, names: Sequence[str], key: str = "") -> None:
    given = [f"`{name}`" for name in names if getattr(section, name) is not None]
    if len(given) != 1:
        allowed = " and ".join(f"`{name}`" for name in names)
        raise ConfigError(
            f"{label}: given: {' and '.join(given) or 'neither'}; allowed: exactly one of {allowed}", key=key or label
        )


@contextmanager
def locate_errors(config: Config) -> Iterator[None]:
    """Adds to errors raised inside it the place in the file where their `key` is set.

    >>> with locate_errors(parse({"model": {"name": "m"}, "env": {"name": "digits"}})):
    ...     raise ConfigError("train.beta = 2; allowed: 0", key="train.beta")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: config: train.beta = 2; allowed: 0
    """
    try:
        yield
    except ViewboxError as error:
        error.args = (f"{config._document.find_place(error.key or '')}: {error}",)
        raise
