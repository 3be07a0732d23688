"""`vqa`: questions with short answers, about images or about text alone."""

import re
import string
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

from msgspec.structs import replace
from pydantic import Field

from ..records import Task
from ..rewards import CombinedReward
from ..rewards.metrics import AccuracyBy, Among, MacroF1, MeanScore, Metric
from ..rewards.token_f1 import ShortAnswerReward
from ..utils.frozen import FrozenDict
from ..utils.values import normalize, to_text
from .data import MappedRow, TaskField
from .data.evidence import EVIDENCE, CitingEnv

KINDS = ("closed", "open", "choice")
CLOSED = ("yes", "no", "maybe")  # an answer that makes its question a closed one
MAX_CHOICES = 26
_LETTERED = re.compile(r"[(\[（]?([A-Za-z])(?:[.):\]、．：）]{1,2}| [-–—] )\s*(\S.*)", re.DOTALL)
_SPELLINGS = {"close": "closed", "yes/no": "closed", "yesno": "closed", "freeform": "open", "mcq": "choice"}


class VQA(CitingEnv):
    """Questions with short answers: closed ones, open ones, and choices."""

    name: ClassVar[str] = "vqa"
    fields: ClassVar[Mapping[str, TaskField]] = {
        "question": TaskField("prompt", "text", description="the question"),
        "answer": TaskField("reference", "answers", description="text, number, true or false, or a list of accepted"),
        "choices": TaskField("prompt", "list", required=False, description="texts to choose from"),
        "kind": TaskField("reference", "text", required=False, description="closed, open, choice; else by the answer"),
        "category": TaskField("reference", "text", required=False, description="a name by which accuracy is reported"),
        "evidence": EVIDENCE,
    }

    needs_images: ClassVar[bool] = False
    max_turns = 6
    tolerance: Annotated[
        float, Field(ge=0, lt=1, description="a number is right if it differs by this share; ChartQA: 0.05")
    ] = 0.0

    @cached_property
    def answer(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The answer: a text or a number, and what it cites if that is asked for."""
        return self._build_answer({"answer": FrozenDict(type=["string", "number"])})

    def read_row(self, row: MappedRow) -> Task:
        task = _strip_choices(row, super().read_row(row))
        reference, choices = dict(task.reference), task.prompt.get("choices") or ()
        answers = reference["answer"]
        reference["kind"] = read_kind(row, "kind", reference.get("kind"), answers, choices)
        if choices:
            answers = accept_choices(row, "answer", answers, choices)
        reference["answer"] = answers if len(answers) > 1 else answers[0]
        return replace(task, reference=reference)

    def read_question(self, row: MappedRow) -> Task:
        return _strip_choices(row, super().read_question(row))

    def default_reward(self) -> CombinedReward:
        return self._add_citations({"answer": (ShortAnswerReward(tolerance=self.tolerance), 1.0)}, "answer", answer=1.0)

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:  # type: ignore[override]
        """Accuracy of all, by kind and by category; macro-F1 of the closed questions; token F1 of the open ones."""
        exact = ShortAnswerReward(tolerance=self.tolerance, exact=True)
        return {
            "accuracy": AccuracyBy(exact, "kind"),
            "category": AccuracyBy(exact, "category", total=False),
            "closed": Among(MacroF1("answer"), "kind", ("closed",)),
            "open": Among(MeanScore(ShortAnswerReward(tolerance=self.tolerance), "token_f1"), "kind", ("open",)),
        }

    def system_prompt(self, task: Task) -> str:
        if not self.shows_images(task):
            return f"Answer the question.{self._ask_for_evidence()}"
        look = "Answer the question about the image. Look closely with the tools before you answer."
        return look + self._ask_for_evidence()

    def user_message(self, task: Task) -> str:
        question, choices = str(self.read_prompt(task, "question", "what is asked")), task.prompt.get("choices")
        if choices:
            return f"{question}\n{write_choices(choices)}\nAnswer with one of these choices."
        return f"{question}\nAnswer in as few words as possible; with yes or no if the question asks for it."

    def perfect_answer(self, task: Task) -> dict[str, object]:
        return {"answer": get_first(task.reference["answer"]), **self._cite(task)}


def get_first(gold: object) -> object:
    return gold[0] if isinstance(gold, list | tuple) else gold


def read_kind(row: MappedRow, name: str, value: str | None, answers: Sequence[object], choices: Sequence[str]) -> str:
    """Return the kind of a question: as the dataset says (also `close-ended`, `Single-choice question` and the like),
    else from its choices and answers. Raise `BadRow`."""
    if value is None:
        is_closed = all(normalize(answer).text in CLOSED for answer in answers)
        return "choice" if choices else "closed" if is_closed else "open"
    for word in value.casefold().replace("-", " ").replace("_", " ").split():
        if (kind := _SPELLINGS.get(word, word)) in KINDS:
            return kind
    raise row.refuse(name, value, "closed, open or choice")


def _strip_choices(row: MappedRow, task: Task) -> Task:
    choices = task.prompt.get("choices")
    return replace(task, prompt={**task.prompt, "choices": read_choices(row, "choices", choices)}) if choices else task


def read_choices(row: MappedRow, name: str, value: Sequence[object]) -> list[str]:
    """Return the choices as texts, each once. Raise `BadRow`."""
    texts = _strip_letters([to_text(item).strip() for item in value])
    different = {normalize(text).text for text in texts}
    if not 2 <= len(texts) <= MAX_CHOICES or "" in different or len(different) < len(texts):
        raise row.refuse(name, list(value), f"2 to {MAX_CHOICES} different texts")
    return texts


def _strip_letters(texts: list[str]) -> list[str]:
    """Return the choices without the letters that a dataset wrote before each of them, in the order of these letters.

    >>> _strip_letters(["a. left", "(B) right"]), _strip_letters(["A. left", "right"])
    (['left', 'right'], ['A. left', 'right'])
    """
    marked = [match for text in texts if (match := _LETTERED.fullmatch(text))]
    choices = {match[1].upper(): match[2].strip() for match in marked}
    letters = list(string.ascii_uppercase[: len(texts)])
    return [choices[letter] for letter in letters] if sorted(choices) == letters == letters[: len(marked)] else texts


def get_letters(choices: Sequence[str]) -> Sequence[str]:
    """Return the letters before the choices; none if a choice is itself a letter, or a number."""
    if any(len(label) == 1 or label.isdigit() for label in [normalize(text).text for text in choices]):
        return ()
    return string.ascii_uppercase[: len(choices)]


def accept_choices(row: MappedRow, name: str, answers: Sequence[object], choices: Sequence[str]) -> list[str]:
    """Return the spellings of the right choices: the text, its letter, and both. Raise `BadRow` if it is not among
    them."""
    known: dict[str, int] = {}
    for number, (letter, text) in enumerate(zip(string.ascii_uppercase, choices, strict=False)):
        known |= {normalize(spelling).text: number for spelling in (letter, f"{letter}. {text}")}
    known |= {normalize(text).text: number for number, text in enumerate(choices)}  # a choice may be a letter itself
    numbers = list[int]()
    for answer in answers:
        label = normalize(answer).text
        if label not in known:
            raise row.refuse(name, answer, f"one of the choices: {'; '.join(choices):.200}")
        numbers.append(known[label])
    return list_spellings(numbers, choices)


def list_spellings(numbers: Sequence[int], choices: Sequence[str]) -> list[str]:
    """Return how the choices of these numbers may be written: the text, its letter, and both. "B) right lung" and "(B)
    right lung" have the normal form of "B. right lung".

    >>> list_spellings([1], ["left lung", "right lung"])
    ['right lung', 'B', 'B. right lung']
    """
    letters, spellings = get_letters(choices), list[str]()
    for number in numbers:
        both = f"{string.ascii_uppercase[number]}. {choices[number]}"
        spellings += [choices[number], *letters[number : number + 1], both]
    return spellings


def write_choices(choices: Sequence[str]) -> str:
    marks = [f"{letter}." for letter in get_letters(choices)] or ["-"] * len(choices)
    return "\n".join(f"{mark} {text}" for mark, text in zip(marks, choices, strict=True))
