"""Rewards: pure functions of (answer, reference) with a number in [0, 1], or None where they do not apply.

They read the parsed, validated final answer, never prose; they never raise and are always finite, whatever the model
said. `build` makes one from YAML.
"""

from viewbox.rewards.base import EpisodeReward, Reward, lookup
from viewbox.rewards.brier import BrierReward
from viewbox.rewards.check import check_rewards
from viewbox.rewards.combined import CombinedReward, Part, guarded
from viewbox.rewards.episode import FormatReward, ToolUseReward
from viewbox.rewards.exact_match import ExactMatchReward
from viewbox.rewards.explain import explained
from viewbox.rewards.iou import IoUReward, iou
from viewbox.rewards.label_set_f1 import LabelSetF1Reward
from viewbox.rewards.ranking import RankingReward
from viewbox.rewards.spec import RewardSpec, build
from viewbox.rewards.token_f1 import TokenF1Reward

__all__ = [
    "BrierReward",
    "CombinedReward",
    "EpisodeReward",
    "ExactMatchReward",
    "FormatReward",
    "IoUReward",
    "LabelSetF1Reward",
    "Part",
    "RankingReward",
    "Reward",
    "RewardSpec",
    "TokenF1Reward",
    "ToolUseReward",
    "build",
    "check_rewards",
    "explained",
    "guarded",
    "iou",
    "lookup",
]
