"""The figures of a step, as means over processes, until they become a line of `metrics.jsonl`."""

import math
from collections.abc import Mapping, Sequence

import torch
from accelerate import Accelerator

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.records import Episode
from viewbox.rollouts.scoring.metrics import compute_environment_metrics


class Figures:
    """Writes into the lists of values that TRL averages and logs.

    Args:
        accelerator: the trainer's.
        values: by mode ("train" or "eval") and name.
    """

    def __init__(self, accelerator: Accelerator, values: Mapping[str, dict[str, list[float]]]) -> None:
        self.accelerator, self.values = accelerator, values

    def add(self, mode: str, figures: Mapping[str, float]) -> None:
        """Adds figures that are the same on all processes."""
        for name, value in figures.items():
            self.values[mode][name].append(value)

    def add_mean(self, mode: str, name: str, value: float, times: int = 1) -> None:
        """Adds `times` the mean over processes. All of them must call it; a process without a value gives NaN."""
        mean = self.accelerator.gather(torch.tensor([float(value)], device=self.accelerator.device)).nanmean().item()
        if not math.isnan(mean):
            self.add(mode, {name: mean * times})

    def add_episodes(
        self, mode: str, episodes: Sequence[Episode], rewards: torch.Tensor, env: BaseMultiTurnEnv
    ) -> None:
        """Adds every component, end reason and rate of a batch; NaN among `rewards` (B,) is a dropped episode."""
        for name, value in compute_environment_metrics(episodes, env).items():
            if name != "reward":
                self.add_mean(mode, name, value)
        self.add_mean(mode, "episodes/dropped", float(rewards.isnan().sum()))
