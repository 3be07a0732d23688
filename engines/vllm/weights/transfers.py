"""Which tensors a server is sent, and the files by which they reach it."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors.torch import save_file

from ....errors import ConfigError
from ...hf.adapters import KeptChange, get_factors, round_stochastically

CHUNK = 2**31  # bytes of one file

Post = Callable[[str, dict[str, Any]], Any]
Tensors = Iterable[tuple[str, torch.Tensor]]


class FileTransfer:
    """Files of safetensors in a folder that the server can read; each is removed once the server has loaded it.

    The server needs viewbox's extension: see `engines/vllm/vllm_extension.py`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def connect(self, post: Post) -> None:
        post("/init_weight_transfer_engine", {"init_info": {}})

    def send(self, post: Post, tensors: Tensors) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for part in split_tensors(tensors, CHUNK):
            file = self.folder / f"{uuid4().hex}.safetensors"
            try:
                save_file(part, file)
                post("/update_weights", {"update_info": {"path": str(file)}})
            finally:
                file.unlink(missing_ok=True)


def split_tensors(tensors: Tensors, size: int) -> Iterator[dict[str, torch.Tensor]]:
    """Dicts of tensors in main memory, each of about `size` bytes, and no two of them sharing memory.

    >>> [list(part) for part in split_tensors([("a", torch.ones(4)), ("b", torch.ones(4))], 16)]
    [['a'], ['b']]
    """
    part: dict[str, torch.Tensor] = {}
    used = 0
    there: set[int] = set()
    for name, tensor in tensors:
        if part and used + tensor.nbytes > size:
            yield part
            part, used, there = {}, 0, set()
        place = tensor.data_ptr()
        part[name] = tensor.clone().contiguous() if place in there else tensor.cpu().contiguous()
        there.add(place)
        used += tensor.nbytes
    if part:
        yield part


HEAD = "lm_head.weight"


def iterate_weights(
    model: Any, dtype: torch.dtype | None = None, seed: int = 0, change: KeptChange | None = None
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the (name, tensor) pairs of a model inside `use_merged_adapters`, each with its adapters added.

    A server adds nothing itself, and would round a small change of a two-byte weight away. So sums for two bytes are
    rounded up or down by chance.

    The output head is always among them. If it is tied to the input embedding, a checkpoint has only the embedding, and
    a server that is sent a checkpoint would keep its old head without an error.

    Args:
        model: the policy.
        dtype: precision in which the server keeps its weights; None: that of the model.
        seed: of the rounding.
        change: is told how much of the adapters' change is left.

    Raises:
        ConfigError: an adapter is not merged, so the weights without it are not the policy's.
    """
    _check_merged(model)
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    adapted = {f"{name}.base_layer.weight": layer for name, layer in model.named_modules() if hasattr(layer, "lora_A")}
    found: dict[str, tuple[torch.Tensor, Any]] = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name or ".original_module." in name:
            continue
        layer = adapted.get(name)
        name = name.replace(".base_layer.", ".").replace(".modules_to_save.default.", ".")
        found[name] = tensor.detach(), layer
    head = model.get_output_embeddings()
    if head is not None and HEAD not in found:
        found[HEAD] = head.weight.detach(), None
    generator: torch.Generator | None = None
    for name, (tensor, layer) in found.items():
        if layer is not None and layer.merged:
            generator = generator or torch.Generator(tensor.device).manual_seed(seed)
            tensor = _add_adapters(layer, tensor, dtype or tensor.dtype, generator, change or KeptChange())
        yield name, tensor


def _add_adapters(
    layer: Any, weight: torch.Tensor, dtype: torch.dtype, generator: torch.Generator, change: KeptChange
) -> torch.Tensor:
    down, up = get_factors(layer)
    added = up.float() @ down.float()
    total = weight.float() + added
    total = round_stochastically(total, dtype, generator) if dtype.itemsize <= 2 else total.to(weight.dtype)
    change.add(total.float() - weight.float(), added)
    return total


def _check_merged(model: Any) -> None:
    from peft.tuners.tuners_utils import BaseTunerLayer

    apart = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, BaseTunerLayer) and not layer.merged and not layer.disable_adapters
    ]
    if apart:
        raise ConfigError(
            f"rollout.engine = vllm: {len(apart)} adapted layers cannot be merged for the server, such as {apart[0]} "
            "(its weight is quantized, or serves another layer, too); allowed: other lora.target_modules, no "
            "lora.quantize, or engine: hf",
            key="lora.target_modules",
        )
