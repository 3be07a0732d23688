"""A vision tower from nothing: taught to see before it is taught to speak.

Published VLMs start from a pretrained vision encoder. A model built from scratch has none, and the one label token of
a demonstration is too faint a signal to grow one. So the tower first learns, on the saved demonstrations and with
linear heads that are thrown away, to tell what a close look shows (the mean of its tokens) and where the thing is in
the overview (which token it is in, and its position there).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from PIL import Image, ImageChops

from viewbox.config import VisionWarmup
from viewbox.envs.types import Episode, ImageRef
from viewbox.errors import StoreError
from viewbox.rollouts.tokens import ChatTokens


def close_looks(episodes: Iterable[Episode], field: str) -> list[tuple[ImageRef, str]]:
    """(last picture, gold value of `field`) of the episodes that used a tool and answered `field` right."""
    return [
        (e.tokens.images[-1], str(e.task.reference[field]))
        for e in episodes
        if e.tokens is not None
        and len(e.tokens.images) > e.tokens.prompt_images
        and e.answer is not None
        and e.answer.get(field) == e.task.reference.get(field)
    ]


def overviews(episodes: Iterable[Episode], field: str) -> list[tuple[ImageRef, tuple[float, float]]]:
    """(first picture, centre of the gold box in fractions of it) of all episodes."""
    found = []
    for e in episodes:
        if e.tokens is not None and e.tokens.prompt_images:
            x1, y1, x2, y2 = e.task.reference[field]
            found.append((e.tokens.images[0], ((x1 + x2) / 2, (y1 + y2) / 2)))
    return found


class Heads(torch.nn.Module):
    """What is thrown away: linear read-outs of the tower's tokens."""

    BINS = 32  # a coordinate is told as one of so many equal parts of the image

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.label = torch.nn.Linear(width, classes)
        self.found = torch.nn.Linear(width, 1)
        self.place = torch.nn.Linear(width, 2 * self.BINS)

    def locate(self, part: torch.Tensor, columns: int, centre: tuple[float, float]) -> torch.Tensor:
        """The loss of one overview's tokens (rows · columns, width): where `centre` is."""
        x, y = centre
        rows = len(part) // columns
        inside = min(rows - 1, int(y * rows)) * columns + min(columns - 1, int(x * columns))
        which = torch.nn.functional.cross_entropy(self.found(part).T, torch.tensor([inside]))
        bins = torch.tensor([min(self.BINS - 1, int(value * self.BINS)) for value in centre])
        return which + torch.nn.functional.cross_entropy(self.place(part[inside]).view(2, -1), bins)


def warm_up(
    model: Any,
    tokens: ChatTokens,
    episodes: Iterable[Episode],
    section: VisionWarmup,
    seed: int,
    tell: Callable[[str], None] = print,
) -> float:
    """Trains the vision tower in place; returns the accuracy over the last 20 batches (before each was learned)."""
    saved = list(episodes)
    looks, whole = close_looks(saved, section.field), overviews(saved, section.box)
    if len(looks) < section.batch:
        raise StoreError(
            f"{len(looks)} demonstrations looked and answered {section.field!r} right; needed: {section.batch}"
        )
    classes = sorted({label for _, label in looks})
    tower = model.model.visual
    heads = Heads(model.config.get_text_config().hidden_size, len(classes))
    parameters = [*tower.parameters(), *heads.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=section.learning_rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, section.learning_rate, total_steps=section.steps, pct_start=0.1
    )
    shuffle = torch.Generator().manual_seed(seed)
    of_looks = _endless(len(looks), section.batch, shuffle)
    of_whole = _endless(len(whole), max(1, section.batch // 2), shuffle)  # finding is learned sooner than reading
    recent: list[float] = []
    tower.train()
    for step in range(1, section.steps + 1):
        close, wide = [looks[i] for i in next(of_looks)], [whole[i] for i in next(of_whole)]
        pictures = [_shifted(image.open(), shuffle) for image, _ in close] + [image.open() for image, _ in wide]
        vision = tokens.processor.image_processor([one.convert("RGB") for one in pictures], return_tensors="pt")
        features = tower(vision["pixel_values"].float(), grid_thw=vision["image_grid_thw"]).pooler_output
        features = torch.cat(list(features)) if isinstance(features, list | tuple) else features
        merge = tokens.family.merge
        parts = features.split((vision["image_grid_thw"].prod(dim=1) // merge**2).tolist())
        logits = heads.label(torch.stack([part.mean(dim=0) for part in parts[: len(close)]]))
        targets = torch.tensor([classes.index(label) for _, label in close])
        read = torch.nn.functional.cross_entropy(logits, targets)
        located = [
            heads.locate(part, int(grid[2]) // merge, centre)
            for part, grid, (_, centre) in zip(
                parts[len(close) :], vision["image_grid_thw"][len(close) :], wide, strict=True
            )
        ]
        find = torch.stack(located).mean()
        (read + find).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        recent = [*recent[-19:], (logits.argmax(dim=1) == targets).float().mean().item()]
        if step % 50 == 0:
            right = sum(recent) / len(recent)
            tell(f"vision {step}/{section.steps}  reading {read:.3f} ({right:.2f} right)  finding {find:.3f}")
    return sum(recent) / len(recent)


def _shifted(picture: Image.Image, shuffle: torch.Generator, most: int = 1) -> Image.Image:
    """`picture` moved by up to `most` pixels either way: the same look is never quite the same twice."""
    dx, dy = (torch.randint(-most, most + 1, (2,), generator=shuffle)).tolist()
    return ImageChops.offset(picture, dx, dy)


def _endless(count: int, batch: int, shuffle: torch.Generator) -> Iterator[list[int]]:
    """Batches of shuffled numbers below `count`, for ever."""
    batch = min(batch, count)
    while True:
        order = torch.randperm(count, generator=shuffle).tolist()
        for start in range(0, count - batch + 1, batch):
            yield order[start : start + batch]
