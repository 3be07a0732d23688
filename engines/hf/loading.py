"""Loads the model and processor of a config: from a folder, from the hub or shipped with viewbox; or builds them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ...assets import resolve_model_path
from ...configs.schema import Config
from ...configs.sections import ModelSection
from ...core.base import BaseMultiTurnEnv
from ...envs.from_config import build_envs
from ...errors import ConfigError, ModelError, suggest_nearest
from .. import model_profiles
from . import tiny_model
from .architectures import get_architecture
from .quantization import Quantization, build_quantization_config, keep_weights

if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel

SAFE = {"trust_remote_code": False}  # without it, transformers asks on stdin whether to run code in the model's folder


class LoadedPolicy(NamedTuple):
    """A model with its processor, and the environments built for it."""

    env: BaseMultiTurnEnv
    held_out: BaseMultiTurnEnv
    model: "PreTrainedModel"
    processor: Any


def open_policy(config: Config) -> LoadedPolicy:
    """Load the model that `model.name` names, and builds the environments for it.

    Raises:
        ModelError: the model cannot be loaded, or its architecture is not supported.
        ConfigError: the model's folder is not there, or a setting of the environment is invalid.
    """
    model_config, processor = load_processor(config.model)
    env, held_out = build_envs(config, get_view_settings(model_config, processor))
    set_max_pixels(processor, config.model.max_pixels or env.max_pixels)
    quantize = config.lora.quantize if config.lora else None
    return LoadedPolicy(env, held_out, load_model(config.model, quantize), processor)


def find_model_folder(name: str) -> Path | None:
    """Return the folder (or file) that a model's name leads to; None for a hub name.

    Raises:
        ConfigError: the name is a path, and nothing is there.
        ModelError: no shipped model has this name.

    >>> find_model_folder("Qwen/Qwen3-VL-4B-Instruct") is None
    True
    """
    path = Path(resolve_model_path(name))
    if path.exists():
        return path
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        near = suggest_nearest(path, [str(folder) for folder in path.parent.glob("*/")])
        raise ConfigError(
            f"model.name = {name!r}: no such folder{near}; allowed: a model's folder or a hub name", key="model.name"
        )
    return None


def load_processor(section: ModelSection) -> "tuple[PretrainedConfig, Any]":
    """Return the (model config, processor) of a named model, without its weights.

    Raises:
        ConfigError: there is no such folder.
        ModelError: they cannot be loaded, or the architecture is not supported.
    """
    from transformers import AutoConfig, AutoProcessor

    assert section.name is not None
    name = str(find_model_folder(section.name) or section.name)
    try:
        config = AutoConfig.from_pretrained(name, revision=section.revision, **SAFE)
        get_architecture(config)
        processor = AutoProcessor.from_pretrained(name, revision=section.revision, **SAFE)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"model.name = {section.name!r}: cannot be loaded: {reason}", key="model.name") from error
    return config, processor


def load_generation_config(section: ModelSection) -> "GenerationConfig | None":
    """Return the generation config of a named model, which may name further end tokens; None if it has none."""
    from transformers import GenerationConfig

    assert section.name is not None
    try:
        return GenerationConfig.from_pretrained(resolve_model_path(section.name), revision=section.revision)
    except (OSError, ValueError):
        return None


def load_model(section: ModelSection, quantize: Quantization | None = None) -> "PreTrainedModel":
    """Return the weights of a named model, on the GPU if there is one; `quantize`: see `quantization.py`.

    Raises:
        ModelError: they cannot be loaded.
        ConfigError: bitsandbytes is not installed, which `quantize` needs.
    """
    from transformers import AutoModelForImageTextToText

    assert section.name is not None
    name = resolve_model_path(section.name)
    device: Any = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    more: dict[str, Any] = {}
    if quantize is not None:  # such weights are moved while they are loaded, not afterward
        dtype = torch.bfloat16 if section.dtype == "auto" else getattr(torch, section.dtype)
        more = {"quantization_config": build_quantization_config(quantize, dtype), "device_map": {"": device}}
    try:
        model = AutoModelForImageTextToText.from_pretrained(
            name, revision=section.revision, dtype=section.dtype, attn_implementation=section.attention, **SAFE, **more
        )
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"model.name = {section.name!r}: cannot be loaded: {reason}", key="model.name") from error
    return keep_weights(model) if quantize else model.to(device)


def build_tiny_model(
    section: ModelSection, corpus: Sequence[str], max_pixels: int, seed: int
) -> "tuple[PreTrainedModel, Any]":
    """Return the (model, processor) of a section with `model.tiny`.

    Args:
        section: the sizes.
        corpus: texts that the tokenizer is trained on.
        max_pixels: largest view, in pixels.
        seed: of the random weights.
    """
    processor, sizes = _build_tiny_processor(section, corpus, max_pixels)
    return tiny_model.build_model(processor.tokenizer, seed=seed, **sizes), processor


def build_tiny_config(section: ModelSection, max_pixels: int) -> "tuple[PretrainedConfig, Any]":
    """Return the (config, processor) of a section with `model.tiny`, without weights and with a tokenizer of no words.

    Args:
        section: the sizes.
        max_pixels: largest view, in pixels.
    """
    processor, sizes = _build_tiny_processor(section, [""], max_pixels)
    config = tiny_model.build_config(processor.tokenizer, **sizes)
    assert section.tiny is not None
    config.text_config.vocab_size = section.tiny.vocab_size
    return config, processor


def _build_tiny_processor(section: ModelSection, corpus: Sequence[str], max_pixels: int) -> tuple[Any, dict[str, int]]:
    """Return the processor of a section with `model.tiny`, and the sizes of the model."""
    assert section.tiny is not None
    sizes: dict[str, int] = section.tiny.model_dump()
    tokenizer = tiny_model.build_tokenizer(corpus, sizes.pop("vocab_size"))
    processor = tiny_model.build_processor(tokenizer, patch=sizes["patch"], max_pixels=max_pixels)
    return processor, sizes | {"positions": max_pixels // sizes["patch"] ** 2}


def get_view_settings(config: "PretrainedConfig", processor: Any) -> dict[str, object]:
    """Return the environment settings that follow from a model: the conventions it was trained on, and its patch
    size."""
    images = processor.image_processor
    profile = model_profiles.get_model_defaults(get_architecture(config).model_type).to_settings()
    return profile | {"pixel_multiple": images.patch_size * images.merge_size}


def set_max_pixels(processor: Any, max_pixels: int) -> None:
    """Make the image processor accept views of up to `max_pixels` without resizing them."""
    images = processor.image_processor
    smallest = (images.patch_size * images.merge_size) ** 2
    images.size = {"shortest_edge": smallest, "longest_edge": max(smallest, max_pixels)}
