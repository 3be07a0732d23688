"""Every reward on a small example: its boxes or its text, the score, and why.

`python docs/reward_sheet.py` draws it as `docs/rewards.png`. Scores and sentences are computed.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from viewbox.envs.digits import Digits
from viewbox.rewards.brier import BrierReward
from viewbox.rewards.combined import CombinedReward, Component, to_combined
from viewbox.rewards.episode import FormatReward, ToolUseReward
from viewbox.rewards.evidence import EvidenceReward
from viewbox.rewards.exact_match import ExactMatchReward
from viewbox.rewards.explain import explain_reward, explain_score
from viewbox.rewards.iou import IoUReward
from viewbox.rewards.lists import LabelSetF1Reward, RankingReward
from viewbox.rewards.seen import SeenReward
from viewbox.rewards.token_f1 import TokenF1Reward

Json = Mapping[str, Any]
Box = Sequence[float]

COLUMNS, SIDE, MARGIN = 4, 260, 26
TITLE, LINE, REASON_LINES = 48, 18, 3  # pixels above a picture, pixels per line, lines of the reason
CELL = TITLE + SIDE + 30 + REASON_LINES * LINE + MARGIN
GOLD, ANSWER, BLACK, GRAY, PALE = "#1a8f3c", "#d1242f", "#111111", "#777777", "#f2f2f2"


@dataclass(frozen=True)
class Example:
    """A reward and an answer to score.

    `settings` is the subtitle. `boxes` says that the field `at` holds boxes to draw. `episode` is for rewards that read
    one.
    """

    title: str
    settings: str
    reward: Any
    answer: Json
    reference: Json
    boxes: bool = False
    episode: Any = None

    @property
    def score(self) -> float | None:
        return to_combined(self.reward).score(self.answer, self.reference, self.episode)[0]

    @property
    def why(self) -> str:
        return explain_reward(self.reward, self.answer, self.reference, self.episode)


def _build_search(*pmids: str) -> Any:
    result = SimpleNamespace(success=True, facts={"pmids": pmids}, text="")
    said = {"answer": "cyst", "evidence": ["11", "13"]}
    task = SimpleNamespace(reference={"answer": "cyst", "evidence": ["11", "12"]}, prompt={})
    return SimpleNamespace(turns=[SimpleNamespace(tool_calls=(), tool_results=[result])], answer=said, task=task)


def _build_zooms(count: int) -> Any:
    """Return an episode with `count` different successful zooms, whose broken JSON was repaired."""
    turns: list[Any] = []
    for number in range(count):
        call = SimpleNamespace(id=str(number), name="zoom", arguments={"factor": 2 + number})
        turns.append(SimpleNamespace(tool_calls=[call], tool_results=[]))
        result = SimpleNamespace(tool_name="zoom", call_id=str(number), success=True)
        turns.append(SimpleNamespace(tool_calls=[], tool_results=[result]))
    return SimpleNamespace(turns=turns, answer={"label": "nodule"}, flags={"repaired"}, info={"malformed": 1})


def _build_look() -> Any:
    """Return an episode of digits in which the oracle's zoom is made."""
    env = Digits()
    task = env.tasks[0]
    replies = [*env.oracle(task), env.write_answer(task)]
    return env.play(task, lambda messages: replies[sum(one.role == "assistant" for one in messages)])


SMALL, HUGE, WHOLE = [0.3, 0.35, 0.55, 0.6], [0.02, 0.03, 0.97, 0.98], [0, 0, 1, 1]
THREE = [[0.08, 0.1, 0.33, 0.35], [0.55, 0.15, 0.9, 0.45], [0.35, 0.6, 0.65, 0.9]]
FOUND = [[0.37, 0.6, 0.67, 0.92], [0.1, 0.08, 0.35, 0.33], [0.7, 0.55, 0.95, 0.8]]
LABELED = [{"box": box, "label": label} for box, label in zip(THREE, ("cyst", "mass", "mass"), strict=True)]
SWAPPED = [{"box": box, "label": label} for box, label in zip(THREE, ("mass", "cyst", "mass"), strict=True)]
GATED = CombinedReward(
    {
        "label": (ExactMatchReward("label"), 0.8),
        "tools": Component(ToolUseReward(at_least=2), 0.2, needs={"label": 1.0}),
    }
)


def _build_box(title: str, settings: str, answer: Any, gold: Any, **options: Any) -> Example:
    return Example(title, settings, IoUReward("at", **options), {"at": answer}, {"at": gold}, boxes=True)


def build_examples() -> list[Example]:
    """At least one example of every reward, and several with boxes."""
    ranked = {"choices": ["cyst", "nodule", "mass"]}
    return [
        _build_box("iou", "one box", [0.36, 0.35, 0.61, 0.64], SMALL),
        _build_box("iou", "one box: the whole image", WHOLE, SMALL),
        _build_box("iou", "the whole image, area_penalty: 1", WHOLE, SMALL, area_penalty=1.0),
        _build_box("iou", "gold covers 90 %, area_penalty: 1", HUGE, HUGE, area_penalty=1.0),
        _build_box("iou", "many boxes, in any order", FOUND, THREE),
        _build_box("iou", "many boxes, threshold: 0.5 (F1)", FOUND, THREE, threshold=0.5),
        _build_box("iou", "one box repeated three times", [THREE[0]] * 3, THREE),
        _build_box("iou", "box_key, label_key: two labels swapped", SWAPPED, LABELED, box_key="box", label_key="label"),
        Example("exact_match", "field: label", ExactMatchReward(), {"label": "No tumour"}, {"label": "tumour"}),
        Example(
            "token_f1",
            "stop_words: true",
            TokenF1Reward("report", stop_words=True),
            {"report": "No effusion. Nodule in the left lung."},
            {"report": "Nodule in the left upper lobe, no effusion."},
        ),
        Example(
            "label_set_f1",
            "field: labels",
            LabelSetF1Reward(),
            {"labels": ["effusion", "Nodule", "fracture"]},
            {"labels": ["nodule", "effusion"]},
        ),
        Example("ranking", "metric: mrr", RankingReward(), ranked, {"choices": ["nodule"]}),
        Example(
            "brier",
            "of: {type: exact_match}",
            BrierReward(),
            {"label": "cyst", "confidence": 0.9},
            {"label": "nodule"},
        ),
        Example("format", "", FormatReward(), {"label": "nodule"}, {}, episode=_build_zooms(1)),
        Example(
            "tool_use",
            "at_least: 2",
            ToolUseReward(at_least=2),
            {"label": "nodule"},
            {},
            episode=_build_zooms(1),
        ),
        Example("seen", "cost: 0.1", SeenReward(), {"label": "two"}, {"label": "two"}, episode=_build_look()),
        Example(
            "evidence",
            "gold: 11 and 12; 11 and 13 were returned",
            EvidenceReward(),
            {"answer": "cyst", "evidence": ["11", "13"]},
            {"answer": "cyst", "evidence": ["11", "12"]},
            episode=_build_search("11", "13"),
        ),
        Example(
            "combined",
            "tools: {…, needs: {label: 1.0}}",
            GATED,
            {"label": "cyst"},
            {"label": "nodule"},
            episode=_build_zooms(5),
        ),
    ]


def draw_sheet() -> Image.Image:
    """Return the sheet, mode RGB."""
    examples = build_examples()
    rows = -(-len(examples) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIDE + MARGIN) + MARGIN, rows * CELL + MARGIN), "white")
    pen = ImageDraw.Draw(sheet)
    for i, example in enumerate(examples):
        row, column = divmod(i, COLUMNS)
        _draw_cell(pen, example, MARGIN + column * (SIDE + MARGIN), MARGIN + row * CELL)
    return sheet


def _draw_cell(pen: ImageDraw.ImageDraw, example: Example, left: int, top: int) -> None:
    small, medium, large = (ImageFont.load_default(size) for size in (13, 15, 20))
    pen.text((left, top), example.title, BLACK, large)
    pen.text((left, top + 25), example.settings, GRAY, small)
    top += TITLE
    pen.rectangle((left, top, left + SIDE, top + SIDE), fill=PALE)
    if example.boxes:
        for side, color, shift in ((example.reference, GOLD, 0), (example.answer, ANSWER, 2)):
            _draw_boxes(pen, side["at"], color, left, top, shift)
    else:
        _draw_fields(pen, example, left + 12, top + 10, medium)
    top += SIDE + 6
    score = example.score or 0.0
    pen.rectangle((left + 56, top + 5, left + SIDE, top + 17), fill=PALE)
    pen.rectangle((left + 56, top + 5, left + 56 + round(score * (SIDE - 56)), top + 17), fill=BLACK)
    pen.text((left, top), f"{score:.3f}", BLACK, medium)
    for i, line in enumerate(textwrap.wrap(example.why, 40, max_lines=REASON_LINES, placeholder=" …")):
        pen.text((left, top + 24 + i * LINE), line, BLACK, small)


def _draw_boxes(pen: ImageDraw.ImageDraw, value: Any, color: str, left: int, top: int, shift: int) -> None:
    """Draw the boxes of the answer or the reference, `shift` pixels inwards, so that equal boxes are both visible."""
    boxes = [value] if not isinstance(value[0], list | tuple | dict) else value
    for item in boxes:
        box: Box = item["box"] if isinstance(item, dict) else item
        x1, y1, x2, y2 = (round(side * SIDE) for side in box)
        inside = (left + x1 + shift, top + y1 + shift, left + x2 - shift, top + y2 - shift)
        pen.rectangle(inside, outline=color, width=2)
        if isinstance(item, dict):
            place = (inside[0] + 5, inside[1] + 3 + (16 if shift else 0))
            pen.text(place, item["label"], color, ImageFont.load_default(13))


def _draw_fields(pen: ImageDraw.ImageDraw, example: Example, left: int, top: int, font: Any) -> None:
    """Write the fields of reference and answer, what the episode did, and the components of a combined reward."""
    rows = [("gold", GOLD, example.reference), ("answer", ANSWER, example.answer)]
    for name, color, side in rows:
        for field, value in side.items():
            text = ", ".join(value) if isinstance(value, list) else str(value)
            top = _draw_lines(pen, f"{name} {field}: {text}", left, top, color, font)
        top += 6
    if example.episode is not None:
        zooms = sum(len(turn.tool_calls) for turn in example.episode.turns)
        summary = f"successful zooms: {zooms}"
        if example.title == "format":
            summary = "one malformed reply, then JSON that was repaired"
        elif example.title == "evidence":
            summary = "a search returned 11 and 13"
        top = _draw_lines(pen, f"episode: {summary}", left, top, BLACK, font) + 6
    if isinstance(example.reward, CombinedReward):
        for row in explain_score(example.reward, example.answer, example.reference, example.episode).components:
            top = _draw_lines(pen, f"{row.name} (weight {row.weight:g}): {row.why}", left, top, BLACK, font) + 6


def _draw_lines(pen: ImageDraw.ImageDraw, text: str, left: int, top: int, color: str, font: Any) -> int:
    """Write wrapped text; return where the next line begins, in pixels from the top."""
    for line in textwrap.wrap(text, 31):
        pen.text((left, top), line, color, font)
        top += LINE + 1
    return top


if __name__ == "__main__":
    draw_sheet().save(Path(__file__).with_name("rewards.png"), optimize=True)
