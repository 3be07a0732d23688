"""Whether the answer equals the gold: for labels, choices and numbers."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from ..utils.values import normalize_label, to_finite_float, to_text
from .declare import Aliases, AnswerField, NonNegative, ReferenceField, RewardName, register_reward
from .fields import MAX_TEXT, get_accepted_values, get_field, quote_value

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII)
_LONGEST_NUMBER = 64  # characters


@register_reward("exact_match")
class ExactMatchReward:
    """1 if the answer's field equals the reference's field after normalization, else 0.

    Both sides are compared without case, compatibility forms (NFKC), invisible characters, runs of whitespace and
    outer punctuation (the normalization of SQuAD, Rajpurkar et al. 2016, but articles stay). The gold is a string,
    number or bool, or a list of accepted values; `aliases` gives further spellings of a gold. A numeric gold is also
    compared as a number: |answer - gold| <= `tolerance` (0 if None). With a tolerance, so is a gold string that holds
    a number. The answer must be a scalar: a list of labels scores 0, and so does a missing or empty answer, even if
    the gold is missing. An answer longer than four times the longest accepted text plus 256 characters scores 0
    without being compared; so does any text of more than 16,384 characters. The whole text must match, so a negated or
    hedged gold, or a list of options, scores 0; look-alike letters of another script are different letters.

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

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        golds = get_accepted_values(get_field(reference, self.reference_field or self.field))
        accepted = {normalize_label(to_text(gold)) for gold in golds}
        if self._spellings:
            accepted = accepted.union(*(self._spellings.get(gold, ()) for gold in accepted))
        raw = to_text(get_field(answer, self.field))
        if len(raw) > min(MAX_TEXT, 4 * max(map(len, accepted), default=0) + 256):
            return 0.0
        label = normalize_label(raw)
        if not label:
            return 0.0
        return 1.0 if label in accepted or any(self._is_near(label, gold) for gold in golds) else 0.0

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        """Return why the answer got its score, in a sentence."""
        value, gold = get_field(answer, self.field), get_field(reference, self.reference_field or self.field)
        if self(answer, reference):
            return f"{self.field}: {quote_value(value)} is {quote_value(gold)}"
        within = f" (± {self.tolerance:g})" if self.tolerance else ""
        return f"{self.field}: {quote_value(value)} is not {quote_value(gold)}{within}"

    def _is_near(self, label: str, gold: Any) -> bool:
        if isinstance(gold, str) and self.tolerance is None:
            return False
        number, gold_number = _parse_number(label), _parse_number(normalize_label(to_text(gold)))
        if number is None or gold_number is None:
            return False
        distance, tolerance = abs(number - gold_number), self.tolerance or 0
        return distance <= tolerance or math.isclose(distance, tolerance, rel_tol=1e-9)  # 1.1 is within 0.1 of 1.0


def build_spellings(aliases: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """Return the other spellings of every gold, both sides as `normalize_label` gives them.

    >>> build_spellings({"Seven": ["7", "VII"]}) == {"seven": frozenset({"7", "vii"})}
    True
    """
    found: dict[str, frozenset[str]] = {}
    for gold, spellings in aliases.items():
        key = normalize_label(gold)
        found[key] = found.get(key, frozenset()) | {normalize_label(to_text(spelling)) for spelling in spellings}
    return found


def _parse_number(text: str) -> int | float | None:
    """Parse a text that is one number. Integers stay exact. Commas are rejected, because 1,5 may mean 1.5."""
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    return to_finite_float(float(text)) if set(text) & set(".e") else int(text)
