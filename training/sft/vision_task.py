"""Auxiliary vision losses for a model whose vision tower starts from random weights.

Published VLMs start from a pretrained vision encoder. A model built from scratch has none, and the single label token
of a demonstration is too weak a signal to train one. During the warm start, linear heads on the tower also learn to
classify close looks and to find the object in the overview. The heads are not saved with the model.
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


def find_close_looks(episodes: Iterable[Episode], field: str) -> list[tuple[ImageRef, str]]:
    """(last image, gold value of `field`) of the episodes that used a tool and answered `field` correctly."""
    return [
        (e.tokens.images[-1], str(e.task.reference[field]))
        for e in episodes
        if e.tokens is not None
        and len(e.tokens.images) > e.tokens.prompt_images
        and e.answer is not None
        and e.answer.get(field) == e.task.reference.get(field)
    ]


def find_overviews(episodes: Iterable[Episode], field: str) -> list[tuple[ImageRef, tuple[float, float]]]:
    """(first image, center of the gold box `field` as fractions of it) of all episodes with tokens."""
    found = []
    for e in episodes:
        if e.tokens is not None and e.tokens.prompt_images:
            x1, y1, x2, y2 = e.task.reference[field]
            found.append((e.tokens.images[0], ((x1 + x2) / 2, (y1 + y2) / 2)))
    return found


class VisionTask(torch.nn.Module):
    """The auxiliary losses: cross-entropies of linear heads, times `weight`.

    Reading: the label of a close look, from the mean of its tokens. Finding: the token of the overview that holds the
    object, from that token; and its x and y, each as one of `BINS` equal parts, from the mean of the tokens, which is
    what a language model sees before it has learned where to attend.
    """

    BINS = 32

    def __init__(
        self, model: Any, tokens: ChatTokens, episodes: Iterable[Episode], section: VisionSection, seed: int
    ) -> None:
        super().__init__()
        saved = list(episodes)
        self.looks, self.whole = find_close_looks(saved, section.label), find_overviews(saved, section.box)
        if len(self.looks) < section.batch:
            raise StoreError(
                f"{len(self.looks)} demonstrations used a tool and answered {section.label!r} correctly; "
                f"allowed: at least {section.batch}"
            )
        self.tokens, self.section = tokens, section
        self.classes = sorted({label for _, label in self.looks})
        width = model.config.get_text_config().hidden_size
        self.label = torch.nn.Linear(width, len(self.classes)).to(model.device)
        self.found = torch.nn.Linear(width, 1).to(model.device)
        self.place = torch.nn.Linear(width, 2 * self.BINS).to(model.device)
        self.seed = seed
        self.batches: torch.Tensor  # drawn so far; decides what the next one holds
        self.register_buffer("batches", torch.tensor(0))
        self.right: dict[str, float] = {}  # shares of the last batch that were correct

    def loss(self, model: Any) -> torch.Tensor:
        """The loss of the next batch: close looks, each shifted by up to a pixel, and half as many overviews."""
        number = int(self.batches)
        self.batches += 1
        close = [self.looks[i] for i in _draw_batch(len(self.looks), self.section.batch, number, self.seed)]
        wide = [self.whole[i] for i in _draw_batch(len(self.whole), self.section.batch // 2, number, self.seed)]
        shuffle = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        pictures = [_shift(image.open(), shuffle) for image, _ in close] + [image.open() for image, _ in wide]
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


def _shift(picture: Image.Image, shuffle: torch.Generator, most: int = 1) -> Image.Image:
    """The image shifted by up to `most` pixels in each direction, so that a look varies between batches."""
    dx, dy = torch.randint(-most, most + 1, (2,), generator=shuffle).tolist()
    return ImageChops.offset(picture, dx, dy)


def _draw_batch(count: int, batch: int, number: int, seed: int) -> list[int]:
    """The `number`-th batch of an endless sequence: numbers below `count`, reshuffled each time all were used.

    >>> sorted(_draw_batch(4, 2, 0, seed=1) + _draw_batch(4, 2, 1, seed=1))
    [0, 1, 2, 3]
    """
    each = max(1, count // batch)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + number // each))
    start = number % each * batch
    return order[start : start + batch].tolist()
