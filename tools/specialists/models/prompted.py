"""`kind: prompted_segmentation`: the region at a point or in a box, by a model such as SAM.

specialists:
  outline: {kind: prompted_segmentation, model: facebook/sam-vit-base}
"""

import inspect
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ....errors import ToolError, ToolFault
from ...arguments import Box, Picture, Point
from ...results import ToolOutput
from ...tool import Tool
from ..serving import Request, ServedTool
from ..spec import register_specialist
from .model import NOT_FINITE, ModelRunner, ModelSpecialist
from .regions import Segment, Segmented, check_map, describe_regions
from .segmentation import find_usable

LABEL = "region"


class PromptedRunner(ModelRunner):
    """Returns the `Segmented` of one region. A request's arguments are (box or None, point or None), as fractions."""

    auto_classes = ("AutoModelForMaskGeneration",)
    processor_class = "AutoProcessor"
    same_size = True

    def get_group(self, request: Request) -> Hashable:
        box, point = _get_prompts(request)
        return (super().get_group(request), box is None, point is None)

    def infer(self, requests: Sequence[Request]) -> Sequence[Any]:
        prompts: dict[str, Any] = {}
        boxes, points = zip(*(_get_prompts(request) for request in requests), strict=True)
        if boxes[0] is not None:
            prompts["input_boxes"] = [[_to_pixels(box, one)] for box, one in zip(boxes, requests, strict=True)]
        if points[0] is not None:
            prompts["input_points"] = [[[_to_pixels(point, one)]] for point, one in zip(points, requests, strict=True)]
            prompts["input_labels"] = [[[1]] for _ in requests]
        inputs = self.processor(images=self.open_pictures(requests), return_tensors="pt", **prompts)
        sizes = {name: inputs[name] for name in ("original_sizes", "reshaped_input_sizes") if name in inputs}
        tensors = self.to_device(inputs)
        known = inspect.signature(self.model.forward).parameters
        outputs = self.model(**{key: one for key, one in tensors.items() if key in known}, multimask_output=False)
        usable = find_usable(outputs, len(requests))
        masks = self.processor.post_process_masks(outputs.pred_masks.float().cpu(), **sizes)
        scores = outputs.iou_scores.float().cpu().reshape(len(requests), -1)[:, 0].tolist()
        return [
            _build(mask, score, request) if good else ToolFault(NOT_FINITE)
            for mask, score, request, good in zip(masks, scores, requests, usable, strict=True)
        ]


def _get_prompts(request: Request) -> tuple[Any, Any]:
    arguments: Any = request.arguments
    box, point = arguments
    return box, point


def _to_pixels(fractions: Sequence[float], request: Request) -> list[float]:
    sides = (request.picture.width, request.picture.height)
    return [part * sides[place % 2] for place, part in enumerate(fractions)]


def _build(mask: Any, score: float, request: Request) -> Segmented | ToolFault:
    try:
        numbers = check_map(mask.numpy().reshape(mask.shape[-2:]), request)
    except ToolFault as error:
        return error
    return Segmented(numbers, (Segment(1, LABEL, score),))


@dataclass(frozen=True)
class Outline(ServedTool):
    """The tool: the region that a box or a point means."""

    async def __call__(
        self,
        image: Picture,
        box: Annotated[Box | None, "around the region"] = None,
        point: Annotated[Point | None, "inside the region"] = None,
    ) -> ToolOutput:
        """Marks the region at a point or in a box of a picture with a color, and measures it: area, box, intensity."""
        if box is None and point is None:
            raise ToolError(f"{self.name}: needs a box, a point or both")
        if box is not None and not (box[0] < box[2] and box[1] < box[3]):
            raise ToolError(f"{self.name}: box needs x1 < x2 and y1 < y2")
        found: Segmented = await self.ask(image, (box and tuple(box), point and tuple(point)))
        return describe_regions(image, found, None, 1)


@register_specialist("prompted_segmentation")
class PromptedSpecialist(ModelSpecialist):
    """The region at a point or in a box: any model of `AutoModelForMaskGeneration` (SAM, SAM 2, …)."""

    runner = PromptedRunner

    def build_tools(self, name: str) -> Sequence[Tool]:
        return [Tool.from_function(Outline(name, self.get_server()), name, self.description, self.max_calls)]
