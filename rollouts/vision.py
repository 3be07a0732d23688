"""A vision tower from nothing: taught to tell what a close look shows, before any language.

Published VLMs start from a pretrained vision encoder. A model built from scratch has none, and the one label token of
a demonstration is too faint a signal to grow one. So the tower first learns, with a linear head that is thrown away,
to classify the last picture of the saved demonstrations that looked and answered right.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch

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


def warm_up(
    model: Any,
    tokens: ChatTokens,
    episodes: Iterable[Episode],
    section: VisionWarmup,
    seed: int,
    tell: Callable[[str], None] = print,
) -> float:
    """Trains the vision tower in place; returns the accuracy over the last 20 batches (before each was learned)."""
    looks = close_looks(episodes, section.field)
    if len(looks) < section.batch:
        raise StoreError(
            f"{len(looks)} demonstrations looked and answered {section.field!r} right; needed: {section.batch}"
        )
    classes = sorted({label for _, label in looks})
    targets = torch.tensor([classes.index(label) for _, label in looks])
    tower = model.model.visual
    head = torch.nn.Linear(model.config.get_text_config().hidden_size, len(classes))
    parameters = [*tower.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=section.learning_rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, section.learning_rate, total_steps=section.steps, pct_start=0.1
    )
    shuffle = torch.Generator().manual_seed(seed)
    recent: list[float] = []
    order = torch.empty(0, dtype=torch.long)
    tower.train()
    for step in range(1, section.steps + 1):
        if len(order) < section.batch:
            order = torch.randperm(len(looks), generator=shuffle)
        chosen, order = order[: section.batch], order[section.batch :]
        pixels = [tokens.pixels(looks[int(i)][0]) for i in chosen]
        vision = tokens.family.vision_inputs(pixels, "cpu", torch.float32)
        features = tower(vision["pixel_values"], grid_thw=vision["image_grid_thw"]).pooler_output
        pooled = torch.stack([part.mean(dim=0) for part in features.split([one.tokens for one in pixels])])
        logits = head(pooled)
        loss = torch.nn.functional.cross_entropy(logits, targets[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        recent = [*recent[-19:], (logits.argmax(dim=1) == targets[chosen]).float().mean().item()]
        if step % 50 == 0:
            tell(f"vision {step}/{section.steps}  loss {loss.item():.3f}  right {sum(recent) / len(recent):.2f}")
    return sum(recent) / len(recent)
