"""Scores a ranked list by the places of its relevant names: for recommendations and differential diagnoses."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import Unmeasurable
from ..utils.values import to_finite_float
from .declare import AnswerField, ItemKey, ReferenceField, RewardName, register_reward
from .fields import get_field, list_golds, quote_value, read_gold_label, read_label, to_items

Rank = Annotated[int, Field(ge=1)]
_MAX_PLACES = 1000  # further places are ignored


@register_reward("ranking")
class RankingReward:
    """The quality of a ranked list, best first, of which the first `k` places count (None: all).

    The answer's field holds a list of names, or of objects with the name under `item_key`. The reference holds the
    relevant names (a scalar or a list: gain 1 each) or a mapping of name to gain > 0. A repeated name, or an item
    without text, takes a place and gains nothing. Names are compared as in `ExactMatchReward`. A gain that is no number
    is `Unmeasurable`.

    - "mrr": 1 / the place of the first relevant name, 0 if there is none (reciprocal rank; Voorhees 1999).
    - "ndcg": DCG / the greatest DCG possible, DCG = Σ gain_i / log2(i + 1) (Järvelin & Kekäläinen 2002).

    If the gold is empty, an empty list scores 1.0 and anything else 0.0. Only the first 1,000 places are read.

    Range: [0, 1].

    >>> RankingReward("choices")({"choices": ["ITK-SNAP", "3D Slicer"]}, {"choices": ["3D Slicer"]})
    0.5
    >>> reward = RankingReward("choices", metric="ndcg", item_key="name")
    >>> round(reward({"choices": [{"name": "b"}, {"name": "a"}]}, {"choices": {"a": 3, "b": 1}}), 3)
    0.797
    """

    field: AnswerField = "choices"
    reference_field: ReferenceField = None
    metric: Annotated[
        Literal["mrr", "ndcg"],
        Field(
            description="`mrr`: 1 / the rank of the first relevant name; `ndcg`: discounted gain over the best possible"
        ),
    ] = "mrr"
    k: Annotated[Rank | None, Field(description="how many ranks count; default: all")] = None
    item_key: ItemKey = None
    name: RewardName = "ranking"

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        ranked, gains = self._read_ranking(answer, reference)
        if ranked is None or gains is None:
            return 0.0
        if not ranked or not gains:
            return 1.0 if not ranked and not gains else 0.0
        earned = _compute_gains(ranked, gains)
        if self.metric == "mrr":
            return next((1 / place for place, gain in enumerate(earned, 1) if gain), 0.0)
        places = min(len(gains), self.k or _MAX_PLACES)
        best = _compute_dcg(sorted(gains.values(), reverse=True)[:places])
        return min(1.0, _compute_dcg(earned) / best)

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        """Return why the answer got its score, in a sentence."""
        ranked, gains = self._read_ranking(answer, reference)
        if ranked is None or gains is None:
            return f"{self.field}: the {'answer' if ranked is None else 'reference'} does not hold a list of names"
        places = [(place, ranked[place - 1]) for place, gain in enumerate(_compute_gains(ranked, gains), 1) if gain]
        listed = ", ".join(f"{quote_value(name)} at {place}" for place, name in places[:10])
        return f"{self.field}: {len(places)} of {len(gains)} relevant names in {len(ranked)} places" + (
            f" ({listed})" if listed else ""
        )

    def _read_ranking(
        self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]
    ) -> tuple[list[str] | None, dict[str, float] | None]:
        """Return the names in the answer's order, and the gain of each relevant name as a share of the greatest
        gain."""
        ranked = to_items(get_field(answer, self.field), self.k or _MAX_PLACES)
        names = None if ranked is None else [read_label(self._get_name(item)) for item in ranked]
        gold = get_field(reference, self.reference_field or self.field)
        if isinstance(gold, Mapping) and self.item_key not in gold:
            listed_gains = {read_gold_label(name): _read_gain(name, gain) for name, gain in gold.items()}
        else:
            listed = list_golds([gold] if isinstance(gold, Mapping) else gold)
            if listed is None:
                return names, None
            listed_gains = {read_gold_label(self._get_name(item)): 1.0 for item in listed}
        relevant = {name: gain for name, gain in listed_gains.items() if gain > 0}
        greatest = max(relevant.values(), default=1.0)
        return names, {name: gain / greatest for name, gain in relevant.items()}

    def _get_name(self, item: Any) -> Any:
        return get_field(item, self.item_key) if isinstance(item, Mapping) and self.item_key is not None else item


def _read_gain(name: object, gain: object) -> float:
    number = to_finite_float(gain)
    if number is None:
        raise Unmeasurable(f"the gain of {quote_value(name)} is {quote_value(gain)}; allowed: a number")
    return number


def _compute_gains(ranked: Sequence[str], gains: Mapping[str, float]) -> list[float]:
    """Return the gain at each place; only the first occurrence of a name earns it."""
    left = dict(gains)
    return [left.pop(name, 0.0) for name in ranked]


def _compute_dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(place + 1) for place, gain in enumerate(gains, 1))
