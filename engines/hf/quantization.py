"""Weights of 4 bits beside LoRA adapters (QLoRA, Dettmers et al. 2023, arXiv 2305.14314), with bitsandbytes.

Only the linear layers of the language model are quantized: NF4 in blocks of 64, whose scales are quantized again. Such
weights are never trained, and merging adapters into them would round to 4 bits. So the model generates with its
adapters beside them (`adapters.py`), and what is saved is a copy in float32.

Used of peft and bitsandbytes, and checked by `tests/engines/hf/test_quantization.py`:

| name | what is relied on |
| --- | --- |
| `Linear4bit.support_avx512bf16_for_cpu` | false: the first forward on a CPU leaves the weights as they are |
| `LoraLayer.get_delta_weight` | what an adapter adds to the weight of its layer |
| `PeftModel.unload` | the base model, without adapters |
"""

import sys
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from ...errors import ConfigError

if TYPE_CHECKING:
    import torch
    from transformers import BitsAndBytesConfig, PreTrainedModel

Quantization = Literal["4bit"]
KEY = "lora.quantize"


def check_bitsandbytes(quantize: Quantization) -> None:
    if find_spec("bitsandbytes") is None:
        problem = "needs the package bitsandbytes; install it with pip install 'viewbox[qlora]'"
        raise ConfigError(f"{KEY} = {quantize}: {problem}", key=KEY)


def list_kept(model: Any) -> list[str]:
    """Return the names of the parts that are not quantized, also of a PEFT model: a frozen tower runs once for each
    picture, and the output layer may be the embedding."""
    from .model_parts import get_base_model, list_vision_parts

    parts = [*list_vision_parts(get_base_model(model)), model.get_output_embeddings()]
    return [name for name, module in model.named_modules() if any(module is part for part in parts)]


def build_quantization_config(quantize: Quantization, dtype: "torch.dtype", config: Any) -> "BitsAndBytesConfig":
    """Return how transformers loads a model of a config, whose 4-bit layers compute in `dtype`. Raise `ConfigError`."""
    import torch
    from transformers import AutoModelForImageTextToText, BitsAndBytesConfig

    check_bitsandbytes(quantize)
    find_bitsandbytes()
    with torch.device("meta"):
        skipped = list_kept(AutoModelForImageTextToText.from_config(config))
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
        llm_int8_skip_modules=skipped,
    )


def keep_weights(model: Any) -> Any:
    """Return the model. On some CPUs, a 4-bit layer would round the scales of its weights when it first generates."""
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    return model


def is_quantized(model: object) -> bool:
    return getattr(model, "is_loaded_in_4bit", False)


def merge_adapters(model: Any) -> "PreTrainedModel":
    """Return the model of a peft model with its adapters added, in float32 and in main memory: in two bytes, a small
    change would be rounded away. Weights of 4 bits are dequantized first. The peft model cannot be used afterward."""
    from peft.tuners.lora import LoraLayer

    layers = {name: layer for name, layer in model.get_base_model().named_modules() if isinstance(layer, LoraLayer)}
    merged = model.unload()
    if is_quantized(merged):
        merged = merged.dequantize(dtype=merged.dtype)
    merged = merged.cpu().float()
    for name, layer in layers.items():
        weight = merged.get_submodule(name).weight
        for adapter in layer.active_adapters:
            weight.data += layer.get_delta_weight(adapter).float().to(weight.device)
    return merged


# It asks the hub for code when it is imported, and peft and TRL import it wherever it is installed. From
# `hide_bitsandbytes` on they find none while they are imported, and peft none for its layers until `find_bitsandbytes`.
NAME = "bitsandbytes"


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: object = None) -> ModuleSpec | None:
        if name not in ("peft", "trl.generation.vllm_generation") or NAME in sys.modules:
            return None
        spec: Any = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader.exec_module = partial(_execute_without, spec.loader.exec_module)
        return spec  # type: ignore[no-any-return]


def _execute_without(execute: Any, module: Any) -> None:
    from transformers.utils import is_bitsandbytes_available

    is_bitsandbytes_available.cache_clear()
    sys.modules[NAME] = None  # type: ignore[assignment]
    try:
        execute(module)
        if module.__name__ == "peft":
            module.import_utils.is_bnb_4bit_available()  # remembers that there is none
    finally:
        del sys.modules[NAME]
        is_bitsandbytes_available.cache_clear()


def hide_bitsandbytes() -> None:
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


def find_bitsandbytes() -> None:
    """Let peft look for bitsandbytes again."""
    from peft import import_utils

    import_utils.is_bnb_available.cache_clear()
    import_utils.is_bnb_4bit_available.cache_clear()
