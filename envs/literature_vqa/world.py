"""The invented world: topics, and for each the facts that its literature tells, hides or takes back.

The world is one, whatever the seed of a task: `facts.jsonl` holds its facts, `sentences.yaml` the questions about them,
and the shipped snapshot its articles. `benchmarks/write_literature.py` invents and writes facts and articles. No topic
is in both splits. Its names are invented, so that no pretrained model can know their facts.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal, get_args

import msgspec

from ...configs import yaml_reader
from ...utils.frozen import freeze
from ..chest_xray.radiographs import Label

Question = Literal["shows", "therapy", "dose", "effect", "cause", "class", "limit"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
Status = Literal["known", "confirmed", "revised", "disputed", "retracted", "unreported", "absent"]
ANSWERABLE: tuple[Status, ...] = ("known", "confirmed", "revised", "disputed")
Split = Literal["train", "test"]
TopicKind = Literal["disease", "exposure", "classification", "device"]
FOCAL: tuple[Label, ...] = ("effusion", "pneumothorax", "consolidation", "nodule")
_SENTENCES: Any = yaml_reader.read_shipped(__package__, "sentences.yaml")
CLASSES = ("class I", "class II", "class III", "class IV")


@dataclass(frozen=True)
class Topic:
    """What articles are about."""

    kind: TopicKind
    name: str
    split: Split

    @property
    def key(self) -> str:
        """The invented word of its name."""
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


@lru_cache(maxsize=1)
def read_facts() -> tuple[Fact, ...]:
    """Return all facts of the world, topic by topic."""
    lines = (files(__package__) / "facts.jsonl").read_bytes()
    facts = msgspec.json.Decoder(Fact).decode_lines(lines)
    return tuple(replace(fact, right=freeze(fact.right), wrong=freeze(fact.wrong)) for fact in facts)


@lru_cache(maxsize=64)
def find_facts(question: Question, split: Split, answerable: bool) -> tuple[Fact, ...]:
    """Return the facts of one question in a split that have an answer, or that have none."""
    return tuple(
        fact
        for fact in read_facts()
        if (fact.question, fact.topic.split, fact.is_answerable) == (question, split, answerable)
    )


def ask(fact: Fact) -> str:
    """Return the question about a fact."""
    return str(_SENTENCES["questions"][fact.question]).format(name=fact.topic.name, drug=fact.drug)


def write_query(fact: Fact) -> str:
    """Return words that find the articles about a fact."""
    return f"{fact.topic.name} {_SENTENCES['words'][fact.question].format(drug=fact.drug)}"
