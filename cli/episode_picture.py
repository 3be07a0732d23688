"""Draws one saved episode: a panel for every turn, with the model's reply below it."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont

from viewbox.errors import ImageError
from viewbox.frozen import thaw
from viewbox.images.ref import ImageRef
from viewbox.records import Episode
from viewbox.rewards.fields import Box, parse_box
from viewbox.terminal import make_line

SIDE, MARGIN, LINE = 288, 16, 15  # pixels: largest side of an image, space around it, height of a line of text
COLUMNS = 46  # characters of a line under a panel
REPLY_LINES, HEADER_LINES, FOOTER_LINES = 7, 3, 4
TOP = MARGIN + (HEADER_LINES + 1) * LINE  # where images begin
MAX_PANELS, MAX_BOXES = 60, 500  # drawn of one episode
BOXES = (("red", "answer", 5), ("green", "reference", 2))  # the thin one is drawn last, so that both can be seen


class Panel(NamedTuple):
    """One turn: what was shown, the errors of its tool calls, and the reply to it."""

    title: str
    image: ImageRef | None
    errors: str = ""
    reply: str = ""
    picture: Image.Image | None = None  # the image in the size of a panel


def draw_episode(episode: Episode) -> Image.Image:
    """The picture of an episode; `viewbox picture --help` says what is on it."""
    panels = [_open_image(panel) for panel in _cut_panels(list_panels(episode))]
    width = max(3, len(panels)) * (SIDE + MARGIN) + MARGIN
    bottom = TOP + SIDE + (REPLY_LINES + 1) * LINE
    canvas = Image.new("RGB", (width, bottom + FOOTER_LINES * LINE + MARGIN), "white")
    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(12)

    def write(text: str, left: int, top: int, columns: int, lines: int, color: str = "black") -> None:
        shown = make_line(text, columns * (lines + 1))
        for row, line in enumerate(textwrap.wrap(shown, columns, max_lines=lines, placeholder=" …")):
            pen.text((left, top + row * LINE), line, color, font)

    across = COLUMNS * (width - 2 * MARGIN) // SIDE
    write(f"{episode.task.id}: {_get_question(episode)}", MARGIN, MARGIN, across, HEADER_LINES)
    for number, panel in enumerate(panels):
        left = MARGIN + number * (SIDE + MARGIN)
        write(panel.title, left, TOP - LINE, COLUMNS, 1)
        if panel.picture is not None:
            canvas.paste(panel.picture, (left, TOP))
            if number == 0:
                _draw_boxes(pen, episode, (left, TOP), panel.picture.size)
        write(panel.errors, left, TOP, COLUMNS, SIDE // LINE, "red")
        write(panel.reply, left, TOP + SIDE + LINE // 2, COLUMNS, REPLY_LINES)
    for row, line in enumerate(_describe_outcome(episode)):
        write(line, MARGIN, bottom + row * LINE, across, 1)
    return canvas


def list_panels(episode: Episode) -> list[Panel]:
    """What the model was shown, turn by turn, each with its reply."""
    panels: list[Panel] = []
    for turn in episode.turns:
        if turn.role == "assistant":
            panels = panels or [Panel("", None)]
            called = ", ".join(f"{call.name}({_to_json(call.arguments)})" for call in turn.tool_calls)
            reply = turn.content or called
            panels[-1] = panels[-1]._replace(reply=f"{panels[-1].reply} {reply}".strip())
            continue
        image = turn.images[0] if turn.images else None
        names = ", ".join(result.tool_name for result in turn.tool_results)
        errors = [result.error for result in turn.tool_results if result.error is not None]
        title = names or ("overview" if not panels else turn.content)
        size = f" ({image.width}x{image.height})" if image is not None else ""
        panels.append(Panel(f"{title}{size}", image, "; ".join(errors)))
    return panels


def _cut_panels(panels: list[Panel]) -> list[Panel]:
    """At most `MAX_PANELS` panels; the last one then says how many there are."""
    if len(panels) <= MAX_PANELS:
        return panels
    return [*panels[: MAX_PANELS - 1], Panel(f"… and {len(panels) - MAX_PANELS + 1} more turns", None)]


def _open_image(panel: Panel) -> Panel:
    """The panel with its picture, or with the reason why there is none: a saved image may be missing or forged."""
    if panel.image is None:
        return panel
    try:
        return panel._replace(picture=_fit(panel.image.open().convert("RGB")))
    except (ImageError, ValueError, OSError) as error:
        return panel._replace(errors=f"{panel.errors} {error}".strip())


def find_boxes(value: Any) -> Iterator[Box]:
    """Every box in a reference or an answer, at any depth: four fractions of the image, x1 < x2 and y1 < y2.

    >>> list(find_boxes({"findings": [{"name": "cyst", "at": [0, 0, 0.5, 0.5]}], "count": 1}))
    [(0.0, 0.0, 0.5, 0.5)]
    """
    box = parse_box(value, "xyxy")
    if box is not None:
        if min(box) >= 0 and max(box) <= 1:
            yield box
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from find_boxes(item)


def _draw_boxes(pen: ImageDraw.ImageDraw, episode: Episode, corner: tuple[int, int], size: tuple[int, int]) -> None:
    values = {"answer": episode.answer or {}, "reference": episode.task.reference}
    for color, name, thickness in BOXES:
        for box in islice(find_boxes(values[name]), MAX_BOXES):
            x1, y1, x2, y2 = (
                start + value * length for start, value, length in zip(corner * 2, box, size * 2, strict=True)
            )
            pen.rectangle((x1, y1, x2, y2), outline=color, width=thickness)


def _fit(image: Image.Image) -> Image.Image:
    """The image with its longer side as long as a panel; its pixels stay visible."""
    scale = SIDE / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    return image.resize(size, Image.Resampling.NEAREST)


def _get_question(episode: Episode) -> str:
    return str(episode.task.prompt.get("question") or (episode.turns[0].content if episode.turns else ""))


def _describe_outcome(episode: Episode) -> list[str]:
    answer = f"no answer ({episode.end_reason})" if episode.answer is None else _to_json(episode.answer)
    lines = [f"reference (green): {_to_json(episode.task.reference)}", f"answer (red): {answer}"]
    if episode.scores is not None:
        parts = ", ".join(
            f"{name} {value:.2f}" for name, value in episode.scores.components.items() if value is not None
        )
        total = "none" if episode.scores.total is None else f"{episode.scores.total:.2f}"
        lines.append(f"reward: {total}" + (f" ({parts})" if parts else ""))
    return lines


def _to_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(thaw(value), default=str)
