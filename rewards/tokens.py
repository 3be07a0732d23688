"""How many words the answer shares with the gold: for short free text."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from viewbox.errors import ConfigError
from viewbox.rewards.base import lookup
from viewbox.rewards.text import fold, text_of, texts_of

_STOP_WORDS = """
    a an and are as at be been by for from has have in into is it its of on or that the their there these this those to
    was were which with
"""
_NEGATIONS = """
    no not nor non none neither never nothing nobody nowhere without cannot cant dont isnt wasnt arent doesnt didnt
    except absent absence negative deny denies denied exclude excludes excluded unlikely free
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
NEGATIONS = frozenset(_NEGATIONS.split())
# A number with its sign and decimals is one token (-2.5 is not 2.5), and so is a contraction (isn't).
_TOKEN = re.compile(r"(?:(?<!\w)-)?(?:\d+(?:\.\d+)*|(?<!\w)\.\d+)|[^\W_]+(?:'[^\W_]+)*")
_LONGEST = 5_000  # characters, beyond four times the gold


@dataclass(frozen=True)
class TokenF1Reward:
    """F1 of the multisets of lower-cased words: F1 = 2 |A ∩ G| / (|A| + |G|), the best over a list of accepted golds.

    From SQuAD (Rajpurkar et al. 2016); here an empty or missing answer scores 0 even where the gold is empty too.
    Repeating a word does not help, since the intersection counts each as often as the gold has it.
    `stop_words` are left out on both sides: True for a short English list, or your own; negations never are, and a
    gold made only of stop words is compared as it stands. Word order is not seen ("no seven" against "seven" is
    2/3): for labels use `ExactMatchReward`. An answer over 5,000 characters plus four times the gold scores 0.

    Range: [0, 1].

    >>> reward = TokenF1Reward("report", stop_words=True)
    >>> reward({"report": "A nodule in the left lung."}, {"report": "left lung nodule"})
    1.0
    >>> reward({"report": "no tumour"}, {"report": "tumour"})
    0.6666666666666666
    """

    field: str
    reference_field: str | None = None
    stop_words: bool | Collection[str] = False
    name: str = "token_f1"

    def __post_init__(self) -> None:
        if isinstance(self.stop_words, str):
            raise ConfigError(f"stop_words is the string {self.stop_words!r}; allowed: true, false or a list of words")

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        golds = [text_of(gold) for gold in texts_of(lookup(reference, self.reference_field or self.field))]
        said = text_of(lookup(answer, self.field))
        if len(said) > _LONGEST + 4 * max(map(len, golds), default=0):
            return 0.0
        words = _words(said)
        return max((self._f1(words, _words(gold)) for gold in golds), default=0.0)

    def _f1(self, said: list[str], gold: list[str]) -> float:
        ignored = self._ignored()
        if kept := [word for word in gold if word not in ignored]:
            said, gold = [word for word in said if word not in ignored], kept
        shared = (Counter(said) & Counter(gold)).total()
        return 2 * shared / (len(said) + len(gold)) if shared else 0.0

    def _ignored(self) -> frozenset[str]:
        if isinstance(self.stop_words, bool):
            return STOP_WORDS if self.stop_words else frozenset()
        words = {fold(word) for word in self.stop_words}
        return frozenset(word for word in words if word not in NEGATIONS and not word.endswith("n't"))


def _words(text: str) -> list[str]:
    return _TOKEN.findall(fold(text))
