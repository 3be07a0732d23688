"""Scores short free text by the words that it shares with the gold; of a closed question exactly."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from functools import cached_property, lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from ..utils.values import Value, fold_text, normalize, reaches, to_text
from . import declare
from .declare import AnswerField, ReferenceField, RewardName, register_reward
from .exact_match import ExactMatchReward, measure_distance
from .fields import MAX_TEXT, Answer, Reference, get_accepted_values, get_field, quote_value
from .laterality import NOWHERE, find_sides, find_wrong_side
from .negation import MARK, NEGATIONS, TOKEN, split_words

Switch = Annotated[bool, Field(strict=True)]  # "yes" is not true beside a list of words
_STOP_WORDS = """
    a an and are as at be been by for from has have in into is it its of on or that the their there these this those to
    was were which with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
# A number with its sign and decimals is one token (-2.5 is not 2.5), and so is a contraction (isn't).
_TOKEN = re.compile(TOKEN)
_LETTER = re.compile(r"\b(?<![nN]/)[A-Za-z]\b(?=[ \n](?P<next>\w+)|)")  # not in "n/a"
_NAME = "\u02b9"  # stands behind a letter that is a name; part of a word
_NAMED = frozenset(("class", "factor", "grade", "group", "hepatitis", "influenza", "stage", "type", "vitamin"))
_BOTH_WAYS = 1 / 3  # what a word is worth that one side both affirms and denies
_EXTRA_LENGTH = 5_000  # an answer may have this many characters beyond four times the gold's
_NO_WORDS: frozenset[str] = frozenset()


class _Gold(NamedTuple):
    counts: Counter[str]
    words: frozenset[str]
    both_ways: frozenset[str]  # affirmed and denied
    opposites: frozenset[str]  # its words with the mark that would contradict them
    ignored: frozenset[str]
    text: str  # of a gold without words: its normal form
    total: int  # of its words
    sides: Mapping[str, frozenset[str]]  # for each, the words that are of the other only


@register_reward("token_f1")
class TokenF1Reward:
    """F1 of the multisets of lower-cased words: F1 = 2 |A ∩ G| / (|A| + |G|), the best over a list of accepted golds.

    From SQuAD (Rajpurkar et al. 2016); here an empty or missing answer scores 0 even if the gold is empty too. A denied
    word matches only a denied word (`negation.py`, after NegEx), and each word that one side affirms and the other
    denies takes two shared words away. So does each piece of the answer that names left what the gold names right
    (`laterality.py`), and its words do not count. `stop_words` are left out on both sides (True: a short English list),
    but never a negation, or a letter that is a name ("hepatitis A"). An answer of more than 5,000 characters plus four
    times the gold's, or of more than 16,384, scores 0; a longer gold cannot be measured. For labels use
    `ExactMatchReward`.

    Range: [0, 1].

    >>> reward = TokenF1Reward("report", stop_words=True)
    >>> reward({"report": "A nodule in the left lung."}, {"report": "left lung nodule"})
    1.0
    >>> [reward({"report": text}, {"report": "tumour"}) for text in ("no tumour", "tumour is absent", "large tumour")]
    [0.0, 0.0, 0.6666666666666666]
    >>> reward({"report": "Large tumour, no oedema"}, {"report": "tumour without oedema"})
    0.8
    """

    field: AnswerField
    reference_field: ReferenceField = None
    stop_words: Annotated[
        Switch | declare.Names, Field(description="words that are not compared; true: a short English list")
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
        plain = {word for word in words if word not in NEGATIONS and not word.endswith("n't")}
        return frozenset(plain | {MARK + word for word in plain} | {MARK})

    def __call__(self, answer: Answer, reference: Reference) -> float:
        return max(self.compare(answer, reference), default=(0.0, 0.0))[0]

    def compare(self, answer: Answer, reference: Reference) -> list[tuple[float, float]]:
        """Return the F1 with each accepted gold, and the share of the answer's words that this gold has."""
        text, golds = self._read(answer, reference)
        if not golds:
            return []
        words, both_ways = _split_text(text, self.negation_scope, self._ignored)
        return [_compute_f1(words, both_ways, gold, text) for gold in golds]

    def explain(self, answer: Answer, reference: Reference) -> str:
        """Return why the answer got its score, in a sentence."""
        text, golds = self._read(answer, reference)
        if not golds:
            gold = get_field(reference, self.reference_field or self.field)
            if not text:
                return f"{self.field}: no answer given; wanted {quote_value(gold)}"
            return f"{self.field}: {quote_value(text)} cannot be compared with {quote_value(gold)}"
        words, both_ways = _split_text(text, self.negation_scope, self._ignored)
        best = max(golds, key=lambda gold: _compute_f1(words, both_ways, gold, text)[0])
        counted = [word for word in words if word not in best.ignored]
        shared = Counter(counted) & best.counts
        wrong = _find_contradictions(set(counted), both_ways, best)
        elsewhere = find_wrong_side(text, best.sides)[1]
        return (
            f"{self.field}: {shared.total()} of {len(counted)} words are among the gold's {best.counts.total()}"
            + (f" ({_list_words(shared)})" if shared else "")
            + (f"; contradicts the gold: {_list_words(sorted(wrong))}" if wrong else "")
            + (f"; at the wrong side: {_list_words(sorted(elsewhere))}" if elsewhere else "")
        )

    def _read(self, answer: Answer, reference: Reference) -> tuple[str, list[_Gold]]:
        """Return the answer's text and the accepted golds; no golds if the two cannot be compared."""
        text = self._read_text(get_field(answer, self.field))
        accepted = get_accepted_values(get_field(reference, self.reference_field or self.field))
        most = MAX_TEXT
        if len(text) > _EXTRA_LENGTH:
            most = min(most, _EXTRA_LENGTH + 4 * max((len(self._read_text(value)) for value in accepted), default=0))
        if not text or len(text) > most:
            return text, []
        return text, [_prepare_gold(self._read_text(value), self.negation_scope, self._ignored) for value in accepted]

    def _read_text(self, value: object) -> str:
        """Return the text of a value; true is yes, and false is no."""
        if type(value) is str and len(value) >= 12:  # most are
            return value
        text = to_text(value)
        is_short = self.negation_scope and len(text) < 12
        return normal if is_short and (normal := normalize(text).text) in ("yes", "no") else text


def _list_words(words: Iterable[str]) -> str:
    listed = ", ".join(word.replace(MARK, "not ").replace(_NAME, "") for word in words)
    return listed if len(listed) < 200 else listed[:200] + "…"


def _compute_f1(words: list[str], both_ways: frozenset[str], gold: _Gold, text: str) -> tuple[float, float]:
    """Return F1, and the precision in it."""
    if not gold.counts:
        same = float(gold.text != "" and normalize(text).text == gold.text)
        return same, same
    counted = [word for word in words if word not in gold.ignored]
    distinct = set(counted)
    common = distinct & gold.words
    elsewhere, lost = find_wrong_side(text, gold.sides) if gold.sides and common else NOWHERE
    if lost:
        common = {word for word in common if word.removeprefix(MARK) not in lost}
    if not common:
        return 0.0, 0.0
    shared: float = len(common)
    unequal = both_ways ^ gold.both_ways if both_ways or gold.both_ways else _NO_WORDS  # of one side only
    if unequal or len(distinct) < len(counted):  # or a word is repeated
        counts = Counter(counted)
        each = {word: min(counts[word], gold.counts[word]) for word in common}
        shared = sum(count * (_BOTH_WAYS if word.lstrip(MARK) in unequal else 1) for word, count in each.items())
    if not gold.opposites.isdisjoint(distinct):
        shared -= 2 * len(_find_contradictions(distinct, both_ways, gold))
    shared -= 2 * elsewhere
    return max(0.0, 2 * shared / (len(counted) + gold.total)), max(0.0, shared / len(counted))


def _find_contradictions(words: Set[str], both_ways: frozenset[str], gold: _Gold) -> set[str]:
    """Return the words of an answer that the gold says the other way round."""
    return {word for word in gold.opposites & words if word.removeprefix(MARK) not in both_ways}


@lru_cache(maxsize=4096)
def _prepare_gold(text: str, scope: bool, ignored: frozenset[str]) -> _Gold:
    words, both_ways = _split_text(text, scope, ignored)
    if ignored.issuperset(words):  # nothing but stop words: compared as it is
        ignored = frozenset({MARK})
    counts = Counter([word for word in words if word not in ignored])
    flipped = (word[1:] if word[0] == MARK else MARK + word for word in counts)
    opposites = frozenset(
        word for word in flipped if (bare := word.removeprefix(MARK)) not in both_ways and bare not in STOP_WORDS
    )
    whole, sides = "" if counts else normalize(text).text, find_sides(text)
    return _Gold(counts, frozenset(counts), both_ways, opposites, ignored, whole, counts.total(), sides)


def _split_text(text: str, scope: bool, ignored: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Return the words in order, and those that are both affirmed and denied."""
    if not scope:
        return _TOKEN.findall(fold_text(text)), _NO_WORDS
    words, denies = split_words(text)
    if not _list_letters(ignored).isdisjoint(words):
        words, denies = split_words(_mark_names(text, ignored))
    if not denies:
        return words, _NO_WORDS
    return words, frozenset({word[1:] for word in words if word[0] == MARK}.intersection(words))


@lru_cache(maxsize=16)
def _list_letters(ignored: frozenset[str]) -> frozenset[str]:
    """Return the ignored words of one letter, affirmed and denied."""
    return frozenset(word for word in ignored if len(word.removeprefix(MARK)) == 1)


def _mark_names(text: str, ignored: frozenset[str]) -> str:
    """Return a text in which a letter that is ignored, but stands here as a name, is not: at the end, before a stop
    word, after words such as "type", and as a capital that opens no sentence."""

    def mark(found: re.Match[str]) -> str:
        letter, follows = found[0], (found["next"] or "the").lower()
        before = text[max(0, found.start() - 20) : found.start()].rstrip()
        opens = letter.islower() or before[-1:] in ("", *".!?:;\n") or text.isupper()
        is_name = not opens or follows in STOP_WORDS or before.lower().rpartition(" ")[2] in _NAMED
        return f"{letter}{_NAME}" if is_name and letter.lower() in ignored else letter

    return _LETTER.sub(mark, text)


MAX_NUMBER = 64  # characters of a number


@declare.validated_dataclass
class ShortAnswerReward:
    """`ExactMatchReward` if the reference's `kind` is closed or choice, or the gold is a number; else the better
    of it and token F1, which is at most the share of the answer's words that are right: a list of options earns no more
    than one of them.

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
    tolerance: Annotated[declare.NonNegative, Field(description="share of a gold number by which it may differ")] = 0.0
    exact: Annotated[bool, Field(description="every kind is compared exactly")] = False
    name: RewardName = "short_answer"

    @cached_property
    def _exact(self) -> ExactMatchReward:
        return ExactMatchReward(self.field, self.reference_field)

    @cached_property
    def _words(self) -> TokenF1Reward:
        return TokenF1Reward(self.field, self.reference_field)

    def __call__(self, answer: Answer, reference: Reference) -> float | None:
        golds = get_accepted_values(get_field(reference, self.reference_field or self.field))
        if not golds:
            return None
        if self._exact(answer, reference) == 1.0 or self._is_near(get_field(answer, self.field), golds):
            return 1.0
        if self._is_exact(reference, golds):
            return 0.0
        return max((min(both) for both in self._words.compare(answer, reference)), default=0.0)

    def explain(self, answer: Answer, reference: Reference) -> str:
        golds = get_accepted_values(get_field(reference, self.reference_field or self.field))
        return (self._exact if self._is_exact(reference, golds) else self._words).explain(answer, reference)

    def _is_exact(self, reference: Reference, golds: list[Any]) -> bool:
        numbers = [gold for gold in map(normalize, golds) if gold.number is not None and gold.unit in ("", "%", "‰")]
        return self.exact or bool(numbers) or get_field(reference, "kind") in ("closed", "choice")

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
