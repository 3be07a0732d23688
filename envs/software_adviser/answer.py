"""The answer of the adviser: its schema (`answer.yaml`), and how an answer is made regular before it is scored.

What counts is what the answer holds, not which status it claims: choices make it `complete`, a question without choices
makes it `needs_clarification`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...configs import yaml_reader
from ...utils.frozen import freeze
from ...utils.values import normalize, to_text

COMPLETE: Final = "complete"
NEEDS_CLARIFICATION: Final = "needs_clarification"
MAX_SHOWN: Final = 10  # ranks that a message repeats
ANSWER: Final[Any] = freeze(yaml_reader.read_shipped(__package__, "answer.yaml"))
UNREAD: Final = "No answer could be read. Searched for: {queries}. The catalogue itself can be looked through."
OVER_QUOTA: Final = "The tool calls of this task were used up before an answer was given."


def normalize_answer(answer: Mapping[str, Any]) -> dict[str, object]:
    """Return an answer that fits the schema, with all its fields, its choices in the order of their ranks."""
    said = answer.get("conversation") or {}
    proposed = answer.get("choices") or ()
    ranked = sorted(enumerate(proposed, 1), key=lambda item: (item[1].get("rank") or item[0], item[0]))
    choices = [_normalize_choice(choice, place) for place, (_, choice) in enumerate(ranked, 1)]
    question = to_text(said.get("question")).strip()
    if choices:
        question = ""
    conversation = {
        "status": NEEDS_CLARIFICATION if question else COMPLETE,
        "question": question or None,
        "context": said.get("context") if question else None,
        "options": list(said.get("options") or ()) if question else [],
    }
    settled = bool(choices or question)
    return {
        "conversation": conversation,
        "choices": choices,
        "explanation": answer.get("explanation"),
        "reason": None if settled else answer.get("reason"),
    }


def find_problem(answer: Mapping[str, Any], num_choices: int) -> str | None:
    """Return what is wrong with an answer that fits the schema, as a sentence for the model; None if nothing is.

    >>> find_problem({"choices": [{"name": "A", "accuracy": 9, "rank": 1}, {"name": "B", "accuracy": 9, "rank": 1}]}, 3)
    'choices: the ranks are 1, 1; allowed: 1 to 2, each once'
    """
    choices = answer.get("choices") or ()
    if len(choices) > num_choices:
        return f"choices: {len(choices)} are given; allowed: at most {num_choices}"
    names = [normalize(choice["name"]).text for choice in choices]
    if "" in names:
        return "choices: a name is empty"
    if twice := next((name for name in names if names.count(name) > 1), None):
        return f"choices: {twice[:80]!r} is named twice; allowed: each software once"
    ranks = [choice["rank"] for choice in choices if choice.get("rank") is not None]
    if ranks and sorted(ranks) != list(range(1, len(choices) + 1)):
        shown = ", ".join(map(str, ranks[:MAX_SHOWN]))
        return f"choices: the ranks are {shown}; allowed: 1 to {len(choices)}, each once"
    said = answer.get("conversation") or {}
    if to_text(said.get("question")).strip() and not choices and not to_text(said.get("context")).strip():
        return "conversation: a question has no context; say why you ask"
    if answer.get("reason") and not choices and not to_text(answer.get("explanation")).strip():
        return "explanation: it is empty; a reason needs one"
    if not (choices or to_text(said.get("question")).strip() or answer.get("reason") or answer.get("explanation")):
        return "there is no choice, no question, no reason and no explanation; give one of them"
    return None


def name_numbers(answer: Mapping[str, Any], found: Sequence[str]) -> dict[str, object]:
    """Return a regular answer with each name that is a number replaced by that name of a search.

    >>> answer = name_numbers(normalize_answer({"choices": [{"name": "2", "accuracy": 90}]}), ["Fiji", "napari"])
    >>> answer["choices"][0]["name"]
    'napari'
    """
    numbered = {str(number): name for number, name in enumerate(found, 1)}
    choices = [{**choice, "name": numbered.get(choice["name"], choice["name"])} for choice in answer["choices"]]
    return {**answer, "choices": choices}


def _normalize_choice(choice: Mapping[str, Any], rank: int) -> dict[str, Any]:
    return {
        "name": choice["name"].strip(),
        "rank": rank,
        "accuracy": float(choice["accuracy"]),
        "why": choice.get("why"),
        "demo_link": to_text(choice.get("demo_link")).strip() or None,
    }
