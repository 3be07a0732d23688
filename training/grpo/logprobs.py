"""Log-probs of a batch of episodes for a loss, with what episodes share computed once.

Members of a group have one prompt: all of it but its last token goes through the model once, and its keys and values
serve every member, gradients included (as Prefix Grouper does, arXiv 2506.05433). Every distinct image goes through
the vision tower once. What remains, replies and observations, goes in parts of similar length, so that little of it is
padding. Only sampled tokens go through the output layer, as many at a time as memory allows. The numbers and gradients
are those of a plain forward of each episode alone (tested).

Gradient checkpointing drops keys and values: prompts are then computed for every member.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import checkpoint
from transformers.cache_utils import Cache, CacheLayerMixin

from viewbox.rollouts.engine.architectures import Architecture, Pixels
from viewbox.rollouts.engine.model_runner import to_additive_mask
from viewbox.rollouts.engine.vision_cache import split_into_batches

WASTE = 0.1  # of the tokens of a part may be padding
LOGITS = 2**26  # that are held at once: of more, each part is computed again for its gradient


class Image(NamedTuple):
    """An image of a batch: equal ones have equal keys; `grid` (t, h, w) in patches."""

    key: int
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Row:
    """What of an episode goes through the model by itself; `sampled` are places in its completion."""

    ids: list[int]
    positions: torch.Tensor  # (3, len(ids))
    images: list[int]
    sampled: list[int] = field(default_factory=list)
    first: int = 0  # where the completion begins in `ids`
    prompt: int = -1  # the shared prompt before it


class Kept(CacheLayerMixin):
    """Keys and values of one layer: those of the prompts are kept, and put before those of the rows that follow."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: tuple[torch.Tensor, torch.Tensor] | None = None
        self.rows: Any = None  # which prompt each row follows

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.prompts = key_states, value_states

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple:
        if self.prompts is None:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        keys, values = (kept[self.rows] for kept in self.prompts)
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.get_seq_length() + int(query_length), 0

    def get_seq_length(self) -> int:
        return 0 if self.prompts is None else self.prompts[0].shape[2]

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length


class Scorer:
    """Scores the episodes of a batch (`collate`) with one model, `whole`, which no wrapper of processes is around."""

    def __init__(
        self, whole: Any, architecture: Architecture, image_id: int, pad_id: int, temperature: float = 1.0
    ) -> None:
        self.whole, self.architecture, self.image_id, self.pad_id = whole, architecture, image_id, pad_id
        self.temperature = temperature
        base = whole.get_base_model() if hasattr(whole, "get_base_model") else whole
        self.backbone, self.head = base.model, base.get_output_embeddings()
        self.device = whole.device

    def __call__(self, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (B, C), of the tokens that were sampled; 0 on all others."""
        images = self._images(batch)
        features = self._features(batch, images)
        checkpointed = any(getattr(module, "gradient_checkpointing", False) for module in self.whole.modules())
        rows, prompts = self._rows(batch, images, shared=not checkpointed)
        kept = self._prompts(prompts, features) if prompts else None
        width = batch["completion_ids"].shape[1]
        parts = list(_parts([len(row.ids) for row in rows]))
        found = [self._scored([rows[k] for k in part], prompts, kept, features, width) for part in parts]
        order = torch.tensor([k for part in parts for k in part], device=self.device).argsort()
        logps, entropies = (torch.cat(one)[order] for one in zip(*found, strict=True))
        return logps, entropies

    def _images(self, batch: dict[str, Any]) -> list[list[Image]]:
        """Each episode's images, in order."""
        counts = batch.get("num_images") or [0] * len(batch["prompt_ids"])
        grids = iter(batch["image_grid_thw"].tolist() if sum(counts) else ())
        keys = batch["image_keys"].tolist()
        return [[Image(key, tuple(next(grids))) for key in row[:n]] for row, n in zip(keys, counts, strict=True)]

    def _features(self, batch: dict[str, Any], images: Sequence[Sequence[Image]]) -> dict[int, Any]:
        """What the vision tower makes of each distinct image, by its key."""
        flat = [image for row in images for image in row]
        if not flat:
            return {}
        values = batch["pixel_values"].split([math.prod(image.grid) for image in flat])
        pixels = {
            image.key: Pixels(one, image.grid, self._tokens(image)) for image, one in zip(flat, values, strict=True)
        }
        found: dict[int, Any] = {}
        for part in split_into_batches(pixels):
            found |= zip(part, self.architecture.encode_images(self.whole, [pixels[key] for key in part]), strict=True)
        return found

    def _tokens(self, image: Image) -> int:
        return math.prod(image.grid) // self.architecture.merge**2

    def _rows(self, batch: dict[str, Any], images: Sequence[list[Image]], shared: bool) -> tuple[list[Row], list[Row]]:
        """A row for each episode, and the prompts that they share."""
        rows: list[Row] = []
        prompts: dict[Any, tuple[int, Row, int]] = {}
        for prompt, said, sampled, seen in zip(*self._ids(batch), images, strict=True):
            if not shared or len(prompt) < 2:
                whole, _ = self._row(prompt + said, seen, 0)
                rows.append(replace(whole, sampled=sampled, first=len(prompt)))
                continue
            before = self._images_in(prompt, seen)
            name = (tuple(prompt), *seen[:before])
            if name not in prompts:
                prompts[name] = len(prompts), *self._row(prompt[:-1], seen[:before], 0)
            number, _, after = prompts[name]
            row, _ = self._row(prompt[-1:] + said, seen[before:], after)
            rows.append(replace(row, sampled=sampled, first=1, prompt=number))
        return rows, [row for _, row, _ in prompts.values()]

    def _row(self, ids: list[int], images: Sequence[Image], start: int) -> tuple[Row, int]:
        """A row whose first position is `start`, and the position after it."""
        positions, after = self.architecture.compute_positions(
            ids, self.image_id, [image.grid for image in images], start
        )
        return Row(ids, positions, [image.key for image in images]), after

    def _ids(self, batch: dict[str, Any]) -> list[list[list[int]]]:
        """Prompts and completions without padding, and the places in completions that were sampled."""
        found = []
        for name in ("prompt", "completion"):
            masks, ids = batch[f"{name}_mask"].tolist(), batch[f"{name}_ids"].tolist()
            found.append([[i for i, m in zip(*pair, strict=True) if m] for pair in zip(ids, masks, strict=True)])
        sampled = (batch["completion_mask"] * batch["tool_mask"]).tolist()
        return [*found, [[place for place, one in enumerate(row) if one] for row in sampled]]

    def _images_in(self, prompt: list[int], images: Sequence[Image]) -> int:
        """How many of an episode's images are in its prompt."""
        left, count = prompt.count(self.image_id), 0
        while left > 0:
            left, count = left - self._tokens(images[count]), count + 1
        return count

    def _padded(self, rows: Sequence[Row], features: dict[int, Any]) -> dict[str, Any]:
        """The model's keyword arguments for rows padded right, without mask and cache."""
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([row.ids + [self.pad_id] * (width - len(row.ids)) for row in rows], device=self.device)
        pad = torch.nn.functional.pad
        positions = torch.stack([pad(row.positions, (0, width - len(row.ids))) for row in rows], dim=1)
        given: dict[str, Any] = {"input_ids": ids, "position_ids": positions.to(self.device)}
        images = [features[key] for row in rows for key in row.images]
        if images:
            given |= self.architecture.build_feature_inputs(images)
            given["mm_token_type_ids"] = (ids == self.image_id).int()
        return given

    def _prompts(self, prompts: Sequence[Row], features: dict[int, Any]) -> Cache:
        """The prompts through the model; their keys and values."""
        kept = Cache(layers=[Kept() for _ in range(self.whole.config.get_text_config().num_hidden_layers)])
        given = self._padded(prompts, features)
        mask = _causal(given["input_ids"])[None, None]
        self.backbone(**given, attention_mask=to_additive_mask(self.whole, mask), past_key_values=kept, use_cache=False)
        return kept

    def _scored(
        self,
        rows: Sequence[Row],
        prompts: Sequence[Row],
        kept: Cache | None,
        features: dict[int, Any],
        width: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (rows, width), after one forward of rows of similar length."""
        given = self._padded(rows, features)
        ids = given["input_ids"]
        mask = _causal(ids).expand(len(rows), 1, -1, -1)
        if kept is not None:
            following = torch.tensor([row.prompt for row in rows], device=self.device)
            lengths = torch.tensor([len(prompts[row.prompt].ids) if row.prompt >= 0 else 0 for row in rows])
            layers: list[Any] = kept.layers  # type: ignore[assignment]
            for layer in layers:
                layer.rows = following
            columns = torch.arange(kept.get_seq_length(), device=self.device)
            before = columns[None, None, None, :] < lengths.to(self.device)[:, None, None, None]
            mask = torch.cat([before.expand(-1, -1, ids.shape[1], -1), mask], dim=-1)
        given |= {"attention_mask": to_additive_mask(self.whole, mask), "past_key_values": kept, "use_cache": False}
        hidden = self.backbone(**given).last_hidden_state
        at = [(i, row.first + place, place) for i, row in enumerate(rows) for place in row.sampled]
        row, column, place = torch.tensor(at, dtype=torch.long, device=self.device).view(-1, 3).unbind(1)
        empty = torch.zeros(len(rows), width, device=self.device)
        logps, entropies = self._said(hidden[row, column - 1], ids[row, column])
        return empty.index_put((row, place), logps), empty.index_put((row, place), entropies)

    def _said(self, hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs of `ids`, entropies), each (tokens,), after the states `hidden` (tokens, width)."""

        def said(hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logp = torch.log_softmax(self.head(hidden).float() / self.temperature, dim=-1)
            return logp.gather(1, ids[:, None])[:, 0], -(logp.exp() * logp).sum(dim=-1)

        most = max(1, LOGITS // self.whole.config.get_text_config().vocab_size)
        if len(ids) <= most:
            return said(hidden, ids)
        parts = zip(hidden.split(most), ids.split(most), strict=True)
        logps, entropies = zip(*(checkpoint(said, *part, use_reentrant=False) for part in parts), strict=True)
        return torch.cat(logps), torch.cat(entropies)


def takes_scorers(model: Any) -> None:
    """Lets `model(scorer=…)` be what a `Scorer` bound to a batch gives.

    A model that is spread over processes must be asked through its wrapper, and once a batch: the wrapper then sees
    every weight that was used, however many forwards that took.
    """
    forward = model.forward

    @wraps(forward)
    def asked(*args: Any, scorer: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        return forward(*args, **kwargs) if scorer is None else scorer()

    model.forward = asked


def _causal(ids: torch.Tensor) -> torch.Tensor:
    """(width, width) bool: what each column of (rows, width) ids may look at."""
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()


def _parts(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows of similar length together, the longest first."""
    part: list[int] = []
    held = 0
    for k in sorted(range(len(lengths)), key=lambda k: -lengths[k]):
        if part and held + lengths[k] < (1 - WASTE) * (len(part) + 1) * lengths[part[0]]:
            yield part
            part, held = [], 0
        part.append(k)
        held += lengths[k]
    yield part
