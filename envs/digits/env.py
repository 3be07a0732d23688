"""`digits`: find the handwritten digit, zoom in to read it, answer with its name and its box.

The prompts (`templates.yaml`) are word for word those that the shipped model was trained on: it has 0.9 million
parameters and knows only these sentences. A test pins their bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from PIL import Image
from pydantic import BaseModel, Field, StrictFloat

from ...configs import yaml_reader
from ...core.settings import SeenAt
from ...core.tasks import ProceduralTasks
from ...images.resample import fit_size
from ...images.task_images import TaskImage
from ...records import Task
from ...rewards import CombinedReward, ExactMatchReward, IoUReward
from ...rewards.metrics import Accuracy, MacroF1, MeanAveragePrecision, Metric
from ...utils.frozen import FrozenDict
from ..drawn import DrawnEnv, Split
from . import viewer
from .canvas import CanvasDifficulty, Label, draw_canvas, place_digit


class DigitAnswer(BaseModel):
    """Which digit it is, and where in the original image."""

    label: Label
    bbox: tuple[StrictFloat, StrictFloat, StrictFloat, StrictFloat]


class Digits(DrawnEnv):
    """A real handwritten digit on a large noisy canvas: visible in the overview, but readable only after a zoom.

    >>> env = Digits(split="test")
    >>> env.tasks[0].id, env.reset(env.tasks[0], seed=0).view.size
    ('digits-test-0', (48, 48))
    """

    name: ClassVar[str] = "digits"
    answer: ClassVar[Any] = DigitAnswer
    boxes: ClassVar[tuple[str, ...]] = ("bbox",)
    metrics: ClassVar[Mapping[str, Metric]] = {
        "label": Accuracy("label"),
        "labels": MacroF1("label"),
        "box": MeanAveragePrecision("bbox", label_field="label"),
    }

    right: ClassVar[Mapping[str, float]] = {"label": 1.0}
    habits: ClassVar[tuple[str, ...]] = tuple(viewer.Habits.__dataclass_fields__)

    max_turns = 4
    tools = ("zoom",)
    coordinates = "per_mille"
    max_pixels = 48 * 48
    seen_at = SeenAt(scale=0.8)  # half of what the shipped model can read is read at 0.82
    max_consecutive_malformed = 4  # every malformed reply is told what was wrong: the shipped model learns from that
    templates = FrozenDict(yaml_reader.read_shipped(__package__, "templates.yaml"))
    boundary = False  # its only tool returns no text that others wrote

    split: Annotated[Split, Field("train", description="the two splits share no handwritten image")]
    canvas: Annotated[int, Field(ge=32, description="side of the picture in pixels")] = 192
    digit: Annotated[int, Field(ge=8, description="side of the digit in pixels")] = 8
    noise: Annotated[float, Field(ge=0, description="standard deviation, in gray levels of 255")] = 12.0
    distractors: Annotated[int, Field(ge=0, description="faint scratches and dots")] = 4
    margin: Annotated[
        float,
        Field(
            ge=0, lt=0.5, description="smallest distance of the digit's center from an edge, as a share of the canvas"
        ),
    ] = 0.125
    places: Annotated[int, Field(ge=0, description="the digit lies on a lattice of n x n places; 0: anywhere")] = 0

    @property
    def difficulty(self) -> CanvasDifficulty:
        return CanvasDifficulty(self.canvas, self.digit, self.noise, self.distractors, self.margin, self.places)

    @property
    def overview_size(self) -> tuple[int, int]:
        """Width and height of the overview and of every zoom."""
        return fit_size(self.canvas, self.canvas, self.max_pixels, self.pixel_multiple)

    @property
    def tasks(self) -> ProceduralTasks:
        return ProceduralTasks(self.num_tasks, self.make_drawn, self.first_seed)  # the splits share no digit

    def make_drawn(self, seed: int) -> Task:
        number, label, (left, top, side) = place_digit(seed, self.split, self.difficulty)
        box = tuple(value / self.canvas for value in (left, top, left + side, top + side))
        metadata = {"seed": seed, "split": self.split, "image": number}
        return Task(f"digits-{self.split}-{seed}", reference={"label": label, "bbox": box}, metadata=metadata)

    def default_reward(self) -> CombinedReward:
        return CombinedReward({"label": (ExactMatchReward(field="label"), 0.5), "box": (IoUReward(field="bbox"), 0.5)})

    def system_prompt(self, task: Task) -> str:
        known = "Find the handwritten digit. Zoom in to read it."  # all that the shipped model, which only zooms, knows
        frame = " Its box refers to the whole image as it was shown first, even after a tool has changed the view."
        return known + frame if set(self.tools) - {"zoom"} else known

    def user_message(self, task: Task) -> str:
        return str(task.prompt.get("question", "Which digit is it, and where?"))

    def draw_images(self, task: Task) -> Sequence[TaskImage]:
        return [Image.fromarray(draw_canvas(task.metadata["seed"], task.metadata["split"], self.difficulty))]

    def gold_answer(self, task: Task) -> dict[str, object]:
        box = self.write_box(task.reference["bbox"], task)
        return {"label": task.reference["label"], "bbox": box, "continue": False}

    def oracle(self, task: Task) -> tuple[str, ...]:
        return (viewer.write_gold_look(self, task),)

    def demonstration(self, task: Task, seed: int, **habits: float) -> list[str]:
        self.check_habits(habits)
        return viewer.write_demonstration(self, task, seed, viewer.Habits(**habits))
