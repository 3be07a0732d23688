"""The memory of generation: prefills, a decode step and sampling run on shapes, with the engine's own code."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...configs.sections import SamplingParams
from ...engines.hf.architectures import get_architecture
from ...engines.hf.kv_cache import GROWTH, KVCache
from ...engines.hf.model_runner import ModelRunner, use_eval_mode
from ...engines.hf.sampler import Sampler
from ...engines.hf.scheduler import Stats
from ...engines.hf.vision_cache import MAX_PATCHES
from .live_bytes import LiveBytes
from .pictures import build_features, build_pixels
from .workload import Grid, Workload, count_image_tokens


@dataclass(frozen=True)
class Load:
    """What the engine does at once.

    Args:
        slots: episodes in the cache.
        prompts: distinct prompts among them.
        refilled: whether new prompts come while others have become long, because there are more episodes than slots.
        prefill_tokens: tokens of one prefill, at most.
        sampling: temperature and filters.
    """

    slots: int
    prompts: int
    refilled: bool
    prefill_tokens: int
    sampling: SamplingParams


@torch.no_grad()
def measure_generation(model: Any, workload: Workload, load: Load, *, counter: LiveBytes) -> dict[str, Counter[str]]:
    """Runs the first prefill, the last prefill of results, and the last decode step.

    Args:
        model: of fake tensors, as it plays.
        workload: the longest episode.
        load: what the engine does at once.
        counter: counts inside this call; it is entered already.

    Returns:
        For each phase, the bytes of each part at the moment of its peak.
    """
    longest = workload.prompt + workload.completion
    with use_eval_mode(model):
        rows = max(1, min(load.prompts, load.prefill_tokens // workload.prompt))
        columns = longest + 1 if load.refilled else min(longest, workload.prompt + GROWTH) + 1
        runner = _build_runner(model, load.slots, columns, counter)
        _prefill(runner, rows, workload.prompt, workload.prompt, workload.grids, counter, "prompts")
        del runner
        runner = _build_runner(model, load.slots, longest + 1, counter)
        if workload.completion > workload.sampled:
            rows = max(1, min(load.slots, load.prefill_tokens // workload.result))
            _prefill(runner, rows, workload.result, longest, workload.result_grids[:1], counter, "results")
        logits = _prefill(runner, load.slots, 1, longest, (), counter, "decode step")
        seen = torch.zeros(logits.shape, dtype=torch.bool) if load.sampling.repetition_penalty != 1.0 else None
        counter.part = counter.phase = "sampling"
        Sampler(load.sampling).sample(logits, torch.zeros(load.slots), [1], seen)
    return counter.peaks


def _build_runner(model: Any, slots: int, columns: int, counter: LiveBytes) -> ModelRunner:
    """A runner whose cache has so many columns."""
    text = model.config.get_text_config()
    cache = KVCache(text.num_hidden_layers, slots)
    cache.index.capacity = columns
    weight = next(model.parameters())
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    counter.part = "keys and values"
    states = weight.new_zeros((1, text.num_key_value_heads, 1, head), dtype=dtype)
    layers: list[Any] = cache.layers  # type: ignore[assignment]
    for layer in layers:
        layer.lazy_initialization(states, states)
    return ModelRunner(model, None, None, cache, Stats())  # type: ignore[arg-type]


def _prefill(
    runner: ModelRunner, rows: int, width: int, num_read: int, grids: Sequence[Grid], counter: LiveBytes, phase: str
) -> torch.Tensor:
    """The logits after `width` new tokens of each of `rows` sequences, which then have `num_read`."""
    model, architecture = runner.model, get_architecture(runner.model.config)
    counter.part, counter.phase = ("prefill" if width > 1 else "decode step"), phase
    ids = torch.ones(rows, width, dtype=torch.long)
    vision: dict[str, Any] = {}
    if grids:
        dtype = _encode_images(model, rows, grids, counter, f"vision tower, {phase}")
        counter.part, counter.phase = "image features", phase
        pictures = [build_pixels(grid, model) for _ in range(rows) for grid in grids]
        features = [build_features(pixels, model, dtype) for pixels in pictures]
        ids[:, -sum(map(count_image_tokens, grids)) :] = model.config.image_token_id
        vision = architecture.build_feature_inputs(features)
        vision["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
        del pictures, features
        counter.part = "prefill"
    positions = torch.zeros(3, rows, width, dtype=torch.long)
    return runner.forward(range(rows), [num_read - width] * rows, num_read, ids, positions, [width] * rows, vision)


def _encode_images(model: Any, rows: int, grids: Sequence[Grid], counter: LiveBytes, phase: str) -> torch.dtype:
    """Runs the vision tower on one image of each of `grids`, and counts it as that of `rows` sequences.

    Returns:
        The type of the features.
    """
    counter.part, counter.phase = "vision tower", phase
    pixels = [build_pixels(grid, model) for grid in grids]
    features = get_architecture(model.config).encode_images(model, pixels)
    patches = sum(len(image.values) for image in pixels)
    dtype = features[0][0].dtype
    del features
    kept, peak = counter.parts["vision tower"], counter.peaks[phase]  # copies of weights, which autocast keeps
    count = max(1, min(rows, MAX_PATCHES // patches))
    peak["vision tower"] = kept + (peak["vision tower"] - kept) * count
    return dtype
