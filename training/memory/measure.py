"""Runs the longest batch of a run, with random weights: what the forecast says, measured on this machine."""

import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import psutil
import torch
from transformers import Trainer

from ...configs.schema import Config
from ...engines.hf.architectures import Architecture, get_architecture
from ...engines.hf.vision_cache import VisionCache
from ...errors import ConfigError
from ..grpo.batch import select, split_by_tokens
from ..grpo.logprobs import EpisodeLogProbs, name_image
from ..plan import Plan
from ..precision import build_model
from ..sft.trainer import SFT_BATCHES, compute_sft_loss
from .workload import Workload, build_batch, build_batch_pixels, find_workload

UPDATES = 2  # the second one has the optimizer's state


def measure(plan: Plan) -> int:
    """Return the most bytes that two updates on the longest episodes take here: of the GPU, or what this process grew
    by.

    Raises:
        ViewboxError: the model's config is not here, or its weights would be quantized, which needs their numbers.
        torch.OutOfMemoryError: it does not fit.
    """
    config = plan.config
    if config.lora is not None and config.lora.quantize is not None:
        raise ConfigError("--measure: makes random weights, which cannot be quantized; allowed: no lora.quantize")
    workload, arguments, (model_config, processor) = find_workload(plan), plan.arguments, plan.known_model
    before = psutil.Process().memory_info().rss
    model = build_model(config, model_config, arguments.device)
    run_updates(model, config, arguments, workload, processor)
    if arguments.device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return max(0, int(peak - before))


def run_updates(model: Any, config: Config, arguments: Any, workload: Workload, processor: Any = None) -> None:
    """Two updates, forward, backward and through the optimizer, with the trainers' own losses."""
    architecture = get_architecture(model.config, processor)
    model.train()
    if arguments.gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments.gradient_checkpointing_kwargs)
        if hasattr(model, "peft_config"):
            model.enable_input_require_grads()
    kind, settings = Trainer.get_optimizer_cls_and_kwargs(arguments)
    optimizer = kind([weight for weight in model.parameters() if weight.requires_grad], **settings)
    losses = _build_grpo_losses if config.train.method == "grpo" else _build_sft_loss
    for _ in range(UPDATES):
        for compute_loss in losses(model, architecture, config, arguments, workload):
            with _use_autocast(arguments, model.device.type):
                loss = compute_loss()
            loss.backward()  # type: ignore[no-untyped-call]
            del loss
        optimizer.step()
        optimizer.zero_grad()


def _use_autocast(arguments: Any, device: str) -> AbstractContextManager[Any]:
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else None
    return nullcontext() if dtype is None else torch.autocast(device, dtype=dtype)


def _build_grpo_losses(
    model: Any, architecture: Architecture, config: Config, arguments: Any, workload: Workload
) -> Iterator[Callable[[], torch.Tensor]]:
    """Yield the loss of each part of a device batch; the features of a frozen tower are known."""
    image_id = architecture.image_id
    batch = build_batch(workload, arguments.per_device_train_batch_size, arguments.num_generations, image_id)
    pixels = build_batch_pixels(batch, workload, architecture.get_pixel_dtype(model))
    cache = VisionCache(model, architecture)
    if cache.frozen:
        cache.get_features({name_image(key): image for key, image in pixels.items()})
    log_probs = EpisodeLogProbs(model, architecture, image_id, 0, 1.0, pixels, cache if cache.frozen else None)
    parts = [list(range(len(batch["prompt_ids"])))]
    if config.train.micro_batch_tokens is not None:
        parts = split_by_tokens(batch, config.train.micro_batch_tokens, share=architecture.shares_prompts)
    for part in parts:
        yield partial(lambda chosen: log_probs(chosen)[0].sum(), select(batch, part))


def _build_sft_loss(
    model: Any, architecture: Architecture, config: Config, arguments: Any, workload: Workload
) -> Iterator[Callable[[], torch.Tensor]]:
    """Yield the loss of a device batch, in the parts into which `SFTTrainer` cuts it."""
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
    yield lambda: compute_sft_loss(model, batches, 1.0)
