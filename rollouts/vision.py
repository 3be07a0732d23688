"""Reading as an auxiliary task, for a model whose vision tower starts from nothing.

Published VLMs start from a pretrained vision encoder. A model built from scratch has none, and the one label token of
a demonstration is too faint a signal to grow one. So while it learns from demonstrations, its tower also learns to
tell what a close look shows, with a linear head that is thrown away.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from PIL import Image, ImageChops

from viewbox.config import Reading
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


class ReadingTask(torch.nn.Module):
    """The auxiliary loss: cross-entropy of a linear head on the mean of a look's tokens, times `weight`."""

    def __init__(
        self, model: Any, tokens: ChatTokens, episodes: Iterable[Episode], section: Reading, seed: int
    ) -> None:
        super().__init__()
        self.looks = close_looks(episodes, section.field)
        if len(self.looks) < section.batch:
            raise StoreError(
                f"{len(self.looks)} demonstrations looked and answered {section.field!r} right; needed: {section.batch}"
            )
        self.tokens, self.section = tokens, section
        self.classes = sorted({label for _, label in self.looks})
        self.head = torch.nn.Linear(model.config.get_text_config().hidden_size, len(self.classes)).to(model.device)
        self.shuffle = torch.Generator().manual_seed(seed)
        self.batches = _endless(len(self.looks), section.batch, self.shuffle)
        self.right = 0.0  # share of the last batch that was read right

    def loss(self, model: Any) -> torch.Tensor:
        """The loss of the next batch of looks, each moved by a pixel or so."""
        chosen = [self.looks[i] for i in next(self.batches)]
        pictures = [_shifted(image.open(), self.shuffle).convert("RGB") for image, _ in chosen]
        vision = self.tokens.processor.image_processor(pictures, return_tensors="pt").to(model.device)
        features = model.model.visual(vision["pixel_values"].float(), grid_thw=vision["image_grid_thw"]).pooler_output
        features = torch.cat(list(features)) if isinstance(features, list | tuple) else features
        counts = (vision["image_grid_thw"].prod(dim=1) // self.tokens.family.merge**2).tolist()
        logits = self.head(torch.stack([part.mean(dim=0) for part in features.split(counts)]))
        targets = torch.tensor([self.classes.index(label) for _, label in chosen], device=logits.device)
        self.right = (logits.argmax(dim=1) == targets).float().mean().item()
        return self.section.weight * torch.nn.functional.cross_entropy(logits, targets)


def _shifted(picture: Image.Image, shuffle: torch.Generator, most: int = 1) -> Image.Image:
    """`picture` moved by up to `most` pixels either way: the same look is never quite the same twice."""
    dx, dy = torch.randint(-most, most + 1, (2,), generator=shuffle).tolist()
    return ImageChops.offset(picture, dx, dy)


def _endless(count: int, batch: int, shuffle: torch.Generator) -> Iterator[list[int]]:
    """Batches of shuffled numbers below `count`, for ever."""
    while True:
        order = torch.randperm(count, generator=shuffle).tolist()
        for start in range(0, count - batch + 1, batch):
            yield order[start : start + batch]
