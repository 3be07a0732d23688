"""Whether the answer's stated confidence matches how often it is right."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any

from pydantic import Field, SkipValidation

from ..errors import ConfigError
from ..utils.values import to_number
from .combined import CombinedReward
from .declare import Name, Reward, RewardName, get_reward_name, register_reward
from .exact_match import ExactMatchReward
from .fields import Answer, Reference, get_field, has_content, quote_value, read_confidence


@register_reward("brier")
class BrierReward:
    """Correctness minus the Brier loss of the stated confidence: (1 + y - (c - y)²) / 2.

    y is the score of the reward `of` (default: an exact match) and c the answer's confidence, a number in [0, `scale`],
    divided by `scale`. The Brier score (1950) is proper: it is best to state the true probability p. The expected
    reward is then (1 + p²) / 2, so being right more often always pays more (RLCR, Damani et al. 2025); the plain
    1 - (c - y)² pays 1.0 for nonsense with confidence 0. The reward is 0 if the confidence is missing or out of range,
    or if there is no answer: the fields that `of` reads are missing or empty (for a function: all but the confidence).

    Range: right and certain 1.0; right at confidence 0, or wrong at 0, 0.5; wrong and certain 0.0. `None` if `of`
    does not apply.

    >>> reward = BrierReward(ExactMatchReward("label"))
    >>> [reward({"label": label, "confidence": c}, {"label": "cyst"}) for label, c in (("cyst", 1), ("nodule", 1))]
    [1.0, 0.0]
    >>> reward({"label": "cyst", "confidence": 0.5}, {"label": "cyst"}), reward({"label": "cyst"}, {"label": "cyst"})
    (0.875, 0.0)
    """

    of: Annotated[
        SkipValidation[Reward], Field(description="the reward that says what is right; default: `{type: exact_match}`")
    ] = field(default_factory=ExactMatchReward)
    confidence_field: Annotated[Name, Field(description="the answer's field with its confidence")] = "confidence"
    scale: Annotated[float, Field(gt=0, description="the greatest confidence")] = 1.0
    name: RewardName = "brier"

    def __post_init__(self) -> None:
        if not callable(self.of):
            raise ConfigError(f"of = {self.of!r:.80}; allowed: a reward of (answer, reference)", key="of")

    def __call__(self, answer: Answer, reference: Reference) -> float | None:
        right = to_number(self.of(answer, reference))
        if right is None:
            return None
        if not isinstance(right, int | float) or not 0 <= right <= 1:
            raise ValueError(f"of returned {right!r:.80}; allowed: None or a number in [0, 1]")
        confidence = self._read_confidence(answer)
        return 0.0 if confidence is None else (1 + right - (confidence - right) ** 2) / 2

    def explain(self, answer: Answer, reference: Reference) -> str:
        """Return why the answer got its score, in a sentence."""
        stated = self._read_confidence(answer)
        if stated is None:
            value = quote_value(get_field(answer, self.confidence_field))
            return f"{self.confidence_field}: {value} is not a number from 0 to {self.scale:g}, or there is no answer"
        right = self.of(answer, reference) or 0.0
        stated *= self.scale
        return f"{self.confidence_field} {stated:g} of {self.scale:g}, {get_reward_name(self.of)} scores {right:.3g}"

    def _read_confidence(self, answer: Answer) -> float | None:
        """Return the confidence in [0, 1], if the answer fills the field that `of` reads."""
        confidence = self.confidence_field.split(".")[0]
        others = [answer[key] for key in answer if key != confidence] if isinstance(answer, Mapping) else []
        read = [get_field(answer, field) for field in _list_fields(self.of)] or others
        return read_confidence(get_field(answer, self.confidence_field), self.scale) if has_content(read) else None


def _list_fields(reward: Any) -> list[str]:
    """Return the fields of the answer that a reward reads, those of its components included; [] if they are unknown."""
    if isinstance(reward, CombinedReward):
        listed = [_list_fields(component.reward) for component in reward.components.values()]
        return [] if [] in listed else [field for fields in listed for field in fields]
    field = getattr(reward, "field", None)
    return [field] if isinstance(field, str) else []
