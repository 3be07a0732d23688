"""Rewards: pure functions of (answer, reference) that return a score in [0, 1], or None if they do not apply.

They read the parsed and validated final answer, never prose. They never raise and are always finite, whatever the
model wrote. `build` makes one from YAML, `CombinedReward` combines several, `explain_score` gives the reasons of a
score.
"""

from .brier import BrierReward as BrierReward
from .combined import CombinedReward as CombinedReward
from .combined import to_combined as to_combined
from .declare import AnyReward as AnyReward
from .declare import Component as Component
from .declare import EpisodeReward as EpisodeReward
from .declare import Reward as Reward
from .declare import RewardSpec as RewardSpec
from .declare import build as build
from .declare import register_reward as register_reward
from .episode import FormatReward as FormatReward
from .episode import ToolUseReward as ToolUseReward
from .evidence import EvidenceReward as EvidenceReward
from .exact_match import ExactMatchReward as ExactMatchReward
from .explain import check_rewards as check_rewards
from .explain import explain_reward as explain_reward
from .explain import explain_score as explain_score
from .fields import get_field as get_field
from .iou import IoUReward as IoUReward
from .iou import compute_iou as compute_iou
from .lists import LabelSetF1Reward as LabelSetF1Reward
from .lists import RankingReward as RankingReward
from .seen import SeenReward as SeenReward
from .token_f1 import TokenF1Reward as TokenF1Reward
