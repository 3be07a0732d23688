"""Compares the set of labels in the answer with the gold's: findings, organs, multiple choices."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from ..errors import ConfigError
from .declare import Aliases, AnswerField, ItemKey, ReferenceField, RewardName, register_reward
from .exact_match import build_spellings
from .fields import get_field, list_golds, read_gold_label, read_label, to_items
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

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        answered, golds = self._read_label_sets(answer, reference)
        if answered is None or golds is None:
            return 0.0
        if not answered or not golds:
            return 1.0 if not answered and not golds else 0.0
        if len(answered) > 4 * len(golds) + _EXTRA_LABELS:
            return 0.0
        contradicted = _find_contradicted(answered) - _find_contradicted(golds)
        found = (answered & golds) - contradicted - {""}  # "" is an item without text, which equals nothing
        return 2 * len(found) / (len(answered) + len(golds))

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        """Return why the answer got its score, in a sentence."""
        answered, golds = self._read_label_sets(answer, reference)
        if answered is None or golds is None:
            return f"{self.field}: the {'answer' if answered is None else 'reference'} does not hold a list of labels"
        contradicted = _find_contradicted(answered) - _find_contradicted(golds)
        found = (answered & golds) - contradicted - {""}
        parts = [f"{self.field}: {len(found)} of {len(golds)} gold labels found"]
        for what, labels in (
            ("missing", golds - answered),
            ("wrong", answered - golds),
            ("both affirmed and denied", contradicted & golds),
        ):
            if labels:
                listed = ", ".join(sorted(label or "(no text)" for label in labels))
                parts.append(f"{what}: {listed if len(listed) < 200 else listed[:200] + '…'}")
        return "; ".join(parts)

    def _read_label_sets(
        self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]
    ) -> tuple[set[str] | None, set[str] | None]:
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
    return {
        label for (words, denied), same in forms.items() if words and (words, not denied) in forms for label in same
    }


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
