"""The sections of a config that say how the policy is trained: train, with those inside it, and lora."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_serializer, model_validator

from .sections import FilePath, NonNegativeFloat, NonNegativeInt, PositiveInt, Probability, Section

Method = Literal["grpo", "sft", "rejection_sampling"]
GRPO_ONLY = (
    "importance_sampling_cap",
    "dynamic_sampling_rounds",
    "micro_batch_tokens",
    "curriculum",
)  # keys of `train`
SUPERVISED = ("sft", "rejection_sampling")
METHODS_OF = {  # keys of `train` that other methods do not read
    **dict.fromkeys(("episodes", "demonstrations"), ("sft",)),
    **dict.fromkeys(("where", "best_of_group"), SUPERVISED),
    "rejection_sampling": ("rejection_sampling",),
    **dict.fromkeys(GRPO_ONLY, ("grpo",)),
}


class Demonstrations(Section):
    """Demonstrations of the environment (its method `demonstration`), recorded for `method: sft`."""

    count: PositiveInt = Field(default=10_000, description="number of episodes")
    habits: dict[str, float] = Field(
        default_factory=dict,
        description="probability of each imperfection of a demonstration (digits: guess, too_far, astray)",
    )


class RejectionSampling(Section):
    """Rounds of `method: rejection_sampling`: play episodes, keep the good ones, train on them."""

    rounds: PositiveInt = Field(default=1, description="rounds; `train.max_steps` is divided among them")
    tasks: PositiveInt = Field(default=256, description="tasks played in a round; the next round takes the next ones")
    samples: PositiveInt = Field(default=8, description="episodes of each task in a round")


class RewardWeights(Section):
    """The weights of a combined reward from a step on."""

    from_step: NonNegativeInt = Field(description="the first step, counted from 0")
    weights: dict[str, NonNegativeFloat] = Field(description="of all components, by name; they sum to 1")


class Level(Section):
    """A level of a curriculum: settings of the environment."""

    from_step: NonNegativeInt | None = Field(
        default=None, description="the first step of this level; without it, the policy's success decides"
    )
    env: dict[str, Any] = Field(description="settings that replace those of `env`, such as `{difficulty: 0.2}`")


class CurriculumSection(Section):
    """What changes while the policy learns. Held-out tasks are always played as `env` and `reward` say."""

    reward_weights: list[RewardWeights] = Field(
        default=[], description="weights of the reward's components, each from a step on; before, those of `reward`"
    )
    levels: list[Level] = Field(default=[], description="settings of the environment, from easy to hard")
    raise_above: Probability = Field(
        default=0.7, description="the next level begins if the mean reward of `window` steps is above this"
    )
    lower_below: Probability = Field(
        default=0.3, description="the level before is played again if the mean reward of `window` steps is below this"
    )
    window: PositiveInt = Field(default=5, description="steps whose mean reward decides on the level")

    @property
    def is_scheduled(self) -> bool:
        """Whether the steps decide on the level, not the policy's success."""
        return any(level.from_step is not None for level in self.levels)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.levels and not self.reward_weights:
            raise ValueError("is empty; allowed: reward_weights, levels, or both")
        if self.lower_below >= self.raise_above:
            raise ValueError("lower_below must be less than raise_above")
        if self.is_scheduled and any(level.from_step is None for level in self.levels):
            raise ValueError("levels: from_step must be in all of them or in none")
        for name, steps in (
            ("levels", [level.from_step or 0 for level in self.levels] if self.is_scheduled else []),
            ("reward_weights", [weights.from_step for weights in self.reward_weights]),
        ):
            if steps != sorted(set(steps)):
                raise ValueError(f"{name}: from_step must grow; given: {', '.join(map(str, steps))}")
        if self.is_scheduled and self.levels[0].from_step:
            raise ValueError(f"levels: the first one must begin at step 0; given: {self.levels[0].from_step}")
        return self


class TrainSection(BaseModel):
    """How the policy is trained. All other keys are arguments of `GRPOConfig` (grpo) or `TrainingArguments` (other)."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    method: Method = Field(
        default="grpo",
        description="grpo: reinforcement learning; sft: supervised learning from saved or scripted episodes; "
        "rejection_sampling: supervised learning from the policy's own best episodes",
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
    importance_sampling_cap: Annotated[float, Field(ge=1, strict=True)] | None = Field(
        default=2.0,
        description="grpo: largest importance weight of a token if a generation serves several updates or comes from a "
        "server (truncated importance sampling); null: no importance sampling",
    )
    dynamic_sampling_rounds: NonNegativeInt = Field(
        default=0, description="grpo: rounds in which groups of equal rewards are replaced by groups of other tasks"
    )
    micro_batch_tokens: PositiveInt | None = Field(
        default=None,
        description="grpo: maximum tokens of one forward and backward pass; default: the whole device batch",
    )

    curriculum: CurriculumSection | None = Field(
        default=None, description="grpo: reward weights and environment settings that change while the policy learns"
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
