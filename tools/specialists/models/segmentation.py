"""`kind: segmentation`: the regions of a picture, with a label for each.

    specialists:
      segment: {kind: segmentation, model: some/segformer, labels: [lung, heart]}

Semantic models give each label one region; instance and universal models (`task: instance`) give each object one. The
policy reads area, box and mean intensity of each region, and sees the picture with colors on them.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ....errors import ConfigError, ToolFault, describe_unknown
from ...arguments import Picture
from ...results import ToolOutput
from ...tool import Tool
from ..serving import Request, ServedTool
from ..spec import register_specialist
from .model import NOT_FINITE, ModelRunner, ModelSpecialist
from .regions import Segment, Segmented, check_map, describe_regions

BACKGROUND = ("background", "unlabeled")  # labels that are no region unless `labels` names them


class SegmentationRunner(ModelRunner):
    """Returns the `Segmented` of a picture."""

    auto_classes = (
        "AutoModelForSemanticSegmentation",
        "AutoModelForInstanceSegmentation",
        "AutoModelForUniversalSegmentation",
    )
    same_size = True

    def __init__(
        self, spec: ModelSpecialist, task: str = "auto", labels: tuple[str, ...] = (), threshold: float = 0.5
    ) -> None:
        super().__init__(spec)
        known = list(self.config.id2label.values())
        for label in labels:
            if label not in known:
                raise ConfigError(f"labels: {describe_unknown('label', label, known)}", key="labels", given=label)
        self.labels, self.threshold = labels, threshold
        import transformers

        is_semantic = type(self.config) in transformers.AutoModelForSemanticSegmentation._model_mapping
        self.task = task if task != "auto" else "semantic" if is_semantic else "instance"
        if not hasattr(self.processor, f"post_process_{self.task}_segmentation"):
            raise ConfigError(
                f"task = {self.task!r}: {type(self.processor).__name__} has no {self.task} segmentation; allowed: "
                f"{'instance' if self.task == 'semantic' else 'semantic'}",
                key="task",
                given=self.task,
            )

    def infer(self, requests: Sequence[Request]) -> Sequence[Any]:
        inputs = self.to_device(self.processor(images=self.open_pictures(requests), return_tensors="pt"))
        outputs = self.model(**inputs)
        usable = find_usable(outputs, len(requests))
        read = getattr(self.processor, f"post_process_{self.task}_segmentation")
        given = {"target_sizes": [(one.picture.height, one.picture.width) for one in requests]}
        if "threshold" in inspect.signature(read).parameters:
            given["threshold"] = self.threshold  # type: ignore[assignment]
        found = read(outputs, **given)
        build = self._build_semantic if self.task == "semantic" else self._build_instances
        return [
            self._build(build, one, request) if good else ToolFault(NOT_FINITE)
            for one, request, good in zip(found, requests, usable, strict=True)
        ]

    def _build(self, build: Any, found: Any, request: Request) -> Segmented | ToolFault:
        try:
            segmented: Segmented = build(found, request)
            return segmented
        except ToolFault as error:
            return error

    def _is_wanted(self, label: str) -> bool:
        return label in self.labels if self.labels else label.lower() not in BACKGROUND

    def _build_semantic(self, found: Any, request: Request) -> Segmented:
        numbers = check_map(found.cpu().numpy() + 1, request)  # 0: none
        segments = [
            Segment(int(number), label)
            for number in np.unique(numbers)
            if self._is_wanted(label := self.config.id2label.get(int(number) - 1, str(int(number) - 1)))
        ]
        return Segmented(numbers, tuple(segments))

    def _build_instances(self, found: Any, request: Request) -> Segmented:
        numbers = check_map(found["segmentation"].cpu().numpy() + 1, request)  # -1: no object
        segments = [
            Segment(int(one["id"]) + 1, label, float(one["score"]))
            for one in found["segments_info"]
            if self._is_wanted(label := self.config.id2label.get(one["label_id"], str(one["label_id"])))
        ]
        return Segmented(numbers, tuple(segments))


def find_usable(outputs: Any, count: int) -> list[bool]:
    """For each picture of a batch, whether no number of the model is NaN."""
    import torch

    usable = [True] * count
    for value in outputs.values():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape[:1] == (count,):
            bad = torch.isnan(value.reshape(count, -1)).any(1).tolist()
            usable = [good and not nan for good, nan in zip(usable, bad, strict=True)]
    return usable


@dataclass(frozen=True)
class SegmentPicture(ServedTool):
    """The tool: all regions, or those of one label."""

    max_regions: int = 10

    async def __call__(
        self, image: Picture, label: Annotated[str | None, "show regions of this label only"] = None
    ) -> ToolOutput:
        """Marks the regions of a picture with colors, and measures each: area, box, mean intensity."""
        found: Segmented = await self.ask(image)
        return describe_regions(image, found, label, self.max_regions)


@register_specialist("segmentation")
class SegmentationSpecialist(ModelSpecialist):
    """Labeled regions: any model of `AutoModelForSemanticSegmentation`, or of instance or universal segmentation."""

    task: Annotated[
        Literal["auto", "semantic", "instance"],
        Field(description="a region for each label, or for each object; auto: what the model was made for"),
    ] = "auto"
    labels: Annotated[tuple[str, ...], Field(description="labels that are shown; default: all but the background")] = ()
    threshold: Annotated[float, Field(ge=0, le=1, description="lowest score of an object (instance)")] = 0.5
    max_regions: Annotated[int, Field(ge=1, description="regions shown, the largest ones")] = 10

    runner = SegmentationRunner

    def build_tools(self, name: str) -> Sequence[Tool]:
        server = self.get_server(task=self.task, labels=self.labels, threshold=self.threshold)
        tool = SegmentPicture(name, server, self.max_regions)
        return [Tool.from_function(tool, name, self.description, self.max_calls)]
