"""Tiny random models of the released families: own processor class, special tokens and chat template, own layers.

    model, processor = build_family("gemma3")
    save_family("gemma3", folder)  # what `model.name: folder` of a run takes

A family is a function that builds it (or a dict of sizes) and a row of `FAMILIES`.
"""

from pathlib import Path
from typing import Any

from .parts import Family
from .table import FAMILIES

__all__ = ["FAMILIES", "Family", "build_family", "save_family"]


def build_family(name: str, seed: int = 0) -> tuple[Any, Any]:
    """Return a new model (float32, in eval mode) and its processor."""
    model, processor = FAMILIES[name].build(seed)
    tokenizer, settings = processor.tokenizer, model.generation_config
    settings.eos_token_id = tokenizer.convert_tokens_to_ids(list(FAMILIES[name].ends))
    settings.pad_token_id, settings.bos_token_id = tokenizer.pad_token_id, tokenizer.bos_token_id
    settings.do_sample, settings.top_k = True, 0  # other servers then sample as in training
    return model, processor


def save_family(name: str, folder: str | Path, seed: int = 0) -> Path:
    """Save a model with its processor, as `save_pretrained` of both writes them."""
    for part in build_family(name, seed):
        part.save_pretrained(folder)
    return Path(folder)
