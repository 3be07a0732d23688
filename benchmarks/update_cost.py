"""One side of the update in `step_cost.py`: FLOPs, peak memory and seconds of the loss and its backward pass.

    PYTHONPATH=FOLDER_OF_A_PACKAGE python benchmarks/update_cost.py TARGET_MODULES       (prints one JSON object)

Works with the package of this commit and with that of `step_cost.BEFORE`, whichever `import viewbox` finds. The model
is a Qwen3-VL-4B with its real depth (36 layers, 24 in the tower) and every width, length, limit and LoRA rank divided
by 16, so the shares of attention, linear layers, pictures and activations are those of the real one. TARGET_MODULES
names the layers with adapters.
"""

import inspect
import json
import math
import sys
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from viewbox.engines.hf.architectures import Pixels, get_architecture
from viewbox.engines.hf.vision_cache import VisionCache
from viewbox.training.grpo import logprobs
from viewbox.training.grpo.logprobs import EpisodeLogProbs

SCALE = 16
VOCABULARY, IMAGE, PAD = 9496, 3, 0
GROUP, PROMPT, COMPLETION, SAMPLED, PICTURES = 8, 94, 218, 34, 5  # of one group; tokens of an episode; its pictures
GRID = (1, 12, 14)  # 42 image tokens, for 672


class LiveBytes(TorchDispatchMode):
    """Counts the bytes that operations make and that are alive. What a kernel uses inside is not seen.

    Args:
        given: tensors that were there before, and are not counted: weights, and the batch. What is freed of them is.
    """

    def __init__(self, given: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._storages: dict[int, Any] = {}
        for tensor in given:
            self._watch(tensor.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self._storages:
                self._watch(tensor.untyped_storage())
                self.live += tensor.untyped_storage().nbytes()
                self.peak = max(self.peak, self.live)
        return output

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()

        def free(_: Any) -> None:
            del self._storages[key]
            self.live -= size

        self._storages[key] = weakref.ref(storage, free)


class CostCounter(LiveBytes):
    """Counts floating-point operations, too."""

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        super().__init__(given)
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        output = super().__torch_dispatch__(func, types, args, kwargs)
        self.flops += count_flops(func, args, kwargs or {}, output)
        return output


def count_flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], output: Any) -> int:
    """Floating-point operations of matrix products and attention; all others count as none.

    Without a mask, a causal kernel skips half of all (query, key) pairs. torch has no formula for some kernels that it
    chooses by the processor, such as that of a CPU.

    Raises:
        NotImplementedError: an attention kernel that is not known here.
    """
    name = str(func.overloadpacket)
    if "attention" not in name:
        known = flop_registry.get(func.overloadpacket)
        return int(known(*args, **kwargs, out_val=output)) if known else 0
    if "scaled_dot_product" not in name:  # others have other shapes
        raise NotImplementedError(f"{name}: an attention kernel whose operations cannot be counted")
    given = dict(zip([argument.name for argument in func._schema.arguments], args, strict=False)) | dict(kwargs)
    shapes = [given[part].shape for part in ("query", "key", "value")]
    is_backward = name.endswith("_backward")
    flops = sdpa_backward_flop_count(args[0].shape, *shapes) if is_backward else sdpa_flop_count(*shapes)
    length = shapes[0][2]
    return int(flops * ((length + 1) / (2 * length) if given.get("is_causal") else 1))


def build_model(target_modules: str) -> Any:
    """Return the model in training mode, with gradient checkpointing and adapters."""
    text = {
        "vocab_size": VOCABULARY, "hidden_size": 160, "intermediate_size": 608, "num_hidden_layers": 36,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "mrope_section": [6, 5, 5], "rope_theta": 5e6},
        "bos_token_id": None, "eos_token_id": 1, "pad_token_id": PAD,
    }  # fmt: skip
    vision = {
        "depth": 24, "hidden_size": 64, "intermediate_size": 256, "num_heads": 4, "patch_size": 4,
        "out_hidden_size": 160, "num_position_embeddings": 256, "deepstack_visual_indexes": [5, 11, 17],
    }  # fmt: skip
    torch.manual_seed(0)
    config = Qwen3VLConfig(text_config=text, vision_config=vision, image_token_id=IMAGE)
    lora = LoraConfig(r=2, lora_alpha=4, target_modules=target_modules)
    model = get_peft_model(Qwen3VLForConditionalGeneration(config), lora)
    model.gradient_checkpointing_enable()
    return model.train()


def build_batch() -> tuple[dict[str, Any], dict[int, Pixels]]:
    """Return a group of episodes as tensors, and the pixels of its distinct pictures; the prompt's picture is
    shared."""
    torch.manual_seed(1)
    patches, image = math.prod(GRID), math.prod(GRID) // 4
    prompt, completion = torch.randint(4, 900, (1, PROMPT)), torch.randint(4, 900, (GROUP, COMPLETION))
    prompt[0, 5 : 5 + image] = IMAGE
    sampled = torch.zeros(GROUP, COMPLETION, dtype=torch.long)
    turn = COMPLETION // (PICTURES - 1)
    for start in range(0, turn * (PICTURES - 1), turn):  # a reply, then an observation with a picture
        sampled[:, start : start + SAMPLED // (PICTURES - 1)] = 1
        completion[:, start + turn - image : start + turn] = IMAGE
    keys = torch.arange(1, GROUP * PICTURES + 1).view(GROUP, PICTURES)
    keys[:, 0] = 1
    pixels = {int(key): _build_pixels(torch.randn(patches, 96), image) for key in keys.unique()}
    batch = {
        "prompt_ids": prompt.expand(GROUP, -1), "prompt_mask": torch.ones(GROUP, PROMPT, dtype=torch.long),
        "completion_ids": completion, "completion_mask": torch.ones_like(completion), "tool_mask": sampled,
        "image_keys": keys, "image_tokens": torch.full((GROUP, PICTURES), image),
        "num_images": [PICTURES] * GROUP, "image_grid_thw": torch.tensor([GRID] * (GROUP * PICTURES)),
        "pixel_values": torch.cat([pixels[key].inputs["pixel_values"] for key in keys.flatten().tolist()]),
    }  # fmt: skip
    return batch, pixels


def _build_pixels(values: torch.Tensor, tokens: int) -> Pixels:
    return Pixels({"pixel_values": values, "image_grid_thw": torch.tensor([GRID])}, tokens, "")


def measure(target_modules: str) -> dict[str, float]:
    """FLOPs, peak bytes and seconds of one update of a group. Weights, pixels and the batch are not counted."""
    logprobs.MAX_LOGITS //= SCALE**2
    now = "vision_cache" in inspect.signature(EpisodeLogProbs).parameters
    model = build_model(target_modules)
    batch, pixels = build_batch()
    architecture = get_architecture(model.config)
    settings: dict[str, Any] = {}
    kept = 0
    if now:
        from viewbox.training.grpo import packing

        packing.MAX_TOKENS //= SCALE
        cache = VisionCache(model, architecture)  # generation has left its features
        known = cache.get_features({f"{key:015x}": image for key, image in pixels.items()})
        kept = sum(architecture.count_feature_bytes(features) for features in known.values())
        settings = {"pixels": pixels, "vision_cache": cache}
    log_probs = EpisodeLogProbs(model, architecture, IMAGE, PAD, 1.0, **settings)
    started = time.perf_counter()
    given = [*model.parameters(), *model.buffers(), *(value for value in batch.values() if torch.is_tensor(value))]
    with CostCounter(given) as counter:
        logps, _ = log_probs(batch)
        (logps * torch.linspace(-1, 1, GROUP)[:, None]).sum().backward()
    return {"flops": counter.flops, "peak_bytes": counter.peak + kept, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(measure(sys.argv[1])))
