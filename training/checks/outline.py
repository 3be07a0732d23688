"""What a run will train, on what and how: the lines of a dry run, and the first lines of a run."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ...configs.schema import Config
from ...configs.sections import SamplingParams
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...engines.table import get_server_engine
from ..precision import build_model, describe_precision
from .plan import build_plan, describe_overlap


@dataclass(frozen=True)
class Parameters:
    """The parameters of a run.

    Args:
        total: of the model.
        trained: of the model, or of its adapters.
        adapted: the number of adapted layers in each part of the model ("language", "vision").
    """

    total: int
    trained: int
    adapted: dict[str, int]

    def describe(self) -> str:
        """The parameters in one line.

        >>> Parameters(4_000_000, 40_000, {"language": 14, "vision": 2}).describe()
        '0.0 M of 4.0 M parameters: adapters on 14 language and 2 vision layers'
        """
        share = f"{self.trained / 1e6:.1f} M of {self.total / 1e6:.1f} M parameters"
        parts = " and ".join(f"{count} {name}" for name, count in self.adapted.items())
        return f"{share}: adapters on {parts} layers" if self.adapted else f"all {self.total / 1e6:.1f} M parameters"


def count_parameters(model_config: Any, config: Config) -> Parameters:
    """The parameters of a run, from the shapes alone: no weights are made.

    Raises:
        ConfigError: `lora.target_modules` names no layer of the model.
    """
    model = build_model(config, model_config)
    sizes = {name: weight.numel() for name, weight in model.named_parameters() if ".lora_" not in name}
    total = sum(sizes.values())
    if config.lora is None:
        return Parameters(total, total, {})
    names = {name.partition(".lora_")[0] for name, _ in model.named_parameters() if ".lora_" in name}
    parts = Counter("vision" if ".visual." in name else "language" for name in sorted(names))
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return Parameters(total, trained, dict(parts))


def outline_run(config: Config, env: BaseMultiTurnEnv, held_out: BaseMultiTurnEnv, arguments: Any) -> dict[str, str]:
    """What is known of a run without its model, by topic.

    Raises:
        ConfigError: no step would be trained.
    """
    count = len(to_sequence(env.tasks, env.name))
    lines = {}
    if config.train.method == "grpo":
        lines["plan"] = build_plan(count, arguments).describe()
    else:
        batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
        steps = f"{arguments.max_steps} steps" if arguments.max_steps > 0 else f"{arguments.num_train_epochs:g} epochs"
        processes = f"{arguments.world_size} process{'es' * (arguments.world_size > 1)}"
        lines["plan"] = f"{processes}, {count} tasks; {batch * arguments.world_size} episodes a step, {steps}"
    engine = get_server_engine(config.rollout.engine)
    if engine is not None:
        lines["episodes"] = f"sampled by {engine.describe(config.rollout)}"
    lines["weights"] = describe_precision(config)
    lines["learning rate"] = f"{arguments.learning_rate:g}" + (
        "" if "learning_rate" in config.train.arguments else " (default for what is trained)"
    )
    overlap = describe_overlap(config, env, held_out)
    return lines | ({"held out": overlap} if overlap else {})


def describe_filters(sampling: SamplingParams, method: str) -> list[str]:
    """A warning if a GRPO run samples with filters: the loss uses log-probs of the unfiltered distribution.

    >>> print(*describe_filters(SamplingParams(top_p=0.9), "grpo"))
    rollout.top_p = 0.9: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one
    """
    filters = sampling.list_filters()
    if not filters or method != "grpo":
        return []
    settings = ", ".join(f"rollout.{name} = {value}" for name, value in filters.items())
    return [f"{settings}: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one"]
