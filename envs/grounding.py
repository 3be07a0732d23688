"""`grounding`: find things in an image and give their boxes."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ..core.contract import Part
from ..errors import ConfigError
from ..images.source import AXES
from ..records import Task
from ..rewards import CombinedReward, IoUReward
from ..rewards.metrics import AccuracyBy, MeanAveragePrecision, MeanScore, Metric
from ..rewards.token_f1 import ShortAnswerReward
from ..utils.values import normalize
from .data import DataEnv, MappedRow, TaskField
from .data.fields import BOX, BOX_3D, INDEX, TEXT, build_boxes, build_object
from .vqa import get_first, read_kind

TEXTS = ("answer", "location")
PLACE: Mapping[Part, str] = {"image": "image_number", "plane": "plane", "slice": "slice"}  # fields by part
PLANE = {"type": ["string", "null"], "enum": [*AXES, None]}
WEIGHTS = {"answer": 0.4, "location": 0.3, "boxes": 0.3}


class Grounding(DataEnv):
    """Things to find in an image: one box or many, with labels if they are mapped, and with an answer in words."""

    name: ClassVar[str] = "grounding"

    classes: Annotated[
        tuple[str, ...], Field(description="labels that boxes may have; a row with another is bad. Empty: any")
    ] = ()

    @property
    def is_labeled(self) -> bool:
        return "labels" in self.data.columns

    @cached_property
    def fields(self) -> Mapping[str, TaskField]:  # type: ignore[override]
        """The fields; without `label` and `labels` a `question` is needed."""
        asks = not {"label", "labels"} & self.data.columns.keys()
        return {
            "question": TaskField("prompt", "text", required=asks, description="what is asked"),
            "label": TaskField("prompt", "text", required=False, description="the name of what is to be found"),
            "boxes": TaskField("reference", "boxes", description="one box or a list; empty: there is nothing"),
            "image_number": TaskField("reference", "index", required=False, description="the image with boxes, from 0"),
            "plane": TaskField(
                "reference", "text", required=False, allowed=tuple(AXES), description="of the slice; default: first"
            ),
            "slice": TaskField("reference", "index", required=False, description="from 0, or the first and the last"),
            "labels": TaskField("reference", "list", required=False, description="one label for each box"),
            "answer": TaskField("reference", "answers", required=False, description="in words, or a list of accepted"),
            "location": TaskField("reference", "text", required=False, description="where it is, in words"),
            "kind": TaskField("reference", "text", required=False, description="closed, open or choice: of `answer`"),
        }

    @cached_property
    def answer(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The answer: texts if they are mapped, and the boxes."""
        texts = {name: TEXT for name in TEXTS if name in self.data.columns}
        kinds: Mapping[Part, Any] = {"image": INDEX, "plane": PLANE, "slice": INDEX}
        where = {name: kinds[part] for part, name in self.place.items()}
        boxes = build_boxes(labeled=self.is_labeled, classes=self.classes, box=BOX_3D if self.is_3d else BOX)
        return build_object({**texts, **where, "boxes": boxes})

    @property
    def is_3d(self) -> bool:
        return self.data.boxes.format == "xyzxyz"

    @property
    def _paths(self) -> tuple[str, ...]:
        return ("boxes[].box" if self.is_labeled else "boxes[]",)

    @property
    def boxes(self) -> tuple[str, ...]:  # type: ignore[override]
        return () if self.is_3d else self._paths

    @property
    def boxes_3d(self) -> tuple[str, ...]:  # type: ignore[override]
        return self._paths if self.is_3d else ()

    @property
    def place(self) -> Mapping[Part, str]:  # type: ignore[override]
        """Where boxes lie, as far as it is mapped; all boxes of a task lie on one picture."""
        mapped = {name for name in PLACE.values() if name in self.data.columns}
        if self.data.boxes.frame == "voxel" and "slice" in mapped:
            mapped.add("plane")  # that of the file
        return {part: name for part, name in PLACE.items() if name in mapped}

    def _check_fields(self) -> None:
        super()._check_fields()
        extra = [name for name in ("plane", "slice") if name in self.data.columns]
        if self.is_3d and extra:
            key = f"data.columns.{extra[0]}"
            raise ConfigError(f"{key}: boxes of format xyzxyz lie on no single slice; leave it out", key=key)
        if self.classes and not self.is_labeled:
            problem = f"classes = {', '.join(self.classes)}: no box has a label"
            allowed = "allowed: with data.columns.labels, one label for each box"
            raise ConfigError(f"{problem}; {allowed}", key="classes")

    def read_row(self, row: MappedRow) -> Task:
        task = super().read_row(row)
        reference = dict(task.reference)
        if self.is_labeled:
            labels = self._read_labels(row, reference.pop("labels", []), len(reference["boxes"]))
            pairs = zip(labels, reference["boxes"], strict=True)
            reference["boxes"] = [{"label": label, "box": box} for label, box in pairs]
        if "answer" in reference:
            answers = reference["answer"]
            reference["kind"] = read_kind(row, "kind", reference.get("kind"), answers, ())
            reference["answer"] = answers if len(answers) > 1 else answers[0]
        return Task("", prompt=task.prompt, reference=reference, metadata=task.metadata)

    def _read_labels(self, row: MappedRow, labels: list[Any], count: int) -> list[str]:
        if len(labels) != count:
            raise row.refuse("labels", labels, f"one label for each of the {count} boxes")
        known = {normalize(name).text: name for name in self.classes}
        for label in labels:
            if not isinstance(label, str) or not normalize(label).text:
                raise row.refuse("labels", label, "text")
            if known and normalize(label).text not in known:
                raise row.refuse("labels", label, f"one of: {', '.join(self.classes)}")
        return [known.get(normalize(label).text, label) for label in labels]

    def system_prompt(self, task: Task) -> str:
        return "Find what is asked for in the image. Zoom in before you answer, so that every box fits closely."

    def user_message(self, task: Task) -> str:
        question, label = task.prompt.get("question"), task.prompt.get("label")
        if question is None:
            question = "Find everything that has a label." if label is None else f"Find every instance of: {label}"
        return f"{question}\nGive one box for each, and an empty list if there is none."

    @cached_property
    def _iou(self) -> IoUReward:
        form: Any = "xyzxyz" if self.is_3d else "xyxy"
        return IoUReward("boxes", format=form, places=tuple(self.place.values()), **self._keys)

    @property
    def _keys(self) -> dict[str, Any]:
        return {"box_key": "box", "label_key": "label"} if self.is_labeled else {}

    def default_reward(self) -> CombinedReward:
        parts: dict[str, Any] = {"boxes": self._iou}
        parts |= {name: ShortAnswerReward(name) for name in TEXTS if name in self.data.columns}
        total = sum(WEIGHTS[name] for name in parts)
        return CombinedReward({name: (reward, WEIGHTS[name] / total) for name, reward in parts.items()})

    @cached_property
    def metrics(self) -> Mapping[str, Metric]:  # type: ignore[override]
        """mAP at 0.3, 0.5 and 0.5:0.95 (not of volumes), mean IoU, and accuracy and token F1 of the mapped texts."""
        metrics: dict[str, Metric] = {"iou": MeanScore(self._iou, "iou")}
        if not self.is_3d and not self.place:  # average precision knows no place
            metrics = {"box": MeanAveragePrecision("boxes", **self._keys), **metrics}
        if "answer" in self.data.columns:
            metrics["accuracy"] = AccuracyBy(ShortAnswerReward("answer", exact=True), "kind")
        if "location" in self.data.columns:
            metrics["location"] = MeanScore(ShortAnswerReward("location"), "token_f1")
        return metrics

    def perfect_answer(self, task: Task) -> dict[str, object]:
        gold = task.reference
        texts = {name: str(get_first(gold.get(name, ""))) for name in TEXTS if name in self.data.columns}
        return {**texts, **{name: gold.get(name) for name in self.place.values()}, "boxes": list(gold["boxes"])}
