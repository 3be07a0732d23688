"""Drawn cases: what a film shows, what is asked about it, and the exact answer, all from a seed.

A wrong answer is as likely as chance makes it: findings that are not asked about come at the same rate whether the
right answer is yes or no, and every choice is right equally often.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.random import Generator as Rng

from .anatomy import SIDES, Side
from .radiographs import LABELS, Device, Film, Finding, Findings, Label, Shown, draw_film

Question = Literal[
    "presence", "which", "findings", "side", "place", "size", "describe", "compare", "complaint", "opinion"
]
QUESTIONS: tuple[Question, ...] = get_args(Question)
FOCAL: tuple[Label, ...] = tuple(label for label in LABELS if label != "cardiomegaly")
MEASURED: tuple[Label, ...] = ("consolidation", "nodule")
CHANGES = ("new", "gone", "larger", "smaller", "unchanged")
NOTHING = "no finding"
OTHERS = 0.1  # chance of each finding that is not asked about
COVERING = 0.45  # size of an effusion beyond which it may cover another finding
COUNTS = (0.12, 0.46, 0.42)  # chances of no, one, and two findings where all are asked for
COMPLAINTS = ("cough", "chest pain", "shortness of breath", "fever", "a check before surgery")
ILLNESSES = ("none is known", "asthma", "heart failure", "tuberculosis", "breast cancer")
SIZES: Mapping[str, tuple[float, float]] = {"small": (0.05, 0.3), "large": (0.65, 0.95)}
PLACE_ASKED = "Where is the {}? Give the smallest box around it."
SIZE_ASKED = "How many millimeters long is the {}? Count the longer side of the smallest box around it."
FOUR_SIDES = ("right", "left", "both", "none")


@dataclass(frozen=True)
class Case:
    """A case: findings of the film and of the earlier one (None: there is none), and the task made of them."""

    findings: Findings
    question: str
    choices: tuple[str, ...] = ()
    answer: str | tuple[str, ...] | None = None
    labels: tuple[str, ...] | None = None  # of `findings`: the right ones
    earlier: Findings | None = None
    spot: int | None = None  # the finding that a look should show
    facts: str = ""
    device: Device | Literal[False] | None = None  # the one that the film shows; None: as the seed decides


def name_finding(finding: Finding | Shown) -> str:
    """Return a finding with its side: "left effusion"; an enlarged heart has none."""
    return finding.label if finding.side is None else f"{finding.side} {finding.label}"


@lru_cache(maxsize=1024)
def plan_case(seed: int, kind: Question) -> Case:
    rng = np.random.default_rng([seed, 21, QUESTIONS.index(kind)])
    case: Case = _PLANS[kind](rng, seed)
    earlier = None if case.earlier is None else _keep_visible(case.earlier)
    case = replace(case, findings=_keep_visible(case.findings), earlier=earlier)
    return replace(case, facts=case.facts or _tell_story(rng, str(rng.choice(SIDES))))


def draw_case(seed: int, kind: Question, difficulty: float) -> list[Film]:
    case = plan_case(seed, kind)
    films = [draw_film(seed, case.findings, difficulty=difficulty, device=case.device)]
    if case.earlier is not None:
        films.append(draw_film(seed, case.earlier, study=1, difficulty=difficulty))
    return films


def _plan_presence(rng: Rng, seed: int) -> Case:
    asked = LABELS[int(rng.integers(len(LABELS)))]
    wanted = bool(rng.random() < 0.5)
    found = _draw_others(rng, seed, {asked})
    if wanted:
        found.append(_draw_finding(rng, asked, seed))
    said = {"effusion": "an ", "cardiomegaly": "", "consolidation": ""}.get(asked, "a ") + asked
    spot = len(found) - 1 if wanted else None
    return Case(tuple(found), f"Does the film show {said}?", ("yes", "no"), "yes" if wanted else "no", spot=spot)


def _plan_which(rng: Rng, seed: int) -> Case:
    number = int(rng.integers(len(LABELS) + 1))
    found = [_draw_finding(rng, LABELS[number], seed)] if number < len(LABELS) else []
    answer = LABELS[number] if found else NOTHING
    question, choices = "Which of these does the film show?", (*LABELS, NOTHING)
    return Case(tuple(found), question, choices, answer, spot=0 if found else None)


def _plan_findings(rng: Rng, seed: int) -> Case:
    count = int(rng.choice(3, p=COUNTS))
    findings = [_draw_finding(rng, LABELS[i], seed) for i in rng.permutation(len(LABELS))[:count]]
    question = (
        f"List every finding of the film with its side, such as 'left nodule'. There are five: {', '.join(LABELS)} "
        "(which has no side). List nothing if there is none."
    )
    return Case(tuple(findings), question, labels=tuple(map(name_finding, findings)), spot=0 if findings else None)


def _plan_side(rng: Rng, seed: int) -> Case:
    asked = FOCAL[int(rng.integers(len(FOCAL)))]
    answer = FOUR_SIDES[int(rng.integers(4))]
    sides = {"both": SIDES, "none": ()}.get(answer, (answer,))
    others = _draw_others(rng, seed, {asked})
    findings = [_draw_finding(rng, asked, seed + number, side) for number, side in enumerate(sides)]  # type: ignore[arg-type]
    question = f"On which side of the patient is there {'an' if asked == 'effusion' else 'a'} {asked}?"
    return Case((*findings, *others), question, FOUR_SIDES, answer, spot=0 if findings else None)


def _plan_target(labels: Sequence[Label], question: str, rng: Rng, seed: int) -> Case:
    asked = labels[int(rng.integers(len(labels)))]
    finding = _draw_finding(rng, asked, seed)
    others = _draw_others(rng, seed, {asked})
    what = "enlarged heart" if asked == "cardiomegaly" else asked
    return Case((finding, *others), question.format(what), spot=0)


def _plan_describe(rng: Rng, seed: int) -> Case:
    case = _plan_findings(rng, seed)
    if not case.findings:
        answer: tuple[str, ...] = ("no finding", "normal", "no abnormality", "normal chest", "normal film", "clear")
    else:
        names = [name_finding(finding) for finding in case.findings]
        answer = (", ".join(names), " and ".join(names))
    question = "Describe what is abnormal in as few words as possible, such as: left nodule, cardiomegaly."
    return Case(case.findings, question, answer=answer, spot=case.spot)


def _plan_compare(rng: Rng, seed: int) -> Case:
    asked = FOCAL[int(rng.integers(len(FOCAL)))]
    change = CHANGES[int(rng.integers(len(CHANGES)))]
    others = _draw_others(rng, seed, {asked})
    first = _draw_finding(rng, asked, seed)
    small, large = (replace(first, size=float(rng.uniform(*SIZES[name]))) for name in ("small", "large"))
    same = replace(first, size=float(rng.uniform(0.2, 0.9)))
    now, before = {
        "new": ([same], []), "gone": ([], [same]), "larger": ([large], [small]), "smaller": ([small], [large]),
        "unchanged": ([same], [same]),
    }[change]  # fmt: skip
    question = f"image_1 is today's film, image_2 an earlier one of the same patient. What has become of the {asked}?"
    earlier = (*before, *others)
    return Case((*now, *others), question, CHANGES, change, earlier=earlier, spot=0 if now else None)


def _plan_complaint(rng: Rng, seed: int) -> Case:
    choices = (*FOCAL, NOTHING)
    on_side = dict(zip(SIDES, (choices[i] for i in rng.permutation(len(choices))), strict=False))
    side = SIDES[int(rng.integers(2))]
    sides = [one for one in SIDES if on_side[one] != NOTHING]
    findings = tuple(_draw_finding(rng, on_side[one], seed, one) for one in sides)
    question = "The patient has pain on one side. Which finding lies on that side? If you need to know the side, ask."
    facts = _tell_story(rng, side)
    spot = sides.index(side) if side in sides else None
    return Case(findings, question, choices, on_side[side], spot=spot, facts=facts)


def _plan_opinion(rng: Rng, seed: int) -> Case:
    return replace(_plan_presence(rng, seed), device="pacemaker" if rng.random() < 0.5 else False)


_PLANS: Any = {
    "presence": _plan_presence, "which": _plan_which, "findings": _plan_findings, "side": _plan_side,
    "place": partial(_plan_target, LABELS, PLACE_ASKED), "size": partial(_plan_target, MEASURED, SIZE_ASKED),
    "describe": _plan_describe, "compare": _plan_compare, "complaint": _plan_complaint, "opinion": _plan_opinion,
}  # fmt: skip


def _draw_finding(rng: Rng, label: Label, seed: int, side: Side | None = None) -> Finding:
    drawn = SIDES[int(rng.integers(2))] if side is None else side
    return Finding(label, None if label == "cardiomegaly" else drawn, float(rng.uniform(0.1, 0.9)), seed)


def _keep_visible(findings: Findings) -> Findings:
    """Return the findings, with an effusion so small that it hides nothing else in its lung."""
    sides = [finding.side for finding in findings]
    return tuple(
        replace(one, size=min(one.size, COVERING)) if one.label == "effusion" and sides.count(one.side) > 1 else one
        for one in findings
    )


def _draw_others(rng: Rng, seed: int, asked: set[Label]) -> list[Finding]:
    return [_draw_finding(rng, label, seed + 7) for label in LABELS if label not in asked and rng.random() < OTHERS]


def _tell_story(rng: Rng, side: str) -> str:
    """Return what the referring doctor knows: nothing that the film shows."""
    age, complaint = int(rng.integers(25, 88)), COMPLAINTS[int(rng.integers(len(COMPLAINTS)))]
    smoker = "has smoked for years" if rng.random() < 0.5 else "has never smoked"
    days, illness = int(rng.integers(2, 30)), ILLNESSES[int(rng.integers(len(ILLNESSES)))]
    return (
        f"The patient is {age} years old.\nThe patient came because of {complaint}.\nThe pain is on the {side} side.\n"
        f"It began {days} days ago.\nThe patient {smoker}.\nEarlier illness: {illness}."
    )
