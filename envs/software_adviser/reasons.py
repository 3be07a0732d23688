"""How good a stated reason is: it names the facts of the request that the software has, and none that it has not.

What counts is a claim: a fact in a clause without a negation. Words that stand in the catalogue's own text six in a row
are not read, so that copied text earns nothing by itself.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

from ...tools.search.snapshot.words import is_telling, split_words
from . import phrases
from .catalogue import SoftwareTool
from .request import Request
from .retrieval import list_telling
from .structures import compare, list_wider, read_terms
from .wishes import Fact, find_phrases, has_fact, is_licensed, read_phrases, read_stems, read_wishes

MAX_CHARS: Final = 600  # of a reason that are read
LEAST_WORDS, MOST_WORDS = 5, 90
COPIED: Final = 6  # words in a row that are the catalogue's
MOST_OTHERS: Final = 4  # facts beyond those of the request
NEGATED: Final = frozenset(("not", "cannot", "never", "unsure", "unless", "isn", "doesn", "can't", "nothing"))
AFTER: Final = re.compile(r"\b(?:no|without|lacks|lacking|except|unknown)\b", re.IGNORECASE)  # what follows is denied
_DENIES = r"(?:it )?(?:(?:do|does|is|has|can|need) ?n[o']t|cannot)\b"
CLAUSE: Final = re.compile(rf"[.;:!?\n]|,? (?:but|although|though|however|yet) |,? and (?={_DENIES})")
JOINT: Final = re.compile(r",| and ")  # ends what a "no" denies
LICENSES: Final[Mapping[str, str]] = phrases.KNOWN["said_of_licenses"]
_CARD = "(?:gpu|graphics card|cuda)"
GPU: Final = re.compile(rf"\b(?:needs?|requires?|demands?) (?:an? )?(?:nvidia )?{_CARD}", re.IGNORECASE)
_SPARED = r"\bno|\bwithout(?: a)?|\bno need (?:of|for) a|n[o']t (?:need|require) an?"
NO_GPU: Final = re.compile(rf"(?:{_SPARED}) {_CARD}|\bcpu only", re.IGNORECASE)


def rate_why(text: object, tool: Mapping[str, Any], wanted: Mapping[str, str]) -> float:
    """Return the share of the wanted facts that a reason names; 0 if it claims one that the catalogue denies.

    tool: as `describe_tool` gives it. wanted: task, modality, variant, format and structure of the request; empty ones
    do not count.

    >>> tool = {"name": "A", "tasks": ["segmentation"], "modalities": ["CT"], "formats": ["DICOM"], "variants": [],
    ...         "structures": ["lung"], "gpu": "no", "license": "MIT", "text": "Outlines lungs in CT."}
    >>> wanted = {"task": "segmentation", "modality": "CT", "format": "DICOM", "structure": "lung"}
    >>> rate_why("It segments the lungs on CT and reads DICOM files.", tool, wanted)
    1.0
    >>> rate_why("It segments teeth on CT from DICOM.", tool, wanted), rate_why("DICOM CT lung", tool, wanted)
    (0.0, 0.0)
    >>> rate_why("It is made for segmentation of the lung in CT, but cannot read DICOM.", tool, wanted)
    0.75
    """
    if not isinstance(text, str):
        return 0.0
    known = " ".join(split_words(f"{tool.get('text', '')} {wanted.get('said', '')}".casefold()))
    read = text[:MAX_CHARS]
    if tool["name"] not in tool["tasks"]:  # one is called "stitching"
        read = read.replace(str(tool["name"]), "it")
    read = _drop_copied(read, known)
    if not LEAST_WORDS <= len(split_words(read)) <= MOST_WORDS or not _is_sentence(read):
        return 0.0
    claims, lacking = _split_claims(read)
    if _is_denied(claims, read, tool, wanted.get("structure", "")):
        return 0.0
    named = {(kind, word) for claim in claims for kind, words in read_wishes(claim) for word in words}
    kinds = {"tasks": "task", "modalities": "modality", "formats": "format", "structures": "structure"}
    asked = {(kind, wanted[key]) for kind, key in kinds.items() if wanted.get(key)}
    if ("variants", wanted.get("variant")) in named:
        named.add(("modalities", wanted["modality"]))
    named |= {("structures", wider) for kind, word in named if kind == "structures" for wider in list_wider(word)}
    lacks = {(kind, word) for claim in lacking for kind, words in read_wishes(claim) for word in words}
    true = [fact for fact in asked if fact in (named if _has(tool, *fact) else lacks)]
    stuffed = len({fact for claim in claims for fact in _find_strict(claim)} - asked) > MOST_OTHERS
    return len(true) / max(1, len(asked)) * (0.5 if stuffed else 1.0)


def rate_explanation(text: object, missing: Sequence[str]) -> float:
    """Return 1 if an explanation is a sentence that names what is missing, by one of its phrases; else 0.

    >>> missing = ("stain normalization", "correct color differences")
    >>> rate_explanation("None of them can correct color differences of stains.", missing)
    1.0
    """
    if not isinstance(text, str):
        return 0.0
    stems, words = list_telling(text[:MAX_CHARS]), split_words(text[:MAX_CHARS])
    told = any(len(wanted & stems) * 2 >= len(wanted) > 0 for wanted in map(list_telling, missing))
    return float(told and LEAST_WORDS <= len(words) <= MOST_WORDS and _is_sentence(text[:MAX_CHARS]))


def describe_tool(tool: SoftwareTool, task: str) -> dict[str, Any]:
    """Return the facts by which a reason to take a tool for a task is judged."""
    lists = {name: list(getattr(tool, name)) for name in ("tasks", "modalities", "formats", "variants")}
    lists["structures"] = list(tool.structures_for(task))
    return {"name": tool.name, "gpu": tool.gpu, "license": tool.license, "text": tool.features, **lists}


def list_missing(request: Request) -> list[str]:
    """Return phrases of what no software has, or of what is wrong with the file; the first is a plain one."""
    wishes, split = [*request.constraints, *request.exclude], request.split
    tasks = [said for said, name in phrases.FOREIGN_TASKS[split] if name == request.task]
    kinds = [said for said, name in phrases.FOREIGN_MODALITIES[split] if name == request.modality]
    file = f"the file is {request.metadata.get('format')}"
    known: Mapping[str | None, list[str]] = {
        "invalid_files": [file, "the file cannot be read", "damaged file", "no image in it"],
        "no_task_match": [request.task, *tasks],
        "no_modality_match": [request.modality, *kinds],
        "no_dimension_match": [f"no software for {request.dimensions} images", request.dimensions],
    }
    return known.get(request.reason) or [f"it demands {', '.join(wishes) or 'other software'}", *wishes]


def _split_claims(text: str) -> tuple[list[str], list[str]]:
    """Return what a text claims, and what it denies: a clause with "not", and what follows a "no" or "without"."""
    claims, lacking = [], []
    for clause in CLAUSE.split(text):
        if NEGATED.intersection(clause.casefold().replace("n't", " not").split()):
            lacking.append(clause)
        else:
            first, *rest = AFTER.split(clause)
            ends = [JOINT.split(claim, maxsplit=1) for claim in rest]
            lacking += [denied for denied, *_ in ends]
            claims.append(", ".join((first, *(claimed for _, *more in ends for claimed in more))))
    return claims, lacking


def _is_sentence(text: str) -> bool:
    """Return whether words stand between the facts, as in a sentence: small words are a fifth or more."""
    words = split_words(text.casefold())
    if len(set(words)) * 2 < len(words):
        return False
    small = [word for word in words if not is_telling(word) or word in ("made", "reads", "works", "handles")]
    return len(small) * 5 >= len(words)


def _drop_copied(text: str, own: str) -> str:
    """Return a text without the words that stand so in the catalogue, six in a row or more."""
    pieces = re.split(r"(\s+)", text)
    words = [" ".join(split_words(piece.casefold())) for piece in pieces]
    places = [number for number, word in enumerate(words) if word]
    copied: set[int] = set()
    for start in range(len(places) - COPIED + 1):
        run = places[start : start + COPIED]
        if f" {' '.join(words[place] for place in run)} " in f" {own} ":
            copied.update(run)
    return "".join(piece for number, piece in enumerate(pieces) if number not in copied)


def _is_denied(claims: Sequence[str], text: str, tool: Mapping[str, Any], wanted: str) -> bool:
    claimed = {fact for claim in claims for fact in _find_strict(claim)}
    if wanted:  # where it lies is no claim
        claimed -= {("structures", wider) for wider in list_wider(wanted) if wider != wanted}
    if not all(_has(tool, *fact) for fact in claimed):
        return True
    said, known = "; ".join(claims).casefold(), tool.get("license") or ""
    if (GPU.search(said) and tool["gpu"] in ("no", "optional")) or (NO_GPU.search(text) and tool["gpu"] == "yes"):
        return True
    if not known:
        return False
    closed = ("proprietary" in said or "commercial software" in said) and "proprietary" not in known
    other = any(word in said and name.casefold() not in known.casefold() for word, name in LICENSES.items())
    return closed or other or ("permissive" in said and not is_licensed(known, "permissive"))


def _has(tool: Mapping[str, Any], kind: str, word: str) -> bool:
    if kind == "structures":
        return compare(tuple(tool["structures"]), word, False) not in ("contradiction", "part")
    return has_fact(SimpleNamespace(**tool), kind, word)


def _find_strict(text: str) -> Iterator[tuple[str, str]]:
    """Yield the facts that a text names by words that mean nothing else."""
    for facts in find_phrases(read_stems(text), _read_strict()):
        yield from facts


@cache
def _read_strict() -> Mapping[tuple[str, ...], tuple[Fact, ...]]:
    readings: dict[tuple[str, ...], tuple[Fact, ...]] = {}
    for term in read_terms("structures").values():
        readings |= {read_stems(phrase): (("structures", term.name),) for phrase in term.phrases}
    for stems, facts in (*read_phrases("").items(), *read_phrases("formats").items()):
        for kind, word in facts:
            if kind == "formats" or (kind == "tasks" and stems == read_stems(word)):
                readings[stems] = ((kind, word),)
    for word, names in phrases.KNOWN["names"].items():
        readings |= {read_stems(name): (("modalities", word),) for name in names}
    readings.pop((), None)
    return readings
