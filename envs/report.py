"""`report`: describe an image in one text or in sections, name diagnoses, and give boxes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ..errors import ConfigError
from ..records import Task
from ..rewards import CombinedReward, IoUReward, RankingReward, TokenF1Reward
from ..rewards.combined import IfGold
from ..rewards.fields import get_accepted_values, get_field, read_gold_label, read_label, to_items
from ..rewards.metrics import MeanAveragePrecision, MeanScore, Metric, TopK
from ..utils.frozen import FrozenDict
from ..utils.values import to_text
from .data import MappedRow, TaskField
from .data.evidence import EVIDENCE, CitingEnv
from .data.fields import TEXT, build_boxes

FIELD = "diagnosis"
MAX_DIAGNOSES = 5  # of an answer, the most likely first


@dataclass(frozen=True)
class CoverageReward:
    """The share of the gold names that a list of at most `k` names holds; of more than k gold names, k count.
    Names are compared as in `ExactMatchReward`. It does not apply (None) without gold. Range: [0, 1].

    >>> CoverageReward("diagnosis")({"diagnosis": ["Glioma", "abscess"]}, {"diagnosis": ["glioma", "cyst"]})
    0.5
    """

    field: str = FIELD
    k: int = MAX_DIAGNOSES
    name: str = "coverage"

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None:
        golds = set(map(read_gold_label, get_accepted_values(get_field(reference, self.field))))
        if not golds:
            return None
        matched = golds.intersection(map(read_label, to_items(get_field(answer, self.field), self.k) or ()))
        return len(matched) / min(self.k, len(golds))


RESERVED = ("id", "image", "images", "metadata", "question", "report", FIELD, "boxes", "evidence", "continue")
WEIGHTS = {"text": 0.33, FIELD: 0.34, "boxes": 0.33}  # as for NOVA
SectionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class Report(CitingEnv):
    """Reports of images: one text or sections, a ranked list of diagnoses and boxes if they are mapped."""

    name: ClassVar[str] = "report"

    sections: Annotated[
        tuple[SectionName, ...],
        Field(description="sections of the report, such as [findings, impression], each a field; empty: one `report`"),
    ] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return self.sections or ("report",)

    @cached_property
    def fields(self) -> Mapping[str, TaskField]:  # type: ignore[override]
        """The fields: the report or each of its sections, and what belongs to it."""
        whole = TaskField("reference", "text", description="the report, as free text")
        section = TaskField("reference", "text", required=False, description="a section; a row may lack some")
        texts = dict.fromkeys(self.sections, section) or {"report": whole}
        return {
            "question": TaskField("prompt", "text", required=False, description="a request; default: for a report"),
            **texts,
            FIELD: TaskField("reference", "answers", required=False, description="a text or a list of the right ones"),
            "boxes": TaskField("reference", "boxes", required=False, description="one box or a list; may be empty"),
            "evidence": EVIDENCE,
        }

    @cached_property
    def answer(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The answer: the texts, and diagnoses and boxes if they are mapped."""
        for name in self.sections:
            if name in RESERVED or self.sections.count(name) > 1:
                problem = f"sections: {name!r}; allowed: different names, none of {', '.join(RESERVED)}"
                raise ConfigError(f"{self.name}: {problem}", key="sections")
        ranked = {"type": "array", "items": TEXT, "maxItems": MAX_DIAGNOSES}
        more: dict[str, Any] = {FIELD: FrozenDict(ranked, description="the most likely first"), "boxes": build_boxes()}
        return self._build_answer({**dict.fromkeys(self.texts, TEXT), **{name: more[name] for name in self._extras}})

    @property
    def boxes(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("boxes[]",) if "boxes" in self.data.columns else ()

    @property
    def _extras(self) -> tuple[str, ...]:
        return tuple(name for name in (FIELD, "boxes") if name in self.data.columns)

    def read_row(self, row: MappedRow) -> Task:
        task = super().read_row(row)
        reference = dict(task.reference)
        if not any(name in reference for name in self.texts):
            raise row.refuse(self.texts[0], None, f"text in one of the sections {', '.join(self.texts)}")
        if FIELD in reference:
            reference[FIELD] = [to_text(name) for name in reference[FIELD]]
        return Task("", prompt=task.prompt, reference=reference, metadata=task.metadata)

    def system_prompt(self, task: Task) -> str:
        look = "Describe the image as an expert would. Look at every part of it with the tools before you answer."
        return look + self._ask_for_evidence()

    def user_message(self, task: Task) -> str:
        what = " and ".join(f"the {name.replace('_', ' ')}" for name in self.sections) or "the report"
        lines = [str(task.prompt.get("question") or f"Write {what} of this image.")]
        if FIELD in self._extras:
            lines.append(f"Name up to {MAX_DIAGNOSES} diagnoses, the most likely first.")
        if "boxes" in self._extras:
            lines.append("Give one box for each abnormal finding, and an empty list if there is none.")
        return "\n".join(lines)

    def default_reward(self) -> CombinedReward:
        """Return the sections share one weight; what a row lacks does not count."""
        share = WEIGHTS["text"] / len(self.texts)
        parts: dict[str, tuple[Any, float]] = {name: (IfGold(TokenF1Reward(name), name), share) for name in self.texts}
        if FIELD in self._extras:
            names = {"top1": (RankingReward(FIELD, k=1), 0.6), "coverage": (CoverageReward(), 0.4)}
            parts[FIELD] = (IfGold(CombinedReward(names, name=FIELD), FIELD), WEIGHTS[FIELD])
        if "boxes" in self._extras:
            parts["boxes"] = (IfGold(IoUReward("boxes", threshold=0.5), "boxes"), WEIGHTS["boxes"])
        total = sum(weight for _, weight in parts.values())
        shared = {name: (reward, weight / total) for name, (reward, weight) in parts.items()}
        return self._add_citations(shared, *self.texts, FIELD)

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:  # type: ignore[override]
        """Token F1 by section, top-1 and coverage of the diagnoses, mAP at 0.3, 0.5 and 0.5:0.95."""
        metrics: dict[str, Metric] = {
            name: MeanScore(IfGold(TokenF1Reward(name), name), "token_f1") for name in self.texts
        }
        if FIELD in self._extras:
            metrics |= {FIELD: TopK(FIELD, 1), "coverage": MeanScore(CoverageReward(), "coverage")}
        if "boxes" in self._extras:
            metrics["box"] = MeanAveragePrecision("boxes")
        return metrics

    def perfect_answer(self, task: Task) -> dict[str, object]:
        extras = {name: list(task.reference.get(name, ())) for name in self._extras}
        if FIELD in extras:
            extras[FIELD] = extras[FIELD][:MAX_DIAGNOSES]
        return {**{name: task.reference.get(name, "") for name in self.texts}, **extras, **self._cite(task)}
