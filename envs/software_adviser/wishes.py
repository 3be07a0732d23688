"""What a query asks for: facts of the catalogue's vocabulary that its words name.

`wishes.txt` says which words ask for which fact. The same table gives BM25 its synonyms.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

from ...tools.search.snapshot.words import Synonyms, is_telling, read_shipped_synonyms, split_words, stem_word
from .catalogue import ANY, SoftwareTool

ANSWERS: Final = ("gpu", "demo", "license")  # facts whose words ("no", "yes") are no words of a query
NEGATIONS: Final = frozenset(("no", "not"))
PERMISSIVE: Final = frozenset(  # SPDX ids
    ("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "Unlicense", "CC0-1.0", "Zlib")
)

Fact = tuple[str, str]  # kind and word: ("modalities", "MR")
Wish = tuple[str, tuple[str, ...]]  # a kind, and words of it of which a tool needs any


def read_wishes(words: str, formats: Iterable[str] = ()) -> list[Wish]:
    """Return the wishes of a query, each once, and one more for each format of the files.

    >>> read_wishes("outline cells in a time lapse", ["TIFF"])
    [('tasks', ('segmentation',)), ('dimensions', ('2D+t', '3D+t')), ('formats', ('TIFF',))]
    """
    return list(dict.fromkeys((*_find(words), *(("formats", (word,)) for word in formats))))


def _find(words: str) -> Iterator[Wish]:
    stems, phrases = _list_stems(split_words(words)), _read_phrases()
    longest, place = max(map(len, phrases)), 0
    while place < len(stems):
        lengths = range(min(longest, len(stems) - place), 0, -1)
        length = next((length for length in lengths if tuple(stems[place : place + length]) in phrases), 0)
        found = phrases[tuple(stems[place : place + length])] if length else ()
        for kind in dict.fromkeys(kind for kind, _ in found):
            yield kind, tuple(word for other, word in found if other == kind)
        place += length or 1


def _list_stems(words: Sequence[str]) -> list[str]:
    """Return the stems of the words that count in a phrase: "turn it into a file" is "turn file"."""
    return [stem for word in words if is_telling(word) or word in NEGATIONS for stem in stem_word(word)]


def has_fact(tool: SoftwareTool, kind: str, word: str = "") -> bool:
    """Return whether a tool has a fact that is asked for; what is unknown is none."""
    if kind == "gpu":  # a tool that can use a graphics card runs without one
        return tool.gpu in ("no", "optional")
    if kind == "demo":
        return tool.demo is not None
    if kind == "license":
        return any(part.strip() in PERMISSIVE for part in (tool.license or "").split(" OR "))
    words: tuple[str, ...] = getattr(tool, kind)
    return word in words or (kind == "modalities" and ANY in words)


@cache
def read_table() -> tuple[tuple[Fact, tuple[str, ...]], ...]:
    """Return the lines of `wishes.txt`: a fact, and the phrases that ask for it."""
    lines = (files(__package__) / "wishes.txt").read_text(encoding="utf-8").splitlines()
    table = []
    for line in lines:
        if line and not line.startswith("#"):
            kind, _, rest = line.partition(": ")
            word, *phrases = rest.split(" = ")
            table.append(((kind, word), tuple(phrases if kind in ANSWERS else (word, *phrases))))
    return tuple(table)


@cache
def _read_phrases() -> Mapping[tuple[str, ...], tuple[Fact, ...]]:
    facts: dict[tuple[str, ...], tuple[Fact, ...]] = {}
    for fact, phrases in read_table():
        for phrase in phrases:
            stems = tuple(_list_stems(split_words(phrase)))
            facts[stems] = tuple(dict.fromkeys((*facts.get(stems, ()), fact)))
    return facts


@cache
def get_synonyms() -> Synonyms:
    """Return the phrases of `wishes.txt` that mean the same, and those of the search in the literature."""
    own = [list(phrases) for (kind, _), phrases in read_table() if kind not in ANSWERS]
    return Synonyms.build([*own, *read_shipped_synonyms()])
