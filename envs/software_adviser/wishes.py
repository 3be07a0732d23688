"""What a query asks for: facts of the catalogue's vocabulary that its words name.

`wishes.txt` says which words ask for which fact. The same table gives BM25 its synonyms.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Final, TypeVar

from ...tools.search.snapshot.words import Synonyms, is_telling, read_shipped_synonyms, split_words, stem_word
from .catalogue import SoftwareTool
from .phrases import KNOWN
from .structures import ANY, SHARES, compare, fits_variant, list_wider, read_lines, read_terms

ANSWERS: Final = ("gpu", "demo", "license")  # facts whose words ("no", "yes") are no words of a query
VOCABULARIES: Final = ("", "formats", "structures", "variants")  # each is read on its own: "chest film" is two wishes
NEGATIONS: Final = frozenset(("no", "not"))
PERMISSIVE: Final[tuple[str, ...]] = KNOWN["permissive"]
UNFREE: Final[tuple[str, ...]] = KNOWN["unfree"]

T = TypeVar("T")
Fact = tuple[str, str]  # kind and word: ("modalities", "MR")
Wish = tuple[str, tuple[str, ...]]  # a kind, and words of it of which a tool needs any


def read_wishes(words: str, formats: Iterable[str] = ()) -> list[Wish]:
    """Return the wishes of a query, each once, and one more for each format of the files.

    >>> read_wishes("outline cells in a time lapse", ["TIFF"])[:2]
    [('tasks', ('segmentation',)), ('dimensions', ('2D+t', '3D+t'))]
    >>> read_wishes("pulmonary lobes")
    [('structures', ('lung lobe',))]
    """
    stems = read_stems(words)
    wishes = [wish for vocabulary in VOCABULARIES for wish in _find(stems, vocabulary)]
    named = {name for kind, names in wishes if kind == "structures" for name in names}
    wider = {name for structure in named for name in list_wider(structure) if name != structure}
    narrow = [(kind, names) for kind, names in wishes if kind != "structures" or not wider.issuperset(names)]
    return list(dict.fromkeys((*narrow, *(("formats", (word,)) for word in formats))))


def _find(stems: Sequence[str], vocabulary: str) -> Iterator[Wish]:
    for phrase in find_phrases(stems, read_phrases(vocabulary)):
        for kind in dict.fromkeys(kind for kind, _ in phrase):
            yield kind, tuple(word for other, word in phrase if other == kind)


def find_phrases(stems: Sequence[str], phrases: Mapping[tuple[str, ...], T]) -> Iterator[T]:
    """Yield what the phrases in a text stand for, in its order; the longest that begins at a word counts."""
    longest, place = max(map(len, phrases)), 0
    while place < len(stems):
        lengths = range(min(longest, len(stems) - place), 0, -1)
        length = next((length for length in lengths if tuple(stems[place : place + length]) in phrases), 0)
        if length:
            yield phrases[tuple(stems[place : place + length])]
        place += length or 1


def read_stems(text: str) -> tuple[str, ...]:
    """Return the stems of the words that count in a phrase: "turn it into a file" is "turn file"."""
    counted = (word for word in split_words(text) if is_telling(word) or word in NEGATIONS)
    return tuple(stem for word in counted for stem in stem_word(word))


def has_fact(tool: SoftwareTool | SimpleNamespace, kind: str, word: str = "") -> bool:
    """Return whether a tool has a fact that is asked for; what is unknown is none. Structures: see `rate_fact`."""
    if kind == "gpu":  # a tool that can use a graphics card runs without one
        return tool.gpu in ("no", "optional")
    if kind == "demo":
        return tool.demo is not None
    if kind == "license":
        return is_licensed(tool.license, word)
    if kind == "variants":
        return fits_variant(tool.variants, word)
    words: tuple[str, ...] = getattr(tool, kind)
    return word in words or (kind == "modalities" and ANY in words)


def is_licensed(license: str | None, word: str) -> bool:
    """Return whether a license is "free" or "permissive": one of its choices, in all parts; an unknown one is none.

    >>> is_licensed("Apache-2.0 OR EPL-2.0", "permissive"), is_licensed("MIT AND GPL-3.0", "permissive")
    (True, False)
    """
    choices = [choice.split(" AND ") for choice in (license or UNFREE[0]).split(" OR ")]
    return any(
        all(one in PERMISSIVE or (word == "free" and not one.startswith(UNFREE)) for one in map(str.strip, choice))
        for choice in choices
    )


def rate_fact(tool: SoftwareTool, kind: str, word: str = "", task: str = "") -> float:
    """Return how well a tool meets a fact that is asked for, 0 to 1; a structure, asked for with a task or without, may
    be met in part."""
    if kind == "structures":
        return SHARES[compare(tool.structures_for(task), word)]
    return float(has_fact(tool, kind, word))


@cache
def read_table() -> tuple[tuple[Fact, tuple[str, ...]], ...]:
    """Return the lines of `wishes.txt` and of the vocabularies: a fact, and the phrases that ask for it."""
    table = []
    for head, *phrases in read_lines("wishes.txt"):
        kind, _, word = head.partition(": ")
        table.append(((kind, word), tuple(phrases if kind in ANSWERS else (word, *phrases))))
    for vocabulary in ("structures", "variants"):
        table += [((vocabulary, term.name), term.phrases) for term in read_terms(vocabulary).values()]
    return tuple(table)


@cache
def read_phrases(vocabulary: str) -> Mapping[tuple[str, ...], tuple[Fact, ...]]:
    facts: dict[tuple[str, ...], tuple[Fact, ...]] = {}
    for fact, phrases in read_table():
        if vocabulary != (fact[0] if fact[0] in VOCABULARIES else ""):
            continue
        for phrase in phrases:
            stems = read_stems(phrase)
            facts[stems] = tuple(dict.fromkeys((*facts.get(stems, ()), fact)))
    return facts


@cache
def get_synonyms() -> Synonyms:
    """Return the phrases of `wishes.txt` that mean the same, and those of the search in the literature."""
    groups = [list(phrases) for (kind, _), phrases in read_table() if kind not in ANSWERS]
    return Synonyms.build([*groups, *read_shipped_synonyms()])
