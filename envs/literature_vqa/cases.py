"""Cases from a seed: a fact of the world, a picture, and the exact answer.

A wrong answer is as likely as chance makes it: yes and no come equally often, every finding, organ and choice too.
Whether a case has an answer does not show in its question or picture.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from ..chest_xray.anatomy import SIDES, Side
from ..chest_xray.radiographs import Film, Finding, Label, draw_film
from ..phantom.anatomy import Slice, draw_slice
from .world import CLASSES, FOCAL, QUESTIONS, Fact, Question, Split, ask, find_facts

UNKNOWN = "unknown"
Kind = Literal["closed", "choice", "number", "text"]
KINDS: dict[Question, Kind] = {
    "shows": "closed",
    "therapy": "text",
    "dose": "number",
    "effect": "number",
    "cause": "choice",
    "class": "choice",
    "limit": "number",
}
UNITS: dict[Question, str] = {"dose": "mg", "effect": "%", "limit": "minutes"}
CACHED = 64  # slices


@dataclass(frozen=True)
class Case:
    """A case: the fact that is asked about, the question in words, and the right answer."""

    fact: Fact
    question: str
    answer: str | int  # "unknown" if no article that stands supports one
    evidence: tuple[str, ...]  # PMIDs of the articles that support it
    choices: tuple[str, ...] = ()  # if there are any, the answer among them
    findings: tuple[Finding, ...] = ()  # of the film; a case of the question `class` has a slice instead
    device: bool | None = None  # whether the film shows one; None: as its seed decides


@lru_cache(maxsize=1024)
def plan_case(seed: int, question: Question, split: Split, unanswerable: float, difficulty: float) -> Case:
    """Return the case of a seed, about a topic of the split; `unanswerable` is the share of cases without an answer."""
    rng = np.random.default_rng([seed, 31, QUESTIONS.index(question)])
    answerable = bool(rng.random() >= unanswerable)
    facts = find_facts(question, split, answerable)
    fact = facts[int(rng.integers(len(facts)))]
    evidence = fact.evidence if answerable else ()
    answer, shown, choices = _plan_picture(fact, rng, seed, difficulty)
    findings = (draw_finding(seed, *shown),) if shown else ()
    device = True if question == "limit" else None
    return Case(fact, ask(fact), answer if answerable else UNKNOWN, evidence, choices, findings, device)


def draw_case_film(case: Case, seed: int, difficulty: float) -> Film:
    """Return the film of a case."""
    return draw_film(seed, case.findings, difficulty=difficulty, device=case.device)


@lru_cache(maxsize=CACHED)
def draw_case_slice(seed: int, difficulty: float) -> Slice:
    """Return the slice of a case of the question `class`."""
    return draw_slice(seed, difficulty, has_lesion=True)


def _plan_picture(
    fact: Fact, rng: np.random.Generator, seed: int, difficulty: float
) -> tuple[str | int, tuple[Label, Side | None] | None, tuple[str, ...]]:
    """Return the right answer, the finding of the film and its side (if a film has any), and the choices."""
    answer: str | int = fact.right if isinstance(fact.right, str | int) else ""
    if fact.question == "shows":  # no: the finding that an outdated article names, or any other on any side
        yes = bool(rng.random() < 0.5)
        others = [(label, side) for label in FOCAL for side in SIDES if (label, side) != fact.right]
        near = [one for one in others if one[0] == fact.right[0] or one == fact.wrong]
        among = near if rng.random() < 0.7 else others
        return "yes" if yes else "no", fact.right if yes else among[int(rng.integers(len(among)))], ()
    if fact.question == "dose":
        shown = bool(rng.random() < 0.5)
        labels = [label for label in FOCAL if label != fact.sign]
        return fact.right[0 if shown else 1], (fact.sign if shown else labels[int(rng.integers(len(labels)))], None), ()
    if fact.question == "cause":
        label, diseases = FOCAL[int(rng.integers(len(FOCAL)))], list(fact.right.values())
        return fact.right[label], (label, None), tuple(diseases[i] for i in rng.permutation(len(diseases)))
    if fact.question == "class":
        lesion = draw_case_slice(seed, difficulty).lesion
        assert lesion is not None
        return fact.right[lesion.organ], None, CLASSES
    if fact.question == "limit":
        return answer, None, ()
    return answer, (FOCAL[int(rng.integers(len(FOCAL)))], None) if rng.random() < 0.5 else None, ()


def draw_finding(seed: int, label: Label, side: Side | None = None) -> Finding:
    """Return a finding that is easy to see, on a side, or on the one that the seed decides."""
    rng = np.random.default_rng([seed, 32])
    drawn = SIDES[int(rng.integers(2))]
    return Finding(label, side or drawn, float(rng.uniform(0.35, 0.9)), seed)
