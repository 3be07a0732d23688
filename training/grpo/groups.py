"""What a group of episodes of one task teaches: the advantages within it.

An episode is compared with the others of its task (GRPO, arXiv 2402.03300). If all rewards of a group are the same, its
advantages are zero.
"""

import torch
from trl.trainer.utils import nanstd

SAME_REWARD = 1e-6  # rewards this close are the same, as in frac_reward_zero_std
EPSILON = 1e-4  # added to the deviation, as TRL does


def group_advantages(rewards: torch.Tensor, group_size: int, scale: str) -> torch.Tensor:
    """Return the advantage of every episode: its reward minus the mean of its group, scaled.

    Args:
        rewards: (groups x group_size,); NaN marks an episode that cannot be trained on. It gets an advantage of 0 and
            does not count in its group.
        group_size: the number of episodes of one task, which are adjacent.
        scale: what the difference is divided by. "group": the standard deviation of the group, "batch": that of all
            rewards, "none": nothing (arXiv 2503.20783).

    Returns:
        (groups x group_size,): float, on the device of `rewards`; exactly 0 in a group whose rewards are all the same,
        where the difference from the mean would be a rounding error.

    >>> group_advantages(torch.tensor([1.0, 0.0, 0.5, 0.5]), group_size=2, scale="none")
    tensor([ 0.5000, -0.5000,  0.0000,  0.0000])
    >>> group_advantages(torch.tensor([0.0, 2.0, torch.nan, 4.0]), group_size=4, scale="group")
    tensor([-1.0000,  0.0000,  0.0000,  1.0000])
    """
    grouped = rewards.view(-1, group_size)
    advantages = grouped - torch.nanmean(grouped, dim=1, keepdim=True)
    deviation = nanstd(grouped, dim=1, keepdim=True)
    if scale == "batch" and len(rewards) > 1:
        deviation = nanstd(rewards).expand_as(deviation)
    if scale in ("group", "batch"):
        advantages = advantages / (deviation + EPSILON)
    advantages[find_uniform(grouped)] = 0.0
    return torch.nan_to_num(advantages, nan=0.0).flatten()


def summarize_rewards(rewards: torch.Tensor, group_size: int) -> dict[str, float]:
    """Mean and standard deviation of the rewards, and the share of groups whose rewards are all the same.

    >>> summarize_rewards(torch.tensor([1.0, 0.0, 0.5, 0.5]), group_size=2)["frac_reward_zero_std"]
    0.5
    """
    return {
        "reward": torch.nanmean(rewards).item(),
        "reward_std": nanstd(rewards).item(),
        "frac_reward_zero_std": find_uniform(rewards.view(-1, group_size)).float().mean().item(),
    }


def find_uniform(grouped: torch.Tensor) -> torch.Tensor:
    """Return (groups, …) of (groups, episodes, …): whether all of a group are the same, without its NaNs."""
    highest, lowest = grouped.nan_to_num(nan=-torch.inf).amax(1), grouped.nan_to_num(nan=torch.inf).amin(1)
    return highest - lowest < SAME_REWARD
