"""Log-probs of a batch of episodes, with the prompts and images they share computed once.

Episodes of a group have the same prompt. All of it but its last token goes through the model once, in one packed row
with the rest of each episode (`packing.py`), gradients included (the idea of Prefix Grouper, arXiv 2506.05433; here
without a cache, so it works under gradient checkpointing). Every distinct image goes through the vision tower once.
Only sampled tokens go through the output layer. Log-probs and gradients equal those of a plain forward pass of each
episode alone (tested).

Attention is causal, without a mask. The columns of a part are [shared prompt | rest of an episode | padding] for each
of its rows: padding is on the right, where no token looks. So the fast kernels of every device apply (`is_causal`),
and keys and values are not repeated for grouped heads. The queries of a prompt are computed again with each row; this
costs P² / 2 pairs of tokens a row, less than a mask would (it computes the pairs that it hides).

Where a layer sees less or more (a window, a chunk, an image all of itself), the packed row has a mask for each kind of
layer instead. A layer that carries a state cannot read two rests after one prompt: episodes are then rows of their own,
padded right, where the model's own masks are right. A model without such a backbone gets each episode alone, as pixels.

Used of transformers and torch, and checked by `tests/training/grpo/test_logprobs.py` and `test_family_losses.py`:

| name | what is relied on |
| --- | --- |
| `AttentionInterface.register` | attention functions by the name in `config._attn_implementation` |
| `forward(layout=…)` | unknown arguments of a model reach its attention function, also when it is computed again |
| `aten._scaled_dot_product_flash_attention_for_cpu` | private, with `…_backward`: says log-sums, takes them back |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import partial, wraps
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, PretrainedConfig, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_outputs import BaseModelOutputWithPast

from ...engines.hf.architectures import Architecture, Pixels
from ...engines.hf.chat_tokens import ChatTokens
from ...engines.hf.model_parts import get_base_model
from ...engines.hf.model_runner import to_additive_mask
from ...engines.hf.vision_cache import VisionCache, split_into_batches
from .batch import get_sampled, select, split_by_tokens
from .packing import Layout, Pack, PromptGroup, TokenSegment, pad_into_packs, split_into_packs

LARGEST_LOG_RATIO = 20.0  # keeps exp finite
MAX_LOGITS = 2**26  # logits held at once; if there are more, each part is computed again for its gradient


class BatchImage(NamedTuple):
    """An image of a batch, and its tokens. Equal images have equal keys."""

    key: int
    tokens: int


class EpisodeLogProbs:
    """Computes the log-probs of a batch (`collate`) under a model.

    Args:
        model: the model itself, without a wrapper such as DDP's.
        pixels: of every image in the batches, by key (`collect_pixels`).
        vision_cache: the engine's features of these images, for a frozen tower; None: they are computed here.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        architecture: Architecture,
        image_id: int,
        pad_id: int,
        temperature: float = 1.0,
        pixels: Mapping[int, Pixels] | None = None,
        vision_cache: VisionCache | None = None,
    ) -> None:
        self.model, self.architecture, self.image_id, self.pad_id = model, architecture, image_id, pad_id
        self.temperature, self.pixels, self.vision_cache = temperature, pixels or {}, vision_cache
        self.device = model.device
        if not architecture.has_backbone:
            return
        base = get_base_model(model)
        self.backbone, self.head = base.model, build_head(base)
        architecture.learn_masks(model)
        use_grouped_attention(base.get_decoder().config)

    def __call__(self, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (B, C), of the sampled tokens; 0 on all others."""
        images = self._read_images(batch)
        shown: Mapping[int, Any] = self.pixels
        if self.architecture.has_backbone:
            shown = self._compute_features(images)
        width = batch["completion_ids"].shape[1]
        packs = list(self._split(self._build_groups(batch, images)))
        results = [self._compute_pack(pack, shown, width) for pack in packs]
        order = [segment.episode for pack in packs for segment in pack.segments if segment.episode >= 0]
        places = torch.tensor(order, device=self.device).argsort()
        logps, entropies = (torch.cat(values)[places] for values in zip(*results, strict=True))
        return logps, entropies

    def _split(self, groups: list[PromptGroup]) -> Iterator[Pack]:
        if self.architecture.shares_prompts:
            return split_into_packs(groups, self.device, masked=not self.architecture.masks.is_causal)
        rows = [row for group in groups for row in group.rows]
        return pad_into_packs(rows, None if self.architecture.has_backbone else 1)

    def _read_images(self, batch: dict[str, Any]) -> list[list[BatchImage]]:
        """Return each episode's images, in order."""
        rows = zip(batch["image_keys"].tolist(), batch["image_tokens"].tolist(), strict=True)
        return [[BatchImage(*image) for image in zip(*row, strict=True) if image[1]] for row in rows]

    def _compute_features(self, images: Sequence[Sequence[BatchImage]]) -> dict[int, Any]:
        """Return the vision features of each distinct image, by its key."""
        pixels = {image.key: self.pixels[image.key] for row in images for image in row}
        if self.vision_cache is not None:
            return self.vision_cache.get_features(pixels)
        features: dict[int, Any] = {}
        for batch in split_into_batches(pixels):
            features |= zip(
                batch, self.architecture.encode_images(self.model, [pixels[key] for key in batch]), strict=True
            )
        return features

    def _build_groups(self, batch: dict[str, Any], images: Sequence[list[BatchImage]]) -> list[PromptGroup]:
        """Return the episodes, each with those that have the same prompt and the same images in it."""
        groups: dict[Any, tuple[PromptGroup, int]] = {}
        for number, (prompt, completion, sampled, shown) in enumerate(zip(*self._unpad(batch), images, strict=True)):
            before = self._count_prompt_images(prompt, shown)
            name = (tuple(prompt), *shown[:before])
            cut = len(prompt) - 1 if self.architecture.shares_prompts and prompt[-1:] != [self.image_id] else 0
            if name not in groups:
                shared, after = self._build_segment(prompt[:cut], shown[:before], 0) if cut > 0 else (None, 0)
                groups[name] = PromptGroup(shared, []), after
            group, after = groups[name]
            rest, _ = self._build_segment(prompt[cut:] + completion, shown[before if cut else 0 :], after)
            rest = replace(rest, sampled=sampled, start=cut, first=len(prompt) - cut, episode=number)
            group.rows.append(rest)
        return [group for group, _ in groups.values()]

    def _build_segment(self, ids: list[int], images: Sequence[BatchImage], start: int) -> tuple[TokenSegment, int]:
        """Return a segment whose first position is `start`, and the position after it."""
        pixels = [self.pixels[image.key] for image in images if self.architecture.has_backbone]
        positions, after = self.architecture.compute_positions(ids, pixels, start)
        return TokenSegment(ids, positions, [image.key for image in images]), after

    def _unpad(self, batch: dict[str, Any]) -> list[list[list[int]]]:
        """Prompts and completions without padding, and the places of sampled tokens in completions."""
        unpadded = []
        for name in ("prompt", "completion"):
            masks, ids = batch[f"{name}_mask"].tolist(), batch[f"{name}_ids"].tolist()
            unpadded.append([[i for i, m in zip(*pair, strict=True) if m] for pair in zip(ids, masks, strict=True)])
        sampled = (batch["completion_mask"] * batch["tool_mask"]).tolist()
        return [*unpadded, [[place for place, bit in enumerate(row) if bit] for row in sampled]]

    def _count_prompt_images(self, prompt: list[int], images: Sequence[BatchImage]) -> int:
        """Return the number of an episode's images that are in its prompt."""
        left, count = prompt.count(self.image_id), 0
        while left > 0:
            left, count = left - images[count].tokens, count + 1
        return count

    def _compute_pack(self, pack: Pack, shown: Mapping[int, Any], width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (episodes of the pack, width), after one forward pass.
        `shown` are the features of each image, or the pixels of a model without a backbone."""
        flat = torch.full((pack.shape[0] * pack.shape[1],), self.pad_id)
        positions = torch.arange(pack.shape[1]).repeat(self.architecture.axes, pack.shape[0])
        for segment, start in zip(pack.segments, pack.starts, strict=True):
            flat[start : start + len(segment.ids)] = torch.tensor(segment.ids)
            positions[:, start : start + len(segment.ids)] = segment.positions
        ids, positions = flat.to(self.device), positions.view(-1, *pack.shape).to(self.device)
        images = [shown[key] for segment in pack.segments for key in segment.images]
        states = self._run_backbone(pack, ids.view(pack.shape), positions, images).flatten(0, 1)
        episodes = [(s, start) for s, start in zip(pack.segments, pack.starts, strict=True) if s.episode >= 0]
        at = [(i, start + s.first + k, k) for i, (s, start) in enumerate(episodes) for k in s.sampled]
        row, token, place = torch.tensor(at, dtype=torch.long, device=self.device).view(-1, 3).unbind(1)
        empty = torch.zeros(len(episodes), width, device=self.device)
        logps, entropies = self._compute_token_log_probs(states[token - 1], ids[token])
        return empty.index_put((row, place), logps), empty.index_put((row, place), entropies)

    def _run_backbone(self, pack: Pack, ids: torch.Tensor, positions: torch.Tensor, images: list[Any]) -> torch.Tensor:
        """(rows, tokens, width): the states from which the head computes logits; the logits themselves of a model
        without a backbone."""
        architecture = self.architecture
        inputs: dict[str, Any] = {"input_ids": ids, "use_cache": False}
        inputs |= architecture.build_token_types(ids) if images else {}
        if not architecture.has_backbone:
            vision = architecture.build_vision_inputs(images, self.device, self.model.dtype)
            logits: torch.Tensor = self.model(**inputs, **vision).logits
            return logits
        inputs |= architecture.build_feature_inputs(images) if images else {}
        if architecture.masks.is_causal:
            inputs["layout"], inputs["attention_mask"] = pack.layout, torch.ones_like(ids)  # no mask is made of ones
        elif architecture.shares_prompts:
            inputs["attention_mask"] = to_additive_mask(self.model, self._build_masks(pack, ids[0]))
        states: torch.Tensor = self.backbone(
            **inputs, position_ids=architecture.to_position_ids(positions)
        ).last_hidden_state
        return states

    def _build_masks(self, pack: Pack, ids: torch.Tensor) -> Any:
        """Return the masks of a packed row: each token reads its own segment, and the prompt before it."""
        tokens: list[tuple[int, int, int]] = []
        prompt = -1
        for number, segment in enumerate(pack.segments):
            prompt = number if segment.episode < 0 else prompt
            before = prompt if segment.start else -1
            tokens += [(number, before, segment.start + place) for place in range(len(segment.ids))]
        owners, prompts, index = torch.tensor(tokens, device=self.device).unbind(1)
        return self.architecture.masks.build_packed(owners, prompts, index, ids)

    def _compute_token_log_probs(self, hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs of `ids`, entropies), each (tokens,), after the states `hidden` (tokens, width)."""

        def compute(hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits = self.head(hidden) if self.architecture.has_backbone else hidden
            logp = torch.log_softmax(logits.float() / self.temperature, dim=-1)
            return logp.gather(1, ids[:, None])[:, 0], -(logp.exp() * logp).sum(dim=-1)

        most = max(1, MAX_LOGITS // self.model.config.get_text_config().vocab_size)
        if len(ids) <= most:
            return compute(hidden, ids)
        parts = zip(torch.split(hidden, most), torch.split(ids, most), strict=True)
        logps, entropies = zip(*(checkpoint(compute, *part, use_reentrant=False) for part in parts), strict=True)
        return torch.cat(logps), torch.cat(entropies)


def build_head(model: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function from hidden states (tokens, width) to logits, as the model's own forward computes them.
    Some models scale or cap what their output layer gives. So their forward runs, with the states in place of those of
    `model.model`."""
    shell = copy(model)
    shell.__dict__.pop("forward", None)  # the trainer wraps that of the model
    shell._modules = {**model._modules, "model": _GivenStates(model.model)}

    def compute(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = shell(inputs_embeds=hidden[None]).logits[0]
        return logits

    return compute


class _GivenStates(torch.nn.Module):
    """Stands for a model's backbone: returns the states it is given.
    Some models give the ids by position; some read something of their backbone (Chameleon: which tokens are images)."""

    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.__dict__["backbone"] = backbone  # not as a part, which a walk through the parts would meet twice

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["backbone"], name)

    def forward(self, *args: object, inputs_embeds: torch.Tensor, **kwargs: object) -> Any:
        return _States(last_hidden_state=inputs_embeds)


class _States(BaseModelOutputWithPast):
    """An output of a backbone, of which every other field is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


def add_compute_argument(model: torch.nn.Module) -> None:
    """Make `model(compute=function)` return `function()`. DDP needs one call of its wrapper for each batch to see every
    weight that was used; `function` may then make several forward passes."""
    forward = model.forward

    @wraps(forward)
    def call(*args: object, compute: Callable[[], Any] | None = None, **kwargs: object) -> Any:
        return forward(*args, **kwargs) if compute is None else compute()

    model.forward = call


_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
GROUPED = {"sdpa": "viewbox_sdpa", "eager": "viewbox_eager"}  # the grouped attention for each implementation


def use_grouped_attention(config: PretrainedConfig) -> None:
    """Let a language model accept `layout`; without this argument it computes what it did before."""
    config._attn_implementation = GROUPED.get(config._attn_implementation or "sdpa", config._attn_implementation)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    layout: Layout | None = None,
    plain: bool = False,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """Return an attention function of transformers: (1, heads, tokens, size) states to (1, tokens, heads, size).
    `layout`: of a packed row; None: `attention_mask` says which tokens are seen. `plain`: use matrix products and a
    softmax instead of fused kernels ("eager")."""
    with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
        if layout is None:
            states = (module, query, key, value, attention_mask)
            plain_output: torch.Tensor = sdpa_attention_forward(*states, dropout=dropout, scaling=scaling, **kwargs)[0]
            return plain_output, None
        if not (plain or dropout) and _can_read_both(query, value):
            return _ReadBoth.apply(query, key, value, scaling, layout.reads).transpose(1, 2), None
        if key.shape[1] != query.shape[1] and not _can_group_heads(query):
            key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
        outputs: list[torch.Tensor] = []
        for q, k, v in zip(*(_take(states[0], layout) for states in (query, key, value)), strict=True):
            settings = {"dropout_p": dropout, "scale": scaling, "enable_gqa": k.shape[1] != q.shape[1]}
            output = scaled_dot_product_attention(q, k, v, is_causal=True, **settings)
            outputs.append(output.transpose(1, 2).flatten(0, 1))
        return torch.cat(outputs)[layout.kept][None], None


class _ReadBoth(torch.autograd.Function):
    """Attention of a packed row on a CPU, in which a prompt is read by all rests of its group at once.
    A softmax over two sets of keys is that over each, weighted by its share of the sum of exponentials. The backward
    kernel makes probabilities of scores and the logarithm of that sum, so it is given that of both sets, and exact."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, scale: float | None, reads: Any) -> torch.Tensor:
        output, total = torch.empty_like(query), torch.empty_like(query[..., 0])
        for span, read in reads:
            states = query[:, :, span], key[:, :, read], value[:, :, read]
            attended, sums = _flash(*states, 0.0, span == read, scale=scale)
            if span != read:
                after = torch.logaddexp(total[:, :, span], sums)
                attended, sums = output[:, :, span].lerp(attended, (sums - after).exp()[..., None]), after
            output[:, :, span], total[:, :, span] = attended, sums
        ctx.save_for_backward(query, key, value, output, total)
        ctx.scale, ctx.reads = scale, reads
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, value, output, total = ctx.saved_tensors
        sums = [torch.zeros_like(states) for states in (query, key, value)]
        for span, read in ctx.reads:
            states = query[:, :, span], key[:, :, read], value[:, :, read], output[:, :, span], total[:, :, span]
            parts = _flash_backward(gradient[:, :, span], *states, 0.0, span == read, scale=ctx.scale)
            for whole, share, place in zip(sums, parts, (span, read, read), strict=True):
                whole[:, :, place] += share
        return *sums, None, None


def _take(states: torch.Tensor, layout: Layout) -> Iterator[torch.Tensor]:
    """Yield (rows, heads, columns, size) of each part: each row's prompt and rest, of (heads, tokens, size) states."""
    segments = torch.split(states, layout.lengths, 1)
    sizes = [rows * width for rows, width in (part.shape for part in layout.parts)]
    for part, rest in zip(layout.parts, torch.split(states[:, layout.tokens], sizes, 1), strict=True):
        rest = rest.view(len(rest), *part.shape, -1)
        if part.prompt is not None:
            rest = torch.cat([segments[part.prompt][:, None].expand(-1, len(rest[0]), -1, -1), rest], dim=2)
        yield rest.transpose(0, 1)


def _can_read_both(query: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether the kernel returns the logarithm of its sums, with a gradient: only the CPU's does."""
    same = query.dtype == value.dtype and query.shape[-1] == value.shape[-1]
    return query.device.type == "cpu" and same and query.dtype.itemsize > 2


def _can_group_heads(query: torch.Tensor) -> bool:
    """Return whether a fused kernel takes fewer heads of keys than of queries. On a GPU, only in two bytes."""
    device = query.device.type
    return device == "cpu" or query.element_size() == 2 or torch.is_autocast_enabled(device)


for _name, _plain in (("viewbox_sdpa", False), ("viewbox_eager", True)):
    AttentionInterface.register(_name, partial(attend, plain=_plain))
    AttentionMaskInterface.register(_name, sdpa_mask)


class BatchLogProbs:
    """Computes log-probs in the precision of the loss: in it, before the first update of a batch, of the reference.

    Truncated importance sampling: engine and trainer use different kernels and precisions, so their probabilities of a
    token differ slightly. If a batch serves several updates, the clipped loss starts from the trainer's own log-probs
    before the first one (`old`), and each token's loss is weighted by min(exp(old − engine), cap). The cap bounds the
    variance (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"; TRL does the
    same for vLLM). If a batch serves one update only, no ratio is applied and the loss's own forward pass is the only
    one.

    Args:
        vision_cache: the engine's features; they serve the loss if the tower is frozen.
        micro_batch_tokens: the maximum number of tokens in a part of a batch; None: any.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        tokens: ChatTokens,
        vision_cache: VisionCache,
        temperature: float,
        micro_batch_tokens: int | None,
    ) -> None:
        self.accelerator, self.tokens, self.vision_cache = accelerator, tokens, vision_cache
        self.temperature, self.micro_batch_tokens = temperature, micro_batch_tokens
        self.pixels: Mapping[int, Pixels] = {}  # of every image in the current batch, on the host
        self.latest = torch.empty(0)  # the log-probs that `compute` returned last

    def compute(
        self, model: Any, batch: dict[str, Any], learned: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (B, C), of a batch under `model`, with gradient. `learned`: (B,) whether an
        episode goes through the model. The others have the log-probs from which a ratio starts, and minus that of a
        token for its entropy, as which it counts in the mean; None: all do."""
        if learned is not None and not learned.all():
            start = batch.get("old_per_token_logps", batch["sampling_per_token_logps"]) * get_sampled(batch)
            rows = learned.nonzero()[:, 0]
            computed = self.compute(model, select(batch, rows.tolist()))
            logps, entropies = (a.index_copy(0, rows, b) for a, b in zip((start, -start), computed, strict=True))
            self.latest = logps.detach()
            return logps, entropies
        unwrapped = self.accelerator.unwrap_model(model)
        cached = self.vision_cache.frozen and unwrapped is self.vision_cache.model
        if cached:
            self.vision_cache.refresh()
        log_probs = EpisodeLogProbs(
            unwrapped,
            self.tokens.architecture,
            self.tokens.image_id,
            self.tokens.pad_id,
            self.temperature,
            self.pixels,
            self.vision_cache if cached else None,
        )
        with self.accelerator.autocast():
            logps, entropies = log_probs(batch) if model is unwrapped else model(compute=partial(log_probs, batch))
        self.latest = logps.detach()
        return logps, entropies

    def compute_old(
        self, model: object, batch: dict[str, Any], size: int, cap: float | None, loss_type: str
    ) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """For a batch that serves several updates: what it needs from before the first one, and figures.

        Args:
            batch: with the engine's log-probs and with advantages.
            cap: the largest importance weight of a token; None: the engine's log-probs are taken as they are.

        Returns:
            The entries of the batch: `old_per_token_logps` (B, C), and importance-weighted advantages.
        """
        engine, sampled = batch["sampling_per_token_logps"], get_sampled(batch)
        if cap is None:
            return {"old_per_token_logps": engine}, {}  # they equal those of a full forward pass (tested)
        old = self.compute_in_parts(model, batch, size)
        ratio = compute_importance_ratio(old, engine, sampled)
        summary = summarize_ratio(ratio, sampled, self.accelerator)
        weighted = weight_advantages(batch["advantages"], ratio, cap, loss_type)
        figures = {f"sampling/importance_ratio/{name}": value for name, value in summary.items()}
        return {"old_per_token_logps": old, **weighted}, figures

    def compute_reference(self, model: object, reference: object, batch: dict[str, Any], size: int) -> torch.Tensor:
        """(B, C) log-probs under the reference model; None: under the policy without its adapters."""
        if reference is not None:
            return self.compute_in_parts(reference, batch, size)
        with self.accelerator.unwrap_model(model).disable_adapter():
            return self.compute_in_parts(model, batch, size)

    @torch.no_grad()
    def compute_in_parts(self, model: object, batch: dict[str, Any], size: int) -> torch.Tensor:
        """(B, C) log-probs of a whole batch, computed in parts: of `micro_batch_tokens`, or of `size` episodes."""
        count = len(batch["prompt_ids"])
        parts = [list(range(count))[start : start + size] for start in range(0, count, size)]
        if self.micro_batch_tokens is not None:
            parts = split_by_tokens(batch, self.micro_batch_tokens, share=self.tokens.architecture.shares_prompts)
        unwrapped = self.accelerator.unwrap_model(model)
        logps = torch.cat([self.compute(unwrapped, select(batch, part))[0] for part in parts])
        return logps[torch.tensor([k for part in parts for k in part], device=logps.device).argsort()]


def compute_importance_ratio(old: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """exp(old − engine) where `mask` is 1, and 1 elsewhere; all (B, T), natural logs at the sampling temperature.

    >>> compute_importance_ratio(torch.tensor([[0.0, -1.0]]), torch.tensor([[-0.5, -9.0]]), torch.tensor([[1, 0]]))
    tensor([[1.6487, 1.0000]])
    """
    return torch.where(mask.bool(), old - engine, 0.0).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def weight_advantages(
    advantages: torch.Tensor, ratio: torch.Tensor, cap: float, loss_type: str
) -> dict[str, torch.Tensor]:
    """Return the entries of a batch that make TRL 1.16's loss weight every token by min(ratio, cap).
    The losses are linear in the advantage and accept advantages of (B, T). The exception is `vespo`, which reads the
    ratio from an entry of its own.

    >>> weight_advantages(torch.tensor([-2.0]), torch.tensor([[0.5, 3.0]]), 2.0, "dapo")
    {'advantages': tensor([[-1., -4.]])}
    """
    weights = ratio.clamp(max=cap)
    if loss_type == "vespo":
        return {"advantages": advantages, "importance_sampling_ratio": weights}
    return {"advantages": advantages.view(len(advantages), -1) * weights}


def summarize_ratio(ratio: torch.Tensor, mask: torch.Tensor, accelerator: Accelerator) -> dict[str, float]:
    """Mean, min and max over all processes of the ratios where `mask` is 1, before the cap; 1 if it is 1 nowhere."""
    values = ratio[mask.bool()]
    if not len(values):
        values = ratio.new_ones(1)
    mean, least, most = accelerator.gather(torch.stack([values.mean(), values.min(), values.max()])).view(-1, 3).T
    return {"mean": mean.mean().item(), "min": least.min().item(), "max": most.max().item()}
