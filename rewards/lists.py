"""Scores lists of names: sets of labels (findings, organs, multiple choices), and rankings by the places of what is
relevant (recommendations, differential diagnoses).
"""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field

from ..errors import ConfigError, Unmeasurable
from ..utils.values import to_finite_float
from .declare import Aliases, AnswerField, ItemKey, ReferenceField, RewardName, register_reward
from .exact_match import build_spellings
from .fields import Answer, Reference, get_field, list_golds, quote_value, read_gold_label, read_label, to_items
from .negation import FILLER, MARK, NEGATIONS, SEEN, split_words

_EXTRA_LABELS = 100  # an answer may have this many labels beyond four times the gold's
_JOINED = re.compile(r"_|(?<=\w)-(?=\w)(?!free\b|less\b)")  # "no_tumour", "non-tumour"
DENYING = NEGATIONS | {"non", "un"}
_UNNAMED = SEEN | {"positive", "of", "for", "evidence", "sign", "signs", "with", "to"}


@register_reward("label_set_f1")
class LabelSetF1Reward:
    """F1 of two sets of labels: F1 = 2 |A ∩ G| / (|A| + |G|) (the Dice coefficient; Sørensen 1948).

    The field holds a list of scalars, or of objects with the label under `item_key`; a scalar is a list of one label,
    and is never split. Labels are compared as in `ExactMatchReward`; `aliases` gives further spellings. Repeating a
    label changes nothing; an item without text counts as a wrong label (in the gold: `Unmeasurable`). A label that the
    answer lists both affirmed and denied ("tumour", "no tumour") does not match in either form. If the gold is an empty
    list, an empty list scores 1.0 and anything else 0.0. An answer with more than 4 |G| + 100 labels scores 0.

    Range: [0, 1].

    >>> reward = LabelSetF1Reward("findings")
    >>> reward({"findings": ["Effusion", "nodule"]}, {"findings": ["nodule"]})
    0.6666666666666666
    >>> reward({"findings": []}, {"findings": []}), reward({}, {"findings": []})
    (1.0, 0.0)
    """

    field: AnswerField = "labels"
    reference_field: ReferenceField = None
    aliases: Aliases = dataclasses.field(default_factory=dict)
    item_key: ItemKey = None
    name: RewardName = "label_set_f1"

    def __post_init__(self) -> None:
        _ = self._canonical  # raises on contradicting aliases

    @cached_property
    def _canonical(self) -> Mapping[str, str]:
        """The label that each other spelling stands for."""
        same: dict[str, str] = {}
        for gold, spellings in build_spellings(self.aliases).items():
            for other in spellings:
                if same.setdefault(other, gold) != gold:
                    both = " and for ".join(repr(label) for label in sorted((same[other], gold)))
                    raise ConfigError(f"aliases: {other!r} stands for {both}; allowed: one label", key="aliases")
        return same

    def __call__(self, answer: Answer, reference: Reference) -> float:
        answered, golds = self._read_label_sets(answer, reference)
        if answered is None or golds is None:
            return 0.0
        if not answered or not golds:
            return 1.0 if not answered and not golds else 0.0
        if len(answered) > 4 * len(golds) + _EXTRA_LABELS:
            return 0.0
        contradicted = _find_contradicted(answered) - _find_contradicted(golds)
        matched = (answered & golds) - contradicted - {""}  # "" is an item without text, which equals nothing
        return 2 * len(matched) / (len(answered) + len(golds))

    def explain(self, answer: Answer, reference: Reference) -> str:
        """Return why the answer got its score, in a sentence."""
        answered, golds = self._read_label_sets(answer, reference)
        if answered is None or golds is None:
            return f"{self.field}: the {'answer' if answered is None else 'reference'} does not hold a list of labels"
        contradicted = _find_contradicted(answered) - _find_contradicted(golds)
        matched = (answered & golds) - contradicted - {""}
        parts = [f"{self.field}: {len(matched)} of {len(golds)} gold labels found"]
        for what, labels in (
            ("missing", golds - answered),
            ("wrong", answered - golds),
            ("both affirmed and denied", contradicted & golds),
        ):
            if labels:
                listed = ", ".join(sorted(label or "(no text)" for label in labels))
                parts.append(f"{what}: {listed if len(listed) < 200 else listed[:200] + '…'}")
        return "; ".join(parts)

    def _read_label_sets(self, answer: Answer, reference: Reference) -> tuple[set[str] | None, set[str] | None]:
        golds = list_golds(get_field(reference, self.reference_field or self.field))
        max_labels = 4 * len(golds or ()) + _EXTRA_LABELS + 1  # one more than allowed
        answered = self._to_label_set(to_items(get_field(answer, self.field), max_labels), read_label)
        return answered, self._to_label_set(golds, read_gold_label)

    def _to_label_set(self, values: Sequence[Any] | None, read: Callable[[object], str]) -> set[str] | None:
        if values is None:
            return None
        labels = (read(value if self.item_key is None else get_field(value, self.item_key)) for value in values)
        return {self._canonical.get(label, label) for label in labels}


def _find_contradicted(labels: set[str]) -> set[str]:
    """Return the labels whose finding the set both affirms and denies, in both forms."""
    forms: dict[tuple[frozenset[str], bool], set[str]] = {}
    for label in labels:
        forms.setdefault(_read_finding(label), set()).add(label)
    return {name for (words, denied), same in forms.items() if words and (words, not denied) in forms for name in same}


@lru_cache(maxsize=4096)
def _read_finding(label: str) -> tuple[frozenset[str], bool]:
    """Return the words that name the finding of a label, and whether the label denies it.

    >>> _read_finding("no_tumour"), _read_finding("tumour is present")
    ((frozenset({'tumour'}), True), (frozenset({'tumour'}), False))
    """
    text = f"{label[:-1]} (-)" if label.endswith("-") else label.removesuffix("+")
    words, _ = split_words(_JOINED.sub(" ", text))
    denied = any(word.startswith(MARK) for word in words) or any(word in DENYING for word in words)
    named = {word.removeprefix(MARK) for word in words} - DENYING - _UNNAMED
    return frozenset(word for word in named if word and word not in FILLER), denied


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

    def __call__(self, answer: Answer, reference: Reference) -> float:
        ranked, gains = self._read_ranking(answer, reference)
        if ranked is None or gains is None:
            return 0.0
        if not ranked or not gains:
            return 1.0 if not ranked and not gains else 0.0
        earned = _compute_gains(ranked, gains)
        if self.metric == "mrr":
            return next((1 / place for place, gain in enumerate(earned, 1) if gain), 0.0)
        best = _compute_dcg(sorted(gains.values(), reverse=True)[: min(len(gains), self.k or _MAX_PLACES)])
        return min(1.0, _compute_dcg(earned) / best)

    def explain(self, answer: Answer, reference: Reference) -> str:
        """Return why the answer got its score, in a sentence."""
        ranked, gains = self._read_ranking(answer, reference)
        if ranked is None or gains is None:
            return f"{self.field}: the {'answer' if ranked is None else 'reference'} does not hold a list of names"
        places = [(place, ranked[place - 1]) for place, gain in enumerate(_compute_gains(ranked, gains), 1) if gain]
        listed = ", ".join(f"{quote_value(name)} at {place}" for place, name in places[:10])
        shown = f" ({listed})" if listed else ""
        return f"{self.field}: {len(places)} of {len(gains)} relevant names in {len(ranked)} places{shown}"

    def _read_ranking(self, answer: Answer, reference: Reference) -> tuple[list[str] | None, dict[str, float] | None]:
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
        return names, {name: gain / max(relevant.values(), default=1.0) for name, gain in relevant.items()}

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
