"""Draws one episode as a sheet: its pictures with boxes, what the model said to each, its answer and its scores."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from PIL import Image, ImageDraw, ImageFont

from ..images.ref import ImageRef
from ..records import Episode
from ..rollouts.store.layout import find_damage
from ..utils.terminal import make_line
from .episode_page import build_episode_page
from .pictures import list_pictures

SIDE, MARGIN, LINE = 288, 16, 15  # pixels: largest side of a picture, space around it, height of a line of text
COLUMNS, ACROSS = 46, 4  # characters of a line under a panel; panels in a row
REPLY_LINES, NOTE_LINES, HEADER_LINES, FOOTER_LINES = 8, 4, 4, 3
MAX_PANELS, MAX_BOXES = 60, 500  # drawn of one episode; boxes on one picture
# The thickest is drawn first, so that boxes at one place are all seen.
KINDS = {"answer": ((255, 40, 40), 5), "gold": ((0, 220, 0), 2), "tool": ((80, 160, 255), 2)}
GOLD, ANSWER, PROBLEM, ASIDE = "darkgreen", "firebrick", "red", "dimgray"  # of text
Lines = Sequence[tuple[str, str]]  # texts with their colors


class Panel(NamedTuple):
    """One picture, or one turn without a picture: what was shown, what went wrong, and the reply to it."""

    title: str
    picture: str | None = None  # the id
    notes: tuple[tuple[str, str], ...] = ()  # with their colors
    reply: str = ""


def draw_episode(episode: Episode, *, line: int = 0) -> Image.Image:
    """Return the sheet of an episode. A picture that cannot be opened, and whatever else is left out, is named on it.

    `line` is its line number in the run, for the heading; 0: it has none.
    """
    page = build_episode_page(episode, line=line)
    refs = list_pictures(episode)
    blocks = [_build_block(panel, page, refs) for panel in _cut_panels(list_panels(page))]
    across = min(ACROSS, max(3, len(blocks)))
    letters = COLUMNS * (across * (SIDE + MARGIN) - MARGIN) // SIDE
    heading = _wrap(list(_write_heading(page)), letters, HEADER_LINES)
    footing = _wrap(list(_write_outcome(page)), letters, FOOTER_LINES)
    return draw_blocks(blocks, across, heading, footing)


def draw_blocks(blocks: Sequence["Block"], across: int, heading: Lines = (), footing: Lines = ()) -> Image.Image:
    """Return a sheet of blocks, `across` in a row, between lines of text."""
    rows = [blocks[start : start + across] for start in range(0, len(blocks), across)]
    width = across * (SIDE + MARGIN) + MARGIN
    heights = [max(block.height for block in row) + MARGIN for row in rows]
    height = sum(heights) + (len(heading) + len(footing)) * LINE + 3 * MARGIN
    sheet = Image.new("RGB", (width, height), "white")
    pen = ImageDraw.Draw(sheet)
    _write(pen, heading, (MARGIN, MARGIN))
    top = 2 * MARGIN + len(heading) * LINE
    for row, high in zip(rows, heights, strict=True):
        for number, block in enumerate(row):
            block.draw(sheet, pen, (MARGIN + number * (SIDE + MARGIN), top))
        top += high
    _write(pen, footing, (MARGIN, top))
    return sheet


class Block(NamedTuple):
    """A panel that is ready to be drawn: its title, its picture in its size, the boxes on it, and lines of text."""

    title: str
    picture: Image.Image | None
    boxes: tuple[tuple[str, Mapping[str, Any]], ...]
    lines: Lines

    @property
    def height(self) -> int:
        return LINE + (0 if self.picture is None else self.picture.height + LINE // 2) + len(self.lines) * LINE

    def draw(self, sheet: Image.Image, pen: ImageDraw.ImageDraw, corner: tuple[int, int]) -> None:
        left, top = corner
        _write(pen, [(self.title, "black")], corner)
        top += LINE
        if self.picture is not None:
            sheet.paste(self.picture, (left, top))
            for kind, box in self.boxes:
                _draw_box(pen, kind, box, (left, top), self.picture.size)
            top += self.picture.height + LINE // 2
        _write(pen, self.lines, (left, top))


def _build_block(panel: Panel, page: Mapping[str, Any], refs: Mapping[str, ImageRef]) -> Block:
    notes, picture = [*panel.notes], None
    boxes: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    if panel.picture is not None:
        one = page["pictures"][panel.picture]
        picture, problem = _open(refs[one["hash"]])
        notes += [(problem, PROBLEM)] if problem else []
        boxes = tuple(_select_boxes(one["boxes"], panel.picture))
    lines = _wrap(notes, COLUMNS, NOTE_LINES) + _wrap([(panel.reply, "black")], COLUMNS, REPLY_LINES)
    return Block(make_line(panel.title, COLUMNS), picture, boxes, tuple(lines))


# ---------------------------------------------------------------------- what is on it
def list_panels(page: Mapping[str, Any]) -> list[Panel]:
    """Return what the model was shown, a panel for each picture, with the reply that followed."""
    panels: list[Panel] = []
    for turn in page["turns"]:
        if turn["role"] == "assistant":
            panels = panels or [Panel("")]
            reply = " ".join(filter(None, map(_write_part, turn["parts"])))
            panels[-1] = panels[-1]._replace(reply=f"{panels[-1].reply} {reply}".strip())
        else:
            panels += _list_shown(page, turn["parts"], is_first=not panels)
    return panels


def _list_shown(page: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], *, is_first: bool) -> list[Panel]:
    """Return the panels of a message or of the results of tools; what is said without a picture is a note on the
    last."""
    panels: list[Panel] = []
    notes: list[tuple[str, str]] = []
    for part in parts:
        errors = () if part.get("error") is None else ((f"{part['name']}: {part['error']}", PROBLEM),)
        if part.get("picture") is not None:
            panels.append(Panel(_write_title(page, part, is_first=is_first), part["picture"], errors))
        elif part["type"] == "result":
            panels.append(Panel(str(part["name"]), None, errors or ((str(part["text"]), ASIDE),)))
        elif not (is_first and part["type"] == "text"):  # the question stands in the heading
            notes.append((str(part["text"]), ASIDE))
    if not panels:
        return [Panel("" if is_first else "a message", None, tuple(notes))]
    panels[-1] = panels[-1]._replace(notes=(*panels[-1].notes, *notes))
    return panels


def _write_title(page: Mapping[str, Any], part: Mapping[str, Any], *, is_first: bool) -> str:
    one = page["pictures"][part["picture"]]
    title = "overview" if is_first else str(part.get("name", "shown again"))
    if one["slice"] is not None:
        title += f", {one['plane'] or 'frame'} {one['slice']}"
    if one["index"]:
        title += f", image {one['index']}"
    if one["window"]:
        title += f", {one['window']}"
    return f"{title} ({one['width']}x{one['height']})"


def _write_part(part: Mapping[str, Any]) -> str:
    if part["type"] == "call":
        return f"{part['name']}({_to_json(part['arguments'])})"
    text = str(part["text"])
    return {"thinking": "", "finish": f"finish reason: {text}"}.get(part["type"], text)


def _write_heading(page: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    line = f"#{page['line']} " if page["line"] else ""
    yield f"{line}{page['task']}: {page['question']}", "black"
    for problem in page["problems"][:3]:
        yield f"left out: {problem}", PROBLEM


def _write_outcome(page: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield f"reference: {_to_json(page['reference'])}", GOLD
    if page["answer"] is None:
        yield f"no answer ({page['end_reason']})", ANSWER
    else:
        yield f"answer: {_to_json(page['answer'])}", ANSWER
    scores = page["scores"]
    if scores is not None:
        known = {name: value for name, value in scores["components"].items() if value is not None}
        parts = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
        total = "none" if scores["total"] is None else f"{scores['total']:.2f}"
        yield f"reward: {total}" + (f" ({parts})" if parts else ""), "black"
        for name, reason in scores["faults"].items():
            yield f"{name} failed: {reason}", PROBLEM
    if page["info"].get("error"):
        yield f"{page['end_reason']}: {page['info']['error']}", PROBLEM
    yield "boxes: gold green, answer red, tools blue", ASIDE


def _cut_panels(panels: list[Panel]) -> list[Panel]:
    """At most `MAX_PANELS` panels; the last one then says how many there are."""
    if len(panels) <= MAX_PANELS:
        return panels
    return [*panels[: MAX_PANELS - 1], Panel(f"… and {len(panels) - MAX_PANELS + 1} more")]


def _to_json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---------------------------------------------------------------------- pixels
def _wrap(texts: Lines, columns: int, lines: int) -> list[tuple[str, str]]:
    """Lines of text with their colors, each text in at most so many lines."""
    found = []
    for text, color in texts:
        shown = make_line(text, columns * (lines + 1))
        found += [(row, color) for row in textwrap.wrap(shown, columns, max_lines=lines, placeholder=" …")]
    return found


def _open(ref: ImageRef) -> tuple[Image.Image | None, str]:
    """Return the picture as a panel shows it, or why it cannot be opened: a saved one may be missing or forged."""
    problem = find_damage(ref)
    return None if problem else fit_picture(ref.open()), problem


def fit_picture(picture: Image.Image) -> Image.Image:
    """Return a picture with its longer side as long as a panel, its pixels visible."""
    scale = SIDE / max(picture.size)
    size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
    return picture.convert("RGB").resize(size, Image.Resampling.NEAREST)


def _write(pen: ImageDraw.ImageDraw, lines: Lines, corner: tuple[int, int]) -> None:
    for row, (text, color) in enumerate(lines):
        pen.text((corner[0], corner[1] + row * LINE), text, color, _load_font())


@cache
def _load_font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(12)


def _select_boxes(boxes: Sequence[Mapping[str, Any]], on: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the boxes that are drawn on a picture, with their kinds: those of tools only where the call was made."""
    for kind in KINDS:
        drawn = (box for box in boxes if box["kind"] == kind and box.get("on", on) == on)
        yield from ((kind, box) for box in islice(drawn, MAX_BOXES))


def _draw_box(
    pen: ImageDraw.ImageDraw, kind: str, box: Mapping[str, Any], corner: tuple[int, int], size: tuple[int, int]
) -> None:
    """Draw the outline around a box, so that a small one is not hidden by it; or a line with its ends."""
    color, thickness = KINDS[kind]
    points = [(corner[0] + x * size[0], corner[1] + y * size[1]) for x, y in box["corners"]]
    (x1, y1), (x2, y2) = points[0], points[2]
    if box["shape"] == "box":
        right, bottom = max(x1, x2 - 1) + thickness, max(y1, y2 - 1) + thickness
        pen.rectangle((x1 - thickness, y1 - thickness, right, bottom), outline=color, width=thickness)
        return
    pen.line((x1, y1, x2, y2), fill=color, width=2)
    for x, y in {points[0], points[2]}:
        pen.ellipse((x - 3, y - 3, x + 3, y + 3), outline=color, width=2)
