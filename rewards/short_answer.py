"""Scores the short answer to a question: exactly if the question is closed, else by its words."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from ..utils.values import Value, normalize, reaches
from .declare import AnswerField, Name, NonNegative, ReferenceField, RewardName, validated_dataclass
from .exact_match import ExactMatchReward, measure_distance
from .fields import get_accepted_values, get_field
from .token_f1 import TokenF1Reward

MAX_NUMBER = 64  # characters of a number


@validated_dataclass
class ShortAnswerReward:
    """`ExactMatchReward` if the reference's `kind_field` is closed or choice; else the better of it and token F1.

    With a `tolerance`, a number is also right if it differs from a gold number by at most this share of it, as in the
    relaxed accuracy of ChartQA (Masry et al. 2022); 12% is 0.12. `exact` compares every kind exactly. The reward does
    not apply (None) to a task whose reference has no gold.

    >>> reward = ShortAnswerReward(tolerance=0.05)
    >>> reward({"answer": "left lung"}, {"answer": "the left lung", "kind": "open"})
    0.8
    >>> reward({"answer": "104"}, {"answer": 100, "kind": "open"}), reward({"answer": "no"}, {"answer": "yes"})
    (1.0, 0.0)
    """

    field: AnswerField = "answer"
    reference_field: ReferenceField = None
    kind_field: Annotated[Name, Field(description="the reference's field with closed, choice or open")] = "kind"
    tolerance: Annotated[NonNegative, Field(description="share of a gold number by which an answer may differ")] = 0.0
    exact: Annotated[bool, Field(description="every kind is compared exactly")] = False
    name: RewardName = "short_answer"

    @cached_property
    def _exact(self) -> ExactMatchReward:
        return ExactMatchReward(self.field, self.reference_field)

    @cached_property
    def _words(self) -> TokenF1Reward:
        return TokenF1Reward(self.field, self.reference_field)

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        golds = get_accepted_values(get_field(reference, self.reference_field or self.field))
        if not golds:
            return None
        if self._exact(answer, reference) == 1.0 or self._is_near(get_field(answer, self.field), golds):
            return 1.0
        closed = self.exact or get_field(reference, self.kind_field) in ("closed", "choice")
        return 0.0 if closed else self._words(answer, reference)

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        """Return why the answer got its score, in a sentence."""
        exact = self.exact or get_field(reference, self.kind_field) in ("closed", "choice")
        return (self._exact if exact else self._words).explain(answer, reference)

    def _is_near(self, value: Any, golds: list[Any]) -> bool:
        if not self.tolerance or (isinstance(value, str) and len(value) > MAX_NUMBER):
            return False
        said = _to_share(normalize(value))
        for gold in map(_to_share, map(normalize, golds)):
            distance = measure_distance(said, gold)
            if distance is not None and gold.number and reaches(self.tolerance * abs(gold.number), distance):
                return True
        return False


def _to_share(value: Value) -> Value:
    return value._replace(number=value.number / 100, unit="") if value.unit == "%" and value.number else value
