"""Cases from a seed: a fact of the world, a picture, and the exact answer.

A wrong answer is as likely as chance makes it: yes and no come equally often, every finding, organ and choice too.
Whether a case has an answer does not show in its question or picture.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from ..chest_xray.anatomy import SIDES, Side
from ..chest_xray.radiographs import Film, Finding, Label, draw_film
from ..phantom.anatomy import Slice, draw_slice
from .articles import get_support
from .sentences import ask
from .world import CLASSES, FOCAL, QUESTIONS, Fact, Question, Split, find_facts

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
    """A case.

    Args:
        fact: that is asked about.
        question: in words.
        answer: the right one; "unknown" if no article that stands supports one.
        evidence: PMIDs of the articles that support it.
        choices: if there are any, the answer among them.
        findings: of the film; a case of the question `class` has a slice instead.
        device: whether the film shows a device; None: as its seed decides.
    """

    fact: Fact
    question: str
    answer: str | int
    evidence: tuple[str, ...]
    choices: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    device: bool | None = None


@lru_cache(maxsize=1024)
def plan_case(seed: int, question: Question, split: Split, unanswerable: float, difficulty: float) -> Case:
    """The case of a seed.

    Args:
        seed: the same seed gives the same case.
        question: which is asked.
        split: of the topics.
        unanswerable: the share of cases whose answer is "unknown".
        difficulty: of the picture.
    """
    rng = np.random.default_rng([seed, 31, QUESTIONS.index(question)])
    answerable = bool(rng.random() >= unanswerable)
    facts = find_facts(question, split, answerable)
    fact = facts[int(rng.integers(len(facts)))]
    evidence = get_support(fact) if answerable else ()
    answer, findings, device, choices = _PLANS[question](fact, rng, seed, difficulty)
    return Case(fact, ask(fact), answer if answerable else UNKNOWN, evidence, choices, findings, device)


def draw_case_film(case: Case, seed: int, difficulty: float) -> Film:
    """The film of a case."""
    return draw_film(seed, case.findings, difficulty=difficulty, device=case.device)


@lru_cache(maxsize=CACHED)
def draw_case_slice(seed: int, difficulty: float) -> Slice:
    """The slice of a case of the question `class`."""
    return draw_slice(seed, difficulty, has_lesion=True)


Plan = tuple[str | int, tuple[Finding, ...], bool | None, tuple[str, ...]]


def _plan_shows(fact: Fact, rng: np.random.Generator, seed: int, difficulty: float) -> Plan:
    """No: the finding that an outdated article names, or any other on any side."""
    yes = bool(rng.random() < 0.5)
    others = [(label, side) for label in FOCAL for side in SIDES if (label, side) != fact.right]
    near = [one for one in others if one[0] == fact.right[0] or one == fact.wrong]
    among = near if rng.random() < 0.7 else others
    label, side = fact.right if yes else among[int(rng.integers(len(among)))]
    return "yes" if yes else "no", (draw_finding(seed, label, side),), None, ()


def _plan_any(fact: Fact, rng: np.random.Generator, seed: int, difficulty: float) -> Plan:
    findings = (draw_finding(seed, FOCAL[int(rng.integers(len(FOCAL)))]),) if rng.random() < 0.5 else ()
    return fact.right, findings, None, ()


def _plan_dose(fact: Fact, rng: np.random.Generator, seed: int, difficulty: float) -> Plan:
    shown = bool(rng.random() < 0.5)
    others = [label for label in FOCAL if label != fact.sign]
    label = fact.sign if shown else others[int(rng.integers(len(others)))]
    return fact.right[0 if shown else 1], (draw_finding(seed, label),), None, ()


def _plan_cause(fact: Fact, rng: np.random.Generator, seed: int, difficulty: float) -> Plan:
    label = FOCAL[int(rng.integers(len(FOCAL)))]
    diseases = list(fact.right.values())
    choices = tuple(diseases[i] for i in rng.permutation(len(diseases)))
    return fact.right[label], (draw_finding(seed, label),), None, choices


def _plan_class(fact: Fact, rng: np.random.Generator, seed: int, difficulty: float) -> Plan:
    lesion = draw_case_slice(seed, difficulty).lesion
    assert lesion is not None
    return fact.right[lesion.organ], (), None, CLASSES


def _plan_limit(fact: Fact, rng: np.random.Generator, seed: int, difficulty: float) -> Plan:
    return fact.right, (), True, ()


def draw_finding(seed: int, label: Label, side: Side | None = None) -> Finding:
    """A finding that is easy to see, on a side, or on the one that the seed decides."""
    rng = np.random.default_rng([seed, 32])
    drawn = SIDES[int(rng.integers(2))]
    return Finding(label, side or drawn, float(rng.uniform(0.35, 0.9)), seed)


_PLANS: dict[Question, Any] = {
    "shows": _plan_shows,
    "therapy": _plan_any,
    "dose": _plan_dose,
    "effect": _plan_any,
    "cause": _plan_cause,
    "class": _plan_class,
    "limit": _plan_limit,
}
