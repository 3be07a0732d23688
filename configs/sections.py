"""The sections of a config that say what is played, by whom, how, and what is kept: model, env, rollout, log."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, model_validator

# strict: `true` is not the number 1, and "7" is text
PositiveInt = Annotated[int, Field(ge=1, strict=True)]
Width = Annotated[int, Field(ge=16, strict=True)]
NonNegativeInt = Annotated[int, Field(ge=0, strict=True)]
PositiveFloat = Annotated[float, Field(gt=0, strict=True)]
NonNegativeFloat = Annotated[float, Field(ge=0, strict=True)]
Probability = Annotated[float, Field(ge=0, le=1, strict=True)]
Bytes = Annotated[ByteSize, Field(ge=1024)]
MAX_THREADS = 1024


class Section(BaseModel):
    """A section of a config; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


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

    `top_p`: nucleus sampling (Holtzman et al. 2020, arXiv 1904.09751).
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
    repetition_penalty: PositiveFloat = Field(
        default=1.0, description="above 1: tokens already in the episode become less likely; 1: no penalty"
    )
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="strings that end a reply; the engine keeps the string in the reply, endpoints remove it",
    )


class RolloutSection(SamplingParams):
    """How episodes are generated, by the local engine or by a server, which decides the settings of engines itself."""

    engine: Literal["hf", "vllm"] = Field(
        default="hf", description="what samples the replies: hf: viewbox's own engine in this process; vllm: a server"
    )
    url: str | None = Field(
        default=None,
        description="with engine vllm: the server, such as http://127.0.0.1:8000; default: viewbox starts one on this "
        "machine, and ends it",
    )
    gpu_memory: Annotated[float, Field(gt=0, le=1, strict=True)] | None = Field(
        default=None,
        description="with engine vllm and no url: the share of the GPU's memory for the server; default: 0.9, and 0.4 "
        "beside a trainer",
    )
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
    cuda_graphs: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="replay decode steps as CUDA graphs: fewer launches; the first replays are compared with plain "
        "steps, and after any problem all steps are plain ones. Never run on a GPU so far",
    )
    timeout: PositiveFloat | None = Field(default=None, description="maximum seconds of an episode; default: no limit")

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.gpu_memory is not None and (self.engine != "vllm" or self.url is not None):
            raise ValueError(
                f"gpu_memory = {self.gpu_memory:g} is read with engine: vllm and no url only; the server at a url was "
                "given its share when it was started"
            )
        if self.engine != "vllm" and self.url is not None:
            raise ValueError(f"url = {self.url!r} is read with engine: vllm only; the engine is {self.engine!r}")
        return self

    @property
    def sampling(self) -> SamplingParams:
        """The sampling settings alone; its `model_fields_set` are those that this section was given.

        >>> RolloutSection(top_k=5, slots=3).sampling.model_fields_set
        {'top_k'}
        """
        names = SamplingParams.model_fields.keys() & self.model_fields_set
        return SamplingParams(**{name: getattr(self, name) for name in names})


class LogSection(Section):
    """What a run saves and sends."""

    dir: str = Field(default="runs", description="folder in which each run creates its own folder")
    name: str | None = Field(
        default=None, description="name of the run's folder in `dir`; default: the config's file name and the seed"
    )
    episodes_per_step: NonNegativeInt | None = Field(
        default=None,
        description="training episodes that each process saves in a step, in groups drawn at random; null: all",
    )
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
        description="with eval_steps: the saved model is that of the evaluation with the highest reward, that before "
        "training included; false: the last one",
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
