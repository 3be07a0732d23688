"""Models by their shapes: configs that are on this machine, and models whose weights have no numbers."""

import copy
import json
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import get_peft_model
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor, PretrainedConfig

from ...assets import resolve_model_path
from ...configs.schema import Config
from ...configs.sections import ModelSection
from ...engines.hf.architectures import get_architecture
from ...engines.hf.loading import SAFE, build_tiny_config
from ...errors import ModelError
from ..lora import build_lora_config
from ..precision import resolve_dtype


def find_model_shapes(section: ModelSection, max_pixels: int) -> tuple[PretrainedConfig, Any]:
    """The (config, processor) of a model, from this machine alone; the processor is None if it is not here.

    A folder needs no weights. A hub name is looked up among downloaded files, then among the models of the shipped
    configs.

    Raises:
        ModelError: the config is not on this machine, or the architecture is not supported.
    """
    if section.name is None:
        return build_tiny_config(section, max_pixels)
    name, here = resolve_model_path(section.name), {"revision": section.revision, "local_files_only": True, **SAFE}
    try:
        config = AutoConfig.from_pretrained(name, **here)
    except (OSError, ValueError) as error:
        if (known := read_known_models().get(section.name)) is None:
            raise ModelError(_explain_missing(section.name), key="model.name") from error
        return AutoConfig.for_model(**known["config"]), None
    get_architecture(config)
    try:
        return config, AutoProcessor.from_pretrained(name, **here)
    except (OSError, ValueError):
        return config, None


def _explain_missing(name: str) -> str:
    given = f"model.name = {name!r}"
    if Path(name).exists():
        return f"{given}: has no config.json that can be read; allowed: a folder with one (it needs no weights)"
    known = ", ".join(read_known_models())
    return (
        f"{given}: its config.json is not on this machine; allowed: a folder with config.json, a name whose file was "
        f"downloaded (`hf download {name} config.json preprocessor_config.json`), or one of {known}"
    )


@cache
def read_known_models() -> dict[str, Any]:
    """The config.json of the models of the shipped configs, with its source, by hub name."""
    return json.loads(Path(__file__).with_name("known_models.json").read_text())


def find_dtype(config: Config, model_config: PretrainedConfig) -> torch.dtype:
    """The type in which a run holds its weights."""
    name = resolve_dtype(config)
    if name != "auto":
        return getattr(torch, name)
    saved = getattr(model_config, "dtype", None) or getattr(model_config.get_text_config(), "dtype", None)
    return saved if isinstance(saved, torch.dtype) else torch.float32


def build_model(config: Config, model_config: PretrainedConfig) -> Any:
    """The model of a run on the meta device, in the run's precision, with the adapters of the section `lora`."""
    settings = {"dtype": find_dtype(config, model_config), "attn_implementation": config.model.attention}
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForImageTextToText.from_config(model_config, **settings)
        if config.lora is not None:
            model.requires_grad_(False)
            model = get_peft_model(model, build_lora_config(config.lora))
    return model


class Depths(NamedTuple):
    """The number of layers of a model."""

    text: int
    vision: int


def list_depths(model_config: PretrainedConfig) -> tuple[Depths, Depths]:
    """The depths of a model, and the least that have every kind of layer."""
    full = Depths(model_config.get_text_config().num_hidden_layers, model_config.vision_config.depth)
    least = max(2, len(getattr(model_config.vision_config, "deepstack_visual_indexes", None) or ()))
    return full, Depths(min(least, full.text), min(least, full.vision))


def cut_depth(model_config: PretrainedConfig, depths: Depths) -> PretrainedConfig:
    """The config of a model with other depths."""
    changed = copy.deepcopy(model_config)
    full, _ = list_depths(model_config)
    if depths == full:
        return changed
    text, vision = changed.get_text_config(), changed.vision_config
    text.num_hidden_layers, vision.depth = depths
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[: depths.text]
    if getattr(vision, "deepstack_visual_indexes", None):
        vision.deepstack_visual_indexes = list(range(min(depths.vision, len(vision.deepstack_visual_indexes))))
    if getattr(vision, "fullatt_block_indexes", None):
        vision.fullatt_block_indexes = [depths.vision - 1]
    return changed


def count_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes of tensors; those that share memory count once."""
    return sum({tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}.values())
