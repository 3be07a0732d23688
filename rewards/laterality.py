"""Finds what an answer says of the wrong side: "right nodule" must earn nothing where "left nodule" is right.

A text is read in pieces between punctuation and conjunctions; the sides named in a piece are those of its words. A
piece without any is of no side. "Bilateral" and "both" are both sides. English only.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from ..utils.values import fold_text
from .negation import FILLER, NEGATIONS, PLACES, TOKEN

BOTH = frozenset(("left", "right"))
SIDES = {
    **{word: frozenset((side,)) for side in ("left", "right") for word in (side, f"{side}sided")},
    **dict.fromkeys(("bilateral", "bilaterally", "both"), BOTH),
}
_HINT = re.compile(r"\b(?:left|right)")
_END, _JOINT = re.compile(r"[.;!?](?!\d)"), re.compile(r",|\b(?:and|with|but|while|plus|or)\b")
_TOKEN = re.compile(TOKEN)


class Piece(NamedTuple):
    """Words of a text, and the sides of which they are said."""

    words: frozenset[str]
    named: frozenset[str]  # those that name what is there, or else where
    sides: frozenset[str]


def find_wrong_side(text: str, gold: str) -> tuple[int, frozenset[str]]:
    """Return how many pieces of a text name of one side only what the gold names of the other only, and the words that
    stand nowhere else in the text.

    >>> count, words = find_wrong_side("right nodule, no effusion", "Nodule in the left lung. No effusion.")
    >>> count, sorted(words)
    (1, ['nodule', 'right'])
    >>> find_wrong_side("nodule", "left nodule"), find_wrong_side("both lungs", "left lung")
    ((0, frozenset()), (0, frozenset()))
    """
    if _HINT.search(fold_text(gold)) is None or _HINT.search(fold_text(text)) is None:
        return 0, frozenset()
    known = find_sides(gold)
    wrong: set[str] = set()
    fine: set[str] = set()
    count = 0
    for piece in read_pieces(text):
        is_wrong = len(piece.sides) == 1 and any(piece.sides.isdisjoint(known.get(word, BOTH)) for word in piece.named)
        count += is_wrong
        (wrong if is_wrong else fine).update(piece.words)
    return count, frozenset(wrong - fine)


@lru_cache(maxsize=4096)
def find_sides(text: str) -> dict[str, frozenset[str]]:
    """Return the sides of each word of a text; a word that stands without any is of both."""
    sides: dict[str, frozenset[str]] = {}
    for piece in read_pieces(text):
        for word in piece.words:
            sides[word] = sides.get(word, frozenset()) | (piece.sides or BOTH)
    return sides


def read_pieces(text: str) -> Iterator[Piece]:
    """Yield the pieces of a text; a side, or a place on one, that names nothing belongs to what stands beside it in its
    sentence.

    >>> [(sorted(piece.named), *piece.sides) for piece in read_pieces("Effusion, left lobe. On the right, a mass")]
    [(['effusion'], 'left'), (['mass'], 'right')]
    """
    for sentence in (part for line in text.splitlines() for part in _END.split(fold_text(line))):
        last: Piece | None = None
        waiting: Piece | None = None  # a place that may belong to the next
        for part in _JOINT.split(sentence):
            words = frozenset(_TOKEN.findall(part))
            sides = frozenset[str]().union(*(SIDES[word] for word in words if word in SIDES))
            content = words - SIDES.keys() - FILLER - NEGATIONS
            if content <= PLACES and sides:
                if last is not None and (not content or not last.sides):
                    last = Piece(last.words | words, last.named, last.sides | sides)
                else:
                    waiting = Piece(words, content, sides)
                continue
            if last is not None:
                yield last
            if waiting is not None and not sides:
                words, sides, waiting = words | waiting.words, waiting.sides, None
            last = Piece(words, content - PLACES, sides)
        yield from filter(None, (last, waiting))
