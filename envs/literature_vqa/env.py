"""`literature_vqa`: questions about a picture whose answer stands in an invented literature.

The picture is a drawn film or slice; what it means, and what to do, is known to the articles alone that the search
tools find. Some of them are outdated, some retracted, and some questions have no answer.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ...configs.sections import FilePath
from ...core.base import get_offered_tools
from ...core.contract import EpisodeState, StepResult
from ...core.messages import write_call
from ...images.source import Source
from ...images.task_images import TaskImage
from ...records import Reply, Task, Turn
from ...rewards import CombinedReward, Component
from ...rewards.evidence import EvidenceReward
from ...rewards.exact_match import ExactMatchReward
from ...rewards.fields import get_accepted_values, get_field
from ...rewards.metrics import AccuracyBy, Metric
from ...utils.frozen import FrozenDict
from ...utils.values import normalize, read_number, to_text
from ..chest_xray import radiographs
from ..chest_xray.anatomy import SPACING as FILM_SPACING
from ..data.evidence import CITED
from ..data.fields import build_object
from ..drawn import DrawnEnv
from ..phantom import anatomy
from ..phantom.anatomy import ORGAN_VALUES
from ..phantom.env import DISPLAY, WINDOW_WIDTH
from ..vqa import list_spellings, write_choices
from . import world

MAX_NUMBER = 40  # characters of a number with its unit
SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "mg": ("mg", "mg a day", "mg/day", "mg per day", "mg daily"),
    "%": ("%", "percent"),
    "minutes": ("minutes", "min", "minute"),
}
_NUMBER = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)\s*([a-z%][a-z/ ]*)?", re.ASCII)


@dataclass(frozen=True)
class LiteratureAnswerReward:
    """1 if the answer is right, else 0.
    A number may have its unit ("35", "35 mg", "35 mg a day") and no other; every other kind is an exact match.

    >>> reward = LiteratureAnswerReward()
    >>> gold = {"answer": 35, "kind": "number", "unit": "mg"}
    >>> [reward({"answer": said}, gold) for said in (35, "35 mg/day", "35 minutes", "35 or 70", "30-40 mg")]
    [1.0, 1.0, 0.0, 0.0, 0.0]
    """

    field: str = "answer"
    name: str = "answer"

    @cached_property
    def _exact(self) -> ExactMatchReward:
        return ExactMatchReward(self.field)

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        if self._exact(answer, reference) == 1.0:
            return 1.0
        if reference.get("kind") != "number":
            return 0.0
        said = self._read_number(to_text(get_field(answer, self.field)), str(reference.get("unit", "")))
        return float(said is not None and said in map(read_number, get_accepted_values(reference["answer"])))

    def explain(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> str:
        return self._exact.explain(answer, reference)

    def _read_number(self, text: str, unit: str) -> float | None:
        match = _NUMBER.fullmatch(normalize(text).text) if len(text) <= MAX_NUMBER else None
        if match is None or (match[2] and " ".join(match[2].split()) not in SPELLINGS.get(unit, (unit,))):
            return None
        return float(match[1])


def name_numbers(answer: Mapping[str, Any], turns: Sequence[Turn]) -> dict[str, Any]:
    """Return an answer whose citations by number are the PMIDs that the last search gave these numbers."""
    lists = [result.facts["pmids"] for turn in turns for result in turn.tool_results if "pmids" in result.facts]
    numbers = {str(number): pmid for number, pmid in enumerate(lists[-1] if lists else (), 1)}
    return {**answer, "evidence": [numbers.get(to_text(one).strip(), one) for one in answer.get("evidence") or ()]}


ANSWER_SHARE = 0.35  # of the reward for a right answer that cites nothing
FILM_NOTE = "The patient's left is on the right of the picture."
SLICE_NOTE = "A solid lesion is a round spot, a little darker than its organ all over. A ring is no lesion."
FORMS = {
    "closed": 'Answer with "yes" or "no".',
    "choice": "Answer with one of these choices.",
    "number": "Answer with a number.",
    "text": "Answer with a name.",
}


class LiteratureVQA(DrawnEnv):
    """Questions about a drawn film or slice that only an invented literature can answer, with citations.

    >>> env = LiteratureVQA(questions=["dose"], unanswerable=0)
    >>> task = env.tasks[0]
    >>> sorted(env.perfect_answer(task)), env.reward.score(env.perfect_answer(task), task.reference)[0]
    (['answer', 'evidence'], 1.0)
    """

    name: ClassVar[str] = "literature_vqa"
    answer: ClassVar[Any] = build_object(
        {
            "answer": {"type": ["string", "number"], "description": f'the answer, or "{world.UNKNOWN}"'},
            "evidence": {**CITED, "description": "PMIDs of the articles that support it"},
        }
    )
    metrics: ClassVar[Mapping[str, Metric]] = {"accuracy": AccuracyBy(LiteratureAnswerReward(), "category")}

    max_turns = 8
    tools = ("zoom", "window_level", "open_image", "reset")
    max_pixels = 224 * 224
    specialists = FrozenDict(search=FrozenDict(kind="literature", snapshot="package:literature"))

    questions: Annotated[
        tuple[world.Question, ...], Field(description="kinds of questions, in turn. Empty: all there are")
    ] = ()
    unanswerable: Annotated[
        float, Field(ge=0, le=1, description="share of the tasks whose answer no article supports")
    ] = 0.2
    facts: Annotated[
        FilePath | None,
        Field(description="the facts of another world, whose articles the snapshot holds. Default: the shipped world"),
    ] = None
    by_number: Annotated[
        bool, Field(description="an answer may cite an article by its number in the last search, for small models")
    ] = False
    told: Annotated[
        float, Field(ge=0, le=1, description="share of the answerable therapy, effect and limit that need no search")
    ] = 0.0
    difficulty: Annotated[float, Field(ge=0, le=1, description="of the pictures. 0: clear findings; 1: faint ones")] = (
        0.2
    )

    @cached_property
    def kinds(self) -> tuple[world.Question, ...]:  # type: ignore[override]
        return self.questions or world.QUESTIONS

    def plan(self, task: Task) -> world.LiteratureCase:
        return self._plan(task.metadata["seed"], task.metadata["question"])

    def _plan(self, seed: int, question: world.Question) -> world.LiteratureCase:
        return world.plan_case(seed, question, self.split, self.unanswerable, self.difficulty, self.facts, self.told)

    def make_drawn(self, seed: int) -> Task:
        question = self.kinds[seed % len(self.kinds)]
        case = self._plan(seed, question)
        answerable = case.answer != world.UNKNOWN
        answer: Any = case.answer
        if case.choices and answerable:
            answer = list_spellings([case.choices.index(str(case.answer))], case.choices)
        reference = {
            "answer": answer,
            "kind": world.KINDS[question],
            "evidence": case.evidence,
            "about": "" if case.told else case.fact.topic.key,
            "category": "told" if case.told else question if answerable else "unanswerable",
        }
        if question in world.UNITS:
            reference["unit"] = world.UNITS[question]
        prompt: dict[str, Any] = {"question": case.question}
        if case.choices:
            prompt["choices"] = case.choices
        metadata = {"seed": seed, "split": self.split, "question": question, "status": case.fact.status}
        return Task(f"literature_vqa-{self.split}-{seed}", prompt=prompt, reference=reference, metadata=metadata)

    def draw_images(self, task: Task) -> Sequence[TaskImage]:
        """Return the patient's film, or a slice in Hounsfield units."""
        seed = task.metadata["seed"]
        if task.metadata["question"] == "class":
            drawn = world.draw_case_slice(seed, self.difficulty)
            return [Source.of(drawn.pixels, unit="HU", spacing=(anatomy.SPACING,) * 2, display=DISPLAY)]
        film = world.draw_case_film(self.plan(task), seed, self.difficulty)
        return [Source.of(film.pixels, spacing=(FILM_SPACING,) * 2, display=radiographs.DISPLAY)]

    def system_prompt(self, task: Task) -> str:
        seen = SLICE_NOTE if task.metadata.get("question") == "class" else FILM_NOTE
        is_drawn = self.is_drawn(task)
        invented = " The diseases, drugs and devices are invented, so search for them." if is_drawn else ""
        return (
            f"You answer a question about a patient's picture with the help of the literature.{invented} A newer "
            'article replaces an older one. Ignore retracted articles. In "evidence", cite the PMIDs of the articles '
            f'that support your answer. If no article supports one, answer "{world.UNKNOWN}" and cite nothing.'
        ) + (f" {seen}" if is_drawn else "")

    def user_message(self, task: Task) -> str:
        lines, choices = [str(self.read_prompt(task, "question", "what is asked"))], task.prompt.get("choices")
        if choices:
            lines.append(write_choices(choices))
        if "kind" in task.reference:
            lines.append(FORMS[str(task.reference["kind"])])
        return "\n".join(lines)

    async def step(self, state: EpisodeState, reply: Reply | str) -> StepResult:
        """As any environment; with `by_number`, an answer that cites numbers of the last search cites their PMIDs."""
        result = await super().step(state, reply)
        if self.by_number and state.answer is not None:
            state.answer = FrozenDict(name_numbers(state.answer, state.turns))
        return result

    def default_reward(self) -> CombinedReward:
        """Return a right answer earns its share; the rest is for what it cites, and needs a right answer."""
        evidence = Component(EvidenceReward(), 1 - ANSWER_SHARE, needs={"answer": 1.0})
        return CombinedReward({"answer": (LiteratureAnswerReward(), ANSWER_SHARE), "evidence": evidence})

    def perfect_answer(self, task: Task) -> dict[str, object]:
        return {"answer": self.plan(task).answer, "evidence": list(task.reference["evidence"])}

    def oracle(self, task: Task) -> tuple[str, ...]:
        """Return a search for the topic, and then a look at the place that the answer depends on."""
        return write_looks(self, task) if self.max_turns > 2 else ()


SLICE_ZOOM, FILM_ZOOM = 4.0, 2.0


def write_looks(env: LiteratureVQA, task: Task) -> tuple[str, ...]:
    """Return a search in the literature, if one is needed and offered; then a look at the finding, likewise."""
    offered, case = get_offered_tools(env, task), env.plan(task)
    replies = []
    web = next((f"{name}_web" for name, specialist in env.specialists.items() if specialist.kind == "literature"), None)
    if web in offered and not case.told:
        replies.append(write_call(str(web), {"query": world.write_query(case.fact)}))
    calls = [write_call(name, arguments) for name, arguments in _look(env, task).items() if name in offered]
    return (*replies, *(["\n".join(calls)] if calls else []))


def _look(env: LiteratureVQA, task: Task) -> dict[str, dict[str, Any]]:
    """Return the calls that show what the answer also depends on: the lesion of a slice, the finding of a film."""
    seed, question = task.metadata["seed"], task.metadata["question"]
    if question not in ("shows", "dose", "cause", "class"):
        return {}
    looks: dict[str, dict[str, Any]] = {}
    if question == "class":
        lesion = world.draw_case_slice(seed, env.difficulty).lesion
        assert lesion is not None
        looks["window_level"] = {"center": ORGAN_VALUES[lesion.organ], "width": WINDOW_WIDTH}
        box, factor = lesion.box, SLICE_ZOOM
    else:
        [shown] = world.draw_case_film(env.plan(task), seed, env.difficulty).findings
        box, factor = shown.box, FILM_ZOOM
    x1, y1, x2, y2 = env.write_box(box, task)
    return looks | {"zoom": {"factor": factor, "center": [(x1 + x2) / 2, (y1 + y2) / 2]}}
