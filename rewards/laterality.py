"""Finds what an answer says of the wrong side: "right nodule" must earn nothing where "left nodule" is right.

A text is read in pieces between punctuation and conjunctions; the sides named in a piece are those of its words. A
piece without any is of no side. "Bilateral" and "both" are both sides. English only.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from ..utils.values import fold_text
from .negation import FILLER, NEGATIONS, PLACES, TOKEN

BOTH = frozenset(("left", "right"))
SIDES = {
    **{word: frozenset((side,)) for side in ("left", "right") for word in (side, f"{side}sided")},
    **dict.fromkeys(("bilateral", "bilaterally", "both"), BOTH),
}
NOWHERE: tuple[int, frozenset[str]] = (0, frozenset())
_HINT = re.compile(r"\b(?:left|right)")
_END, _JOINT = re.compile(r"[.;!?](?!\d)"), re.compile(r",|\b(?:and|with|but|while|plus|or)\b")
_TOKEN = re.compile(TOKEN)


class Piece(NamedTuple):
    """Words of a text, and the sides of which they are said."""

    words: frozenset[str]
    named: frozenset[str]  # those that name what is there, or else where
    sides: frozenset[str]


def find_wrong_side(text: str, elsewhere: Mapping[str, frozenset[str]]) -> tuple[int, frozenset[str]]:
    """Return how many pieces of a text name of one side only what is of the other only, as `find_sides` says, and the
    words that stand nowhere else in the text.

    >>> count, words = find_wrong_side("right nodule, no effusion", find_sides("Nodule in the left lung. No effusion."))
    >>> count, sorted(words)
    (1, ['nodule', 'right'])
    >>> find_wrong_side("nodule", find_sides("left nodule")), find_wrong_side("both lungs", find_sides("left lung"))
    ((0, frozenset()), (0, frozenset()))
    """
    wrong = [piece for side, piece in _list_one_sided(text) if not piece.named.isdisjoint(elsewhere.get(side, ()))]
    if not wrong:
        return NOWHERE
    fine = (piece.words for piece in read_pieces(text) if piece not in wrong)
    return len(wrong), frozenset[str]().union(*(piece.words for piece in wrong)).difference(*fine)


@lru_cache(maxsize=4096)
def _list_one_sided(text: str) -> tuple[tuple[str, Piece], ...]:
    """Return the pieces of a text that are of one side, with it."""
    if _HINT.search(fold_text(text)) is None:
        return ()
    return tuple((next(iter(piece.sides)), piece) for piece in read_pieces(text) if len(piece.sides) == 1)


@lru_cache(maxsize=4096)
def find_sides(text: str) -> dict[str, frozenset[str]]:
    """Return for each side the words that a text says of the other only; empty if there are none.

    >>> sorted(find_sides("left nodule, both lungs")["right"])
    ['left', 'nodule']
    """
    if _HINT.search(fold_text(text)) is None:
        return {}
    sides: dict[str, frozenset[str]] = {}
    for piece in read_pieces(text):
        for word in piece.words:
            sides[word] = sides.get(word, frozenset()) | (piece.sides or BOTH)
    only = {side: frozenset(word for word, meant in sides.items() if meant == BOTH - {side}) for side in BOTH}
    return only if any(only.values()) else {}


def read_pieces(text: str) -> Iterator[Piece]:
    """Yield the pieces of a text; a side, or a place on one, that names nothing belongs to what stands beside it in its
    sentence.

    >>> [(sorted(piece.named), *piece.sides) for piece in read_pieces("Effusion, left lobe. On the right, a mass")]
    [(['effusion'], 'left'), (['mass'], 'right')]
    """
    for sentence in (piece for line in text.splitlines() for piece in _END.split(fold_text(line))):
        last: Piece | None = None
        waiting: Piece | None = None  # a place that may belong to the next
        for piece in _JOINT.split(sentence):
            words = frozenset(_TOKEN.findall(piece))
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
