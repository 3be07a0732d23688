"""Invented names: of diseases, drugs, dusts, classifications and devices. No pretrained model can know their facts.

Draws use `random.Random.random` alone, whose values Python keeps the same from version to version: the world must stay
that of the shipped snapshot.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_STARTS = ("br", "v", "k", "t", "m", "dr", "z", "l", "gr", "f", "s", "p", "tr", "n", "g", "kl", "st", "d")
_VOWELS = ("a", "e", "i", "o", "u")
_MIDDLES = ("lv", "rm", "nd", "sk", "mb", "lt", "rn", "x", "v", "st", "rg", "lk", "nt", "z")
_ENDS = {
    "person": ("ane", "ok", "ith", "ur", "essen", "olm", "ivar", "und"),
    "drug": ("omivax", "uprezole", "adovex", "irunab", "esotrine"),
    "material": ("olite", "iphane", "urite", "oxal"),
}


class Draws:
    """Draws that are the same on every machine and in every version of Python."""

    def __init__(self, *seed: int) -> None:
        self._random = random.Random(" ".join(map(str, seed)))

    def pick(self, some: Sequence[T]) -> T:
        """One of a sequence."""
        return some[self.below(len(some))]

    def below(self, stop: int) -> int:
        """A whole number from 0 to `stop` - 1."""
        return min(stop - 1, int(self._random.random() * stop))

    def chance(self, share: float) -> bool:
        """True in this share of draws."""
        return self._random.random() < share

    def mix(self, some: Sequence[T]) -> list[T]:
        """The sequence in another order."""
        keys = [self._random.random() for _ in some]
        return [one for _, one in sorted(zip(keys, some, strict=True), key=lambda pair: pair[0])]


class Names:
    """Names that differ from each other.

    >>> names = Names(Draws(1))
    >>> len({names.invent("drug") for _ in range(100)})
    100
    """

    def __init__(self, draws: Draws) -> None:
        self._draws, self._taken = draws, set[str]()

    def invent(self, kind: str) -> str:
        """A new name of a person, drug or material, with a capital."""
        while True:
            pick = self._draws.pick
            stem = pick(_STARTS) + pick(_VOWELS) + pick(_MIDDLES)
            name = (stem + pick(_ENDS[kind])).capitalize()
            if stem not in self._taken:
                self._taken.add(stem)
                return name
