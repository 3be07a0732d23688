"""Draws a saved episode as one picture, as in README: every picture with its boxes, and below it the reply.

    python docs/episode_sheet.py runs/quickstart-seed0 3 docs/episode.png

The episode is that in line 3. Boxes of the reference are green, of the answer red, of a call's arguments blue.
"""

import sys
import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from viewbox import load
from viewbox.records import Episode
from viewbox.viewer.episode_page import describe_pictures
from viewbox.viewer.pictures import Pictures

SIDE, MARGIN, LINE, LETTERS, LINES = 288, 16, 15, 46, 6  # pixels, and the text below a picture
# The thickest is drawn first, so that boxes at one place are all seen.
COLORS = {"answer": ((255, 40, 40), 5), "gold": ((0, 220, 0), 2), "tool": ((80, 160, 255), 2)}


def draw_episode(episode: Episode) -> Image.Image:
    """Return the sheet, mode RGB: a panel for each turn that shows a picture."""
    pictures, font = Pictures.of(episode), ImageFont.load_default(12)
    shown = describe_pictures(pictures)
    panels = [(name, number) for number, ids in enumerate(pictures.of_turns) for name in ids if name]
    sheet = Image.new("RGB", (len(panels) * (SIDE + MARGIN) + MARGIN, SIDE + 2 * MARGIN + (LINES + 3) * LINE), "white")
    pen = ImageDraw.Draw(sheet)
    total = "none" if episode.scores is None or episode.scores.total is None else f"{episode.scores.total:.2f}"
    heading = f"{episode.task.id}: {episode.task.prompt.get('question') or episode.turns[0].content}"
    pen.text((MARGIN, MARGIN), heading, "black", font)
    pen.text(
        (MARGIN, sheet.height - LINE - 4), f"reward: {total}; boxes: gold green, answer red, tools blue", "gray", font
    )
    for column, (name, number) in enumerate(panels):
        left, top = MARGIN + column * (SIDE + MARGIN), 2 * MARGIN + LINE
        picture = pictures.by_id[name].ref.open().convert("RGB")
        scale = SIDE / max(picture.size)
        picture = picture.resize([round(side * scale) for side in picture.size], Image.Resampling.NEAREST)
        sheet.paste(picture, (left, top))
        for kind, (color, thickness) in COLORS.items():
            for box in shown[name]["boxes"]:
                if box["kind"] == kind and box.get("on", name) == name:  # a call's, where it was made
                    (x1, y1), (x2, y2) = box["corners"][0], box["corners"][2]
                    pixels = [left + x1 * picture.width, top + y1 * picture.height]
                    pixels += [left + x2 * picture.width, top + y2 * picture.height]
                    grown = [side + (thickness if n > 1 else -thickness) for n, side in enumerate(pixels)]
                    pen.rectangle(grown, outline=color, width=thickness)
        reply = next((turn.content for turn in episode.turns[number + 1 :] if turn.role == "assistant"), "")
        lines = textwrap.wrap(" ".join(reply.split()), LETTERS, max_lines=LINES, placeholder=" …")
        pen.text((left, top + picture.height + 6), "\n".join(lines), "black", font)
    return sheet


if __name__ == "__main__":
    run, line, out = sys.argv[1:]
    draw_episode(load(run)[int(line) - 1]).save(Path(out), optimize=True)
