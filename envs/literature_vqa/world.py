"""The invented world: topics, and for each the facts that its literature tells, hides or takes back.

The world is one, whatever the seed of a task; the shipped snapshot holds its articles (`articles.py`). No topic is in
both splits. Its names are invented, so that no pretrained model can know their facts. Draws use `random.Random.random`
alone, whose values Python keeps the same from version to version: the world must stay that of the shipped snapshot.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

from ..chest_xray.anatomy import SIDES
from ..chest_xray.radiographs import Label
from ..phantom.anatomy import ORGANS

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
        """Return one of a sequence."""
        return some[self.below(len(some))]

    def below(self, stop: int) -> int:
        """Return a whole number from 0 to `stop` - 1."""
        return min(stop - 1, int(self._random.random() * stop))

    def chance(self, share: float) -> bool:
        """Return true in this share of draws."""
        return self._random.random() < share

    def mix(self, some: Sequence[T]) -> list[T]:
        """Return the sequence in another order."""
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
        """Return a new name of a person, drug or material, with a capital."""
        while True:
            pick = self._draws.pick
            stem = pick(_STARTS) + pick(_VOWELS) + pick(_MIDDLES)
            name = (stem + pick(_ENDS[kind])).capitalize()
            if stem not in self._taken:
                self._taken.add(stem)
                return name


Question = Literal["shows", "therapy", "dose", "effect", "cause", "class", "limit"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
Status = Literal["known", "confirmed", "revised", "disputed", "retracted", "unreported", "absent"]
ANSWERABLE: tuple[Status, ...] = ("known", "confirmed", "revised", "disputed")
Split = Literal["train", "test"]
TopicKind = Literal["disease", "exposure", "classification", "device"]

SEED = 20
FOCAL: tuple[Label, ...] = ("effusion", "pneumothorax", "consolidation", "nodule")
CLASSES = ("class I", "class II", "class III", "class IV")
ASKED_OF: Mapping[TopicKind, tuple[Question, ...]] = {
    "disease": ("shows", "therapy", "dose", "effect"),
    "exposure": ("cause",),
    "classification": ("class",),
    "device": ("limit",),
}
COUNTS: Mapping[TopicKind, tuple[int, int]] = {  # topics with articles, and those without any
    "disease": (30, 3),
    "exposure": (12, 3),
    "classification": (12, 3),
    "device": (12, 3),
}
NOUNS: Mapping[TopicKind, tuple[str, ...]] = {
    "disease": ("syndrome", "disease", "fever", "anomaly"),
    "exposure": ("dust", "vapor", "resin"),
    "classification": ("classification", "grading"),
    "device": ("valve", "pump", "port"),
}
CYCLE: tuple[Status, ...] = (
    *("revised", "disputed", "known", "confirmed", "revised", "disputed", "known", "retracted", "revised"),
    "unreported",
)


@dataclass(frozen=True)
class Topic:
    """What articles are about."""

    kind: TopicKind
    number: int
    name: str
    split: Split

    @property
    def key(self) -> str:
        """The invented word of its name."""
        return self.name.split()[0]


@dataclass(frozen=True)
class Fact:
    """What the literature says about one question of a topic.

    Args:
        status: known: one article says it; confirmed: two; revised: a newer article corrects an older one; disputed: a
            retracted article says another thing; retracted: only a retracted article says anything; unreported: nobody
            says it; absent: no article is about the topic. The last three have no answer.
        right, wrong: what standing articles say, and what older or retracted ones say. A (finding, side) for shows, a
            name for therapy, a number for effect and limit, (with, without) for dose, a mapping for cause and class.
        drug: that dose and effect are about; empty for others.
        sign: the finding on which the dose depends.
    """

    topic: Topic
    question: Question
    status: Status
    right: Any
    wrong: Any
    drug: str = ""
    sign: Label = "effusion"

    @property
    def is_answerable(self) -> bool:
        return self.status in ANSWERABLE


@lru_cache(maxsize=1)
def build_facts() -> tuple[Fact, ...]:
    """Return all facts of the world, topic by topic."""
    names = Names(Draws(SEED, 1))
    return tuple(
        fact
        for kind, (present, absent) in COUNTS.items()
        for number in range(present + absent)
        for fact in _invent_topic(kind, number, names, is_absent=number >= present)
    )


@lru_cache(maxsize=64)
def find_facts(question: Question, split: Split, answerable: bool) -> tuple[Fact, ...]:
    """Return the facts of one question in a split that have an answer, or that have none."""
    return tuple(
        fact
        for fact in build_facts()
        if (fact.question, fact.topic.split, fact.is_answerable) == (question, split, answerable)
    )


def _invent_topic(kind: TopicKind, number: int, names: Names, *, is_absent: bool) -> list[Fact]:
    draws = Draws(SEED, 2, list(COUNTS).index(kind), number)
    word = names.invent("material" if kind == "exposure" else "person")
    split: Split = "test" if number % 3 == 2 else "train"
    topic = Topic(kind, number, f"{word} {draws.pick(NOUNS[kind])}", split)
    place = number // 3 if split == "test" else number - number // 3 - (number % 3 == 2)  # among those of its split
    facts = []
    for turn, question in enumerate(ASKED_OF[kind]):
        status: Status = "absent" if is_absent else CYCLE[(place + 3 * turn) % len(CYCLE)]
        facts.append(_invent_fact(topic, question, status, draws, names))
    return facts


def _invent_fact(topic: Topic, question: Question, status: Status, draws: Draws, names: Names) -> Fact:
    right: Any
    wrong: Any
    drug = ""
    sign: Label = "effusion"
    if question == "shows":
        labels, side = draws.mix(FOCAL), draws.pick(SIDES)
        right = (labels[0], side)
        wrong = (labels[0], SIDES[1 - SIDES.index(side)]) if draws.chance(0.5) else (labels[1], side)
    elif question == "therapy":
        right, wrong = names.invent("drug"), names.invent("drug")
    elif question == "dose":
        doses = draws.mix(range(15, 400, 5))
        right, wrong = (doses[0], doses[1]), (doses[2], doses[3])
        drug, sign = names.invent("drug"), draws.pick(FOCAL)
    elif question == "effect":
        right, wrong, *_ = draws.mix(range(6, 78))
        drug = names.invent("drug")
    elif question == "cause":
        diseases = [f"{names.invent('person')} {draws.pick(NOUNS['disease'])}" for _ in FOCAL]
        right, wrong = _map_two_ways(FOCAL, diseases, draws)
    elif question == "class":
        right, wrong = _map_two_ways(ORGANS, draws.mix(CLASSES), draws)
    else:
        right, wrong, *_ = draws.mix(range(4, 95))
    return Fact(topic, question, status, right, wrong, drug, sign)


def _map_two_ways(keys: Any, values: list[str], draws: Draws) -> tuple[dict[Any, str], dict[Any, str]]:
    """Two mappings of the same keys that agree nowhere."""
    turn = 1 + draws.below(len(values) - 1)
    return dict(zip(keys, values, strict=True)), dict(zip(keys, values[turn:] + values[:turn], strict=True))
