"""The sections of a config that say what is played, by whom, how, and what is kept: model, env, rollout, log."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ByteSize, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from ..errors import describe_unknown
from ..registry import find_plugin, import_plugin, list_plugins
from ..utils.files import expand_path

# strict: `true` is not the number 1, and "7" is text
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
Width = Annotated[int, Field(ge=16, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
PositiveFloat = Annotated[float, Field(gt=0, strict=True)]
NonNegativeFloat = Annotated[float, Field(ge=0, strict=True)]
FilePath = Annotated[str, AfterValidator(expand_path)]  # a file or folder, or a name that may stand in its place
Bytes = Annotated[ByteSize, Field(ge=1024)]
Freeze = Literal["none", "vision", "projector"]
MAX_THREADS = 1024
DEFAULT_ENGINE = "hf"


class Section(BaseModel):
    """A section of a config; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class TinyModel(Section):
    """A small Qwen3-VL built from scratch instead of loaded (`engines/hf/tiny_model.py`)."""

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

    name: FilePath | None = Field(
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
    # Trainers of RL train the tower too: verl (actor.freeze_vision_tower: False) and TRL; tools of supervised tuning
    # freeze both: LLaMA-Factory (freeze_vision_tower, freeze_multi_modal_projector) and ms-swift (freeze_vit,
    # freeze_aligner). A model that is built from scratch needs its tower trained.
    freeze: Freeze = Field(
        default="none",
        description="what is left as it is: vision: the vision tower; projector: what projects its features, too, so "
        "that only the language model is trained and each image is encoded once for all steps; none: nothing. "
        "Adapters on all-linear layers stay out of it",
    )
    revision: str | None = Field(default=None, description="branch, tag or commit of a hub model")
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS, strict=True)] | None = Field(
        default=None,
        description="threads that PyTorch computes with on the CPU; default: OMP_NUM_THREADS, or the fastest number, "
        "measured when the model is loaded",
    )


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
    `top_p`: nucleus sampling (Holtzman et al. 2020, arXiv 1904.09751). `repetition_penalty`: Keskar et al. 2019, arXiv
    1909.05858."""

    temperature: NonNegativeFloat = Field(default=1.0, description="softmax temperature; 0: greedy (not for grpo)")
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] = Field(
        default=1.0, description="sample from the smallest set of tokens whose probabilities sum to this; 1: all tokens"
    )
    top_k: NonNegativeInt = Field(
        default=0, description="sample from this many of the most likely tokens; 0: all tokens"
    )
    repetition_penalty: PositiveFloat = Field(
        default=1.0, description="above 1: tokens already in the episode become less likely; 1: no penalty"
    )
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="strings that end a reply; the engine keeps the string in the reply, endpoints remove it",
    )

    def list_filters(self) -> dict[str, float]:
        """Return the filters that are on, with their values: a filtered distribution is not the one that the loss
        sees."""
        names = ("top_p", "top_k", "repetition_penalty")
        fields = SamplingParams.model_fields
        return {name: getattr(self, name) for name in names if getattr(self, name) != fields[name].default}


class RolloutSection(SamplingParams):
    """How episodes are generated. The engine that `engine` names adds keys of its own (listed below, by engine)."""

    engine: str = Field(
        default=DEFAULT_ENGINE,
        description="what samples the replies: hf: viewbox's own engine in this process; vllm: a server; or one that "
        "another package adds",
    )
    slots: PositiveInt = Field(default=64, description="episodes decoded together; the others wait for a free slot")
    max_reply_tokens: PositiveInt = Field(default=512, description="maximum tokens of one reply")
    max_completion_tokens: PositiveInt = Field(
        default=4096,
        description="maximum tokens after the prompt: replies, tool results and their images"
        "; in training, if it is not set, at most what the model's context leaves",
    )
    prefill_tokens: PositiveInt = Field(
        default=16384,
        description="maximum prompt tokens in one forward pass; bounds memory. A server decides this itself",
    )
    timeout: PositiveFloat | None = Field(default=None, description="maximum seconds of an episode; default: no limit")

    @field_validator("engine")
    @classmethod
    def _check_engine(cls, name: str) -> str:
        if find_plugin("engines", name) is None:
            raise ValueError(describe_unknown("engine", name, list_plugins("engines")))
        return name

    @classmethod
    def find_class(cls, values: object) -> "type[RolloutSection]":
        """Return the class of a section with these values: that of the engine, with its own keys."""
        name = values.get("engine", DEFAULT_ENGINE) if isinstance(values, Mapping) else None
        module = import_plugin("engines", name) if isinstance(name, str) else None
        return RolloutSection if module is None else module.Settings

    @classmethod
    def read(cls, values: object) -> Any:
        """Return the section of an engine; null for a key of another engine counts as not given."""
        if not isinstance(values, Mapping):
            return values
        model, rest = cls.find_class(values), dict(values)
        for name in values.keys() - model.model_fields.keys():
            owners = [one for one in list_plugins("engines") if name in cls.find_class({"engine": one}).model_fields]
            if owners and values[name] is not None:
                raise _refuse_key(
                    name,
                    values[name],
                    f"= {values[name]!r:.80} is read with engine: {' or '.join(owners)} only; the engine is "
                    f"{values.get('engine', DEFAULT_ENGINE)!r:.80}",
                )
            if owners:
                del rest[name]
        return model.model_validate(rest)

    @property
    def sampling(self) -> SamplingParams:
        """The sampling settings alone; its `model_fields_set` are those that this section was given."""
        names = SamplingParams.model_fields.keys() & self.model_fields_set
        return SamplingParams(**{name: getattr(self, name) for name in names})


def _refuse_key(name: str, value: Any, text: str) -> ValidationError:
    """Return the error of a key, in our own words (see `validation.py`)."""
    kind = PydanticCustomError("refused_key", "{text}", {"text": text})
    return ValidationError.from_exception_data("RolloutSection", [{"type": kind, "loc": (name,), "input": value}])


class LogSection(Section):
    """What a run saves and sends."""

    dir: FilePath = Field(default="runs", description="folder in which each run creates its own folder")
    name: FilePath | None = Field(
        default=None, description="name of the run's folder in `dir`; default: the config's file name and the seed"
    )
    episodes_per_step: NonNegativeInt | None = Field(
        default=None,
        description="training episodes that each process saves in a step, in groups drawn at random; null: all",
    )
    eval_tasks: NonNegativeInt = Field(
        default=200,
        description="held-out tasks played before, during and after training; 0: no evaluation"
        "; if it is not set, at most those that there are",
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
        description="with eval_steps: the saved model is that of the evaluation with the highest reward, that before "
        "training included; false: the last one",
    )
    eval_temperature: NonNegativeFloat | None = Field(
        default=None, description="temperature of held-out episodes; default: rollout.temperature"
    )
    eval_seed: NonNegativeInt = Field(default=0, description="seed of the held-out episodes")
    export: FilePath | None = Field(
        default=None, description="folder to which the trained model and its card are also saved"
    )
    send_images: bool = Field(
        default=False, description="also send images of some episodes to W&B, away from this machine"
    )
    report_to: list[str] = Field(default_factory=list, description="trackers supported by transformers, such as wandb")
