"""How many words the answer shares with the gold: for short free text."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

from pydantic import Field

from viewbox.rewards.base import get_field
from viewbox.rewards.declare import AnswerField, Names, ReferenceField, RewardName, register_reward
from viewbox.rewards.negation import MARK, NEGATIONS, TOKEN, split_words
from viewbox.rewards.text import fold_text, get_accepted_values, quote_value, to_text

Switch = Annotated[bool, Field(strict=True)]  # "yes" is not true beside a list of words
_STOP_WORDS = """
    a an and are as at be been by for from has have in into is it its of on or that the their there these this those to
    was were which with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
# A number with its sign and decimals is one token (-2.5 is not 2.5), and so is a contraction (isn't).
_TOKEN = re.compile(TOKEN)
# What folding would lose: a line end closes a sentence, a struck out word is withdrawn, and these signs say not.
_SIGNS = re.compile(r"(?P<struck>~~[^~]+~~)|(?P<line>[\n\r\u2028\u2029])|[¬≠✗✘❌🚫]|(?<![\w!])!(?=\w)")
_LONGEST = 5_000  # characters, beyond four times the gold


@dataclass(frozen=True)
class _PreparedGold:
    """A gold text made ready: its words, how often each counts, those it says both ways, and what to leave out."""

    words: list[str]
    counts: Mapping[str, int]
    both_ways: frozenset[str]
    ignored: frozenset[str]


@register_reward("token_f1")
class TokenF1Reward:
    """F1 of the multisets of lower-cased words: F1 = 2 |A ∩ G| / (|A| + |G|), the best over a list of accepted golds.

    From SQuAD (Rajpurkar et al. 2016); here an empty or missing answer scores 0 even where the gold is empty too.
    Repeating a word does not help, since the intersection counts each as often as the gold has it.
    `stop_words` are left out on both sides: True for a short English list, or your own; negations never are, and a
    gold made only of stop words is compared as it stands. An answer over 5,000 characters plus four times the gold
    scores 0.

    A word that is denied equals only a word that is denied (`negation.py`, after NegEx), so "no tumour" against
    "tumour" scores 0, and "No effusion. Nodule." is not "Effusion. No nodule."; the negation itself still counts as a
    word. A word that one side both affirms and denies is worth half. `negation_scope=False` compares bare words, as
    SQuAD does. Beyond that word order is not seen: for labels use `ExactMatchReward`.

    Range: [0, 1].

    >>> reward = TokenF1Reward("report", stop_words=True)
    >>> reward({"report": "A nodule in the left lung."}, {"report": "left lung nodule"})
    1.0
    >>> [reward({"report": said}, {"report": "tumour"}) for said in ("no tumour", "tumour is absent", "large tumour")]
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
        Field(description="a denied word equals only a denied word (`no tumour` is not `tumour`); false: bare words"),
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
        said = to_text(get_field(answer, self.field))
        if not said or len(said) > _LONGEST + 4 * max(map(len, golds), default=0):
            return 0.0
        words, both_ways = _split_text(said, self.negation_scope)
        best = 0.0
        for gold in golds:
            best = max(best, _compute_f1(words, both_ways, _prepare_gold(gold, self.negation_scope, self._ignored)))
        return best

    def explain(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> str:
        """Why the answer got its score, in a sentence."""
        gold = get_field(reference, self.reference_field or self.field)
        said = to_text(get_field(answer, self.field))
        golds = [to_text(one) for one in get_accepted_values(gold)]
        if not said or not golds or len(said) > _LONGEST + 4 * max(map(len, golds)):
            return f"{self.field}: {quote_value(said)} cannot be compared with {quote_value(gold)}"
        words, both_ways = _split_text(said, self.negation_scope)
        ready = [_prepare_gold(one, self.negation_scope, self._ignored) for one in golds]
        best = max(ready, key=lambda one: _compute_f1(words, both_ways, one))
        kept = [word for word in words if word not in best.ignored]
        shared = Counter(kept) & Counter(best.counts)
        listed = ", ".join(word.replace(MARK, "not ") for word in shared)
        return f"{self.field}: {shared.total()} of {len(kept)} words said are among the gold's {len(best.words)}" + (
            f" ({listed if len(listed) < 200 else listed[:200] + '…'})" if listed else ""
        )


def _compute_f1(words: list[str], both_ways: frozenset[str], gold: _PreparedGold) -> float:
    left = dict(gold.counts)
    unequal = both_ways ^ gold.both_ways  # said both ways on one side only
    said, shared = 0, 0.0
    for word in words:
        if word in gold.ignored:
            continue
        said += 1
        if left.get(word):
            left[word] -= 1
            shared += 0.5 if unequal and word.removeprefix(MARK) in unequal else 1.0
    return 2 * shared / (said + len(gold.words)) if shared else 0.0


@lru_cache(maxsize=4096)
def _prepare_gold(text: str, scope: bool, ignored: frozenset[str]) -> _PreparedGold:
    words, both_ways = _split_text(text, scope)
    kept = [word for word in words if word not in ignored]
    if not kept:  # nothing but stop words: compared as it stands
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


def _replace_sign(found: re.Match[str]) -> str:
    return " " if found["struck"] else " ; " if found["line"] else " not "
