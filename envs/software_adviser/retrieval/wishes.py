"""What a query asks for: facts of the catalogue's vocabulary that its words name.

`words.txt` says which words ask for which fact. The same table gives BM25 and the vectors their synonyms.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from ....tools.search.snapshot.words import Synonyms, is_telling, read_shipped_synonyms, split_words, stem_word
from ..software import ANY, SoftwareTool

LISTS: Final = ("tasks", "modalities", "dimensions", "formats", "interfaces")
ANSWERS: Final = ("gpu", "demo", "license")  # facts whose words ("no", "yes") are no words of a query
NEGATIONS: Final = frozenset(("no", "not"))
PERMISSIVE: Final = ("MIT", "BSD", "Apache", "ISC", "Unlicense", "CC0", "Zlib")  # beginnings of SPDX ids

Fact = tuple[str, str]  # kind and word: ("modalities", "MR")


@dataclass(frozen=True)
class Wish:
    """Facts of one kind; a tool with any of them meets the wish."""

    kind: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class WishReader:
    """Finds wishes in words.

    facts: by the stems of the phrases that ask for them.
    longest: words of a phrase at most.
    """

    facts: Mapping[tuple[str, ...], tuple[Fact, ...]]
    longest: int

    def read(self, words: str, formats: Iterable[str] = ()) -> list[Wish]:
        """The wishes of a query, each once, and one more for the formats of the files.

        >>> get_wish_reader().read("outline cells in a time lapse", ["TIFF"])
        [Wish(kind='tasks', words=('segmentation',)), Wish(kind='dimensions', words=('2D+t', '3D+t')), \
Wish(kind='formats', words=('TIFF',))]
        """
        wishes = dict.fromkeys(Wish(kind, words) for kind, words in self._find(split_words(words)))
        for word in dict.fromkeys(formats):
            wishes[Wish("formats", (word,))] = None
        return list(wishes)

    def _find(self, words: Sequence[str]) -> Iterable[tuple[str, tuple[str, ...]]]:
        stems = _list_stems(words)
        place = 0
        while place < len(stems):
            for length in range(min(self.longest, len(stems) - place), 0, -1):
                found = self.facts.get(tuple(stems[place : place + length]))
                if found:
                    for kind in dict.fromkeys(kind for kind, _ in found):
                        yield kind, tuple(word for other, word in found if other == kind)
                    place += length
                    break
            else:
                place += 1


def _list_stems(words: Sequence[str]) -> list[str]:
    """The stems of the words that count in a phrase: "turn it into a file" is "turn file"."""
    return [stem for word in words if is_telling(word) or word in NEGATIONS for stem in stem_word(word)]


def has_fact(tool: SoftwareTool, kind: str, word: str) -> bool:
    """Whether a tool has a fact that is asked for."""
    if kind == "gpu":  # a tool that can use a graphics card runs without one
        return tool.gpu in ("no", "optional")
    if kind == "demo":
        return tool.demo is not None
    if kind == "license":
        return any(part.strip().startswith(PERMISSIVE) for part in (tool.license or "").split(" OR "))
    words: tuple[str, ...] = getattr(tool, kind)
    return word in words or (kind == "modalities" and ANY in words)


@cache
def read_table() -> tuple[tuple[Fact, tuple[str, ...]], ...]:
    """The lines of `words.txt`: a fact, and the phrases that ask for it."""
    lines = (files(__package__) / "words.txt").read_text(encoding="utf-8").splitlines()
    table = []
    for line in lines:
        if line and not line.startswith("#"):
            kind, _, rest = line.partition(": ")
            word, *phrases = rest.split(" = ")
            table.append(((kind, word), tuple(phrases if kind in ANSWERS else (word, *phrases))))
    return tuple(table)


@cache
def get_wish_reader() -> WishReader:
    """The reader of `words.txt`."""
    facts: dict[tuple[str, ...], tuple[Fact, ...]] = {}
    for fact, phrases in read_table():
        for phrase in phrases:
            stems = tuple(_list_stems(split_words(phrase)))
            facts[stems] = tuple(dict.fromkeys((*facts.get(stems, ()), fact)))
    return WishReader(facts, max(map(len, facts)))


@cache
def get_synonyms() -> Synonyms:
    """The phrases of `words.txt` that mean the same, and those of the search in the literature."""
    own = [list(phrases) for (kind, _), phrases in read_table() if kind not in ANSWERS]
    return Synonyms.build([*own, *read_shipped_synonyms()])
