"""The bytes that are alive in an update and in a forward of the engine: with weights without numbers, for the forecast,
or with random ones on this machine (`--measure`).

Without numbers the same code runs: `FakeTensor` has shapes and types alone, while ids, pictures and masks are real. So
what operations keep is counted for every model, and not said by hand.
"""

import resource
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import psutil
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Trainer

from ...configs.schema import Config
from ...engines.hf.architectures import Architecture, Pixels
from ...engines.hf.cache_layers import find_layers
from ...engines.hf.kv_cache import KVCache, measure_slot
from ...engines.hf.model_parts import get_base_model
from ...engines.hf.model_runner import ModelRunner, use_eval_mode
from ...engines.hf.own_forward import compute_logits
from ...engines.hf.scheduler import Stats
from ...engines.hf.vision_cache import MAX_NUMBERS
from ...errors import ConfigError
from ..grpo.batch import select, split_by_tokens
from ..grpo.logprobs import EpisodeLogProbs
from ..plan import Plan
from ..precision import build_model
from ..sft.trainer import SFT_BATCHES, compute_sft_loss
from .workload import Workload, build_batch, build_batch_pixels, count_bytes, find_products, find_workload

UPDATES = 2  # the second one has the optimizer's state
FEW = 4  # layers of a deep model that are run; features of a tower enter as many, at most


def measure(plan: Plan) -> int:
    """Return the most bytes that two updates on the longest episodes take here: of the GPU, or what this process grew
    by. Raise `ViewboxError` if the model's config is not here, or its weights would be quantized, which needs their
    numbers. Raise `torch.OutOfMemoryError` if it does not fit."""
    config = plan.config
    if config.lora is not None and config.lora.quantize is not None:
        raise ConfigError("--measure: makes random weights, which cannot be quantized; allowed: no lora.quantize")
    workload, arguments, known = find_workload(plan), plan.arguments, plan.known_model
    before = psutil.Process().memory_info().rss
    run_updates(build_model(config, known.config, arguments.device), config, arguments, workload, known.processor)
    if arguments.device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return max(0, int(peak - before))


def run_updates(model: Any, config: Config, arguments: Any, workload: Workload, processor: Any = None) -> None:
    """Two updates, forward, backward and through the optimizer, with the trainers' own losses."""
    losses = build_losses(model, config, arguments, workload, Architecture(model.config, processor))[0]
    kind, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
    optimizer = kind([weight for weight in model.parameters() if weight.requires_grad], **settings)
    for _ in range(UPDATES):
        for compute_loss in losses:
            learn(compute_loss, arguments, model.device)
        optimizer.step()
        optimizer.zero_grad()


def learn(compute_loss: Callable[[], torch.Tensor], arguments: Any, device: torch.device) -> None:
    """Go forward and backward."""
    with use_autocast(arguments, device):
        loss = compute_loss()
    loss.backward()  # type: ignore[no-untyped-call]


def use_autocast(arguments: Any, device: torch.device) -> AbstractContextManager[Any]:
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else None
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype=dtype)


def build_losses(
    model: Any,
    config: Config,
    arguments: Any,
    workload: Workload,
    architecture: Architecture,
    encoded: dict[int, Any] | None = None,
) -> tuple[list[Callable[[], torch.Tensor]], int]:
    """Return the losses of the parts of a device batch, the largest first, and the bytes of the features that a frozen
    tower gave for it, which stay in `encoded`."""
    model.train()
    if arguments.gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments.gradient_checkpointing_kwargs)
        if hasattr(model, "peft_config"):
            model.enable_input_require_grads()
    if config.train.method != "grpo":
        return [_build_sft_loss(model, architecture, arguments, workload)], 0
    episodes, encoded = arguments.per_device_train_batch_size, {} if encoded is None else encoded
    batch = build_batch(workload, episodes, arguments.num_generations, architecture.image_id)
    pixels = build_batch_pixels(batch, workload, architecture.get_pixel_dtype(model))
    known, cache = dict[int, Any](), None
    if not any(weight.requires_grad for weight in architecture.get_vision_tower(model).parameters()):
        for image in (*workload.images, *workload.result_images):
            if id(image) not in encoded:
                with torch.no_grad():
                    encoded[id(image)] = architecture.encode_images(model, [image])[0]
        images = [encoded[id(image)] for image in (*workload.images, *workload.result_images)]
        known = {key: image for row in batch["image_keys"].tolist() for key, image in zip(row, images, strict=True)}
        cache = SimpleNamespace(get_features=lambda images: {key: known[key] for key in images})
    log_probs = EpisodeLogProbs(model, architecture, architecture.image_id, 0, 1.0, pixels, cache)  # type: ignore[arg-type]
    parts = [list(range(episodes))]
    if config.train.micro_batch_tokens is not None:
        parts = split_by_tokens(batch, config.train.micro_batch_tokens, share=architecture.shares_prompts)
    batches = [select(batch, part) for part in sorted(parts, key=len, reverse=True)]
    shown = {*batches[0]["image_keys"].flatten().tolist()} & known.keys()
    features = sum(layer.nbytes for key in shown for layer in known[key])
    return [partial(lambda chosen: log_probs(chosen)[0].sum(), chosen) for chosen in batches], features


def _build_sft_loss(
    model: Any, architecture: Architecture, arguments: Any, workload: Workload
) -> Callable[[], torch.Tensor]:
    """Return the loss of a device batch, in the parts into which `SFTTrainer` cuts it."""
    left, batches = arguments.per_device_train_batch_size, list[dict[str, Any]]()
    size = -(-left // SFT_BATCHES)
    while left > 0:
        batch = build_batch(workload, min(size, left), 1, architecture.image_id)
        pixels = build_batch_pixels(batch, workload, architecture.get_pixel_dtype(model))
        images = [pixels[key] for row in batch["image_keys"].tolist() for key in row]
        batch = {name: value.to(model.device) for name, value in batch.items()}
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
        vision = architecture.build_vision_inputs(images, model.device, torch.float32)
        batch |= {"vision": vision | architecture.build_token_types(ids), "weights": batch["tool_mask"].float()}
        batches.append(batch)
        left -= size
    return lambda: compute_sft_loss(model, batches, 1.0)


def count_trained(model: Any) -> int:
    return count_bytes(weight for weight in model.parameters() if weight.requires_grad)


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes that operations make and that are alive. What a kernel uses inside is not seen. `given`: tensors
    that were there before, and are not counted: weights, and the batch. What is freed of them is."""

    def __init__(self, given: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
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


class _Numberless(LiveBytes):  # type: ignore[no-untyped-call]
    """Does also what `FakeTensor` cannot: choose by a mask, whose numbers say how many, and the products of experts in
    float32."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # most calls ask a tensor for its device, and make none
            return args[0].fake_device
        name, run = str(func), func
        if name == "aten.index.Tensor" and isinstance(args[0], FakeTensor):
            mask = args[1][0]
            if mask is not None and mask.dtype == torch.bool and not isinstance(mask, FakeTensor):
                size = [int(mask.sum()), *args[0].shape[mask.ndim :]]
                func, args = torch.ops.aten.new_empty.default, (args[0], size)
        elif name == "aten._grouped_mm.default" and args[0].dtype == torch.float32:
            args = [x.bfloat16() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args]
            return super().__torch_dispatch__(lambda *x, **more: run(*x, **more).float(), types, args, kwargs)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Rehearsal:
    """Runs a model without numbers, and counts what is alive beside its weights. `model`: without numbers, on the
    device `meta`; its weights are replaced."""

    def __init__(self, model: Any, config: Config, arguments: Any, workload: Workload, processor: Any = None) -> None:
        self.model, self.config, self.arguments = model, config, arguments
        self.workload, self.encoded = workload, dict[int, Any]()
        self.architecture = Architecture(model.config, processor)
        self._mode, known = FakeTensorMode(allow_non_fake_inputs=True), dict[int, tuple[torch.Tensor, ...]]()
        for module in model.modules():
            for name, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
                if id(tensor) not in known:
                    known[id(tensor)] = tensor, self._drop_numbers(tensor)
                setattr(module, name, known[id(tensor)][1])
        self.given, self.tower = [new for _, new in known.values()], self.architecture.get_vision_tower(model)
        lists = (
            child for child in get_base_model(model).get_decoder().modules() if isinstance(child, torch.nn.ModuleList)
        )
        self.stack: Any = max(lists, key=len)
        self.weight_bytes = next(w.itemsize for name, w in model.named_parameters() if ".lora_" not in name)
        self._is_plain = config.lora is not None and config.lora.quantize is None and self.weight_bytes == 2
        autocast = (arguments.bf16 or arguments.fp16) and not self._is_plain
        self.computed = 2 if autocast else self.weight_bytes  # bytes of a number that a product gives in generation

    def _drop_numbers(self, tensor: torch.Tensor) -> torch.Tensor:
        with self._mode:
            empty = torch.empty(tensor.shape, dtype=tensor.dtype)
        return torch.nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, torch.nn.Parameter) else empty

    def stretch(self, count: Callable[[], int]) -> int:
        """Return what a deep model takes, from two counts with few of its layers, whose kinds repeat."""
        layers, text = list(self.stack), self.model.config.get_text_config()
        kinds = getattr(text, "layer_types", None) or [""] * len(layers)
        period = next(n for n in range(1, len(kinds) + 1) if kinds[n:] == kinds[:-n])
        few = period * -(-FEW // period)
        if len(layers) < few + period:
            return count()

        def cut(number: int) -> None:
            text.num_hidden_layers = number
            if any(kinds):
                text.layer_types = kinds[:number]
            del self.stack[number:]

        counts = []
        for number in (few + period, few):
            cut(number)
            counts.append(count())
        cut(len(layers))
        self.stack.extend(layers[few:])
        return counts[0] + (len(layers) - few - period) * (counts[0] - counts[1]) // period

    def predict_update(self) -> int:
        """Return the most bytes of an update: while its activations are held or, of a deep model, at its end."""
        beside = []

        def count() -> int:
            peak = self.count_update()
            beside.append(peak - count_trained(self.model))
            return peak

        return max(self.stretch(count), max(beside) + count_trained(self.model))

    def count_update(self) -> int:
        """Return the most bytes of an update: of the largest part of its batch, beside the gradients of others."""
        with _Numberless():  # what is on the host
            inputs = self.config, self.arguments, self.workload, self.architecture, self.encoded
            losses, features = build_losses(self.model, *inputs)
        several = len(losses) > 1 or self.arguments.gradient_accumulation_steps > 1
        with _Numberless(self.given) as counter:
            for weight in self.model.parameters() if several else ():
                weight.grad = torch.empty_like(weight) if weight.requires_grad else None
            learn(losses[0], self.arguments, self.model.device)
            self.model.zero_grad()
        return int(counter.peak) + features

    def count_whole_rows(self, tokens: int) -> int:
        """Return the most bytes of an update by verl of so many tokens, without its gradients.
        Episodes go through side by side, and each of their tokens has logits, over which the gradient is written."""
        longest = self.workload.prompt + self.workload.completion
        batch = build_batch(self.workload, tokens // longest, 1, self.architecture.image_id)
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1).view(1, -1)
        images = (self.workload.images + self.workload.result_images) * (tokens // longest)

        def drop(weight: torch.Tensor) -> None:
            weight.grad = None

        for weight in self.model.parameters():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(drop)
        self.model.train()
        if self.arguments.gradient_checkpointing:
            self.model.activation_checkpointing_enable()
        with _Numberless(self.given) as counter, torch.autocast("cpu", torch.bfloat16):
            logits: Any = compute_logits(self.model, self.architecture, ids, images)
            logits.register_hook(torch.empty_like)
            loss = logits.sum()
            del logits
            loss.backward()
        return int(counter.peak)

    def measure_slot(self) -> tuple[int, int]:
        """Return the bytes that a conversation takes: for each token, and for its states whatever its length."""
        with use_eval_mode(self.model), _Numberless():
            return measure_slot(get_base_model(self.model))

    def play(self, slots: int, rows: int, width: int, read: int) -> int:
        """Return the most bytes of a forward of the engine, beside keys, values, states and weights in two bytes.

        Args:
            slots: episodes that have a place in the cache.
            rows: of the forward, with `width` new tokens each, which see `read` tokens.
        """
        base: Any = get_base_model(self.model)
        tokens: Any = SimpleNamespace(architecture=self.architecture)
        cache: Any = KVCache(find_layers(base.config.get_text_config()), slots)
        cache.allocate(slots, self.workload.prompt + self.workload.completion)
        runner = ModelRunner(base, tokens, None, cache, Stats())  # type: ignore[arg-type]
        ids = torch.zeros(rows, width, dtype=torch.long)
        positions = torch.zeros(self.architecture.axes, rows, width, dtype=torch.long)
        with use_eval_mode(self.model), _Numberless(self.given) as counter, torch.no_grad(), self._use_autocast():
            runner.forward(range(rows), [read - width] * rows, read, ids, positions, [width] * rows, {})
            return int(counter.peak - counter.live)  # autocast keeps what it makes of weights until its end

    def encode(self, images: Sequence[Pixels], rows: int = 1) -> tuple[int, int]:
        """Return (the bytes of the features of images, the most bytes beside them while those of `rows` prompts are
        made), without gradients."""
        if not images:
            return 0, 0
        together, peaks = max(1, min(rows, MAX_NUMBERS // sum(image.numbers for image in images))), []  # in one forward
        for copies in (2, 1)[-min(2, together) :]:
            with use_eval_mode(self.model), _Numberless(self.given) as counter, torch.no_grad(), self._use_autocast():
                features = self.architecture.encode_images(self.model, [*images] * copies)
                peaks.append(int(counter.peak - counter.live))
        held = count_bytes(layer for image in features for layer in image)
        return held, peaks[-1] + (together - 1) * (peaks[0] - peaks[-1])

    def count_casts(self) -> int:
        """Return the copies in two bytes that autocast makes of weights in float32."""
        products = {id(layer.weight): layer.weight.numel() for _, layer in find_products(self.model)}
        return sum(self.computed * size for size in products.values()) if self.computed < self.weight_bytes else 0

    def _use_autocast(self) -> AbstractContextManager[Any]:
        """As `use_for_generation`."""
        return nullcontext() if self._is_plain else use_autocast(self.arguments, self.model.device)
