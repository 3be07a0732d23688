"""The sentences of the invented articles, and of the questions about them; `sentences.yaml` holds them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...configs import yaml_reader
from ...utils.frozen import freeze
from .world import Fact, Question

Texts = Mapping[Question, str]
_TABLES: Any = freeze(yaml_reader.read(Path(__file__).with_name("sentences.yaml")).values)
FINDINGS: Mapping[str, str] = _TABLES["findings"]
TITLES: Mapping[Question, tuple[str, ...]] = _TABLES["titles"]
BACKGROUNDS: tuple[str, ...] = _TABLES["backgrounds"]
WORK: tuple[str, ...] = _TABLES["work"]
GENERAL: tuple[tuple[str, str], ...] = _TABLES["general"]
JOURNALS: tuple[str, ...] = _TABLES["journals"]
TYPES: Texts = _TABLES["types"]
HEADINGS: Mapping[str, tuple[str, ...]] = _TABLES["headings"]
QUESTIONS: Texts = _TABLES["questions"]
WORDS: Texts = _TABLES["words"]
MISSING: Texts = _TABLES["missing"]


def ask(fact: Fact) -> str:
    """Return the question about a fact."""
    return QUESTIONS[fact.question].format(name=fact.topic.name, drug=fact.drug)


def write_query(fact: Fact) -> str:
    """Words that find the articles about a fact."""
    return f"{fact.topic.name} {WORDS[fact.question].format(drug=fact.drug)}"


def write_missing(fact: Fact) -> str:
    """Return the sentence of a review about a fact that nobody has reported."""
    return f"No study of {fact.topic.name} has reported {MISSING[fact.question]}."


def state(fact: Fact, value: Any, count: int) -> str:
    """Return the sentence that states a value of a fact."""
    name = fact.topic.name
    match fact.question:
        case "shows":
            return f"In all {count} people with {name} the film showed {FINDINGS[value[0]]} in the {value[1]} lung."
        case "therapy":
            return f"As the drug to give first for {name}, {value} is recommended."
        case "dose":
            return (
                f"For {name} the dose of {fact.drug} is {value[0]} mg a day if the film shows {FINDINGS[fact.sign]}, "
                f"and {value[1]} mg a day if it does not."
            )
        case "effect":
            return f"Of those with {name} on {fact.drug}, {value} % relapsed within a year."
        case "cause":
            return f"After exposure to {name}, {_list(f'{FINDINGS[sign]} means {one}' for sign, one in value.items())}."
        case "class":
            return f"In the {name} a lesion {_list(f'of the {organ} is {one}' for organ, one in value.items())}."
    return f"A patient with a {name} may be scanned for {value} minutes at most."


def _list(parts: Iterable[str]) -> str:
    *first, last = parts
    return f"{', '.join(first)}, and {last}"
