"""A warm start for a model whose vision tower starts from random weights: losses that teach the tower to read.

    python benchmarks/new_vision_tower.py tiny_warmstart [key.path=value ...]
    python benchmarks/new_vision_tower.py phantom_warmstart --label lesion --no-box

Published VLMs start from a pretrained vision encoder. A model built from scratch has none, and the single label token
of a demonstration is too weak a signal to train one. During the warm start, linear heads on the tower also learn to
classify close looks and to find the object in the overview. The heads are not saved with the model.

It also shows how a run takes a trainer of your own: `Run.sft_trainer` is its class.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageChops
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from viewbox.configs import schema
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode
from viewbox.rollouts.store.reader import load
from viewbox.training import command
from viewbox.training.findings import check
from viewbox.training.plan import Plan
from viewbox.training.run import Run
from viewbox.training.sft.trainer import SFTTrainer
from viewbox.utils.exit_status import guard


class Settings(NamedTuple):
    """What the heads learn.

    Args:
        weight: of their loss; that of the replies has weight 1.
        batch: close looks (last images of correct episodes) in each step.
        label: the reference field that is classified from a close look.
        box: the reference field with the box that is located in the overview; None: nothing is to be seen there.
    """

    weight: float = 1.0
    batch: int = 64
    label: str = "label"
    box: str | None = "bbox"


class CloseLook(NamedTuple):
    """The last image of an episode that used a tool and answered correctly, and the label it shows."""

    image: ImageRef
    label: str


class Overview(NamedTuple):
    """The first image of an episode, and the center (x, y) of the gold box in fractions of it."""

    image: ImageRef
    center: tuple[float, float]


def find_close_looks(episodes: Iterable[Episode], field: str) -> list[CloseLook]:
    """Return the close looks of the episodes; `field` is the reference field with the label."""
    return [
        CloseLook(e.tokens.images[-1], str(e.task.reference[field]))
        for e in episodes
        if e.tokens is not None
        and len(e.tokens.images) > e.tokens.prompt_images
        and e.answer is not None
        and e.answer.get(field) == e.task.reference.get(field)
    ]


def find_overviews(episodes: Iterable[Episode], field: str) -> list[Overview]:
    """Return the overviews of all episodes with tokens; `field` is the reference field with the box (fractions,
    xyxy)."""
    overviews = []
    for e in episodes:
        if e.tokens is not None and e.tokens.prompt_images:
            x1, y1, x2, y2 = e.task.reference[field]
            overviews.append(Overview(e.tokens.images[0], ((x1 + x2) / 2, (y1 + y2) / 2)))
    return overviews


class VisionTask(torch.nn.Module):
    """Three linear heads on the vision tower, and the sum of their cross-entropies times `settings.weight`.

    `label_head` classifies a close look from the mean of its tokens. `token_head` finds the token of the overview that
    holds the object. `center_head` gives the object's x and y, each as one of `BINS` equal parts, from the mean of the
    tokens, which is all that a language model sees before it has learned where to attend.

    Args:
        model: a model with a vision tower; heads are created on its device.
        tokens: the chat tokens of the model.
        episodes: saved demonstrations.
        settings: what the heads learn.
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
        settings: Settings,
        seed: int,
    ) -> None:
        super().__init__()
        saved = list(episodes)
        self.close_looks = find_close_looks(saved, settings.label)
        self.overviews = [] if settings.box is None else find_overviews(saved, settings.box)
        if len(self.close_looks) < settings.batch:
            raise StoreError(
                f"{len(self.close_looks)} demonstrations used a tool and answered {settings.label!r} correctly; "
                f"allowed: at least {settings.batch}"
            )
        self.tokens, self.settings = tokens, settings
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
        """Return the loss of the next batch: close looks, each shifted by up to a pixel, and half as many overviews."""
        number = int(self.num_batches)
        self.num_batches += 1
        looks = [self.close_looks[i] for i in self._draw(len(self.close_looks), self.settings.batch, number)]
        count = min(len(self.overviews), self.settings.batch // 2)
        overviews = [self.overviews[i] for i in self._draw(len(self.overviews), count, number)] if count else []
        rng = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        images = [_shift(look.image.open(), rng) for look in looks] + [overview.image.open() for overview in overviews]
        features, grids = self._encode(model, images)
        self.accuracy = {}
        means = torch.stack([feature.mean(dim=0) for feature in features])
        n = len(looks)
        label_loss = self._compute_label_loss(means[:n], looks)
        if not overviews:
            return self.settings.weight * label_loss
        center_loss = self._compute_center_loss(means[n:], overviews)
        token_loss = self._compute_token_loss(features[n:], grids[n:], overviews)
        return self.settings.weight * (label_loss + (token_loss + 2 * center_loss))

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
        merge = self.tokens.processor.image_processor.merge_size
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
    """Return the image shifted by up to `most` pixels in each direction, so that a look varies between batches."""
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


class VisionTrainer(SFTTrainer):
    """`SFTTrainer` with the losses of the heads; `vision` is set before it trains."""

    vision: VisionTask

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:
        optimizer = super().create_optimizer(*args, **kwargs)
        optimizer.add_param_group({"params": list(self.vision.parameters()), "weight_decay": 0.0})
        return optimizer

    def compute_loss(self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, **given: Any) -> Any:
        loss = super().compute_loss(model, inputs, **given)
        if model.training:
            vision = self.vision.compute_loss(self.accelerator.unwrap_model(model))
            loss = loss + vision / self.current_gradient_accumulation_steps
            if self.state.global_step % 20 == 0:
                self.log(dict(self.vision.accuracy))
        return (loss, None) if return_outputs else loss

    def collect_state(self) -> dict[str, Any]:
        return super().collect_state() | {"vision": self.vision.state_dict()}

    def restore_state(self, state: dict[str, Any]) -> None:
        super().restore_state(state)
        self.vision.load_state_dict(state["vision"])


class VisionRun(Run):
    """A supervised run on demonstrations whose trainer has the heads."""

    sft_trainer = VisionTrainer

    def __init__(self, *args: Any, settings: Settings) -> None:
        super().__init__(*args)
        self.settings = settings

    def build_sft_trainer(self) -> SFTTrainer:
        trainer = super().build_sft_trainer()
        assert isinstance(trainer, VisionTrainer)
        episodes = sorted(load(str(self.folder / "demonstrations"), tokens=True), key=lambda one: one.info["index"])
        trainer.vision = VisionTask(self.model, self.tokens, episodes, self.settings, self.config.train.seed)
        return trainer


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="a config with `method: sft` and `demonstrations`")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key.path=value")
    parser.add_argument("--resume", metavar="RUN")
    parser.add_argument("--label", default="label", help="reference field that is classified from a close look")
    parser.add_argument("--no-box", action="store_true", help="nothing is to be located in the overview")
    parser.add_argument("--batch", type=int, default=64, help="close looks in each step")
    given = parser.parse_intermixed_args(argv)
    settings = Settings(batch=given.batch, label=given.label, box=None if given.no_box else "bbox")

    def train() -> int:
        plan = Plan(schema.load(given.config, given.overrides))
        check(plan)
        kind = partial(VisionRun, settings=settings)
        summary = command.run(plan, Path(given.config).stem, given.resume, build_run=kind)
        return 130 if "stopped_at" in summary else 0

    return guard(train)


if __name__ == "__main__":
    sys.exit(main())
