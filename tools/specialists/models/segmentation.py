"""`kind: segmentation` and `prompted_segmentation`: the regions of a picture, and the region that a place means.

    specialists:
      segment: {kind: segmentation, model: some/segformer, labels: [lung, heart]}
      outline: {kind: prompted_segmentation, model: facebook/sam-vit-base}

Semantic models give each label one region; instance and universal models (`task: instance`) give each object one. The
policy reads area, box and mean intensity of each region, and sees the picture with colors on them.
"""

import inspect
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from ....errors import ConfigError, ToolError, ToolFault, describe_unknown
from ....images.view import WHOLE, View
from ...arguments import Box, Picture, Point, ViewFractions
from ...builtin.drawing import COLORS, draw_mask, find_mask_box
from ...calling import ToolOutput
from ...tool import Tool
from ..serving import ModelRequest, ServedTool
from ..spec import register_specialist
from .model import NOT_FINITE, ModelSpecialist, SpecialistRunner, Unfamiliar


@dataclass(frozen=True)
class Segment:
    """A region: its number in the map, its label, and how sure the model is, if it says so."""

    number: int
    label: str
    score: float | None = None


@dataclass(frozen=True)
class Segmented:
    """What a model marked in a picture."""

    map: np.ndarray  # (height, width) of the picture: the number of the region of each pixel, 0 for none
    segments: tuple[Segment, ...]


def check_map(found: object, request: ModelRequest) -> np.ndarray:
    """Return a map in the smallest type that holds it. Raise `ToolFault` unless it has the size of the picture.
    It is never resized here: only the processor of a model knows how its masks lie on the picture."""
    numbers = np.asarray(found)
    size = request.picture.height, request.picture.width
    if numbers.shape != size:
        shape = " x ".join(map(str, numbers.shape[::-1])) or "no"
        raise ToolFault(f"gave a mask of {shape} pixels for a picture of {size[1]} x {size[0]}")
    frozen = numbers.astype(np.uint8 if numbers.max(initial=0) < 256 else np.int32)
    frozen.flags.writeable = False
    return frozen


def measure_pixel(view: View) -> float | None:
    """Return the area of a pixel of a view in mm²; None if the spacing of its image is not known."""
    spacing = view.source.spacing
    if spacing is None or view.source.at_detector:
        return None
    x1, y1, x2, y2 = view.native
    width, height = view.size
    return (x2 - x1) * spacing[0] * (y2 - y1) * spacing[1] / (width * height)


def describe_regions(view: View, found: Segmented | Unfamiliar, label: str | None, most: int) -> ToolOutput:
    """Return the numbers of each region, the largest first, and the picture with a color on each.
    `mean_intensity` is of the gray values of the picture as it is shown, 0 to 255. Areas in mm² are given if the
    spacing is known."""
    if isinstance(found, Unfamiliar):
        return ToolOutput(f"{found.words}: nothing is marked")
    gray, pixel = view.to_gray(), measure_pixel(view)
    wanted = [segment for segment in found.segments if label is None or segment.label == label]
    masks = [(segment, mask) for segment in wanted if (mask := found.map == segment.number).any()]
    masks.sort(key=lambda item: (-item[1].sum(), item[0].number))
    if not masks:
        return ToolOutput("nothing found" if label is None else f"no {label} found")
    regions = []
    picture = view.to_picture()
    for (segment, mask), (name, color) in zip(masks[:most], cycle(COLORS.items()), strict=False):
        picture = draw_mask(picture, mask, color)
        facts: dict[str, Any] = {"label": segment.label}
        if segment.score is not None:
            facts["score"] = round(segment.score, 3)
        facts |= {
            "color": name,
            "area_percent": round(100 * float(mask.mean()), 2),
            "box": ViewFractions(find_mask_box(mask) or WHOLE),
            "mean_intensity": round(float(gray[mask].mean()), 1),
        }
        if pixel is not None:
            facts["area_mm2"] = round(float(mask.sum()) * pixel, 1)
        regions.append(facts)
    more = f"; the {most} largest" if len(masks) > most else ""
    text = f"{len(masks)} {'region' if len(masks) == 1 else 'regions'}{more}"
    return ToolOutput(text, {"regions": regions}, picture, beside=((view, WHOLE),))


MAX_REGIONS = 10  # shown, the largest ones
BACKGROUND = ("background", "unlabeled")  # labels that are no region unless `labels` names them


class SegmentationRunner(SpecialistRunner):
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
                raise ConfigError(f"labels: {describe_unknown('label', label, known)}", key="labels")
        self.labels, self.threshold = labels, threshold
        import transformers

        is_semantic = type(self.config) in transformers.AutoModelForSemanticSegmentation._model_mapping
        self.task = task if task != "auto" else "semantic" if is_semantic else "instance"
        if not hasattr(self.processor, f"post_process_{self.task}_segmentation"):
            other = "instance" if self.task == "semantic" else "semantic"
            kind = f"{type(self.processor).__name__} has no {self.task} segmentation"
            raise ConfigError(f"task = {self.task!r}: {kind}; allowed: {other}", key="task")

    def infer(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        inputs = self.to_device(self.processor(images=self.open_pictures(requests), return_tensors="pt"))
        outputs = self.model(**inputs)
        read = getattr(self.processor, f"post_process_{self.task}_segmentation")
        options = {"target_sizes": [(item.picture.height, item.picture.width) for item in requests]}
        if "threshold" in inspect.signature(read).parameters:
            options["threshold"] = self.threshold  # type: ignore[assignment]
        return collect(self._build, read(outputs, **options), requests, outputs)

    def _build(self, found: Any, request: ModelRequest) -> Segmented:
        is_semantic = self.task == "semantic"  # then `found` is the map itself
        numbers = check_map((found if is_semantic else found["segmentation"]).cpu().numpy() + 1, request)  # 0: none
        segments = (
            [(int(number), int(number) - 1, None) for number in np.unique(numbers)]
            if is_semantic
            else [(int(item["id"]) + 1, item["label_id"], float(item["score"])) for item in found["segments_info"]]
        )
        named = [Segment(number, self.config.id2label.get(kind, str(kind)), score) for number, kind, score in segments]
        if self.labels:
            return Segmented(numbers, tuple(item for item in named if item.label in self.labels))
        return Segmented(numbers, tuple(item for item in named if item.label.lower() not in BACKGROUND))


def collect(
    build: Callable[[Any, ModelRequest], Segmented], found: Any, requests: Sequence[ModelRequest], outputs: Any
) -> list[Segmented | ToolFault]:
    """Return what a function makes of the model's output for each picture, or its fault, as of one with a NaN."""
    import torch

    count, results = len(requests), list[Segmented | ToolFault]()
    usable = [True] * count
    for value in outputs.values():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape[:1] == (count,):
            bad = torch.isnan(value.reshape(count, -1)).any(1).tolist()
            usable = [good and not nan for good, nan in zip(usable, bad, strict=True)]
    for item, request, good in zip(found, requests, usable, strict=True):
        try:
            results.append(build(item, request) if good else ToolFault(NOT_FINITE))
        except ToolFault as error:
            results.append(error)
    return results


@dataclass(frozen=True)
class SegmentPicture(ServedTool):
    async def __call__(
        self, image: Picture, label: Annotated[str | None, "show regions of this label only"] = None
    ) -> ToolOutput:
        """Mark the regions of a picture with colors, and measures each: area, box, mean intensity."""
        return describe_regions(image, await self.ask(image), label, MAX_REGIONS)


@register_specialist("segmentation")
class SegmentationSpecialist(ModelSpecialist):
    """Labeled regions: any model of `AutoModelForSemanticSegmentation`, or of instance or universal segmentation."""

    task: Literal["auto", "semantic", "instance"] = Field(
        default="auto", description="a region for each label, or for each object; auto: what the model was made for"
    )
    labels: Annotated[tuple[str, ...], Field(description="labels that are shown; default: all but the background")] = ()
    threshold: Annotated[float, Field(ge=0, le=1, description="lowest score of an object (instance)")] = 0.5

    runner = SegmentationRunner

    def build_tools(self, name: str) -> Sequence[Tool]:
        server = self.get_server(task=self.task, labels=self.labels, threshold=self.threshold)
        return [Tool.from_function(SegmentPicture(name, server), name, self.description, self.max_calls)]


LABEL = "region"


class PromptedRunner(SpecialistRunner):
    """Returns the `Segmented` of one region. A request's arguments are (box or None, point or None), as fractions."""

    auto_classes = ("AutoModelForMaskGeneration",)
    processor_class = "AutoProcessor"
    same_size = True
    sample = (None, (0.5, 0.5))

    def get_group(self, request: ModelRequest) -> Hashable:
        box, point = request.arguments
        return (super().get_group(request), box is None, point is None)

    def infer(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        prompts: dict[str, Any] = {}
        boxes, points = zip(*(request.arguments for request in requests), strict=True)
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
        masks = self.processor.post_process_masks(outputs.pred_masks.float().cpu(), **sizes)
        scores = outputs.iou_scores.float().cpu().reshape(len(requests), -1)[:, 0].tolist()
        return collect(_build_region, zip(masks, scores, strict=True), requests, outputs)


def _to_pixels(fractions: Sequence[float], request: ModelRequest) -> list[float]:
    sides = (request.picture.width, request.picture.height)
    return [fraction * sides[place % 2] for place, fraction in enumerate(fractions)]


def _build_region(found: tuple[Any, float], request: ModelRequest) -> Segmented:
    mask, score = found
    return Segmented(check_map(mask.numpy().reshape(mask.shape[-2:]), request), (Segment(1, LABEL, score),))


@dataclass(frozen=True)
class Outline(ServedTool):
    async def __call__(
        self,
        image: Picture,
        box: Annotated[Box | None, "around the region"] = None,
        point: Annotated[Point | None, "inside the region"] = None,
    ) -> ToolOutput:
        """Mark the region at a point or in a box of a picture with a color, and measures it: area, box, intensity."""
        if box is None and point is None:
            raise ToolError(f"{self.name}: needs a box, a point or both")
        if box is not None and not (box[0] < box[2] and box[1] < box[3]):
            raise ToolError(f"{self.name}: box needs x1 < x2 and y1 < y2")
        segmented = await self.ask(image, (box and tuple(box), point and tuple(point)))
        return describe_regions(image, segmented, None, 1)


@register_specialist("prompted_segmentation")
class PromptedSpecialist(ModelSpecialist):
    """The region at a point or in a box: any model of `AutoModelForMaskGeneration` (SAM, SAM 2, …)."""

    runner = PromptedRunner

    def build_tools(self, name: str) -> Sequence[Tool]:
        return [Tool.from_function(Outline(name, self.get_server()), name, self.description, self.max_calls)]
