"""Rewards: pure functions of (answer, reference) that return a score in [0, 1], or None if they do not apply.

They read the parsed and validated final answer, never prose. They never raise and are always finite, whatever the
model wrote. `build` makes one from YAML, `CombinedReward` combines several, `explain_score` gives the reasons of a
score.
"""

from viewbox.rewards.base import AnyReward, EpisodeReward, Reward
from viewbox.rewards.brier import BrierReward
from viewbox.rewards.check import check_rewards
from viewbox.rewards.combined import CombinedReward, Component, to_combined
from viewbox.rewards.declare import register_reward
from viewbox.rewards.episode import FormatReward, ToolUseReward
from viewbox.rewards.exact_match import ExactMatchReward
from viewbox.rewards.explain import explain_reward, explain_score
from viewbox.rewards.fields import get_field
from viewbox.rewards.iou import IoUReward, compute_iou
from viewbox.rewards.label_set_f1 import LabelSetF1Reward
from viewbox.rewards.ranking import RankingReward
from viewbox.rewards.spec import RewardSpec, build
from viewbox.rewards.token_f1 import TokenF1Reward

__all__ = [
    "AnyReward",
    "BrierReward",
    "CombinedReward",
    "Component",
    "EpisodeReward",
    "ExactMatchReward",
    "FormatReward",
    "IoUReward",
    "LabelSetF1Reward",
    "RankingReward",
    "Reward",
    "RewardSpec",
    "TokenF1Reward",
    "ToolUseReward",
    "build",
    "check_rewards",
    "compute_iou",
    "explain_reward",
    "explain_score",
    "get_field",
    "register_reward",
    "to_combined",
]
