"""Tiny random models of the released families: own processor class, special tokens and chat template, own layers.

    model, processor = build_family("gemma3")
    save_family("gemma3", folder)  # what `model.name: folder` of a run takes

A family is a function that builds it (or a dict of sizes) and a row of `FAMILIES`. Tests that compute with all
of them take `NAMES`: those that differ most are tried by day, the others only in `make nightly`.
"""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from .parts import TEXT, Family, build_weights
from .table import FAMILIES

__all__ = ["FAMILIES", "NAMES", "Family", "build_family", "build_wide_family", "list_names", "save_family"]


def list_names(*by_day: str) -> list[Any]:
    """Return the names of all families for `parametrize`: these by day, the others only nightly."""
    return [name if name in by_day else pytest.param(name, marks=pytest.mark.nightly) for name in FAMILIES]


# Positions of three axes and DeepStack; a state beside the cache; windows and pictures that see themselves; tiles; rows
# with an end token; convolutions.
NAMES = list_names("qwen3_vl", "qwen3_5", "gemma3", "internvl", "mistral3", "lfm2_vl")


def build_family(name: str, seed: int = 0) -> tuple[Any, Any]:
    """Return a new model (float32, in eval mode) and its processor."""
    model, processor = FAMILIES[name].build(seed)
    tokenizer, settings = processor.tokenizer, model.generation_config
    settings.eos_token_id = tokenizer.convert_tokens_to_ids(list(FAMILIES[name].ends))
    settings.pad_token_id, settings.bos_token_id = tokenizer.pad_token_id, tokenizer.bos_token_id
    settings.do_sample, settings.top_k = True, 0  # other servers then sample as in training
    return model, processor


def build_wide_family(name: str) -> tuple[Any, Any]:
    """Return a new model with heads of 32, the smallest that vLLM's attention on a CPU has, and its processor."""
    heads = {} if name == "llava" else {"num_attention_heads": 2, "num_key_value_heads": 1}  # LLaVA's are as many
    with patch.dict(TEXT, {**heads, "head_dim": 32}):
        model, processor = build_family(name)
    rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    if "mrope_section" in rope:  # parts of half a head
        rope["mrope_section"] = [2 * n for n in rope["mrope_section"]]
        model = build_weights(type(model), model.config, 0)
    return model, processor


def save_family(name: str, folder: str | Path, seed: int = 0) -> Path:
    """Save a model with its processor, as `save_pretrained` of both writes them."""
    for part in build_family(name, seed):
        part.save_pretrained(folder)
    return Path(folder)
