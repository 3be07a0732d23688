"""Operations of one decode step: of the bare model, with LoRA adapters beside it, and as columns of its weights.

    python benchmarks/decode_operations.py        (seconds; a CPU is enough: operations are counted, not timed)

A Qwen3-VL with the depth of the 4B model (36 layers) and tiny widths, two-byte weights, and adapters as in
configs/qwen3_vl_4b_lora.yaml. "before" is how a trainer generated until adapters were columns: adapters in float32
beside the weights, under autocast. Views are not counted. The last line is one JSON object.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from accelerate import Accelerator
from peft import get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, Qwen3VLConfig, Qwen3VLForConditionalGeneration

from viewbox.configs.schema import load
from viewbox.training.generation import use_for_generation
from viewbox.training.precision import build_lora_config

LAYERS, SEQUENCES, COLUMNS, VOCABULARY = 36, 8, 64, 512
BAR = 1.25  # operations with adapters / of the bare model: as columns of the weights they keep what they have learnt


class OperationCounter(TorchDispatchMode):
    """Counts operations that compute or copy."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view and func is not torch.ops.aten._unsafe_view.default
        return func(*args, **(kwargs or {}))


def build_model(layers: int = LAYERS) -> Qwen3VLForConditionalGeneration:
    """Return a model with random two-byte weights."""
    text = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": layers, "vocab_size": VOCABULARY}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "tie_word_embeddings": True}
    text |= {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 5e6}}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    config = Qwen3VLConfig(text_config=text, vision_config=vision | {"deepstack_visual_indexes": [0]})
    torch.manual_seed(0)
    return Qwen3VLForConditionalGeneration(config).to(torch.bfloat16).eval()


@torch.no_grad()
def count_decode_operations(model: Any) -> int:
    """Operations of the second forward of one token for `SEQUENCES` sequences."""
    config = getattr(model, "config", None)
    cache, first = DynamicCache(config=config.get_text_config() if config else None), COLUMNS
    positions = torch.arange(first + 2)[None, None].expand(3, SEQUENCES, -1)
    ids = torch.randint(10, VOCABULARY, (SEQUENCES, first + 2))
    counts = []
    for start, end in ((0, first), (first, first + 1), (first + 1, first + 2)):
        with OperationCounter() as counter:
            model(
                input_ids=ids[:, start:end],
                position_ids=positions[:, :, start:end],
                attention_mask=torch.ones(SEQUENCES, end, dtype=torch.long),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        counts.append(counter.count)
    return counts[-1]


def measure(accelerator: Accelerator, layers: int = LAYERS) -> Mapping[str, Any]:
    """Operations of the three ways to play."""
    bare = count_decode_operations(build_model(layers))
    adapted = get_peft_model(build_model(layers), build_lora_config(load("qwen3_vl_4b_lora").lora)).eval()
    model = accelerator.prepare_model(adapted)
    with accelerator.autocast():
        before = count_decode_operations(accelerator.unwrap_model(model))
    with use_for_generation(accelerator, model) as columns:
        after = count_decode_operations(columns)
    figures = {"layers": layers, "bare": bare, "before": before, "after": after}
    return figures | {"ratio": after / bare, "bar": BAR, "met": after <= BAR * bare}


if __name__ == "__main__":
    torch.set_num_threads(1)
    figures = measure(Accelerator(cpu=True, mixed_precision="bf16"))
    for name in ("bare", "before", "after"):
        print(f"{name:8s}{figures[name]:6d} operations a decode step")
    print(json.dumps(figures))
    sys.exit(not figures["met"])
