"""Auxiliary vision losses for a model whose vision tower starts from random weights.

Published VLMs start from a pretrained vision encoder. A model built from scratch has none, and the single label token
of a demonstration is too weak a signal to train one. During the warm start, linear heads on the tower also learn to
classify close looks and to find the object in the overview. The heads are not saved with the model.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from PIL import Image, ImageChops
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from ...configs.train_sections import VisionSection
from ...engines.hf.chat_tokens import ChatTokens
from ...errors import StoreError
from ...images.ref import ImageRef
from ...records import Episode


class CloseLook(NamedTuple):
    """The last image of an episode that used a tool and answered correctly, and the label it shows."""

    image: ImageRef
    label: str


class Overview(NamedTuple):
    """The first image of an episode, and the center (x, y) of the gold box in fractions of it."""

    image: ImageRef
    center: tuple[float, float]


def find_close_looks(episodes: Iterable[Episode], field: str) -> list[CloseLook]:
    """The close looks of the episodes; `field` is the reference field with the label."""
    return [
        CloseLook(e.tokens.images[-1], str(e.task.reference[field]))
        for e in episodes
        if e.tokens is not None
        and len(e.tokens.images) > e.tokens.prompt_images
        and e.answer is not None
        and e.answer.get(field) == e.task.reference.get(field)
    ]


def find_overviews(episodes: Iterable[Episode], field: str) -> list[Overview]:
    """The overviews of all episodes with tokens; `field` is the reference field with the box (fractions, xyxy)."""
    overviews = []
    for e in episodes:
        if e.tokens is not None and e.tokens.prompt_images:
            x1, y1, x2, y2 = e.task.reference[field]
            overviews.append(Overview(e.tokens.images[0], ((x1 + x2) / 2, (y1 + y2) / 2)))
    return overviews


class VisionTask(torch.nn.Module):
    """Three linear heads on the vision tower, and the sum of their cross-entropies times `section.weight`.

    `label_head` classifies a close look from the mean of its tokens. `token_head` finds the token of the overview that
    holds the object. `center_head` gives the object's x and y, each as one of `BINS` equal parts, from the mean of the
    tokens, which is all that a language model sees before it has learned where to attend.

    Args:
        model: a model with a vision tower; heads are created on its device.
        tokens: the chat tokens of the model.
        episodes: saved demonstrations.
        section: the settings of `train.vision`.
        seed: decides the batches.

    Raises:
        StoreError: the demonstrations have too few close looks for a batch.
    """

    BINS = 32

    def __init__(
        self,
        model: PreTrainedModel,
        tokens: ChatTokens,
        episodes: Iterable[Episode],
        section: VisionSection,
        seed: int,
    ) -> None:
        super().__init__()
        saved = list(episodes)
        self.close_looks = find_close_looks(saved, section.label)
        self.overviews = [] if section.box is None else find_overviews(saved, section.box)
        if len(self.close_looks) < section.batch:
            raise StoreError(
                f"{len(self.close_looks)} demonstrations used a tool and answered {section.label!r} correctly; "
                f"allowed: at least {section.batch}"
            )
        self.tokens, self.section = tokens, section
        self.labels = sorted({look.label for look in self.close_looks})
        width = model.config.get_text_config().hidden_size
        self.label_head = torch.nn.Linear(width, len(self.labels)).to(model.device)
        self.token_head = torch.nn.Linear(width, 1).to(model.device)
        self.center_head = torch.nn.Linear(width, 2 * self.BINS).to(model.device)
        self.seed = seed
        self.num_batches: torch.Tensor  # drawn so far; the next batch depends on it
        self.register_buffer("num_batches", torch.tensor(0))
        self.accuracy: dict[str, float] = {}  # of the last batch

    def compute_loss(self, model: PreTrainedModel) -> torch.Tensor:
        """The loss of the next batch: close looks, each shifted by up to a pixel, and half as many overviews."""
        number = int(self.num_batches)
        self.num_batches += 1
        looks = [self.close_looks[i] for i in self._draw(len(self.close_looks), self.section.batch, number)]
        count = min(len(self.overviews), self.section.batch // 2)
        overviews = [self.overviews[i] for i in self._draw(len(self.overviews), count, number)] if count else []
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        images = [_shift(look.image.open(), rng) for look in looks] + [overview.image.open() for overview in overviews]
        features, grids = self._encode(model, images)
        self.accuracy = {}
        means = torch.stack([feature.mean(dim=0) for feature in features])
        n = len(looks)
        label_loss = self._compute_label_loss(means[:n], looks)
        if not overviews:
            return self.section.weight * label_loss
        center_loss = self._compute_center_loss(means[n:], overviews)
        token_loss = self._compute_token_loss(features[n:], grids[n:], overviews)
        return self.section.weight * (label_loss + (token_loss + 2 * center_loss))

    def _draw(self, count: int, batch: int, number: int) -> list[int]:
        return _draw_batch(count, batch, number, self.seed)

    def _encode(
        self, model: PreTrainedModel, images: Sequence[Image.Image]
    ) -> tuple[Sequence[torch.Tensor], list[tuple[int, int]]]:
        """(tokens, width) features of each image, and its (rows, columns) of tokens."""
        rgb = [image.convert("RGB") for image in images]
        inputs = self.tokens.processor.image_processor(rgb, return_tensors="pt").to(model.device)
        patches = inputs["image_grid_thw"]
        features = model.model.visual(inputs["pixel_values"].float(), grid_thw=patches).pooler_output
        features = torch.cat(list(features)) if isinstance(features, list | tuple) else features
        merge = self.tokens.architecture.merge
        grids = [(rows // merge, columns // merge) for _, rows, columns in patches.tolist()]
        return features.split((patches.prod(dim=1) // merge**2).tolist()), grids

    def _compute_label_loss(self, means: torch.Tensor, looks: Sequence[CloseLook]) -> torch.Tensor:
        targets = torch.tensor([self.labels.index(look.label) for look in looks], device=means.device)
        logits = self.label_head(means)
        self.accuracy["vision/label_accuracy"] = (logits.argmax(dim=1) == targets).float().mean().item()
        return cross_entropy(logits, targets)

    def _compute_center_loss(self, means: torch.Tensor, overviews: Sequence[Overview]) -> torch.Tensor:
        bins = [[min(self.BINS - 1, int(value * self.BINS)) for value in overview.center] for overview in overviews]
        targets = torch.tensor(bins, device=means.device)
        logits = self.center_head(means).view(len(overviews), 2, self.BINS)
        self.accuracy["vision/center_accuracy"] = (logits.argmax(dim=2) == targets).all(dim=1).float().mean().item()
        return cross_entropy(logits.flatten(0, 1), targets.flatten())

    def _compute_token_loss(
        self, features: Sequence[torch.Tensor], grids: Sequence[tuple[int, int]], overviews: Sequence[Overview]
    ) -> torch.Tensor:
        losses = []
        for feature, (rows, columns), overview in zip(features, grids, overviews, strict=True):
            x, y = overview.center
            target = min(rows - 1, int(y * rows)) * columns + min(columns - 1, int(x * columns))
            losses.append(cross_entropy(self.token_head(feature).T, torch.tensor([target], device=feature.device)))
        return torch.stack(losses).mean()


def _shift(image: Image.Image, rng: torch.Generator, most: int = 1) -> Image.Image:
    """The image shifted by up to `most` pixels in each direction, so that a look varies between batches."""
    dx, dy = torch.randint(-most, most + 1, (2,), generator=rng).tolist()
    return ImageChops.offset(image, dx, dy)


def _draw_batch(count: int, batch: int, number: int, seed: int) -> list[int]:
    """Batch `number` of an endless sequence of batches: indices below `count`, shuffled again after each epoch.

    >>> sorted(_draw_batch(4, 2, 0, seed=1) + _draw_batch(4, 2, 1, seed=1))
    [0, 1, 2, 3]
    """
    batches_per_epoch = max(1, count // batch)
    order = torch.randperm(
        count, generator=torch.Generator().manual_seed(seed * 1_000_003 + number // batches_per_epoch)
    )
    start = number % batches_per_epoch * batch
    return order[start : start + batch].tolist()
