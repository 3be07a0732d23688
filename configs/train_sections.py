"""The sections of a config that say how the policy is trained: train, with those inside it, and lora."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator

from .sections import FilePath, NonNegativeInt, PositiveInt, Section

GRPO_ONLY = ("importance_sampling_cap", "micro_batch_tokens", "credit")  # keys of `train`
METHOD_OF = {  # keys of `train` that the other method does not read
    **dict.fromkeys(("episodes", "demonstrations", "where", "best_of_group"), "sft"),
    **dict.fromkeys(GRPO_ONLY, "grpo"),
}
# Keys of `train` that older versions had, and a method, with what to use instead
GONE = {
    "rejection_sampling": "play with `viewbox rollout` and --group 8, keep the good ones with `viewbox export RUN --to "
    "run --where 'reward>=0.8' --best 1 --per-task --out KEPT`, and set train.method: sft and train.episodes: KEPT",
    "curriculum": "use env.name: mixture with weights, or a second run whose model.name is the folder model/ of the "
    "first",
    "informative_weight": "use weigh_values: true, which is a weight of 12",
    "dynamic_sampling_rounds": "leave it out: a group of equal rewards teaches nothing, and stays; verl replaces it "
    "(algorithm.filter_groups)",
}
GONE_DEFAULTS = {"dynamic_sampling_rounds": 0, "informative_weight": 1.0}  # what their runs wrote all the same


def _refuse_gone(method: object) -> object:
    if method == "rejection_sampling":
        raise ValueError(f"cannot be used; {GONE[method]}")
    return method


Method = Annotated[Literal["grpo", "sft"], BeforeValidator(_refuse_gone)]


class Demonstrations(Section):
    """Demonstrations of the environment (its method `demonstration`), recorded for `method: sft`."""

    count: PositiveInt = Field(default=10_000, description="number of episodes")
    habits: dict[str, float] = Field(
        default_factory=dict,
        description="probability of each imperfection of a demonstration (digits: guess, too_far, astray)",
    )


class CreditSection(Section):
    """How rewards become advantages. Other packages add types by entry points of `viewbox.credits`."""

    type: str = Field(
        default="episode",
        description="what is compared within a group. episode: the total, for all tokens alike; components: each "
        "component of the reward, then their weighted sum; turns: for each reply what was earned from it on",
    )


class TrainSection(BaseModel):
    """How the policy is trained."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    method: Method = Field(
        default="grpo",
        description="grpo: reinforcement learning; sft: supervised learning from saved or scripted episodes",
    )
    seed: Annotated[NonNegativeInt, Field(le=2**32 - 1)] = Field(  # NumPy's own seed takes no more
        default=0, description="seed of new weights, the order of tasks and sampling"
    )
    episodes: FilePath | None = Field(
        default=None,
        description="sft: a folder of saved episodes, or conversations (.jsonl, .parquet) as the OpenAI chat interface "
        "writes them",
    )
    demonstrations: Demonstrations | None = Field(
        default=None, description="sft: record demonstrations of the environment"
    )
    where: str | list[str] = Field(
        default=[],
        description="sft: conditions that an episode must meet, as in `viewbox score --where`, such as "
        "`scores.total>=0.9`; default: every episode that no fault ended",
    )
    best_of_group: bool = Field(
        default=False, description="sft: keep one episode of each task, the one with the highest score"
    )
    weigh_values: bool = Field(
        default=False,
        description="sft: each JSON value of a reply counts as twelve tokens, which helps a model built from scratch",
    )
    importance_sampling_cap: Annotated[float, Field(ge=1, strict=True)] | None = Field(
        default=2.0,
        description="grpo: largest importance weight of a token if a generation serves several updates or comes from a "
        "server (truncated importance sampling); null: no importance sampling",
    )
    micro_batch_tokens: PositiveInt | None = Field(
        default=None,
        description="grpo: maximum tokens of one forward and backward pass; default: the whole device batch",
    )
    credit: CreditSection = Field(default=CreditSection(), description="grpo: how rewards become advantages")

    @model_validator(mode="before")
    @classmethod
    def _drop_gone(cls, given: Any) -> Any:
        """Leave out what a config of an older version says without asking for anything."""
        if not isinstance(given, dict):
            return given
        return {key: value for key, value in given.items() if str(value) != str(GONE_DEFAULTS.get(key, ...))}

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def filters(self) -> tuple[str, ...]:
        return (self.where,) if isinstance(self.where, str) else tuple(self.where)

    @model_serializer(mode="wrap")
    def _serialize(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Leave out keys that the method does not use; keep a null that differs from the default."""
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
    quantize: Literal["4bit"] | None = Field(
        default=None,
        description="4bit: the frozen weights of the language layers take 4 bits (QLoRA), for a GPU of 24 GB; needs "
        "`pip install 'viewbox[qlora]'`",
    )
