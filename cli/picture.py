"""One saved episode as a picture: the images the model was shown, side by side, with what it said under each."""

import textwrap

from PIL import Image, ImageDraw, ImageFont

from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode
from viewbox.rollouts.store.reader import load

SIDE, MARGIN, LINE = 288, 16, 15


def best(folder: str, number: int = 0) -> Episode:
    """The `number`-th saved episode that used a tool and scored among the best."""
    found = sorted(
        (episode for episode in load(folder) if episode.tool_call_count and episode.answer is not None),
        key=lambda episode: -(episode.scores.total if episode.scores else 0.0),
    )
    if number >= len(found):
        raise StoreError(f"{folder}: {len(found)} episodes used a tool and answered; episode {number} was asked for")
    return found[number]


def draw(episode: Episode, path: str) -> None:
    """Writes the picture of `episode` to `path`."""
    panels: list[tuple[str, ImageRef | None, str]] = []
    for turn in episode.turns:
        if turn.role == "assistant":
            title, image, _ = panels[-1]
            panels[-1] = (title, image, turn.content)
        else:
            title = "overview" if turn.role == "user" else ", ".join(result.tool_name for result in turn.tool_results)
            panels.append((title, turn.images[0] if turn.images else None, ""))
    width = len(panels) * (SIDE + MARGIN) + MARGIN
    canvas = Image.new("RGB", (width, SIDE + 9 * LINE), "white")
    pen, font = ImageDraw.Draw(canvas), ImageFont.load_default(12)
    for i, (title, image, said) in enumerate(panels):
        left = MARGIN + i * (SIDE + MARGIN)
        pen.text((left, 6), f"{title} ({image.width}x{image.height})" if image else title, "black", font)
        if image is not None:
            shown = image.open().convert("RGB").resize((SIDE, SIDE), Image.Resampling.NEAREST)
            last = i == len(panels) - 1
            canvas.paste(shown, (left, 24))
            if i == 0:
                _boxes(pen, episode, left, 24)
            if last:
                pen.rectangle((left, 24, left + SIDE - 1, 24 + SIDE - 1), outline="black")
        for row, line in enumerate(textwrap.wrap(said.replace("\n", " "), 44)[:6]):
            pen.text((left, 24 + SIDE + 6 + row * LINE), line, "black", font)
    if episode.scores is not None:
        parts = ", ".join(f"{k} {v:.2f}" for k, v in episode.scores.components.items() if v is not None)
        gold = episode.task.reference.get("label", "")
        text = f"gold: {gold} (green box)   answer: red box   score {episode.scores.total:.2f} ({parts})"
        pen.text((MARGIN, SIDE + 8 * LINE - 2), text, "black", font)
    canvas.save(path)


def _boxes(pen: ImageDraw.ImageDraw, episode: Episode, left: int, top: int) -> None:
    for mapping, color in ((episode.task.reference, "green"), (episode.answer or {}, "red")):
        box = mapping.get("bbox")
        if box is not None:
            x1, y1, x2, y2 = (value * SIDE for value in box)
            pen.rectangle((left + x1, top + y1, left + x2, top + y2), outline=color, width=2)
