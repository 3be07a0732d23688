"""The invented world: topics, and for each the facts that its literature tells, hides or takes back.

The world is one, whatever the seed of a task: `facts.jsonl` holds its facts, `sentences.yaml` the questions about them,
and the shipped snapshot its articles. `benchmarks/write_literature.py` invents and writes facts and articles. No topic
is in both splits. Its names are invented, so that no pretrained model can know their facts.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from ...configs import yaml_reader
from ...errors import ConfigError
from ...utils.frozen import freeze
from ..chest_xray.anatomy import SIDES, Side
from ..chest_xray.radiographs import Film, Finding, Label, draw_film
from ..drawn import Split
from ..phantom.anatomy import PhantomSlice, draw_slice

Question = Literal["shows", "therapy", "dose", "effect", "cause", "class", "limit"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
Status = Literal["known", "confirmed", "revised", "disputed", "retracted", "unreported", "absent"]
ANSWERABLE: tuple[Status, ...] = ("known", "confirmed", "revised", "disputed")
TopicKind = Literal["disease", "exposure", "classification", "device"]
FOCAL: tuple[Label, ...] = ("effusion", "pneumothorax", "consolidation", "nodule")
_SENTENCES: Any = yaml_reader.read_shipped(__package__, "sentences.yaml")
CLASSES = ("class I", "class II", "class III", "class IV")


@dataclass(frozen=True)
class Topic:
    kind: TopicKind
    name: str
    split: Split

    @property
    def key(self) -> str:
        return self.name.split()[0]


@dataclass(frozen=True)
class Fact:
    """What the literature says about one question of a topic.

    Args:
        status: known: one article says it; confirmed: two; revised: a newer article corrects an older one; disputed: a
            retracted article says another thing; retracted: only a retracted article says anything; unreported: nobody
            says it; absent: no article is about the topic. The last three have no answer.
        right, wrong: what standing articles say, and what older or retracted ones say. A (finding, side) for shows, a
            name for therapy, a number for effect and limit, (with, without) for dose, a mapping for cause and class.
        drug: that dose and effect are about; empty for others.
        sign: the finding on which the dose depends.
        evidence: the PMIDs of the articles that support it; empty if none does.
    """

    topic: Topic
    question: Question
    status: Status
    right: Any
    wrong: Any
    drug: str = ""
    sign: Label = "effusion"
    evidence: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_answerable(self) -> bool:
        return self.status in ANSWERABLE


@lru_cache(maxsize=4)
def read_facts(path: str | None = None) -> tuple[Fact, ...]:
    """Return all facts of a world, topic by topic: of the shipped one, or of a file's. Raise `ConfigError`."""
    file = Path(path) if path else files(__package__) / "facts.jsonl"
    try:
        facts = msgspec.json.Decoder(Fact).decode_lines(file.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        reason = f"cannot be read ({str(error)[:200]}); allowed: a file that benchmarks/write_literature.py wrote"
        raise ConfigError(f"facts = {str(path)!r}: {reason}", key="facts") from error
    return tuple(replace(fact, right=freeze(fact.right), wrong=freeze(fact.wrong)) for fact in facts)


@lru_cache(maxsize=64)
def find_facts(question: Question, split: Split, answerable: bool, path: str | None = None) -> tuple[Fact, ...]:
    """Return the facts of one question in a split that have an answer, or that have none."""
    asked = question, split, answerable
    return tuple(fact for fact in read_facts(path) if (fact.question, fact.topic.split, fact.is_answerable) == asked)


def ask(fact: Fact, *, told: bool = False) -> str:
    said = _SENTENCES["told"][fact.question] if told else ""
    words = {"name": fact.topic.name, "drug": fact.drug, "right": fact.right}
    return str(said + _SENTENCES["questions"][fact.question]).format(**words)


def write_query(fact: Fact) -> str:
    """Return words that find the articles about a fact."""
    return f"{fact.topic.name} {_SENTENCES['words'][fact.question].format(drug=fact.drug)}"


# A wrong answer is as likely as chance makes it: yes and no come equally often, every finding, organ and choice too.
# Whether a case has an answer does not show in its question or picture.
UNKNOWN = "unknown"
Kind = Literal["closed", "choice", "number", "text"]
KINDS: dict[Question, Kind] = {
    "shows": "closed", "therapy": "text", "dose": "number", "effect": "number", "cause": "choice", "class": "choice",
    "limit": "number",
}  # fmt: skip
UNITS: dict[Question, str] = {"dose": "mg", "effect": "%", "limit": "minutes"}
CACHED = 64  # slices


@dataclass(frozen=True)
class LiteratureCase:
    """A case: the fact that is asked about, the question in words, and the right answer."""

    fact: Fact
    question: str
    answer: str | int  # "unknown" if no article that stands supports one
    evidence: tuple[str, ...]  # PMIDs of the articles that support it
    choices: tuple[str, ...] = ()  # if there are any, the answer among them
    findings: tuple[Finding, ...] = ()  # of the film; a case of the question `class` has a slice instead
    device: bool | None = None  # whether the film shows one; None: as its seed decides
    told: bool = False  # the question says the answer, so that nothing is to be searched for


@lru_cache(maxsize=1024)
def plan_case(
    seed: int, question: Question, split: Split, unanswerable: float, difficulty: float, path: str | None, told: float
) -> LiteratureCase:
    """Return the case of a seed; `unanswerable` is the share without an answer, `told` of those that say it."""
    rng = np.random.default_rng([seed, 31, QUESTIONS.index(question)])
    answerable = bool(rng.random() >= unanswerable)
    said = answerable and question in _SENTENCES["told"] and bool(np.random.default_rng([seed, 33]).random() < told)
    facts = find_facts(question, split, answerable, path)
    if not facts:
        raise ConfigError(f"facts = {path!r}: has no {question!r} of the split {split}", key="facts")
    fact = facts[int(rng.integers(len(facts)))]
    evidence = fact.evidence if answerable and not said else ()
    answer, shown, choices = _plan_picture(fact, rng, seed, difficulty)
    findings = (draw_finding(seed, *shown),) if shown else ()
    device = True if question == "limit" else None
    answer = answer if answerable else UNKNOWN
    return LiteratureCase(fact, ask(fact, told=said), answer, evidence, choices, findings, device, said)


def draw_case_film(case: LiteratureCase, seed: int, difficulty: float) -> Film:
    return draw_film(seed, case.findings, difficulty=difficulty, device=case.device)


@lru_cache(maxsize=CACHED)
def draw_case_slice(seed: int, difficulty: float) -> PhantomSlice:
    return draw_slice(seed, difficulty, has_lesion=True)


def _plan_picture(
    fact: Fact, rng: np.random.Generator, seed: int, difficulty: float
) -> tuple[str | int, tuple[Label, Side | None] | None, tuple[str, ...]]:
    """Return the right answer, the finding of the film and its side (if a film has any), and the choices."""
    answer: str | int = fact.right if isinstance(fact.right, str | int) else ""
    if fact.question == "shows":  # no: the finding that an outdated article names, or any other on any side
        yes = bool(rng.random() < 0.5)
        others = [(label, side) for label in FOCAL for side in SIDES if (label, side) != fact.right]
        near = [other for other in others if other[0] == fact.right[0] or other == fact.wrong]
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
