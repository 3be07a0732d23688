"""The reward of a ranked list of diagnoses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viewbox.rewards import CombinedReward, RankingReward
from viewbox.rewards.fields import get_accepted_values, get_field, normalize_label, to_items, to_text

FIELD = "diagnosis"
MAX_DIAGNOSES = 5  # of an answer, the most likely first
LONGEST = 1000  # characters of a name


@dataclass(frozen=True)
class CoverageReward:
    """The share of the gold names that a list of at most `k` names holds; of more than k gold names, k count.

    Names are compared as in `ExactMatchReward`. It does not apply (None) without gold. Range: [0, 1].

    >>> CoverageReward("diagnosis")({"diagnosis": ["Glioma", "abscess"]}, {"diagnosis": ["glioma", "cyst"]})
    0.5
    """

    field: str = FIELD
    k: int = MAX_DIAGNOSES
    name: str = "coverage"

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        golds = {normalize_label(to_text(gold)) for gold in get_accepted_values(get_field(reference, self.field))}
        if not golds:
            return None
        texts = map(to_text, to_items(get_field(answer, self.field), self.k) or ())
        found = golds & {normalize_label(text) for text in texts if len(text) <= LONGEST}
        return len(found) / min(self.k, len(golds))


def build_diagnosis_reward() -> CombinedReward:
    """0.6 for a right first name, 0.4 for the share of the right names in the list."""
    parts = {"top1": (RankingReward(FIELD, k=1), 0.6), "coverage": (CoverageReward(), 0.4)}
    return CombinedReward(parts, name=FIELD)
