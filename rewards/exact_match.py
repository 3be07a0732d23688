"""Whether the answer equals the gold: for labels, choices and numbers."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Annotated

from pydantic import Field

from ..utils.values import Value, normalize, reaches, to_text
from .declare import Aliases, AnswerField, NonNegative, ReferenceField, RewardName, register_reward
from .fields import MAX_TEXT, Answer, Reference, get_accepted_values, get_field, quote_value


@register_reward("exact_match")
class ExactMatchReward:
    """1 if the answer's field equals the reference's field after normalization, else 0.

    Both sides are compared in their normal form (`utils/values.py`; after SQuAD, Rajpurkar et al. 2016, but articles
    stay). The gold is a string, number or bool, or a list of accepted values; `aliases` gives further spellings of a
    gold. With a `tolerance`, numbers of one sign and unit are equal if |answer - gold| <= `tolerance`. The whole text
    must match: a negated or hedged gold, or a list, scores 0, and so does a missing or empty answer. An answer longer
    than four times the longest accepted text plus 256 characters, or than 16,384 characters, scores 0 without being
    compared; a longer gold cannot be measured.

    Range: {0.0, 1.0}.

    >>> reward = ExactMatchReward("label", aliases={"seven": ["7"]})
    >>> reward({"label": " Seven. "}, {"label": "seven"}), reward({"label": 7}, {"label": "seven"})
    (1.0, 1.0)
    >>> reward({"label": "not seven"}, {"label": "seven"}), reward({}, {})
    (0.0, 0.0)
    >>> ExactMatchReward("size_mm", tolerance=0.5)({"size_mm": "12.4"}, {"size_mm": 12})
    1.0
    """

    field: AnswerField = "label"
    reference_field: ReferenceField = None
    aliases: Aliases = dataclasses.field(default_factory=dict)
    tolerance: Annotated[
        NonNegative | None, Field(description="largest difference between numbers that counts as equal")
    ] = None
    name: RewardName = "exact_match"

    @cached_property
    def _spellings(self) -> Mapping[str, frozenset[str]]:
        return build_spellings(self.aliases)

    def __call__(self, answer: Answer, reference: Reference) -> float:
        values = get_accepted_values(get_field(reference, self.reference_field or self.field))
        golds = [normalize(value) for value in values]
        accepted: Collection[str] = [gold.text for gold in golds]
        if self._spellings:
            accepted = set(accepted).union(*(self._spellings.get(gold, ()) for gold in accepted))
        raw = to_text(get_field(answer, self.field))
        if len(raw) > 256 and len(raw) > min(MAX_TEXT, 4 * max(map(len, accepted), default=0) + 256):
            return 0.0
        said = normalize(raw)
        if said.text in accepted:
            return 1.0 if said.text else 0.0
        return float(self.tolerance is not None and any(self._is_near(said, gold) for gold in golds))

    def explain(self, answer: Answer, reference: Reference) -> str:
        """Return why the answer got its score, in a sentence."""
        value, gold = get_field(answer, self.field), get_field(reference, self.reference_field or self.field)
        if self(answer, reference):
            return f"{self.field}: {quote_value(value)} is {quote_value(gold)}"
        within = f" (± {self.tolerance:g})" if self.tolerance else ""
        return f"{self.field}: {quote_value(value)} is not {quote_value(gold)}{within}"

    def _is_near(self, said: Value, gold: Value) -> bool:
        distance = None if self.tolerance is None else measure_distance(said, gold)
        return distance is not None and reaches(self.tolerance or 0.0, distance)


def measure_distance(one: Value, other: Value) -> float | None:
    """Return the distance of two numbers; None if one is no number, or has another sign or unit."""
    if one.number is None or other.number is None or one[2:] != other[2:]:
        return None
    return abs(one.number - other.number)


def build_spellings(aliases: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """Return the other spellings of every gold, both sides in their normal form.

    >>> build_spellings({"Seven": ["7", "VII"]}) == {"seven": frozenset({"7", "vii"})}
    True
    """
    known: dict[str, frozenset[str]] = {}
    for gold, spellings in aliases.items():
        key = normalize(gold).text
        known[key] = known.get(key, frozenset()) | {normalize(spelling).text for spelling in spellings}
    return known
