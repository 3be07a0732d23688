"""The answer is the gold, or it is not: for labels, choices and numbers."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from viewbox.errors import ConfigError
from viewbox.rewards.base import finite, lookup
from viewbox.rewards.text import fold, strip_outer, text_of, texts_of

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII)
_LONGEST_NUMBER = 64  # characters


@dataclass(frozen=True)
class ExactMatchReward:
    """1 if the answer's field says what the reference's field says, else 0.

    Both sides are compared without case, compatibility forms (NFKC), invisible characters, runs of whitespace and
    outer punctuation (the normalisation of SQuAD, Rajpurkar et al. 2016, without its removal of articles). The gold
    is a string, number or bool, or a list of accepted ones; `aliases` gives further spellings of a gold. A numeric
    gold is also compared as a number: |answer - gold| <= `tolerance` (0 if None); with a tolerance, so is a gold
    string that is a number. The answer must be one scalar: a list of labels scores 0, and so does a missing or empty
    one, also where the gold is missing. An answer longer than four times the longest accepted text plus 256
    characters scores 0 unread.

    Range: {0.0, 1.0}.

    >>> reward = ExactMatchReward("label", aliases={"seven": ["7"]})
    >>> reward({"label": " Seven. "}, {"label": "seven"}), reward({"label": 7}, {"label": "seven"})
    (1.0, 1.0)
    >>> reward({"label": "not seven"}, {"label": "seven"}), reward({}, {})
    (0.0, 0.0)
    >>> ExactMatchReward("size_mm", tolerance=0.5)({"size_mm": "12.4"}, {"size_mm": 12})
    1.0
    """

    field: str = "label"
    reference_field: str | None = None
    aliases: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    tolerance: float | None = None
    name: str = "exact_match"

    def __post_init__(self) -> None:
        if self.tolerance is not None and not (finite(self.tolerance) is not None and self.tolerance >= 0):
            raise ConfigError(f"tolerance is {self.tolerance!r}; allowed: a finite number >= 0, or None")
        for gold, spellings in self.aliases.items():
            if isinstance(spellings, str):
                raise ConfigError(f"aliases of {gold!r} is the string {spellings!r}; allowed: a list of strings")

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        golds = texts_of(lookup(reference, self.reference_field or self.field))
        accepted = {_plain(text_of(gold)) for gold in golds}
        for gold, spellings in self.aliases.items():
            if _plain(gold) in accepted:
                accepted = accepted | {_plain(spelling) for spelling in spellings}
        raw = text_of(lookup(answer, self.field))
        if len(raw) > 4 * max(map(len, accepted), default=0) + 256:
            return 0.0
        said = _plain(raw)
        if not said:
            return 0.0
        return 1.0 if said in accepted or any(self._is_near(said, gold) for gold in golds) else 0.0

    def _is_near(self, said: str, gold: Any) -> bool:
        if isinstance(gold, str) and self.tolerance is None:
            return False
        ours, theirs = _number(said), _number(_plain(text_of(gold)))
        if ours is None or theirs is None:
            return False
        distance, tolerance = abs(ours - theirs), self.tolerance or 0
        return distance <= tolerance or math.isclose(distance, tolerance, rel_tol=1e-9)  # 1.1 is within 0.1 of 1.0


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    return strip_outer(fold(text))


def _number(text: str) -> int | float | None:
    """The number a text is; integers stay exact, and a thousands separator is not read (1,5 is a half to some)."""
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        return None
    return finite(float(text)) if set(text) & set(".e") else int(text)
