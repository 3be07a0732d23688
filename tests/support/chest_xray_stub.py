"""A chest X-ray agent in the shape of MedRAX's loop, with stubs in the place of its specialists.

Reason, act, observe until a reply has no tool call: that reply is the answer, or a question back, which a simulated
user answers once from the task's patient file. Specialists take pictures by name, run beside each other, and fail as
models do; each is a few lines on pixel statistics, so every number can be worked out by hand.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.images.ref import ImageRef
from viewbox.records import Task
from viewbox.rewards import TokenF1Reward
from viewbox.tools import Box, Picture, Range, Tool, ToolOutput, ViewFractions

LUNG, DENSE = 40, 220  # gray values of the drawn radiograph


def radiograph(opacity: tuple[float, float, float, float] | None) -> np.ndarray:
    """A chest of 128 x 96 pixels, uint8: dark lungs, and a dense box (fractions) where there is an opacity."""
    pixels = np.full((96, 128), LUNG, np.uint8)
    if opacity is not None:
        x1, y1, x2, y2 = opacity
        pixels[round(y1 * 96) : round(y2 * 96), round(x1 * 128) : round(x2 * 128)] = DENSE
    return pixels


@dataclass(frozen=True)
class Classifier:
    """Probabilities from how much of the picture is dense; two of them differ in what they call dense."""

    dense: int

    def __call__(self, image: Picture) -> dict:
        """Probability of each finding in a chest X-ray."""
        share = float((image.to_gray() >= self.dense).mean())
        return {"opacity": round(min(1.0, 10 * share), 3), "no_finding": round(max(0.0, 1 - 10 * share), 3)}


def segment(image: Picture, at_least: Annotated[int, Range(1, 255), "gray value"] = 128) -> ToolOutput:
    """Colors what is dense in a chest X-ray."""
    gray = image.to_gray()
    mask = gray >= at_least
    overlay = np.stack([np.where(mask, 255, gray), gray, gray], axis=2).astype(np.uint8)
    return ToolOutput("dense regions are red", {"area_percent": 100 * mask.mean()}, overlay)


def ground(image: Picture, phrase: str, within: Box | None = None) -> ToolOutput:
    """The box of what a phrase names.

    within: only look here
    """
    gray = image.to_gray().copy()
    if within is not None:
        height, width = gray.shape
        x1, y1, x2, y2 = (round(part * side) for part, side in zip(within, (width, height) * 2, strict=True))
        inside = np.zeros_like(gray)
        inside[y1:y2, x1:x2] = gray[y1:y2, x1:x2]
        gray = inside
    rows, columns = np.nonzero(gray >= 128)
    if rows.size == 0:
        return ToolOutput(f"no {phrase} found")
    height, width = gray.shape
    box = (columns.min() / width, rows.min() / height, (columns.max() + 1) / width, (rows.max() + 1) / height)
    return ToolOutput(phrase, {"box": ViewFractions(box)})


async def ask(image: Picture, question: str) -> str:
    """Answers a question on a chest X-ray in words."""
    await asyncio.sleep(0.01)  # a model on another machine
    return f"{'yes' if image.to_gray().max() >= 128 else 'no'}, asked: {question}"


async def report(image: Picture) -> str:
    """Writes the findings section of a report."""
    await asyncio.sleep(0.01)
    return "Dense opacity." if image.to_gray().max() >= 128 else "Clear lungs."


def generate(image: Picture) -> ToolOutput:
    """Draws the X-ray as it would be after treatment."""
    raise RuntimeError("CUDA out of memory on /data/patients/17")


class ChestXrayStub(BaseMultiTurnEnv):
    """Text answers, specialists beside a viewer's zoom, a user who answers one question."""

    name = "chest_xray_stub"
    max_turns = 8
    tools = (
        Tool.from_function(Classifier(dense=200), "classify_dense", "Probability of each finding (dense opacities)."),
        Tool.from_function(Classifier(dense=30), "classify_faint", "Probability of each finding (faint opacities)."),
        segment,
        ground,
        Tool.from_function(ask, "ask_image"),
        Tool.from_function(report, max_calls=1),
        generate,
        "zoom",
    )
    max_pixels = 128 * 96

    @property
    def tasks(self):
        where = {"right": (0.125, 0.5, 0.25, 0.75), "left": (0.625, 0.5, 0.75, 0.75), "none": None}
        patient = {"age": 61, "complaint": "cough for three weeks"}
        return [
            Task(
                side,
                (ImageRef.of(radiograph(box)), ImageRef.of(radiograph(None))),  # today's and last year's
                {"question": "Is there an opacity, and on which side of the picture?"},
                {"finding": "no opacity" if box is None else f"opacity on the {side}"},
                {"patient": patient},
            )
            for side, box in where.items()
        ]

    def default_reward(self):
        return TokenF1Reward("text", reference_field="finding")

    def system_prompt(self, task):
        return "You are a radiologist's assistant. Ask the specialists, weigh what they say, then answer in words."

    def on_answer(self, state, answer):
        """The user knows the patient, and patiently answers one question."""
        asked = any(turn.role == "user" and turn.content.startswith("Patient:") for turn in state.turns[1:])
        if asked or not answer["text"].rstrip().endswith("?"):
            return None
        return "Patient: " + ", ".join(f"{key} {value}" for key, value in state.task.metadata["patient"].items())
