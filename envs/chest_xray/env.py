"""`chest_xray`: questions about chest radiographs, with the viewer's tools and specialist models.

The loop of MedRAX (Fallahpour et al. 2025): call tools, several in a reply, until a reply without a call is the answer,
or a question back. The films are drawn (`radiographs.py`), or come from a block `data`.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ...configs import yaml_reader
from ...configs.sections import FilePath
from ...core.contract import EpisodeState
from ...core.settings import ToolName
from ...errors import ConfigError, describe_unknown
from ...images.source import Source
from ...images.task_images import TaskImage
from ...records import Task
from ...rewards import CombinedReward, Component, IoUReward
from ...rewards.combined import IfGold
from ...rewards.metrics import AccuracyBy, MeanAveragePrecision, MeanScore, Metric
from ...rewards.token_f1 import ShortAnswerReward
from ...utils.frozen import FrozenDict
from ..consultation import reply_with_facts
from ..data import MappedRow, TaskField
from ..data.fields import BOX
from ..drawn import DrawnEnv, Split
from ..vqa import VQA, get_first, list_spellings, write_choices
from . import cases
from .anatomy import SPACING
from .cases import QUESTIONS, Question
from .demonstrations import write_looks, write_stray_look
from .doctor import reply
from .findings import SHIPPED, FindingNames
from .opinions import TrustReward, ask_best_reader, describe_case, tell_and_repeat
from .radiographs import DISPLAY
from .rewards import ConsultedReward, FindingsReward, NamedReward, RepeatsReward, SizeReward

FORMS = {  # of answers in words, by kind
    "closed": "Answer with yes or no.",
    "choice": "Answer with one of these choices.",
    "open": "Answer in as few words as possible.",
}
FIELDS = {"answer": "answer", "size_mm": "answer", "findings": "findings", "bbox": "bbox"}  # reference -> answer

Share = Annotated[float, Field(ge=0, le=0.5)]
RIGHT = 0.5  # score of an answer from which on the use of tools counts
SAYS = "The referring doctor says: "
UNKNOWN = "I do not know."
ORDER = (  # where there are several specialists
    " Work in steps: first find what there is (classifiers, questions), then where it is (grounding, segmentation), "
    "and put the results together before you conclude."
)
WEIGHTS = {"text": 0.25, "size": 0.25, "findings": 0.25, "box": 0.25}


class ChestXray(DrawnEnv, VQA):
    """Chest radiographs: findings, sides, boxes, two studies, and a doctor who answers a question back.

    >>> env = ChestXray(questions=["side"])
    >>> task = env.tasks[0]
    >>> env.images(task)[0].spacing, env.reward.score(env.perfect_answer(task), task.reference)[0]
    ((0.9, 0.9), 1.0)
    """

    name: ClassVar[str] = "chest_xray"
    evidence: ClassVar[bool] = False  # type: ignore[misc]  # its answers cite nothing
    habits: ClassVar[tuple[str, ...]] = ("guess", "stray")
    fields: ClassVar[Mapping[str, TaskField]] = {
        **VQA.fields,
        "findings": TaskField("reference", "list", required=False, description="findings with their side; may be []"),
        "bbox": TaskField("reference", "box", required=False, description="the box that is asked for"),
        "facts": TaskField("reference", "text", required=False, description="what the referring doctor knows"),
    }

    max_turns = 8
    tools = ("zoom", "adjust_contrast", "measure", "open_image", "reset")
    max_pixels = 224 * 224

    split: Annotated[Split, Field("train", description="of drawn films, not of `data`: the two share none")]
    num_tasks: Annotated[int, Field(100_000, ge=1, description="number of tasks of drawn films")]
    answer_form: Annotated[
        Literal["json", "text"], Field(description="json: an object with a field for each thing asked; text: words")
    ] = "json"
    questions: Annotated[
        tuple[Question, ...], Field(description="kinds of questions about drawn films, in turn. Empty: all there are")
    ] = ()
    difficulty: Annotated[float, Field(ge=0, le=1, description="0: clear findings; 1: faint ones")] = 0.3
    max_questions: Annotated[
        int, Field(ge=0, description="questions back that the doctor answers; a further one is the answer")
    ] = 1
    aliases: Annotated[
        FilePath | None, Field(description="YAML file of findings and words for them, added to those of findings.yaml")
    ] = None
    bearing: Annotated[
        Mapping[Question | Literal["all", "closed", "choice", "open"], tuple[ToolName, ...]],
        Field(description="tools that bear on a question, by its kind; `all`: on every one. For `tool_bonus`"),
    ] = FrozenDict()
    tool_bonus: Annotated[
        Share, Field(description="share of the reward that a right answer earns only if a tool in `bearing` was asked")
    ] = 0.0
    trust_bonus: Annotated[
        Share, Field(description="share of the reward for asking and believing the reader that knows this kind of film")
    ] = 0.0
    repeat_penalty: Annotated[
        Share, Field(description="share of the reward that a right answer loses, in part, for each repeated call")
    ] = 0.0

    @property
    def draws(self) -> bool:
        return self.data.source is None

    def is_drawn(self, task: Task) -> bool:
        return self.draws and super().is_drawn(task)

    @property
    def has_images(self) -> bool:
        return self.draws or super().has_images

    def shows_images(self, task: Task) -> bool:
        return self.is_drawn(task) or super().shows_images(task)

    @cached_property
    def kinds(self) -> tuple[Question, ...]:  # type: ignore[override]
        allowed = tuple(kind for kind in QUESTIONS if kind != "place" or self.answer_form == "json")
        usual = tuple(kind for kind in allowed if kind != "opinion")  # needs the readers of `opinions.py`
        for kind in self.questions:
            if kind not in allowed:
                problem = f"questions: {kind!r}; allowed with answer_form = text: {', '.join(allowed)}"
                raise ConfigError(f"{self.name}: {problem}", key="questions")
        return self.questions or usual

    @cached_property
    def tasks(self) -> Sequence[Task]:  # type: ignore[override]
        for kind, names in self.bearing.items():  # not before, as scoring has no tools
            for name in names:
                if name not in self.tools:
                    problem = describe_unknown("tool", name, self.tools)
                    raise ConfigError(f"{self.name}: bearing.{kind}: {problem}", key=f"bearing.{kind}")
        return super().tasks if self.draws else super(DrawnEnv, self).tasks

    def make_drawn(self, seed: int) -> Task:
        kind = self.kinds[seed % len(self.kinds)]
        case = cases.plan_case(seed, kind)
        reference: dict[str, Any] = {"category": kind, "facts": case.facts}
        if case.labels is not None:
            reference["findings"] = case.labels
        elif kind in ("place", "size"):
            shown = cases.draw_case(seed, kind, self.difficulty)[0].findings[0]
            box = tuple(round(side, 3) for side in shown.box)
            reference |= {"bbox": box} if kind == "place" else {"size_mm": round(shown.size_mm, 1)}
        else:
            reference["kind"] = "closed" if kind in ("presence", "opinion") else "choice" if case.choices else "open"
            reference["answer"] = case.answer
        prompt: dict[str, Any] = {"question": case.question}
        if reference.get("kind") == "choice":
            reference["answer"] = list_spellings([case.choices.index(str(case.answer))], case.choices)
            prompt["choices"] = case.choices
        metadata: dict[str, Any] = {"seed": seed, "split": self.split, "question": kind}
        if case.device is not None:
            metadata["film"] = "paced" if case.device else "plain"
        return Task(f"chest_xray-{self.split}-{seed}", prompt=prompt, reference=reference, metadata=metadata)

    def draw_images(self, task: Task) -> Sequence[TaskImage]:
        """Return the film of today, and an earlier one if the question compares two."""
        films = cases.draw_case(task.metadata["seed"], task.metadata["question"], self.difficulty)
        return [Source.of(film.pixels, spacing=(SPACING, SPACING), display=DISPLAY) for film in films]

    def count_images(self, task: Task) -> int:
        is_pair = self.is_drawn(task) and task.metadata["question"] == "compare"
        return 2 if is_pair else super().count_images(task)

    def read_row(self, row: MappedRow) -> Task:
        task = super().read_row(row)
        if self.answer_form == "text" and "bbox" in task.reference:
            raise row.refuse("bbox", task.reference["bbox"], "no box with answer_form = text")
        return task

    @cached_property
    def answer(self) -> Mapping[str, Any] | None:  # type: ignore[override]
        """The fields of the answer that are ever asked for; none is required, because a task asks for some of them."""
        if self.answer_form == "text":
            return None
        asked = self._list_asked()
        fields: dict[str, Any] = {}
        if "text" in asked:
            fields["answer"] = {"type": ["string", "number", "null"]}
        if "findings" in asked:
            items = {"type": "string", "maxLength": MAX_LENGTH}
            fields["findings"] = {"type": ["array", "null"], "items": items, "maxItems": MAX_FINDINGS}
        if "box" in asked:
            fields["bbox"] = {"anyOf": [BOX, {"type": "null"}]}
        if self._answers_questions:
            said = "a question to the referring doctor, instead of an answer"
            fields["ask"] = {"type": ["string", "null"], "description": said}
        return FrozenDict(type="object", properties=fields)

    @property
    def boxes(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("bbox",) if self.answer_form == "json" and "box" in self._list_asked() else ()

    def _list_asked(self) -> set[str]:
        if self.draws:
            return {{"findings": "findings", "place": "box"}.get(kind, "text") for kind in self.kinds}
        names = {"answer": "text", "findings": "findings", "bbox": "box"}
        return {names[field] for field in self.data.columns if field in names} or {"text"}

    def tools_of(self, task: Task) -> tuple[str, ...]:
        single = self.draws and self.count_images(task) == 1
        return tuple(name for name in super().tools_of(task) if name != "open_image" or not single)

    def system_prompt(self, task: Task) -> str:
        how = 'fill in only "ask"' if self.answer_form == "json" else "end your reply with a question mark"
        asking = f" To ask the referring doctor a question, {how}." if self._answers_questions else ""
        asked = [name for name in self.tools_of(task) if self.toolbox[name].takes_pictures]
        order = ORDER if len(asked) > 2 else ""
        return (
            "You read chest radiographs. The patient's left is on the right of the picture. Tools may be wrong: weigh "
            f"what they say against the film.{order}{asking}"
        )

    def user_message(self, task: Task) -> str:
        """Return the question, its choices, and the form of the answer."""
        question = str(self.read_prompt(task, "question", "what is asked about the film"))
        lines, choices = [question], task.prompt.get("choices")
        if choices:
            lines.append(write_choices(choices))
        if "answer" in task.reference:
            lines.append(FORMS[str(task.reference.get("kind", "open"))])
        elif "size_mm" in task.reference:
            lines.append("Answer with a number.")
        asked = [f'"{name}"' for field, name in FIELDS.items() if field in task.reference]
        if self.answer_form == "json" and asked:
            lines.append(f"Fill in {' and '.join(asked)}; leave the rest null.")
        return "\n".join(lines)

    @property
    def _answers_questions(self) -> bool:
        return self.max_questions > 0 and self.max_turns > 1

    def hidden_arguments(self, task: Task, tool: str) -> Mapping[str, object]:
        return {"case": describe_case(task) if self.draws else {}}

    def on_answer(self, state: EpisodeState, answer: Mapping[str, object]) -> str | None:
        """Return what the doctor says to a question back: facts of the task, never what the film shows."""
        about = str(state.task.prompt.get("question", ""))
        find = partial(reply, about=about)
        return reply_with_facts(state, self.find_question(answer), SAYS, UNKNOWN, self.max_questions, find)

    def find_question(self, answer: Mapping[str, Any]) -> str:
        """Return the question of a reply that asks and does not answer; empty if it answers."""
        if self.answer_form == "text":
            text = str(answer.get("text", "")).rstrip()
            return text if text.endswith("?") else ""
        if any(answer.get(field) is not None for field in ("answer", "findings", "bbox")):
            return ""
        return str(answer.get("ask") or "").strip()

    @property
    def _field(self) -> str:
        return "text" if self.answer_form == "text" else "answer"

    @cached_property
    def _names(self) -> FindingNames:
        if self.aliases is None:
            return SHIPPED
        return SHIPPED.extend(yaml_reader.read(Path(self.aliases)).values, f"aliases = {self.aliases!r}")

    def _read_short(self, exact: bool = False) -> NamedReward:
        reward = ShortAnswerReward(self._field, "answer", tolerance=self.tolerance, exact=exact)
        return NamedReward(reward, self._names)

    @cached_property
    def _answer_reward(self) -> CombinedReward:
        text = self.answer_form == "text"
        parts: dict[str, Any] = {
            "text": self._read_short(),
            "size": IfGold(SizeReward(self._field), "size_mm"),
            "findings": IfGold(FindingsReward("text" if text else "findings", "findings", self._names), "findings"),
            "box": IfGold(IoUReward("bbox"), "bbox"),
        }
        return CombinedReward({name: (reward, WEIGHTS[name]) for name, reward in parts.items()})

    def default_reward(self) -> CombinedReward:
        """Return the answer; a right one must share with `consulted` and `repeats` if the settings say so."""
        right = {"answer": RIGHT}
        extras = {
            "trust": Component(TrustReward(), self.trust_bonus),
            "consulted": Component(ConsultedReward(self.bearing), self.tool_bonus, needs=right),
            "repeats": Component(RepeatsReward(), self.repeat_penalty, needs=right),
        }
        shared = sum(extra.weight for extra in extras.values())
        added = "trust_bonus + tool_bonus + repeat_penalty"
        for key, is_wrong, problem in (
            ("tool_bonus", shared >= 1, f"{added} = {shared:g}; allowed: less than 1"),
            ("bearing", self.tool_bonus and not self.bearing, "tool_bonus needs `bearing`, the tools for a question"),
            ("questions", self.trust_bonus and "opinion" not in self.questions, "trust_bonus needs those of `opinion`"),
        ):
            if is_wrong:
                raise ConfigError(f"{self.name}: {problem}", key=key)
        answer = Component(self._answer_reward, 1.0 - shared)
        return CombinedReward({"answer": answer, **{name: extra for name, extra in extras.items() if extra.weight}})

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:  # type: ignore[override]
        """Accuracy of all and by kind of question, findings F1, mean score of sizes, and mAP of the boxes."""
        exact = self._read_short(exact=True)
        metrics: dict[str, Metric] = {"accuracy": AccuracyBy(exact, "category")}
        if "findings" in self._list_asked():
            metrics["findings"] = MeanScore(self._answer_reward.components["findings"].reward, "findings_f1")
        if "size" in self.kinds and self.draws:
            metrics["size"] = MeanScore(self._answer_reward.components["size"].reward, "size_score")
        if self.boxes:
            metrics["box"] = MeanAveragePrecision("bbox")
        return metrics

    def perfect_answer(self, task: Task) -> dict[str, object]:
        """Return the right answer; the first if several are accepted."""
        gold: dict[str, Any] = {name: task.reference[name] for name in ("findings", "bbox") if name in task.reference}
        if "answer" in task.reference:
            gold["answer"] = get_first(task.reference["answer"])
        elif "size_mm" in task.reference:
            gold["answer"] = task.reference["size_mm"]
        if self.answer_form == "json":
            return {name: list(value) if isinstance(value, tuple) else value for name, value in gold.items()}
        return {"text": str(gold["answer"]) if "answer" in gold else ", ".join(gold["findings"]) or cases.NOTHING}

    def write_answer(self, task: Task) -> str:
        return str(self.perfect_answer(task)["text"]) if self.answer_form == "text" else super().write_answer(task)

    def oracle(self, task: Task) -> tuple[str, ...]:
        """Return a question back if the answer needs one; then calls of the tools in `bearing`, or else a zoom."""
        if not self.draws or self.max_turns < 3:
            return ()
        if "film" in task.metadata:
            return ask_best_reader(task, self.tools_of(task))
        return write_looks(self, task)

    def demonstration(self, task: Task, seed: int, *, guess: float = 0, stray: float = 0, **more: float) -> list[str]:
        """Return the oracle's looks and the right answer; of a share `guess` no look, of a share `stray` one at a tool
        that does not bear on the question, and then the right answer of another task."""
        self.check_habits(more)
        rng = np.random.default_rng([seed, 2])
        draw = rng.random()
        if self.draws and "film" in task.metadata:  # whom to believe is never shown
            return tell_and_repeat(task, self.tools_of(task), rng, guess, is_text=self.answer_form == "text")
        if draw >= guess + stray or not self.draws:
            return [*self.oracle(task), self.write_answer(task)]
        looks = () if draw < guess else write_stray_look(self, task, rng)
        return [*looks, self.write_answer(self.draw_other(task, rng))]


MAX_FINDINGS, MAX_LENGTH = 100, 200  # of an answer; characters of a finding
