"""Rewards: pure functions of (answer, reference) that return a score in [0, 1], or None if they do not apply.

They read the parsed and validated final answer, never prose. They never raise and are always finite, whatever the
model wrote. `build` makes one from YAML, `CombinedReward` combines several, `explain_score` gives the reasons of a
score.
"""

from .brier import BrierReward
from .combined import CombinedReward, to_combined
from .declare import AnyReward, Component, EpisodeReward, Reward, RewardSpec, build, register_reward
from .episode import FormatReward, ToolUseReward
from .evidence import EvidenceReward
from .exact_match import ExactMatchReward
from .explain import check_rewards, explain_reward, explain_score
from .fields import get_field
from .iou import IoUReward, compute_iou
from .lists import LabelSetF1Reward, RankingReward
from .seen import SeenReward
from .token_f1 import TokenF1Reward

__all__ = [
    "AnyReward", "BrierReward", "CombinedReward", "Component", "EpisodeReward", "EvidenceReward",
    "ExactMatchReward", "FormatReward", "IoUReward", "LabelSetF1Reward", "RankingReward", "Reward", "RewardSpec",
    "SeenReward", "TokenF1Reward", "ToolUseReward", "build", "check_rewards", "compute_iou", "explain_reward",
    "explain_score", "get_field", "register_reward", "to_combined",
]  # fmt: skip
