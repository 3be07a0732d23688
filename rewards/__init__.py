"""Rewards: pure functions of (answer, reference) that return a score in [0, 1], or None if they do not apply.

They read the parsed and validated final answer, never prose. They never raise and are always finite, whatever the
model wrote. `build` makes one from YAML, `CombinedReward` combines several, `explain_score` gives the reasons of a
score.
"""

from .base import AnyReward, EpisodeReward, Reward
from .brier import BrierReward
from .combined import CombinedReward, Component, to_combined
from .declare import register_reward
from .episode import FormatReward, ToolUseReward
from .exact_match import ExactMatchReward
from .explain import check_rewards, explain_reward, explain_score
from .fields import get_field
from .iou import IoUReward, compute_iou
from .label_set_f1 import LabelSetF1Reward
from .ranking import RankingReward
from .spec import RewardSpec, build
from .token_f1 import TokenF1Reward

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
