"""`consultation`: ask a patient, order examinations, and answer.

The patient and the examinations answer from a text: no model is needed, and the same question has the same answer. A
question is answered by the sentences of the text that share words with it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

from ..core.contract import EpisodeState
from ..records import Task
from ..rewards import CombinedReward, ExactMatchReward, TokenF1Reward
from ..rewards.metrics import Accuracy, MeanScore, Metric
from ..tools import Hidden
from ..utils.values import fold_text, to_text
from .data import DataEnv, MappedRow, TaskField
from .data.fields import MAX_TEXT, TEXT, build_object

Find = Callable[[str, str], str]  # takes facts and a question, returns what answers it
FACTS = {"ask_patient": "patient_info", "order_exam": "physical_exams"}
MAX_SENTENCES = 3  # of one answer
MAX_CHARS = 2000  # of a question that are read
STEM = 7  # letters of a word that are compared
DEEPEST = 6  # levels of a mapping of facts
_WORD = re.compile(r"[a-z0-9]+")
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_STOPPED = """a about an and any are as at be been by can could did do does ever for from had has have how i if in is
    it may me my now of on or other please show since some that the there these this those to was were what when where
    which who why will with would you your patient result results test tests"""
_STOP_WORDS = frozenset(_STOPPED.split())
_ENDING = re.compile(r"(?<=[a-z]{3})(ing|ies|ed|es|s|e|y)$")  # "vomited" is found by "vomiting"
_GENERAL_WORDS = """all brings bring complain complaint complaints concern describe everything examination exam feel
    feeling full happen happened help history physical problem problems symptom symptoms tell today wrong"""


def ask_patient(question: Annotated[str, "one question, in a sentence"], facts: Hidden[str]) -> str:
    """Ask the patient a question, about one thing at a time."""
    return find_facts(facts, question) or "I do not know."


def order_exam(name: Annotated[str, 'name of the examination, such as "chest CT"'], facts: Hidden[str]) -> str:
    """Order an examination or a test by its name, and get its result."""
    return find_facts(facts, name) or "There is no result of this examination."


class Consultation(DataEnv):
    """A diagnosis, after questions to a patient and examinations that answer from facts the model does not see."""

    name: ClassVar[str] = "consultation"
    answer: ClassVar[Any] = build_object({"answer": TEXT})
    fields: ClassVar[Mapping[str, TaskField]] = {
        "question": TaskField("prompt", "text", description="what is to be found out"),
        "patient_info": TaskField("reference", description="what the patient knows: text, a list or a mapping"),
        "physical_exams": TaskField("reference", required=False, description="results: text, a list or a mapping"),
        "answers": TaskField("reference", "answers", description="a text, a list of accepted, or of {text, correct}"),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": Accuracy("answer"),
        "words": MeanScore(TokenF1Reward("answer"), "token_f1"),
    }

    needs_images: ClassVar[bool] = False
    max_turns = 12
    tools = (ask_patient, order_exam, "zoom", "crop")  # type: ignore[assignment]

    def read_row(self, row: MappedRow) -> Task:
        task = super().read_row(row)
        facts = {name: write_facts(task.reference[name]) for name in FACTS.values() if name in task.reference}
        for name, text in facts.items():
            if not text.strip() or len(text) > MAX_TEXT:
                raise row.refuse(name, task.reference[name], f"facts as text of at most {MAX_TEXT:,} characters")
        reference = {"answer": task.reference["answers"], **facts}
        return Task("", prompt=task.prompt, reference=reference, metadata=task.metadata)

    def tools_of(self, task: Task) -> tuple[str, ...]:
        return tuple(name for name in super().tools_of(task) if FACTS.get(name) in (None, *task.reference))

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, object]:
        return {"facts": task.reference.get(FACTS.get(tool, ""), "")}

    def system_prompt(self, task: Task) -> str:
        return (
            "You are a physician. Ask the patient and order examinations, one thing at a time, until you know enough. "
            "Then answer in as few words as possible."
        )

    def user_message(self, task: Task) -> str:
        return str(self.read_prompt(task, "question", "what is to be found out"))

    def default_reward(self) -> CombinedReward:
        return CombinedReward({"exact": (ExactMatchReward("answer"), 0.8), "words": (TokenF1Reward("answer"), 0.2)})

    def perfect_answer(self, task: Task) -> dict[str, object]:
        return {"answer": str(task.reference["answer"][0])}


def reply_with_facts(
    state: EpisodeState, asked: str | None, says: str, unknown: str, most: int, find: Find | None = None
) -> str | None:
    """Return what a simulated user says to a question: the facts of the task that it asks for, as `find` finds them
    (by default `find_facts`). None if nothing is asked, or `most` questions were answered."""
    count = sum(turn.role == "user" and turn.content.startswith(says) for turn in state.turns[1:])
    if not asked or count >= most:
        return None
    return says + ((find or find_facts)(str(state.task.reference.get("facts", "")), asked) or unknown)


def find_facts(facts: str, question: str) -> str:
    """Return the sentences that share most words with a question; for a general question the first ones, else nothing.

    >>> text = "I have had a cough for two weeks. I smoke. My father died of a stroke."
    >>> find_facts(text, "Do you smoke?"), find_facts(text, "Any allergies?")
    ('I smoke.', '')
    >>> find_facts(text, "What brings you here?")
    'I have had a cough for two weeks. I smoke. My father died of a stroke.'
    """
    sentences = split_facts(facts)
    asked = _get_stems(question[:MAX_CHARS])
    shared = [len((asked - _GENERAL) & _get_stems(sentence)) for sentence in sentences]
    best = sorted(range(len(sentences)), key=lambda number: -shared[number])[:MAX_SENTENCES]
    numbers = sorted(number for number in best if shared[number])
    if not numbers and asked & _GENERAL:
        numbers = list(range(min(MAX_SENTENCES, len(sentences))))
    return " ".join(sentences[number] for number in numbers)


def split_facts(facts: str) -> list[str]:
    """Return the sentences of a text of facts; a line ends one too."""
    return [sentence.strip() for sentence in _SENTENCE.split(facts) if sentence.strip()]


def write_facts(value: object) -> str:
    """Return the facts of a dataset as sentences: a text, a list, or a mapping whose keys name what its values say.

    >>> write_facts({"Vital signs": {"Heart rate": 90}, "Skin": "pale"})
    'Vital signs, Heart rate: 90.\\nSkin: pale.'
    """
    return value if isinstance(value, str) else "\n".join(_list_facts(value, ()))


def _list_facts(value: Any, names: tuple[str, ...]) -> Iterator[str]:
    if len(names) > DEEPEST:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _list_facts(inner, (*names, str(name).replace("_", " ")))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _list_facts(inner, names)
    elif text := to_text(value).strip():
        line = f"{', '.join(names)}: {text}" if names else text
        yield line if line.endswith((".", "!", "?")) else f"{line}."


def _get_stems(text: str) -> set[str]:
    words = (word for word in _WORD.findall(fold_text(text)) if word not in _STOP_WORDS)
    return {_ENDING.sub("", word)[:STEM] for word in words}


_GENERAL = frozenset(_get_stems(_GENERAL_WORDS))
