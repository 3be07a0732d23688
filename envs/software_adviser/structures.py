"""What pictures show (organs, tissues, cells, lesions) and the kinds of a modality: two vocabularies with synonyms, and
how what a tool is for compares with what a user wants.

`structures.txt` and `variants.txt` hold a word a line, behind it what it is a part or a kind of, and its synonyms. A
tool names structures; `brain+` stands for the brain and all its parts, `any` for a tool that does not depend on what is
shown. A tool that names none has not said: that is less than a match and more than a contradiction.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final, Literal

ANY: Final = "any"
WITH_PARTS: Final = "+"
LESION: Final = "lesion"
MARKING: Final = (
    "segmentation", "detection", "classification", "measurement", "tracking", "radiomics", "pose estimation",
)  # fmt: skip
Fit = Literal["match", "covers", "unknown", "part", "contradiction"]
SHARES: Final[Mapping[Fit, float]] = {"match": 1.0, "covers": 0.8, "unknown": 0.6, "part": 0.3, "contradiction": 0.1}


@dataclass(frozen=True)
class Term:
    """A word of a vocabulary, what it lies in or is a kind of, and the phrases that mean the same, its own first."""

    name: str
    parents: tuple[str, ...]
    phrases: tuple[str, ...]


@cache
def read_terms(kind: Literal["structures", "variants"]) -> Mapping[str, Term]:
    """Return a vocabulary by its words.

    >>> read_terms("structures")["lung lobe"].parents, "renal" in read_terms("structures")["kidney"].phrases
    (('lung',), True)
    """
    terms = {}
    file = {"structures": "structures.txt", "variants": "variants.txt"}[kind]  # as publishing looks for them
    for head, *phrases in read_lines(file):
        name, _, parents = head.partition(" < ")
        terms[name] = Term(name, tuple(filter(None, parents.split(", "))), (name, *phrases))
    return terms


def read_lines(name: str) -> Iterator[list[str]]:
    """Yield the lines of a text file of this folder, each divided at its equals signs."""
    for line in (files(__package__) / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line.split(" = ")


@cache
def list_wider(name: str) -> frozenset[str]:
    """Return all that a structure lies in or is a kind of, itself among it.

    >>> sorted(list_wider("lung lobe"))
    ['lung', 'lung lobe', 'thorax', 'whole body']
    """
    wider = {name}
    for parent in read_terms("structures")[name].parents:
        wider |= list_wider(parent)
    return frozenset(wider)


@lru_cache(maxsize=2**16)
def compare(named: tuple[str, ...], wanted: str, marks: bool = True) -> Fit:
    """Return how what a tool names fits what is wanted.

    marks: whether the task marks structures, as segmentation does. Then a tool for a whole is none for its parts,
    unless it says so (`brain+`), and none for lesions, unless it names them. For any other task, a whole covers its
    parts.

    >>> [compare(named, "lung") for named in (
    ...     ("lung lobe", "lung"), ("whole body+",), ("any",), (), ("lung lobe",), ("tooth",))]
    ['match', 'covers', 'covers', 'unknown', 'part', 'contradiction']
    >>> compare(("brain",), "hippocampus"), compare(("brain",), "hippocampus", False), compare(("brain+",), "MS lesion")
    ('contradiction', 'covers', 'contradiction')
    """
    if {wanted, wanted + WITH_PARTS}.intersection(named):
        return "match"
    wider = list_wider(wanted)
    if marks and LESION in wider:
        wider = frozenset(name for name in wider if LESION in list_wider(name))
    whole = {name.removesuffix(WITH_PARTS) for name in named if not marks or name.endswith(WITH_PARTS)}
    if ANY in named or whole & wider:
        return "covers"
    if not named:
        return "unknown"
    has_part = any(wanted in list_wider(name.removesuffix(WITH_PARTS)) for name in named)
    return "part" if has_part else "contradiction"


def fits_variant(named: Iterable[str], wanted: str) -> bool:
    """Return whether a kind of a modality is among those that a tool names; one that names none of it takes all.

    >>> fits_variant(["diffusion MR"], "structural MR"), fits_variant(["cryo-EM"], "structural MR")
    (False, True)
    """
    terms = read_terms("variants")
    rivals = [name for name in named if terms[name].parents == terms[wanted].parents]
    return not rivals or wanted in rivals


def check_term(name: str, kind: Literal["structures", "variants"]) -> str:
    """Return a word of a vocabulary; a structure also with its parts, or `any`. Raise `ValueError` for another."""
    whole = name.removesuffix(WITH_PARTS) if kind == "structures" else name
    if whole not in read_terms(kind) and (name, kind) != (ANY, "structures"):
        parts = ", one with + for it and its parts, or any" if kind == "structures" else ""
        raise ValueError(f"allowed: a word of {kind}.txt{parts}")
    return name
