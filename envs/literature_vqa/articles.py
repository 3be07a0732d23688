"""The articles of the invented world, and which of them support each fact.

Nothing here is a real article: PMIDs have nine digits (those of PubMed have at most eight), DOIs begin with 10.0000,
addresses lie in `.invalid`, and so no link leads anywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from ...tools.search.records import Article
from .sentences import BACKGROUNDS, GENERAL, HEADINGS, JOURNALS, TITLES, TYPES, WORK, state, write_missing
from .world import SEED, Draws, Fact, Question, Topic, build_facts

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
    drafts = [*_draft_facts(), *_draft_reviews(), *_draft_general()]
    mixed = Draws(SEED, 3).mix(drafts)
    return tuple(_number(written, FIRST_PMID + place) for place, written in enumerate(mixed))


@lru_cache(maxsize=1)
def _find_support() -> dict[tuple[str, Question], tuple[str, ...]]:
    support: dict[tuple[str, Question], tuple[str, ...]] = {}
    for written in write_articles():
        if written.fact is not None and written.role in ("right", "second"):
            key = (written.fact.topic.name, written.fact.question)
            support[key] = (*support.get(key, ()), written.article.pmid)
    return support


def get_support(fact: Fact) -> tuple[str, ...]:
    """Return the PMIDs of the articles that support a fact; empty if none does."""
    return _find_support().get((fact.topic.name, fact.question), ())


def _draft_facts() -> Iterator[Written]:
    for place, fact in enumerate(build_facts()):
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
        journal=draws.pick(JOURNALS),
        year=year,
        abstract=abstract,
        types=(*types, *(("Retracted Publication",) if retracted else ())),
        mesh=(*HEADINGS[fact.topic.kind], fact.topic.name),
        retracted=retracted,
    )
    return Written(article, role, fact.topic, fact)


def _draft_reviews() -> Iterator[Written]:
    topics: dict[Topic, list[Fact]] = {}
    for fact in build_facts():
        topics.setdefault(fact.topic, []).append(fact)
    for place, (topic, facts) in enumerate(topics.items()):
        if facts[0].status == "absent":
            continue
        draws = Draws(SEED, 5, place)
        backgrounds = draws.mix(BACKGROUNDS)[:3]
        missing = [write_missing(fact) for fact in facts if fact.status == "unreported"]
        abstract = " ".join([*(line.format(name=topic.name) for line in backgrounds), *missing])
        article = Article(
            pmid="",
            title=f"{topic.name}: a review",
            journal=draws.pick(JOURNALS),
            year=2010 + draws.below(14),
            abstract=abstract,
            types=("Journal Article", "Review"),
            mesh=(*HEADINGS[topic.kind], topic.name),
        )
        yield Written(article, "review", topic)


def _draft_general() -> Iterator[Written]:
    for place, (title, abstract) in enumerate(GENERAL):
        draws = Draws(SEED, 6, place)
        year = None if draws.chance(0.2) else 2001 + draws.below(24)
        article = Article("", title, draws.pick(JOURNALS), year, abstract, types=("Journal Article",))
        yield Written(article, "general")


def _number(written: Written, number: int) -> Written:
    doi, url = f"10.0000/invented.{number}", f"https://literature.invalid/{number}"
    return replace(written, article=replace(written.article, pmid=str(number), doi=doi, url=url))
