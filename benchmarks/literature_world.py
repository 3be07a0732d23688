"""Invents the world of `literature_vqa`: its topics and facts, and the articles that tell, hide or take them back.

Nothing here is a real article: PMIDs have nine digits (those of PubMed have at most eight), DOIs begin with 10.0000,
addresses lie in `.invalid`, and so no link leads anywhere. Draws use `random.Random.random` alone, whose values Python
keeps the same from version to version: the world must stay that of the shipped snapshot.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from viewbox.configs import yaml_reader
from viewbox.envs.chest_xray.anatomy import SIDES
from viewbox.envs.chest_xray.radiographs import Label
from viewbox.envs.literature_vqa.world import CLASSES, FOCAL, Fact, Question, Split, Status, Topic, TopicKind
from viewbox.envs.phantom.anatomy import ORGANS
from viewbox.tools.search.records import Article
from viewbox.utils.frozen import freeze

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
            if IS_LARGE:
                stem += pick(_VOWELS) + pick(_MIDDLES)
            name = (stem + pick(_ENDS[kind])).capitalize()
            taken = name if IS_LARGE else stem  # a large world has more names than stems
            if taken not in self._taken:
                self._taken.add(taken)
                return name


SEED = 20
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


IS_LARGE = False
DECOYS = 2  # of each topic without articles in a large world
SHORT_JOURNALS = ("Annals", "Archives", "Bulletin", "Gazette", "Letters", "Records", "Reports", "Reviews")
COMPARED = "It was compared with {name} by some."  # in a large world any article may name another topic


def enlarge(seed: int, diseases: int, devices: int) -> None:
    """Make the world another one, of diseases and devices only, a tenth of them without any article: what is found for
    them is about others, which no other search finds first. Its records are short."""
    global SEED, COUNTS, IS_LARGE
    SEED, IS_LARGE = seed, True
    COUNTS = dict.fromkeys(COUNTS, (0, 0)) | {
        "disease": (diseases - diseases // 10, diseases // 10),
        "device": (devices - devices // 10, devices // 10),
    }


@lru_cache(maxsize=1)
def invent_facts() -> tuple[Fact, ...]:
    """Return all facts of the world, topic by topic."""
    names = Names(Draws(SEED, 1))
    return tuple(
        fact
        for kind, (present, absent) in COUNTS.items()
        for number in range(present + absent)
        for fact in _invent_topic(kind, number, names, is_absent=number >= present)
    )


def _invent_topic(kind: TopicKind, number: int, names: Names, *, is_absent: bool) -> list[Fact]:
    draws = Draws(SEED, 2, list(COUNTS).index(kind), number)
    word = names.invent("material" if kind == "exposure" else "person")
    split: Split = "test" if number % 3 == 2 else "train"
    topic = Topic(kind, f"{word} {draws.pick(NOUNS[kind])}", split)
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


# ---------------------------------------------------------------------- sentences
Texts = Mapping[Question, str]
_TABLES: Any = freeze(yaml_reader.read(Path(__file__).with_name("literature_sentences.yaml")).values)
FINDINGS: Mapping[str, str] = _TABLES["findings"]
TITLES: Mapping[Question, tuple[str, ...]] = _TABLES["titles"]
BACKGROUNDS: tuple[str, ...] = _TABLES["backgrounds"]
WORK: tuple[str, ...] = _TABLES["work"]
GENERAL: tuple[tuple[str, str], ...] = _TABLES["general"]
JOURNALS: tuple[str, ...] = _TABLES["journals"]
TYPES: Texts = _TABLES["types"]
HEADINGS: Mapping[str, tuple[str, ...]] = _TABLES["headings"]
MISSING: Texts = _TABLES["missing"]


def write_missing(fact: Fact) -> str:
    """Return the sentence of a review about a fact that nobody has reported."""
    return f"No study of {fact.topic.name} has reported {MISSING[fact.question]}."


def state(fact: Fact, value: Any, count: int) -> str:
    """Return the sentence that states a value of a fact."""
    name = fact.topic.name
    match fact.question:
        case "shows":
            return f"In all {count} people with {name} the film showed {FINDINGS[value[0]]} in the {value[1]} lung."
        case "therapy":
            return f"As the drug to give first for {name}, {value} is recommended."
        case "dose":
            return (
                f"For {name} the dose of {fact.drug} is {value[0]} mg a day if the film shows {FINDINGS[fact.sign]}, "
                f"and {value[1]} mg a day if it does not."
            )
        case "effect":
            return f"Of those with {name} on {fact.drug}, {value} % relapsed within a year."
        case "cause":
            return f"After exposure to {name}, {_list(f'{FINDINGS[sign]} means {one}' for sign, one in value.items())}."
        case "class":
            return f"In the {name} a lesion {_list(f'of the {organ} is {one}' for organ, one in value.items())}."
    return f"A patient with a {name} may be scanned for {value} minutes at most."


def _list(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)}, and {last}"


# ---------------------------------------------------------------------- articles
Role = Literal["right", "second", "old", "retracted", "review", "general"]
FIRST_PMID = 990_000_001


@dataclass(frozen=True)
class Written:
    """An article of the world: what it is about, and its role there."""

    article: Article
    role: Role
    topic: Topic | None = None
    fact: Fact | None = None


@lru_cache(maxsize=1)
def write_articles() -> tuple[Written, ...]:
    """Return all articles, by PMID. The order tells nothing about their roles."""
    drafts = [*_draft_facts(), *_draft_reviews(), *_draft_general(), *(_draft_decoys() if IS_LARGE else ())]
    mixed = Draws(SEED, 3).mix(drafts)
    return tuple(_number(written, FIRST_PMID + place) for place, written in enumerate(mixed))


def find_support() -> Iterator[Fact]:
    """Yield the facts with the PMIDs of the articles that support them."""
    told: dict[int, list[str]] = {}
    for one in write_articles():
        if one.role in ("right", "second"):
            told.setdefault(id(one.fact), []).append(one.article.pmid)
    for fact in invent_facts():
        yield replace(fact, evidence=tuple(told.get(id(fact), ())))


def _draft_facts() -> Iterator[Written]:
    names = Names(Draws(SEED, 9))
    for place, written in enumerate(_draft_all_facts()):
        draws = Draws(SEED, 10, place)
        if IS_LARGE and written.topic and draws.chance(0.3):
            other = f"{names.invent('person')} {draws.pick(NOUNS[written.topic.kind])}"
            abstract = f"{COMPARED.format(name=other)} {written.article.abstract}"
            written = replace(written, article=replace(written.article, abstract=abstract))
        yield written


def _draft_all_facts() -> Iterator[Written]:
    for place, fact in enumerate(invent_facts()):
        draws = Draws(SEED, 4, place)
        old, new = 2003 + draws.below(10), 2014 + draws.below(8)
        if fact.status == "revised":
            yield _draft_fact(fact, "old", old, draws)
        if fact.is_answerable:
            yield _draft_fact(fact, "right", new, draws, replaces=old if fact.status == "revised" else None)
        if fact.status == "confirmed":
            yield _draft_fact(fact, "second", new + 1 + draws.below(3), draws)
        if fact.status in ("disputed", "retracted"):
            yield _draft_fact(fact, "retracted", new + 1 + draws.below(3), draws)


def _draft_fact(fact: Fact, role: Role, year: int, draws: Draws, replaces: int | None = None) -> Written:
    title = draws.pick(TITLES[fact.question]).format(name=fact.topic.name, drug=fact.drug)
    title = f"{title}: confirmation" if role == "second" else title
    count = 24 + draws.below(400)
    said = state(fact, fact.right if role in ("right", "second") else fact.wrong, count)
    ends = f" This corrects the article of {replaces} and replaces it." if replaces else ""
    background = draws.pick(BACKGROUNDS).format(name=fact.topic.name)
    work = draws.pick(WORK).format(count=count)
    if draws.chance(0.6):
        abstract = f"BACKGROUND: {background} METHODS: {work} RESULTS: {said} CONCLUSION: We found it consistent.{ends}"
    else:
        abstract = f"{background} {work} {said}{ends}"
    retracted = role == "retracted"
    types = ("Journal Article", "Meta-Analysis" if role == "second" else TYPES[fact.question])
    article = Article(
        pmid="",
        title=f"RETRACTED: {title}" if retracted else title,
        journal=draws.pick(SHORT_JOURNALS if IS_LARGE else JOURNALS),
        year=year,
        abstract=abstract,
        types=(*types, *(("Retracted Publication",) if retracted else ())),
        mesh=(*HEADINGS[fact.topic.kind], fact.topic.name),
        retracted=retracted,
    )
    return Written(article, role, fact.topic, fact)


def _draft_reviews() -> Iterator[Written]:
    topics: dict[Topic, list[Fact]] = {}
    for fact in invent_facts():
        topics.setdefault(fact.topic, []).append(fact)
    for place, (topic, facts) in enumerate(topics.items()):
        statuses = {fact.status for fact in facts}
        if "absent" in statuses or (IS_LARGE and statuses.isdisjoint(("known", "unreported"))):
            continue  # two articles are shown of a large world: both that say something must be among them
        draws = Draws(SEED, 5, place)
        backgrounds = draws.mix(BACKGROUNDS)[:3]
        missing = [write_missing(fact) for fact in facts if fact.status == "unreported"]
        abstract = " ".join([*(line.format(name=topic.name) for line in backgrounds), *missing])
        article = Article(
            pmid="",
            title=f"{topic.name}: a review",
            journal=draws.pick(SHORT_JOURNALS if IS_LARGE else JOURNALS),
            year=2010 + draws.below(14),
            abstract=abstract,
            types=("Journal Article", "Review"),
            mesh=(*HEADINGS[topic.kind], topic.name),
        )
        yield Written(article, "review", topic)


def _draft_decoys() -> Iterator[Written]:
    """Yield articles that name a topic without articles, and answer the question about another one."""
    names = Names(Draws(SEED, 7))
    for place, fact in enumerate(one for one in invent_facts() if one.status == "absent"):
        for number in range(DECOYS):
            draws = Draws(SEED, 8, place, number)
            topic = Topic(fact.topic.kind, f"{names.invent('person')} {draws.pick(NOUNS[fact.topic.kind])}", "train")
            other = _invent_fact(topic, fact.question, "known", draws, names)
            written = _draft_fact(other, "right", 2014 + draws.below(8), draws)
            article = written.article
            abstract = f"{COMPARED.format(name=fact.topic.name)} {article.abstract}"
            yield replace(written, role="general", fact=None, article=replace(article, abstract=abstract))


def _draft_general() -> Iterator[Written]:
    for place, (title, abstract) in enumerate(GENERAL):
        draws = Draws(SEED, 6, place)
        year = None if draws.chance(0.2) else 2001 + draws.below(24)
        article = Article(
            "", title, draws.pick(SHORT_JOURNALS if IS_LARGE else JOURNALS), year, abstract, types=("Journal Article",)
        )
        yield Written(article, "general")


def _number(written: Written, number: int) -> Written:
    doi, url = ("", "") if IS_LARGE else (f"10.0000/invented.{number}", f"https://literature.invalid/{number}")
    return replace(written, article=replace(written.article, pmid=str(number), doi=doi, url=url))
