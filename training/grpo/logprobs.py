"""Log-probs of a batch of episodes, with the prompts and images they share computed once.

Episodes of a group have the same prompt. All of it but its last token goes through the model once, and its keys and
values serve the whole group, gradients included (as in Prefix Grouper, arXiv 2506.05433). Every distinct image goes
through the vision tower once. The rest (replies and observations) is computed in parts of similar length, which keeps
padding low. Only sampled tokens go through the output layer. Log-probs and gradients equal those of a plain forward
pass of each episode alone (tested). Gradient checkpointing drops keys and values; prompts are then not shared.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from viewbox.rollouts.engine.architectures import Architecture, Pixels
from viewbox.rollouts.engine.model_runner import to_additive_mask
from viewbox.rollouts.engine.vision_cache import split_into_batches

NO_PIXELS: Mapping[int, Pixels] = {}
MAX_PADDING = 0.1  # largest share of padding in the tokens of a part
MAX_LOGITS = 2**26  # logits held at once; if there are more, each part is computed again for its gradient


class BatchImage(NamedTuple):
    """An image of a batch. Equal images have equal keys; `grid` is (t, h, w) in patches."""

    key: int
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class Segment:
    """Tokens that go through the model as one row: a shared prompt, or the rest of an episode after it."""

    ids: list[int]
    positions: torch.Tensor  # (3, len(ids)) position ids
    images: list[int]  # the keys of its images
    sampled: list[int] = field(default_factory=list)  # indices of the sampled tokens in the completion
    first: int = 0  # the index in `ids` at which the completion begins
    prompt: int = -1  # the number of the shared prompt before it; -1: none


class PromptLayer(CacheLayerMixin):
    """Keys and values of one layer: the first forward pass stores those of the prompts, the later ones read them."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: tuple[torch.Tensor, torch.Tensor] | None = None
        self.prompt_of_row: Any = None  # (rows,): the number of the prompt before each row

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.prompts = key_states, value_states

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple:
        if self.prompts is None:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        keys, values = (stored[self.prompt_of_row] for stored in self.prompts)
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.get_seq_length() + int(query_length), 0

    def get_seq_length(self) -> int:
        return 0 if self.prompts is None else self.prompts[0].shape[2]

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length


class EpisodeLogProbs:
    """Computes the log-probs of a batch (`collate`) under a model.

    Args:
        model: the model itself, without a wrapper such as DDP's.
        architecture: how models of its type encode images and compute position ids.
        image_id, pad_id: the ids of the image placeholder and of padding.
        temperature: the temperature at which the episodes were sampled.
        pixels: of every image in the batches, by key (`collect_pixels`).
    """

    def __init__(
        self,
        model: PreTrainedModel,
        architecture: Architecture,
        image_id: int,
        pad_id: int,
        temperature: float = 1.0,
        pixels: Mapping[int, Pixels] = NO_PIXELS,
    ) -> None:
        self.model, self.architecture, self.image_id, self.pad_id = model, architecture, image_id, pad_id
        self.temperature, self.pixels = temperature, pixels
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.backbone, self.head = base.model, base.get_output_embeddings()
        self.device = model.device

    def __call__(self, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (B, C), of the sampled tokens; 0 on all others."""
        images = self._read_images(batch)
        features = self._compute_features(images)
        checkpointed = any(getattr(module, "gradient_checkpointing", False) for module in self.model.modules())
        rows, prompts = self._build_segments(batch, images, shared=not checkpointed)
        cache = self._compute_prompts(prompts, features) if prompts else None
        width = batch["completion_ids"].shape[1]
        parts = list(_split_by_length([len(row.ids) for row in rows]))
        results = [self._compute_part([rows[k] for k in part], prompts, cache, features, width) for part in parts]
        order = torch.tensor([k for part in parts for k in part], device=self.device).argsort()
        logps, entropies = (torch.cat(values)[order] for values in zip(*results, strict=True))
        return logps, entropies

    def _read_images(self, batch: dict[str, Any]) -> list[list[BatchImage]]:
        """Each episode's images, in order."""
        rows = zip(batch["image_keys"].tolist(), batch["image_grids"].tolist(), strict=True)
        return [[BatchImage(key, tuple(grid)) for key, grid in zip(*row, strict=True) if any(grid)] for row in rows]

    def _compute_features(self, images: Sequence[Sequence[BatchImage]]) -> dict[int, Any]:
        """The vision features of each distinct image, by its key."""
        pixels = {image.key: self.pixels[image.key] for row in images for image in row}
        features: dict[int, Any] = {}
        for part in split_into_batches(pixels):
            features |= zip(
                part, self.architecture.encode_images(self.model, [pixels[key] for key in part]), strict=True
            )
        return features

    def _count_tokens(self, image: BatchImage) -> int:
        return math.prod(image.grid) // self.architecture.merge**2

    def _build_segments(
        self, batch: dict[str, Any], images: Sequence[list[BatchImage]], shared: bool
    ) -> tuple[list[Segment], list[Segment]]:
        """A segment for each episode, and the prompts that they share."""
        rows: list[Segment] = []
        prompts: dict[Any, tuple[int, Segment, int]] = {}
        for prompt, completion, sampled, shown in zip(*self._unpad(batch), images, strict=True):
            if not shared or len(prompt) < 2:
                whole, _ = self._build_segment(prompt + completion, shown, 0)
                rows.append(replace(whole, sampled=sampled, first=len(prompt)))
                continue
            before = self._count_prompt_images(prompt, shown)
            name = (tuple(prompt), *shown[:before])
            if name not in prompts:
                prompts[name] = len(prompts), *self._build_segment(prompt[:-1], shown[:before], 0)
            number, _, after = prompts[name]
            row, _ = self._build_segment(prompt[-1:] + completion, shown[before:], after)
            rows.append(replace(row, sampled=sampled, first=1, prompt=number))
        return rows, [row for _, row, _ in prompts.values()]

    def _build_segment(self, ids: list[int], images: Sequence[BatchImage], start: int) -> tuple[Segment, int]:
        """A segment whose first position is `start`, and the position after it."""
        positions, after = self.architecture.compute_positions(
            ids, self.image_id, [image.grid for image in images], start
        )
        return Segment(ids, positions, [image.key for image in images]), after

    def _unpad(self, batch: dict[str, Any]) -> list[list[list[int]]]:
        """Prompts and completions without padding, and the places of sampled tokens in completions."""
        unpadded = []
        for name in ("prompt", "completion"):
            masks, ids = batch[f"{name}_mask"].tolist(), batch[f"{name}_ids"].tolist()
            unpadded.append([[i for i, m in zip(*pair, strict=True) if m] for pair in zip(ids, masks, strict=True)])
        sampled = (batch["completion_mask"] * batch["tool_mask"]).tolist()
        return [*unpadded, [[place for place, bit in enumerate(row) if bit] for row in sampled]]

    def _count_prompt_images(self, prompt: list[int], images: Sequence[BatchImage]) -> int:
        """The number of an episode's images that are in its prompt."""
        left, count = prompt.count(self.image_id), 0
        while left > 0:
            left, count = left - self._count_tokens(images[count]), count + 1
        return count

    def _pad(self, rows: Sequence[Segment], features: dict[int, Any]) -> dict[str, Any]:
        """The model's keyword arguments for rows that are padded right, without mask and cache."""
        width = max(len(row.ids) for row in rows)
        ids = torch.tensor([row.ids + [self.pad_id] * (width - len(row.ids)) for row in rows], device=self.device)
        pad = torch.nn.functional.pad
        positions = torch.stack([pad(row.positions, (0, width - len(row.ids))) for row in rows], dim=1)
        inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions.to(self.device)}
        images = [features[key] for row in rows for key in row.images]
        if images:
            inputs |= self.architecture.build_feature_inputs(images)
            inputs["mm_token_type_ids"] = (ids == self.image_id).int()
        return inputs

    def _compute_prompts(self, prompts: Sequence[Segment], features: dict[int, Any]) -> Cache:
        """The keys and values of the prompts, after one forward pass."""
        cache = Cache(layers=[PromptLayer() for _ in range(self.model.config.get_text_config().num_hidden_layers)])
        inputs = self._pad(prompts, features)
        mask = _build_causal_mask(inputs["input_ids"])[None, None]
        self.backbone(
            **inputs, attention_mask=to_additive_mask(self.model, mask), past_key_values=cache, use_cache=False
        )
        return cache

    def _compute_part(
        self,
        rows: Sequence[Segment],
        prompts: Sequence[Segment],
        cache: Cache | None,
        features: dict[int, Any],
        width: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (rows, width), after one forward pass of rows of similar length."""
        inputs = self._pad(rows, features)
        ids = inputs["input_ids"]
        mask = _build_causal_mask(ids).expand(len(rows), 1, -1, -1)
        if cache is not None:
            prompt_of_row = torch.tensor([row.prompt for row in rows], device=self.device)
            lengths = torch.tensor([len(prompts[row.prompt].ids) if row.prompt >= 0 else 0 for row in rows])
            layers: list[Any] = cache.layers  # type: ignore[assignment]
            for layer in layers:
                layer.prompt_of_row = prompt_of_row
            columns = torch.arange(cache.get_seq_length(), device=self.device)
            before = columns[None, None, None, :] < lengths.to(self.device)[:, None, None, None]
            mask = torch.cat([before.expand(-1, -1, ids.shape[1], -1), mask], dim=-1)
        inputs |= {"attention_mask": to_additive_mask(self.model, mask), "past_key_values": cache, "use_cache": False}
        hidden = self.backbone(**inputs).last_hidden_state
        at = [(i, row.first + place, place) for i, row in enumerate(rows) for place in row.sampled]
        row, column, place = torch.tensor(at, dtype=torch.long, device=self.device).view(-1, 3).unbind(1)
        empty = torch.zeros(len(rows), width, device=self.device)
        logps, entropies = self._compute_token_log_probs(hidden[row, column - 1], ids[row, column])
        return empty.index_put((row, place), logps), empty.index_put((row, place), entropies)

    def _compute_token_log_probs(self, hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs of `ids`, entropies), each (tokens,), after the states `hidden` (tokens, width)."""

        def compute(hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logp = torch.log_softmax(self.head(hidden).float() / self.temperature, dim=-1)
            return logp.gather(1, ids[:, None])[:, 0], -(logp.exp() * logp).sum(dim=-1)

        most = max(1, MAX_LOGITS // self.model.config.get_text_config().vocab_size)
        if len(ids) <= most:
            return compute(hidden, ids)
        parts = zip(hidden.split(most), ids.split(most), strict=True)
        logps, entropies = zip(*(checkpoint(compute, *part, use_reentrant=False) for part in parts), strict=True)
        return torch.cat(logps), torch.cat(entropies)


def add_compute_argument(model: torch.nn.Module) -> None:
    """Makes `model(compute=function)` return `function()`.

    DDP needs one call of its wrapper for each batch to see every weight that was used; `function` may then make several
    forward passes.
    """
    forward = model.forward

    @wraps(forward)
    def call(*args: Any, compute: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        return forward(*args, **kwargs) if compute is None else compute()

    model.forward = call


def _build_causal_mask(ids: torch.Tensor) -> torch.Tensor:
    """(width, width) bool: the columns that each column of (rows, width) ids may attend to."""
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device).tril()


def _split_by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of the rows in each part: rows of similar length, the longest first."""
    part: list[int] = []
    held = 0
    for k in sorted(range(len(lengths)), key=lambda k: -lengths[k]):
        if part and held + lengths[k] < (1 - MAX_PADDING) * (len(part) + 1) * lengths[part[0]]:
            yield part
            part, held = [], 0
        part.append(k)
        held += lengths[k]
    yield part
