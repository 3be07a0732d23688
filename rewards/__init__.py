"""Rewards: pure functions of (answer, reference) with a number in [0, 1], or None where they do not apply.

They read the parsed, validated final answer, never prose; they never raise and are always finite, whatever the model
said. `build` makes one from YAML.
"""

from viewbox.rewards.base import EpisodeReward, Reward, lookup
from viewbox.rewards.boxes import IoUReward, iou
from viewbox.rewards.combined import CombinedReward, guarded
from viewbox.rewards.exact import ExactMatchReward
from viewbox.rewards.spec import RewardSpec, build
from viewbox.rewards.tokens import TokenF1Reward

__all__ = [
    "CombinedReward",
    "EpisodeReward",
    "ExactMatchReward",
    "IoUReward",
    "Reward",
    "RewardSpec",
    "TokenF1Reward",
    "build",
    "guarded",
    "iou",
    "lookup",
]
