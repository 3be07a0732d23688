"""Which parts of a model a run leaves as they are (`model.freeze`), asked of the model by what they are.

The language model is `get_decoder()`, the vision tower `get_encoder("image")`; what else stands beside the language
model projects. Where the projector is in the tower, it is told by what it gives: the width of the language model.
"""

from typing import TYPE_CHECKING, Any

from ..configs.sections import Freeze
from ..errors import ConfigError

if TYPE_CHECKING:
    import torch


def find_frozen(model: Any, freeze: Freeze) -> "dict[str, torch.nn.Module]":
    """Return the frozen parts of a model without adapters, by name.

    Raises:
        ConfigError: its vision tower cannot be told from its projector.
    """
    from ..engines.hf.architectures import list_vision_parts

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

    from ..engines.hf.architectures import get_base_model, list_vision_parts

    base = get_base_model(model)

    def find(name: str, part: "torch.nn.Module") -> list[str]:
        trained = [weight.requires_grad for weight in part.parameters()]
        if not any(trained):
            return [name] if trained else []
        children = part.named_children() if model is base else ()
        return [one for own, child in children for one in find(f"{name}.{own}", child)]

    parts = {id(part) for part in list_vision_parts(base)}
    names = [
        one
        for name, part in getattr(base, "model", base).named_children()
        if id(part) in parts
        for one in find(name, part)
    ]
    if model is not base:
        linear = (torch.nn.Linear, torch.nn.Embedding, torch.nn.Conv1d, torch.nn.ParameterDict)
        modules = [(name, one) for name, one in base.get_decoder().named_modules() if not isinstance(one, linear)]
        wide = [name for name, one in modules if any(weight.ndim > 1 for weight in one.parameters(recurse=False))]
        names += dict.fromkeys(name.rpartition(".")[2] for name in wide)
    return names
