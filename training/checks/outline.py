"""What a run will train, on what and how: the lines of a dry run, and the first lines of a run."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...configs.schema import Config
from ...configs.sections import SamplingParams
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...engines.table import get_server_engine
from ...errors import ConfigError
from ...records import Task
from ..precision import build_model, describe_precision, list_untrained

MAX_COMPARED = 5000  # tasks of each environment
MAX_SECONDS = 2.0  # in which an environment's tasks are made; fewer are compared if each takes long to draw


@dataclass(frozen=True)
class Parameters:
    """The parameters of a run.

    Args:
        adapted: the number of adapted layers in each part of the model ("language", "vision").
        untrained: the parts in which nothing is trained.
    """

    total: int
    trained: int
    adapted: dict[str, int]
    untrained: Sequence[str] = ()

    def describe(self) -> str:
        """Return the parameters in one line.

        >>> Parameters(4_000_000, 40_000, {"language": 14, "vision": 2}).describe()
        '0.0 M of 4.0 M parameters: adapters on 14 language and 2 vision layers'
        """
        share = f"{self.trained / 1e6:.1f} M of {self.total / 1e6:.1f} M parameters"
        parts, rest = (" and ".join(f"{n} {name}" for name, n in self.adapted.items())), ", ".join(self.untrained)
        if self.adapted:
            return f"{share}: adapters on {parts} layers{'; none in ' if rest else ''}{rest}"
        return f"{share}; frozen: {rest}" if rest else f"all {self.total / 1e6:.1f} M parameters"


def count_parameters(model_config: Any, config: Config) -> Parameters:
    """Return the parameters of a run, from the shapes alone: no weights are made.

    Raises:
        ConfigError: `lora.target_modules` names no layer of the model, or a frozen one.
    """
    from ...engines.hf.architectures import get_architecture

    model = build_model(config, model_config)
    sizes = {name: weight.numel() for name, weight in model.named_parameters() if ".lora_" not in name}
    total = sum(sizes.values())
    names = {name.partition(".lora_")[0] for name, _ in model.named_parameters() if ".lora_" in name}
    tower = set(get_architecture(model_config).get_vision_tower(model).modules())
    parts = Counter(sorted("vision" if model.get_submodule(name) in tower else "language" for name in names))
    trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return Parameters(total, trained, dict(parts), list_untrained(model))


def outline_run(config: Config, env: BaseMultiTurnEnv, held_out: BaseMultiTurnEnv, arguments: Any) -> dict[str, str]:
    """Return what is known of a run without its model, by topic.

    Raises:
        ConfigError: no step would be trained.
    """
    count = len(to_sequence(env.tasks, env.name))
    lines = {}
    if config.train.method == "grpo":
        lines["plan"] = plan_steps(count, arguments)
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
    """Return a warning if a GRPO run samples with filters: the loss uses log-probs of the unfiltered distribution.

    >>> print(*describe_filters(SamplingParams(top_p=0.9), "grpo"))
    rollout.top_p = 0.9: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one
    """
    filters = sampling.list_filters()
    if not filters or method != "grpo":
        return []
    settings = ", ".join(f"rollout.{name} = {value}" for name, value in filters.items())
    return [f"{settings}: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one"]


def plan_steps(num_tasks: int, arguments: Any) -> str:
    """Return the steps of a GRPO run with these arguments (`GRPOConfig`), in one line.

    Raises:
        ConfigError: there are fewer tasks than one generation needs, so that no step would be trained.
    """
    episodes, group = arguments.generation_batch_size, arguments.num_generations
    generations = num_tasks // (episodes // group)
    if generations == 0:
        raise ConfigError(
            f"env: has {num_tasks} tasks, fewer than the {episodes // group} of one generation ({episodes} episodes in "
            f"groups of {group}): no step would be trained; allowed: more tasks, or a smaller "
            "train.per_device_train_batch_size",
            key="train.per_device_train_batch_size",
        )
    updates = arguments.steps_per_generation * arguments.num_iterations / arguments.gradient_accumulation_steps
    an_epoch = generations * updates  # steps until every task was played; those that fill no generation are left out
    steps = arguments.max_steps if arguments.max_steps > 0 else math.ceil(arguments.num_train_epochs * an_epoch)
    processes = max(1, episodes // (arguments.per_device_train_batch_size * arguments.steps_per_generation))
    return (
        f"{processes} process{'es' * (processes > 1)}, {num_tasks} tasks; {episodes} episodes ({episodes // group} "
        f"tasks x {group}) for {updates:g} update{'s' * (updates != 1)}; {an_epoch:g} steps an epoch, {steps} steps "
        f"({steps / an_epoch:.2g} epochs)"
    )


def describe_overlap(config: Config, env: BaseMultiTurnEnv, held_out: BaseMultiTurnEnv) -> str | None:
    """Return a warning if tasks that measure the policy are also trained on; None if there are none, or nothing is
    measured.

    Only the first tasks of each environment are compared, as many as are made in `MAX_SECONDS`, and tasks are equal if
    all their fields are.
    """
    count = min(config.log.eval_tasks, MAX_COMPARED)
    if not count:
        return None
    trained = {task.id: task for task in make_tasks(env, MAX_COMPARED)}
    measured = list(make_tasks(held_out, count))
    same = sum(trained.get(task.id) == task for task in measured)
    if not same:
        return None
    way_out = "env.eval is empty: set it, e.g. {split: test}" if not config.env.eval else "see env.eval"
    return (
        f"warning: {same} of {len(measured)} held-out tasks are also trained on, so their figures do not show what the "
        f"policy does on new tasks; {way_out}, or set log.eval_tasks: 0"
    )


def make_tasks(env: BaseMultiTurnEnv, count: int | None = None) -> Iterator[Task]:
    """Yield the first `count` tasks (None: all), or fewer once the time is over."""
    end = time.monotonic() + MAX_SECONDS
    for task in islice(to_sequence(env.tasks, env.name), count):
        yield task
        if time.monotonic() > end:
            return
