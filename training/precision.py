"""What is trained and in which precision: frozen parts, adapters, and the learning rate that suits them.

A weight of two bytes (bfloat16) has eight significant bits: a step that moves it by less than 0.2 to 0.4 % of itself is
rounded away. At a learning rate of 1e-6 that is nearly every step of full fine-tuning. So weights that are trained are
kept in float32 and computed with under autocast; the frozen weights beside LoRA adapters may have two bytes.

Which parts a run leaves as they are (`model.freeze`) is asked of the model by what they are. The language model is
`get_decoder()`, the vision tower `get_encoder("image")`; what else stands beside the language model projects. Where the
projector is in the tower, it is told by what it gives: the width of the language model.
"""

import re
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..configs.schema import Config
from ..configs.sections import Freeze
from ..configs.train_sections import LoraSection
from ..engines.hf.quantization import is_quantized
from ..errors import ConfigError, suggest_nearest

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig

# By method and whether LoRA adapters are trained. Full fine-tuning: 1e-6 is the default of TRL's `GRPOConfig`, 2e-5
# that of its `SFTConfig`. LoRA learns best at about ten times the rate of full fine-tuning, in both methods (Schulman
# et al. 2025, "LoRA Without Regret"); 2e-4 is the rate of Dettmers et al. 2023 (QLoRA, arXiv 2305.14314, appendix B).
LEARNING_RATES = {("grpo", False): 1e-6, ("grpo", True): 1e-5, ("sft", False): 2e-5, ("sft", True): 2e-4}
ALL_LINEAR = "all-linear"  # peft's name for every linear layer but the output layer


def resolve_dtype(config: Config) -> str:
    """Return the precision in which the model of a training run is loaded; "auto": as its weights were saved. Raise
    `ConfigError` if every weight would be trained in two bytes, or a setting contradicts another."""
    dtype = config.model.dtype
    if config.model.tiny is not None and dtype not in ("auto", "float32"):
        problem = "model.tiny is built in float32; allowed: leave it out"
        raise ConfigError(f"model.dtype = {dtype}: {problem}", key="model.dtype")
    if config.model.tiny is not None and config.lora is not None and config.lora.quantize:
        problem = "model.tiny is built in float32; allowed: leave it out"
        raise ConfigError(f"lora.quantize = 4bit: {problem}", key="lora.quantize")
    if config.lora is not None:
        return "bfloat16" if config.lora.quantize and dtype == "auto" else dtype
    if dtype in ("float16", "bfloat16"):
        raise ConfigError(
            f"model.dtype = {dtype}: without the section lora every weight is trained, and steps that are small "
            f"beside a two-byte weight are rounded away; allowed: no model.dtype (float32 weights, computed with in "
            f"bfloat16 on a GPU), or a section lora",
            key="model.dtype",
        )
    return "float32"


def describe_precision(config: Config) -> str:
    """Return the precision of a run's weights in words.

    >>> from viewbox.configs.schema import parse
    >>> describe_precision(parse({"model": {"name": "m"}, "env": {"name": "digits"}}))
    'every weight is trained, in float32'
    """
    dtype = resolve_dtype(config)
    if config.lora is not None:
        beside = f"4 bits in the language layers, {dtype} elsewhere" if config.lora.quantize else dtype
        return f"LoRA adapters are trained, in float32; the weights beside them: {beside}"
    return f"every weight {'is' if config.model.freeze == 'none' else 'that is not frozen is'} trained, in float32"


def build_lora_config(section: LoraSection | None, model: Any = None, freeze: Freeze = "none") -> "LoraConfig | None":
    """Return the peft config of a section; None without one. Of a model, all-linear leaves out what is frozen."""
    if section is None:
        return None
    from peft import LoraConfig

    names = find_frozen(model, freeze) if section.target_modules == ALL_LINEAR else {}
    return LoraConfig(
        r=section.r,
        lora_alpha=section.alpha,
        lora_dropout=section.dropout,
        target_modules=section.target_modules,
        exclude_modules=rf"({'|'.join(map(re.escape, names))})(\..*)?" if names else None,
    )


def build_model(config: Config, model_config: Any, device: "torch.device | str" = "meta") -> Any:
    """Return the model of a run in its precision, with its adapters: without numbers, or random ones on a device. Raise
    `ConfigError` if `lora.target_modules` names no layer of the model, a frozen one, or one whose weight another layer
    shares."""
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForImageTextToText

    name = resolve_dtype(config)
    dtype: Any = name if name == "auto" else getattr(torch, name)
    if name == "auto":  # as its weights were saved
        dtype = getattr(model_config, "dtype", None) or getattr(model_config.get_text_config(), "dtype", None)
        dtype = dtype if isinstance(dtype, torch.dtype) else torch.float32
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"dtype": dtype, "attn_implementation": config.model.attention}
        model = AutoModelForImageTextToText.from_config(model_config, **settings)
        freeze_parts(model, config.model.freeze)
        if config.lora is None:
            return model
        model.requires_grad_(False)
        names = _list_adaptable(model, config)
        try:
            adapted = get_peft_model(model, build_lora_config(config.lora, model, config.model.freeze))
            _check_output_layer(adapted, config)
            _check_frozen(model, config)
            return adapted
        except ConfigError:
            raise
        except ValueError as error:
            targets = config.lora.target_modules
            near = suggest_nearest(targets if isinstance(targets, str) else targets[0] if targets else "", names)
            raise ConfigError(
                f"lora.target_modules = {targets!r}: matches no linear layer of the model; allowed: all-linear (with "
                f"model.freeze: projector of the language model alone), or names such as "
                f"{', '.join(names[:12])}{near}",
                key="lora.target_modules",
            ) from error


def _list_adaptable(model: Any, config: Config) -> list[str]:
    """Return the names of the linear layers that are neither frozen nor refused by `_check_output_layer`."""
    from torch.nn import Linear

    uses = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    frozen = {one for part in find_frozen(model, config.model.freeze).values() for one in part.modules()}
    head = model.get_output_embeddings() if config.train.method == "grpo" else None
    linear = ((name, one) for name, one in model.named_modules() if isinstance(one, Linear) and one not in frozen)
    return sorted({name.rpartition(".")[2] for name, one in linear if one is not head and uses[id(one.weight)] == 1})


def _check_frozen(model: Any, config: Config) -> None:
    """Raise `ConfigError` for an adapter in a part of the model that is frozen."""
    assert config.lora is not None
    for name, part in find_frozen(model, config.model.freeze).items():
        if any(weight.requires_grad for weight in part.parameters()):
            raise ConfigError(
                f"lora.target_modules = {config.lora.target_modules!r}: matches layers of {name}, which model.freeze = "
                f"{config.model.freeze} leaves as it is; allowed: all-linear, other layers, or model.freeze: none",
                key="lora.target_modules",
            )


def _check_output_layer(model: Any, config: Config) -> None:
    """Raise `ConfigError` for an adapter on a weight that two layers share, or on an output layer that TRL reads."""
    uses = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    head = model.get_base_model().get_output_embeddings() if config.train.method == "grpo" else None
    for name, layer in model.named_modules():
        weight = getattr(getattr(layer, "base_layer", None), "weight", None)
        if weight is None or (uses[id(weight)] == 1 and layer is not head):
            continue
        shared = "shares its weight with another layer (tied embeddings): the saved model would not be the trained one"
        raise ConfigError(
            f"lora.target_modules = {config.lora and config.lora.target_modules!r}: {name.rpartition('.')[2]} "
            f"{shared if uses[id(weight)] > 1 else 'is the output layer, whose weight TRL reads without an adapter'}; "
            "allowed: all-linear, or other layers",
            key="lora.target_modules",
        )


def use_float32_adapters(model: Any) -> None:
    """Make the trained weights of a model with quantized ones float32, which TRL makes bfloat16."""
    for weight in model.parameters() if is_quantized(model) else ():
        if weight.requires_grad:
            weight.data = weight.data.float()


def find_frozen(model: Any, freeze: Freeze) -> "dict[str, torch.nn.Module]":
    """Return the frozen parts of a model without adapters, by name. Raise `ConfigError` if its vision tower cannot be
    told from its projector."""
    from ..engines.hf.model_parts import list_vision_parts

    parts = [] if freeze == "none" else list_vision_parts(model)
    if freeze == "vision":
        towers = [part for part in parts if part is model.get_encoder(modality="image")]
        parts = towers if len(parts) > 1 and towers else _leave_projector(model, towers or parts)
    return {name: module for name, module in model.named_modules() if any(module is part for part in parts)}


def _leave_projector(model: Any, towers: "list[torch.nn.Module]") -> "list[torch.nn.Module]":
    """Return the children of towers that do not give the width of the language model."""
    from torch.nn import Embedding

    def count_last_rows(module: "torch.nn.Module") -> int:
        layers = [layer for layer in module.modules() if not isinstance(layer, Embedding)]
        weights = [weight for layer in layers for weight in layer.parameters(recurse=False) if weight.ndim > 1]
        return len(weights[-1]) if weights else 0

    width = model.config.get_text_config().hidden_size
    children = [child for tower in towers for child in tower.children() if [*child.parameters()]]
    rest = [child for child in children if count_last_rows(child) != width]
    layers = max(children, key=lambda child: len([*child.parameters()]))
    if len(rest) < len(children) and any(child is layers for child in rest):
        return rest
    raise ConfigError(
        f"model.freeze = vision: the projector cannot be told from the vision tower among "
        f"{', '.join(type(child).__name__ for child in children)}; allowed: projector (both), none",
        key="model.freeze",
    )


def freeze_parts(model: Any, freeze: Freeze) -> None:
    """Take the gradient from the frozen parts of a model. Raise as `find_frozen`."""
    for part in find_frozen(model, freeze).values():
        part.requires_grad_(False)


def list_untrained(model: Any) -> list[str]:
    """Return the names of what is not trained beside the language model and, of a model with adapters, of the weights
    in it that take none: those of experts and their routers are in no linear layer."""
    import torch

    from ..engines.hf.model_parts import get_base_model, list_vision_parts

    base = get_base_model(model)

    def find(name: str, part: "torch.nn.Module") -> list[str]:
        trained = [weight.requires_grad for weight in part.parameters()]
        if not any(trained):
            return [name] if trained else []
        children = part.named_children() if model is base else ()
        return [item for child_name, child in children for item in find(f"{name}.{child_name}", child)]

    parts = {id(part) for part in list_vision_parts(base)}
    names = [
        item
        for name, part in getattr(base, "model", base).named_children()
        if id(part) in parts
        for item in find(name, part)
    ]
    if model is not base:
        linear = (torch.nn.Linear, torch.nn.Embedding, torch.nn.Conv1d, torch.nn.ParameterDict)
        modules = [(name, item) for name, item in base.get_decoder().named_modules() if not isinstance(item, linear)]
        wide = [name for name, item in modules if any(weight.ndim > 1 for weight in item.parameters(recurse=False))]
        names += dict.fromkeys(name.rpartition(".")[2] for name in wide)
    return names
