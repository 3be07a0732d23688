"""Seeing as auxiliary tasks, for a model whose vision tower starts from nothing.

Published VLMs start from a pretrained vision encoder. A model built from scratch has none, and the one label token of
a demonstration is too faint a signal to grow one. So while it learns from demonstrations, its tower also learns to
tell what a close look shows and where the thing is in the overview, with linear heads that are thrown away.
"""

from collections.abc import Iterable
from typing import Any

import torch
from PIL import Image, ImageChops

from viewbox.configs.schema import VisionSection
from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode
from viewbox.rollouts.engine.chat_tokens import ChatTokens


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
    """(first picture, center of the gold box `field` in fractions of it) of all episodes with tokens."""
    found = []
    for e in episodes:
        if e.tokens is not None and e.tokens.prompt_images:
            x1, y1, x2, y2 = e.task.reference[field]
            found.append((e.tokens.images[0], ((x1 + x2) / 2, (y1 + y2) / 2)))
    return found


class VisionTask(torch.nn.Module):
    """The auxiliary losses, each a cross-entropy of a linear head, times `weight`.

    Reading: what a close look shows, from the mean of its tokens. Finding: which token of an overview the thing is in,
    from that token; and where it is (x and y, each as one of `BINS` equal parts), from the mean of the tokens, which is
    what a language model that has not yet learned where to attend can see.
    """

    BINS = 32

    def __init__(
        self, model: Any, tokens: ChatTokens, episodes: Iterable[Episode], section: VisionSection, seed: int
    ) -> None:
        super().__init__()
        saved = list(episodes)
        self.looks, self.whole = close_looks(saved, section.label), overviews(saved, section.box)
        if len(self.looks) < section.batch:
            raise StoreError(
                f"{len(self.looks)} demonstrations looked and answered {section.label!r} right; needed: {section.batch}"
            )
        self.tokens, self.section = tokens, section
        self.classes = sorted({label for _, label in self.looks})
        width = model.config.get_text_config().hidden_size
        self.label = torch.nn.Linear(width, len(self.classes)).to(model.device)
        self.found = torch.nn.Linear(width, 1).to(model.device)
        self.place = torch.nn.Linear(width, 2 * self.BINS).to(model.device)
        self.seed = seed
        self.batches: torch.Tensor  # so far: what the next one holds follows from it
        self.register_buffer("batches", torch.tensor(0))
        self.right: dict[str, float] = {}  # shares of the last batch that were right

    def loss(self, model: Any) -> torch.Tensor:
        """The loss of the next batch: looks, each moved by a pixel or so, and half as many overviews."""
        number = int(self.batches)
        self.batches += 1
        close = [self.looks[i] for i in _batch(len(self.looks), self.section.batch, number, self.seed)]
        wide = [self.whole[i] for i in _batch(len(self.whole), self.section.batch // 2, number, self.seed)]
        shuffle = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        pictures = [_shifted(image.open(), shuffle) for image, _ in close] + [image.open() for image, _ in wide]
        converted = [picture.convert("RGB") for picture in pictures]
        vision = self.tokens.processor.image_processor(converted, return_tensors="pt").to(model.device)
        grids = vision["image_grid_thw"]
        features = model.model.visual(vision["pixel_values"].float(), grid_thw=grids).pooler_output
        features = torch.cat(list(features)) if isinstance(features, list | tuple) else features
        merge = self.tokens.architecture.merge
        parts = features.split((grids.prod(dim=1) // merge**2).tolist())
        means = torch.stack([part.mean(dim=0) for part in parts])
        device = means.device
        labels = torch.tensor([self.classes.index(label) for _, label in close], device=device)
        said = self.label(means[: len(close)])
        bins = torch.tensor([[min(self.BINS - 1, int(v * self.BINS)) for v in at] for _, at in wide], device=device)
        placed = self.place(means[len(close) :]).view(len(wide), 2, self.BINS)
        cross = torch.nn.functional.cross_entropy
        which = []
        for part, grid, (_, (x, y)) in zip(parts[len(close) :], grids[len(close) :].tolist(), wide, strict=True):
            rows, columns = grid[1] // merge, grid[2] // merge
            inside = min(rows - 1, int(y * rows)) * columns + min(columns - 1, int(x * columns))
            which.append(cross(self.found(part).T, torch.tensor([inside], device=device)))
        self.right = {
            "vision/read": (said.argmax(dim=1) == labels).float().mean().item(),
            "vision/found": (placed.argmax(dim=2) == bins).all(dim=1).float().mean().item(),
        }
        finding = torch.stack(which).mean() + 2 * cross(placed.flatten(0, 1), bins.flatten())
        return self.section.weight * (cross(said, labels) + finding)


def _shifted(picture: Image.Image, shuffle: torch.Generator, most: int = 1) -> Image.Image:
    """`picture` moved by up to `most` pixels either way: the same look is never quite the same twice."""
    dx, dy = torch.randint(-most, most + 1, (2,), generator=shuffle).tolist()
    return ImageChops.offset(picture, dx, dy)


def _batch(count: int, batch: int, number: int, seed: int) -> list[int]:
    """The `number`-th of an endless row of batches: numbers below `count`, in a new order each time all were used.

    >>> sorted(_batch(4, 2, 0, seed=1) + _batch(4, 2, 1, seed=1))
    [0, 1, 2, 3]
    """
    each = max(1, count // batch)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + number // each))
    start = number % each * batch
    return order[start : start + batch].tolist()
