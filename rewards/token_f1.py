"""Scores short free text by the words that it shares with the gold."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

from pydantic import Field

from viewbox.rewards.declare import AnswerField, Names, ReferenceField, RewardName, register_reward
from viewbox.rewards.fields import fold_text, get_accepted_values, get_field, quote_value, to_text
from viewbox.rewards.negation import MARK, NEGATIONS, TOKEN, split_words

Switch = Annotated[bool, Field(strict=True)]  # "yes" is not true beside a list of words
_STOP_WORDS = """
    a an and are as at be been by for from has have in into is it its of on or that the their there these this those to
    was were which with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
# A number with its sign and decimals is one token (-2.5 is not 2.5), and so is a contraction (isn't).
_TOKEN = re.compile(TOKEN)
# What folding would lose: a line end closes a sentence, a struck-out word does not count, and these signs mean "not".
_SIGNS = re.compile(r"(?P<struck>~~[^~]+~~)|(?P<line>[\n\r\u2028\u2029])|[¬≠✗✘❌🚫]|(?<![\w!])!(?=\w)")
_EXTRA_LENGTH = 5_000  # an answer may have this many characters beyond four times the gold's


@dataclass(frozen=True)
class _PreparedGold:
    """A prepared gold text: its words, their counts, the words both affirmed and denied, and the ignored words."""

    words: list[str]
    counts: Mapping[str, int]
    both_ways: frozenset[str]
    ignored: frozenset[str]


@register_reward("token_f1")
class TokenF1Reward:
    """F1 of the multisets of lower-cased words: F1 = 2 |A ∩ G| / (|A| + |G|), the best over a list of accepted golds.

    From SQuAD (Rajpurkar et al. 2016); here an empty or missing answer scores 0 even if the gold is empty too.
    Repeating a word does not help, because the intersection counts a word at most as often as the gold has it.
    `stop_words` are left out on both sides: True for a short English list, or your own list. Negations are never left
    out, and a gold that holds only stop words is compared as it is. An answer of more than 5,000 characters plus four
    times the gold's scores 0.

    A denied word matches only a denied word (`negation.py`, after NegEx). So "no tumour" against "tumour" scores 0, and
    "No effusion. Nodule." is not "Effusion. No nodule.". The negation itself still counts as a word. A word that one
    side both affirms and denies is worth half. `negation_scope=False` compares bare words, as SQuAD does. Apart from
    that, the order of the words does not matter; for labels use `ExactMatchReward`.

    Range: [0, 1].

    >>> reward = TokenF1Reward("report", stop_words=True)
    >>> reward({"report": "A nodule in the left lung."}, {"report": "left lung nodule"})
    1.0
    >>> [reward({"report": text}, {"report": "tumour"}) for text in ("no tumour", "tumour is absent", "large tumour")]
    [0.0, 0.0, 0.6666666666666666]
    >>> reward({"report": "Large tumour, no oedema"}, {"report": "tumour without oedema"})
    0.5714285714285714
    """

    field: AnswerField
    reference_field: ReferenceField = None
    stop_words: Annotated[
        Switch | Names, Field(description="words that are not compared; true: a short English list")
    ] = False
    negation_scope: Annotated[
        bool,
        Field(description="a denied word matches only a denied word (`no tumour` is not `tumour`); false: bare words"),
    ] = True
    name: RewardName = "token_f1"

    @cached_property
    def _ignored(self) -> frozenset[str]:
        listed = STOP_WORDS if self.stop_words is True else (self.stop_words or ())
        words = {fold_text(word) for word in listed}
        kept = {word for word in words if word not in NEGATIONS and not word.endswith("n't")}
        return frozenset(kept | {MARK + word for word in kept})

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        golds = [
            to_text(gold) for gold in get_accepted_values(get_field(reference, self.reference_field or self.field))
        ]
        text = to_text(get_field(answer, self.field))
        if not text or len(text) > _EXTRA_LENGTH + 4 * max(map(len, golds), default=0):
            return 0.0
        words, both_ways = _split_text(text, self.negation_scope)
        best = 0.0
        for gold in golds:
            best = max(best, _compute_f1(words, both_ways, _prepare_gold(gold, self.negation_scope, self._ignored)))
        return best

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        """Why the answer got its score, in a sentence."""
        gold = get_field(reference, self.reference_field or self.field)
        text = to_text(get_field(answer, self.field))
        golds = [to_text(value) for value in get_accepted_values(gold)]
        if not text or not golds or len(text) > _EXTRA_LENGTH + 4 * max(map(len, golds)):
            return f"{self.field}: {quote_value(text)} cannot be compared with {quote_value(gold)}"
        words, both_ways = _split_text(text, self.negation_scope)
        ready = [_prepare_gold(text, self.negation_scope, self._ignored) for text in golds]
        best = max(ready, key=lambda prepared: _compute_f1(words, both_ways, prepared))
        kept = [word for word in words if word not in best.ignored]
        shared = Counter(kept) & Counter(best.counts)
        listed = ", ".join(word.replace(MARK, "not ") for word in shared)
        return f"{self.field}: {shared.total()} of {len(kept)} words are among the gold's {len(best.words)}" + (
            f" ({listed if len(listed) < 200 else listed[:200] + '…'})" if listed else ""
        )


def _compute_f1(words: list[str], both_ways: frozenset[str], gold: _PreparedGold) -> float:
    left = dict(gold.counts)
    unequal = both_ways ^ gold.both_ways  # both affirmed and denied on one side only
    num_words, shared = 0, 0.0
    for word in words:
        if word in gold.ignored:
            continue
        num_words += 1
        if left.get(word):
            left[word] -= 1
            shared += 0.5 if unequal and word.removeprefix(MARK) in unequal else 1.0
    return 2 * shared / (num_words + len(gold.words)) if shared else 0.0


@lru_cache(maxsize=4096)
def _prepare_gold(text: str, scope: bool, ignored: frozenset[str]) -> _PreparedGold:
    words, both_ways = _split_text(text, scope)
    kept = [word for word in words if word not in ignored]
    if not kept:  # nothing but stop words: compared as it is
        return _PreparedGold(words, Counter(words), both_ways, frozenset())
    return _PreparedGold(kept, Counter(kept), both_ways, ignored)


def _split_text(text: str, scope: bool) -> tuple[list[str], frozenset[str]]:
    """The words in order, and those that are both affirmed and denied."""
    if "!" in text or "~~" in text or not (text.isascii() and text.isprintable()):
        text = _SIGNS.sub(_replace_sign, text)
    bare = fold_text(text)
    words, denies = split_words(bare) if scope else (_TOKEN.findall(bare), False)
    if not denies:
        return words, frozenset()
    return words, frozenset({word[1:] for word in words if word[0] == MARK}.intersection(words))


def _replace_sign(match: re.Match[str]) -> str:
    return " " if match["struck"] else " ; " if match["line"] else " not "
