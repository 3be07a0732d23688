"""`vqa`: questions with short answers, about images or about text alone."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ...records import Task
from ...rewards import CombinedReward
from ...rewards.metrics import AccuracyBy, Among, MacroF1, MeanScore, Metric
from ...rewards.short_answer import ShortAnswerReward
from ...utils.frozen import FrozenDict
from ..data import DataEnv, MappedRow, TaskField
from . import questions


class VQA(DataEnv):
    """Questions with short answers: closed ones, open ones, and choices."""

    name: ClassVar[str] = "vqa"
    answer: ClassVar[Any] = FrozenDict(
        type="object", properties={"answer": {"type": ["string", "number"]}}, required=["answer"]
    )
    fields: ClassVar[Mapping[str, TaskField]] = {
        "question": TaskField("prompt", "text", description="the question"),
        "answer": TaskField("reference", description="a text, a number, true or false, or a list of accepted ones"),
        "choices": TaskField("prompt", "list", required=False, description="texts to choose from"),
        "kind": TaskField(
            "reference", "text", required=False, description="closed, open or choice; default: by the answer"
        ),
        "category": TaskField(
            "reference", "text", required=False, description="a name, such as the organ, to report accuracy by"
        ),
    }

    max_turns = 6
    tolerance: Annotated[
        float, Field(ge=0, lt=1, description="a number is right if it differs by this share; ChartQA: 0.05")
    ] = 0.0

    @property
    def needs_images(self) -> bool:  # type: ignore[override]
        """Whether every row must have an image: if one is mapped."""
        return self.has_images

    def read_row(self, row: MappedRow) -> Task:
        task = super().read_row(row)
        prompt, reference = dict(task.prompt), dict(task.reference)
        answers = questions.read_answers(row, "answer", reference["answer"])
        choices = questions.read_choices(row, "choices", prompt["choices"]) if prompt.get("choices") else []
        reference["kind"] = questions.read_kind(row, "kind", reference.get("kind"), answers, choices)
        if choices:
            answers = [*questions.accept_choices(row, "answer", answers, choices)]
            prompt["choices"] = choices
        reference["answer"] = answers if len(answers) > 1 else answers[0]
        return Task("", prompt=prompt, reference=reference, metadata=task.metadata)

    def default_reward(self) -> CombinedReward:
        return CombinedReward({"answer": (ShortAnswerReward(tolerance=self.tolerance), 1.0)})

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:  # type: ignore[override]
        """Accuracy of all, by kind and by category; macro-F1 of the closed questions; token F1 of the open ones."""
        exact = ShortAnswerReward(tolerance=self.tolerance, exact=True)
        words = MeanScore(ShortAnswerReward(tolerance=self.tolerance), "token_f1")
        return {
            "accuracy": AccuracyBy(exact, "kind"),
            "category": AccuracyBy(exact, "category", total=False),
            "closed": Among(MacroF1("answer"), "kind", ("closed",)),
            "open": Among(words, "kind", ("open",)),
        }

    def system_prompt(self, task: Task) -> str:
        if not self.has_images:
            return "Answer the question."
        return "Answer the question about the image. Look closely with the tools before you answer."

    def user_message(self, task: Task) -> str:
        question, choices = str(task.prompt["question"]), task.prompt.get("choices")
        if choices:
            return f"{question}\n{questions.write_choices(choices)}\nAnswer with one of these choices."
        return f"{question}\nAnswer in as few words as possible; with yes or no if the question asks for it."

    def perfect_answer(self, task: Task) -> dict[str, Any]:
        """The right answer; the first if several are accepted."""
        gold = task.reference["answer"]
        return {"answer": gold[0] if isinstance(gold, list | tuple) else gold}
