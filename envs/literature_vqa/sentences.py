"""The questions about the invented articles, and the words that find them; `sentences.yaml` holds both."""

from pathlib import Path
from typing import Any

from ...configs import yaml_reader
from .world import Fact

_TABLES: Any = yaml_reader.read(Path(__file__).with_name("sentences.yaml")).values


def ask(fact: Fact) -> str:
    """Return the question about a fact."""
    return str(_TABLES["questions"][fact.question]).format(name=fact.topic.name, drug=fact.drug)


def write_query(fact: Fact) -> str:
    """Return words that find the articles about a fact."""
    return f"{fact.topic.name} {_TABLES['words'][fact.question].format(drug=fact.drug)}"
