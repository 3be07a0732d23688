"""`phantom`: is there a solid lesion in this CT slice, where, and how large? A narrow window and a zoom show it."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from ...core.messages import write_call
from ...core.settings import SeenAt
from ...images.coordinates import from_unit
from ...images.resample import fit_size
from ...images.source import Source
from ...images.task_images import TaskImage
from ...records import Task
from ...rewards import CombinedReward, ExactMatchReward, IoUReward
from ...rewards.combined import IfGold
from ...rewards.metrics import Accuracy, MeanAveragePrecision, Metric
from ..chest_xray.rewards import SizeReward
from ..drawn import DrawnEnv
from .anatomy import FIELD, ORGAN_VALUES, SIZE, SPACING, Lesion, PhantomSlice, draw_slice

Question = Literal["presence", "place", "size", "all", "kind"]
WINDOW_WIDTH = 30  # HU: in it a lesion of 4 HU is 34 gray levels darker than its organ
DISPLAY = (-1024.0, 3071.0)  # HU: the 12 bits of a scanner; a gray level is 16 HU wide
GOLD_ZOOM = 4.0
_draw = lru_cache(maxsize=64)(draw_slice)
QUESTIONS: Mapping[str, str] = {
    "presence": 'Does the slice show a solid lesion? Answer "lesion": yes or no; bbox and diameter_mm are null.',
    "place": "The slice shows one solid lesion. Where is it? Give its bbox; diameter_mm is null.",
    "size": "The slice shows one solid lesion. What is its diameter in millimeters? bbox is null.",
    "all": "Does the slice show a solid lesion? If it does, give its bbox and its diameter in millimeters, else null.",
    "kind": 'There is a faint spot in the {organ} at {point}. Is it a solid lesion? Answer "lesion": yes or no; bbox '
    "and diameter_mm are null.",
}


class PhantomAnswer(BaseModel):
    """Whether there is a solid lesion, its box in the slice, and its diameter."""

    lesion: Literal["yes", "no"]
    bbox: tuple[float, float, float, float] | None = Field(default=None, description="the smallest box around it")
    diameter_mm: float | None = Field(default=None, description="its diameter in millimeters")


class Phantom(DrawnEnv):
    """A drawn CT slice with solid lesions among rings that look alike from afar, all fainter than a gray level.

    >>> env = Phantom(question="all", difficulty=0.5)
    >>> task = env.tasks[0]
    >>> env.images(task)[0].unit, env.read_answer(env.write_answer(task), task)["lesion"] == task.reference["lesion"]
    ('HU', True)
    """

    name: ClassVar[str] = "phantom"
    answer: ClassVar[Any] = PhantomAnswer
    boxes: ClassVar[tuple[str, ...]] = ("bbox",)
    metrics: ClassVar[Mapping[str, Metric]] = {"lesion": Accuracy("lesion"), "box": MeanAveragePrecision("bbox")}

    right: ClassVar[Mapping[str, float]] = {"lesion": 1.0}
    kinds: ClassVar[Sequence[str]] = ("presence", "place", "size")

    max_turns = 6
    tools = ("window_level", "zoom", "measure", "get_intensity_stats", "undo")
    coordinates = "per_mille"
    max_pixels = 112 * 112
    seen_at = SeenAt(scale=0.4, contrast=3)

    difficulty: Annotated[
        float, Field(ge=0, le=1, description="0: large, dark lesions and few rings; 1: small, faint ones and many")
    ] = 0.5
    question: Annotated[
        Question | Literal["mixed"],
        Field(
            description="what is asked; kind: of one spot that is pointed at; mixed: presence, place and size in turn"
        ),
    ] = "mixed"

    def make_drawn(self, seed: int) -> Task:
        kind = self.kinds[seed % 3] if self.question == "mixed" else self.question
        wanted = kind in ("place", "size") or bool(np.random.default_rng([seed, 11]).random() < 0.5)
        drawn = _draw(seed, self.difficulty, has_lesion=wanted)
        lesion = drawn.lesion
        reference: dict[str, Any] = {"lesion": "no" if lesion is None else "yes"}
        if lesion is not None and kind in ("place", "all"):
            reference["bbox"] = lesion.box
        if lesion is not None and kind in ("size", "all"):
            reference["diameter_mm"] = round(lesion.diameter, 1)
        metadata: dict[str, Any] = {"seed": seed, "split": self.split, "question": kind, "has_lesion": wanted}
        if lesion is not None:
            metadata |= {"organ": lesion.organ, "contrast": round(lesion.contrast, 2), "evidence": lesion.box}
        prompt = {"question": QUESTIONS[kind]}
        if kind == "kind":
            spot = _find_spot(drawn, seed)
            metadata["evidence"] = spot.box
            prompt["question"] = QUESTIONS[kind].format(organ=spot.organ, point=self._write_point(spot))
        return Task(f"phantom-{self.split}-{seed}", prompt=prompt, reference=reference, metadata=metadata)

    def default_reward(self) -> CombinedReward:
        box = IfGold(IoUReward("bbox"), "bbox")
        size = IfGold(SizeReward("diameter_mm", 0.5, "diameter_mm"), "diameter_mm")
        return CombinedReward({"lesion": (ExactMatchReward("lesion"), 0.2), "box": (box, 0.4), "size": (size, 0.4)})

    def system_prompt(self, task: Task) -> str:
        return (
            "You read one axial CT slice of the upper abdomen. A solid lesion is a round spot, a little darker than "
            "its organ all over. A ring with a core as bright as the organ is not a lesion. Both are faint: narrow "
            "the window to the organ and zoom in before you answer."
        )

    def draw_images(self, task: Task) -> Sequence[TaskImage]:
        """Return the slice, in Hounsfield units, shown over their whole range at first."""
        drawn = _draw(task.metadata["seed"], self.difficulty, has_lesion=task.metadata["has_lesion"])
        return [Source.of(drawn.pixels, unit="HU", spacing=(SPACING, SPACING), display=DISPLAY)]

    def gold_answer(self, task: Task) -> dict[str, object]:
        """Return the correct answer as a model would write it."""
        gold = task.reference
        box = None if gold.get("bbox") is None else self.write_box(gold["bbox"], task)
        return {"lesion": gold["lesion"], "bbox": box, "diameter_mm": gold.get("diameter_mm"), "continue": False}

    def oracle(self, task: Task) -> tuple[str, ...]:
        """Return a window on the organ and a zoom to the lesion, in one reply; without a lesion, to a ring."""
        seed = task.metadata["seed"]
        spot = _find_spot(_draw(seed, self.difficulty, has_lesion=task.metadata["has_lesion"]), seed)
        window = {"center": ORGAN_VALUES[spot.organ], "width": WINDOW_WIDTH}
        zoom = {"factor": GOLD_ZOOM, "center": self._write_point(spot)}
        return (f"{write_call('window_level', window)}\n{write_call('zoom', zoom)}",)

    def _write_point(self, spot: Lesion) -> list[float]:
        size = fit_size(SIZE, SIZE, self.max_pixels, self.pixel_multiple)
        return list(from_unit((spot.x / FIELD, spot.y / FIELD), self.coordinates, size))


def _find_spot(drawn: PhantomSlice, seed: int) -> Lesion:
    return drawn.lesion or drawn.decoys[seed % len(drawn.decoys)]
