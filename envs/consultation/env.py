"""`consultation`: ask a patient, order examinations, and answer."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ...records import Task
from ...rewards import CombinedReward, ExactMatchReward, TokenF1Reward
from ...rewards.metrics import Accuracy, MeanScore, Metric
from ..data import DataEnv, MappedRow, TaskField
from ..data.fields import MAX_TEXT, TEXT, build_object
from ..vqa.questions import read_answers
from .hidden_facts import ask_patient, order_exam, write_facts

FACTS = {"ask_patient": "patient_info", "order_exam": "physical_exams"}


class Consultation(DataEnv):
    """A diagnosis, after questions to a patient and examinations that answer from facts the model does not see."""

    name: ClassVar[str] = "consultation"
    answer: ClassVar[Any] = build_object({"answer": TEXT})
    fields: ClassVar[Mapping[str, TaskField]] = {
        "question": TaskField("prompt", "text", description="what is to be found out"),
        "patient_info": TaskField("reference", description="what the patient knows: text, a list or a mapping"),
        "physical_exams": TaskField("reference", required=False, description="results: text, a list or a mapping"),
        "answers": TaskField("reference", description="a text, a list of accepted ones, or of {text, correct}"),
    }
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": Accuracy("answer"),
        "words": MeanScore(TokenF1Reward("answer"), "token_f1"),
    }

    max_turns = 12
    tools = (ask_patient, order_exam, "zoom", "crop")  # type: ignore[assignment]

    @property
    def needs_images(self) -> bool:  # type: ignore[override]
        """Whether every row must have an image: if one is mapped."""
        return self.has_images

    def read_row(self, row: MappedRow) -> Task:
        task = super().read_row(row)
        answers = task.reference["answers"]
        if isinstance(answers, list | tuple) and answers and all(isinstance(one, Mapping) for one in answers):
            answers = [one.get("text") for one in answers if one.get("correct") in (True, "true", "True", 1)]
        accepted = read_answers(row, "answers", answers)
        facts = {name: write_facts(task.reference[name]) for name in FACTS.values() if name in task.reference}
        for name, text in facts.items():
            if not text.strip() or len(text) > MAX_TEXT:
                raise row.refuse(name, task.reference[name], f"facts as text of at most {MAX_TEXT:,} characters")
        return Task("", prompt=task.prompt, reference={"answer": accepted, **facts}, metadata=task.metadata)

    def tools_of(self, task: Task) -> tuple[str, ...]:
        """The tools; those that answer from facts only if the task has them."""
        return tuple(name for name in super().tools_of(task) if FACTS.get(name, "answer") in task.reference)

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, Any]:
        return {"facts": task.reference.get(FACTS.get(tool, ""), "")}

    def system_prompt(self, task: Task) -> str:
        return (
            "You are a physician. Ask the patient and order examinations, one thing at a time, until you know enough. "
            "Then answer in as few words as possible."
        )

    def user_message(self, task: Task) -> str:
        return str(task.prompt["question"])

    def default_reward(self) -> CombinedReward:
        return CombinedReward({"exact": (ExactMatchReward("answer"), 0.8), "words": (TokenF1Reward("answer"), 0.2)})

    def perfect_answer(self, task: Task) -> dict[str, Any]:
        """The right answer; the first if several are accepted."""
        return {"answer": str(task.reference["answer"][0])}
