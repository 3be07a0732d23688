"""`kind: detection`: boxes with labels and scores; `kind: grounding`: boxes of what a phrase names.

    specialists:
      find_devices: {kind: detection, model: some/detr, threshold: 0.5}
      ground:       {kind: grounding, model: google/owlvit-base-patch32}

Boxes are fractions of the named picture; the policy reads them in the environment's coordinates.
"""

import inspect
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ....errors import ToolError, ToolFault
from ...arguments import Picture, Range, ViewFractions
from ...calling import ToolOutput
from ...tool import Tool
from ..serving import ModelRequest, ServedTool
from ..spec import register_specialist
from .model import NOT_FINITE, ModelSpecialist, SpecialistRunner, Unfamiliar

Score = Annotated[float, Range(0, 1), "lowest score of a box that is returned"]
Box = tuple[float, float, float, float]
DIGITS = 3  # of a score
PLACES = 4  # of a coordinate


@dataclass(frozen=True)
class Found:
    """A box in fractions of the picture, with its label and score."""

    label: str
    score: float
    box: Box

    @classmethod
    def of(cls, label: str, score: float, box: Sequence[float], size: tuple[int, int]) -> "Found":
        """Return one that a model found; `box` is in pixels of a picture of this (width, height), and is cut at its
        edges."""
        x1, y1, x2, y2 = (round(min(1.0, max(0.0, at / side)), PLACES) for at, side in zip(box, size * 2, strict=True))
        return cls(label, round(score, DIGITS), (x1, y1, x2, y2))


class DetectionRunner(SpecialistRunner):
    """Returns the `Found` of a picture, the highest score first. A request's arguments are (lowest score,)."""

    auto_classes = ("AutoModelForObjectDetection",)
    same_size = True  # others would be padded, which changes the boxes a little
    sample = (0.5,)

    def get_group(self, request: ModelRequest) -> Hashable:
        return (super().get_group(request), request.arguments)

    def infer(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        (threshold,) = requests[0].arguments
        inputs = self.to_device(self.processor(images=self.open_pictures(requests), return_tensors="pt"))
        outputs = self.model(**inputs)
        sizes = [(request.picture.height, request.picture.width) for request in requests]
        detections = self.processor.post_process_object_detection(outputs, threshold=threshold, target_sizes=sizes)
        names = self.config.id2label
        labels = [[names.get(int(label), str(int(label))) for label in detection["labels"]] for detection in detections]
        return collect(requests, outputs, detections, labels)


class GroundingRunner(SpecialistRunner):
    """Returns the `Found` of a phrase in a picture. A request's arguments are (lowest score, phrase)."""

    auto_classes = ("AutoModelForZeroShotObjectDetection",)
    processor_class = "AutoProcessor"
    same_size = True
    sample = (0.5, "lung")

    def get_group(self, request: ModelRequest) -> Hashable:
        threshold, phrase = request.arguments
        # The processors of OWL-ViT give every text the same length; other models would see padding.
        is_padded = self.config.model_type in ("owlvit", "owlv2")
        return (super().get_group(request), threshold, None if is_padded else phrase)

    def infer(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        threshold, _ = requests[0].arguments
        phrases = [[request.arguments[1]] for request in requests]
        most = getattr(getattr(self.config, "text_config", None), "max_position_embeddings", None)
        for (phrase,) in phrases:
            count = len(self.processor.tokenizer(phrase)["input_ids"])
            if most is not None and count > most:
                raise ToolError(f"The phrase takes {count} tokens; allowed: at most {most}, so use fewer words.")
        inputs = self.to_device(self.processor(text=phrases, images=self.open_pictures(requests), return_tensors="pt"))
        outputs = self.model(**inputs)
        read = self.processor.post_process_grounded_object_detection
        options = {
            "threshold": threshold,
            "text_threshold": threshold,
            "target_sizes": [(request.picture.height, request.picture.width) for request in requests],
            "text_labels": phrases,
            "input_ids": inputs.get("input_ids"),
        }
        known = inspect.signature(read).parameters
        found = read(outputs, **{key: value for key, value in options.items() if key in known})
        labels = [phrase * len(detection["scores"]) for phrase, detection in zip(phrases, found, strict=True)]
        return collect(requests, outputs, found, labels)


def collect(
    requests: Sequence[ModelRequest], outputs: Any, found: Sequence[Mapping[str, Any]], labels: Sequence[Sequence[str]]
) -> list[Any]:
    """Return the `Found` of each request; a `ToolFault` where the model's numbers are not finite."""
    import torch

    results: list[Any] = []
    for place, (request, detection, names) in enumerate(zip(requests, found, labels, strict=True)):
        logits = outputs.logits[place]  # -inf is the score of a token that is masked
        if not torch.isfinite(outputs.pred_boxes[place]).all() or (logits.isnan() | (logits == math.inf)).any():
            results.append(ToolFault(NOT_FINITE))
            continue
        size = request.picture.width, request.picture.height
        boxes = zip(names, detection["scores"].tolist(), detection["boxes"].tolist(), strict=True)
        every = [Found.of(label, score, box, size) for label, score, box in boxes]
        results.append(tuple(sorted(every, key=lambda item: (-item.score, item.label, item.box))))
    return results


def describe(found: Sequence[Found] | Unfamiliar, most: int) -> ToolOutput:
    """Return what the policy reads."""
    if isinstance(found, Unfamiliar):
        return ToolOutput(f"{found.words}: nothing is boxed")
    if not found:
        return ToolOutput("nothing found")
    shown = [{"label": one.label, "score": one.score, "box": ViewFractions(one.box)} for one in found[:most]]
    more = f"; the {most} with the highest scores" if len(found) > most else ""
    return ToolOutput(f"{len(found)} {'box' if len(found) == 1 else 'boxes'}{more}", {"boxes": shown})


@dataclass(frozen=True)
class BoxTool(ServedTool):
    threshold: float
    max_boxes: int


class Detect(BoxTool):
    async def __call__(self, image: Picture, at_least: Score | None = None) -> ToolOutput:
        """Find objects in a picture: a box, a label and a score for each."""
        lowest = self.threshold if at_least is None else at_least
        return describe(await self.ask(image, (lowest,)), self.max_boxes)


class Ground(BoxTool):
    async def __call__(
        self, image: Picture, phrase: Annotated[str, "what to look for, in a few words"], at_least: Score | None = None
    ) -> ToolOutput:
        """Find what a phrase names in a picture: a box and a score for each place."""
        words = " ".join(phrase.split())
        if not words:
            raise ToolError(f"{self.name}: phrase is empty; allowed: a few words")
        lowest = self.threshold if at_least is None else at_least
        return describe(await self.ask(image, (lowest, words)), self.max_boxes)


class BoxSpecialist(ModelSpecialist):
    """The keys of kinds that return boxes."""

    tool: ClassVar[type[Any]]  # a `BoxTool`
    max_boxes: Annotated[int, Field(ge=1, description="boxes shown, those with the highest scores")] = 20
    threshold: Annotated[float, Field(ge=0, le=1, description="lowest score, unless a call asks for another")] = 0.5

    def build_tools(self, name: str) -> Sequence[Tool]:
        tool = self.tool(name, self.get_server(), self.threshold, self.max_boxes)
        return [Tool.from_function(tool, name, self.description, self.max_calls)]


@register_specialist("detection")
class DetectionSpecialist(BoxSpecialist):
    """Boxes with labels and scores: any model of `AutoModelForObjectDetection` (DETR, YOLOS, …)."""

    runner, tool = DetectionRunner, Detect


@register_specialist("grounding")
class GroundingSpecialist(BoxSpecialist):
    """Boxes of what a phrase names: any model of `AutoModelForZeroShotObjectDetection` (OWL-ViT, Grounding DINO, …)."""

    threshold: Annotated[float, Field(ge=0, le=1, description="lowest score, unless a call asks for another")] = 0.1

    runner, tool = GroundingRunner, Ground
