"""`digits`: find the handwritten digit, zoom in to read it, answer with its name and its box."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from PIL import Image
from pydantic import BaseModel, Field, StrictFloat

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.digits.canvas import Difficulty, Split, canvas, place
from viewbox.envs.digits.prompts import TEMPLATES
from viewbox.envs.tasks import ProceduralTasks
from viewbox.errors import ConfigError, describe_unknown
from viewbox.images.coordinates import from_unit
from viewbox.images.view import fit_size
from viewbox.records import Task
from viewbox.rewards import CombinedReward, ExactMatchReward, IoUReward
from viewbox.rewards.metrics import Accuracy, MacroF1, MeanAveragePrecision, Metric

Label = Literal["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class DigitAnswer(BaseModel):
    """Which digit, and where in the original image."""

    label: Label
    bbox: tuple[StrictFloat, StrictFloat, StrictFloat, StrictFloat]


class Digits(BaseMultiTurnEnv):
    """A real handwritten digit on a large noisy canvas: it can be found in the overview but not read there.

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
        "box": MeanAveragePrecision("bbox", label_field="label", ties="together"),
    }

    max_turns = 4
    tools = ("zoom",)
    coordinates = "per_mille"
    max_pixels = 48 * 48
    templates = TEMPLATES
    boundary = False  # its one tool says nothing that others wrote

    split: Annotated[Split, Field(description="no handwritten image is in both")] = "train"
    num_tasks: Annotated[int, Field(ge=1, description="how many")] = 100_000
    first_seed: Annotated[int, Field(ge=0, description="seed of the first task; the next ones count on")] = 0
    canvas: Annotated[int, Field(ge=32, description="side of the picture in pixels")] = 192
    digit: Annotated[int, Field(ge=8, description="side of the digit in pixels")] = 8
    noise: Annotated[float, Field(ge=0, description="standard deviation, in gray levels of 255")] = 12.0
    distractors: Annotated[int, Field(ge=0, description="faint scratches and dots")] = 4
    margin: Annotated[
        float, Field(ge=0, lt=0.5, description="share of the canvas the digit's center keeps from every edge")
    ] = 0.125
    places: Annotated[int, Field(ge=0, description="the digit lies on a lattice of n x n places; 0: anywhere")] = 0

    @property
    def difficulty(self) -> Difficulty:
        return Difficulty(self.canvas, self.digit, self.noise, self.distractors, self.margin, self.places)

    @property
    def overview_size(self) -> tuple[int, int]:
        """Width and height of what is shown first, and of a zoom on it."""
        return fit_size(self.canvas, self.canvas, self.max_pixels, self.pixel_multiple)

    @property
    def tasks(self) -> ProceduralTasks:
        return ProceduralTasks(self.num_tasks, self._task, self.first_seed)

    def _task(self, seed: int) -> Task:
        number, label, (left, top, side) = place(seed, self.split, self.difficulty)
        box = tuple(value / self.canvas for value in (left, top, left + side, top + side))
        return Task(
            id=f"digits-{self.split}-{seed}",
            reference={"label": label, "bbox": box},
            metadata={"seed": seed, "split": self.split, "image": number},
        )

    def default_reward(self) -> CombinedReward:
        return CombinedReward({"label": (ExactMatchReward(field="label"), 0.5), "box": (IoUReward(field="bbox"), 0.5)})

    def system_prompt(self, task: Task) -> str:
        return "Find the handwritten digit. Zoom in to read it."

    def user_message(self, task: Task) -> str:
        return "Which digit is it, and where?"

    def images(self, task: Task) -> list[Image.Image]:
        return [Image.fromarray(canvas(task.metadata["seed"], task.metadata["split"], self.difficulty))]

    def gold_answer(self, task: Task) -> dict[str, Any]:
        """The right answer as a model would write it."""
        box = from_unit(task.reference["bbox"], self.coordinates, self.overview_size)
        return {"label": task.reference["label"], "bbox": list(box), "continue": False}

    def oracle(self, task: Task) -> tuple[str, ...]:
        from viewbox.envs.digits.viewer import gold_look

        return (gold_look(self, task),)

    def demonstration(self, task: Task, seed: int, **habits: float) -> list[str]:
        from viewbox.envs.digits.viewer import Habits, demonstration

        for name in habits:
            if name not in Habits.__dataclass_fields__:
                raise ConfigError(f"digits: {describe_unknown('habit', name, Habits.__dataclass_fields__)}", key=name)
        return demonstration(self, task, seed, Habits(**habits))
