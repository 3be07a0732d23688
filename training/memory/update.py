"""The memory of an update: the loss and its backward pass run on shapes, with the trainers' own code."""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from ...configs.schema import Config
from ...engines.hf.architectures import get_architecture
from ..grpo.logprobs import EpisodeLogProbs
from ..grpo.micro_batches import select, split_by_tokens
from ..sft.trainer import compute_sft_loss
from .live_bytes import LiveBytes
from .pictures import KnownFeatures, build_batch_pixels, is_tower_frozen
from .workload import Workload, build_batch

SFT_BATCHES = 4  # into which `SFTTrainer` cuts a device batch


class CountedLogProbs(EpisodeLogProbs):
    """Counts the vision tower and the logits as parts of their own."""

    counter: LiveBytes

    def _compute_features(self, images: Any) -> dict[int, Any]:
        self.counter.part = "vision tower"
        features = super()._compute_features(images)
        self.counter.part = "activations"
        return features

    def _compute_token_log_probs(self, hidden: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.counter.part = "logits"
        if hidden.requires_grad:
            hidden.register_hook(self._note_layers)
        results = super()._compute_token_log_probs(hidden, ids)
        self.counter.part = "activations"
        return results

    def _note_layers(self, gradient: torch.Tensor) -> None:
        """The backward pass has left the logits."""
        self.counter.part = "backward pass"
        if self.counter.phase == "logits":
            self.counter.phase = "last layers"


def measure_update(
    model: Any, config: Config, arguments: Any, workload: Workload, *, counter: LiveBytes
) -> dict[str, Counter[str]]:
    """Runs the largest part of an update, forward and backward: one group of it; the rest is what they keep.

    Args:
        model: of fake tensors.
        config: the run.
        arguments: its trainer arguments.
        workload: its longest episode.
        counter: counts inside this call; it is entered already.

    Returns:
        For each phase, the bytes of each part at the moment of its peak.
    """
    prepare_training(model, arguments)
    if config.train.method == "grpo":
        forward, units = _build_grpo_forward(model, config, arguments, workload, counter)
    else:
        forward, units = _build_sft_forward(model, arguments, workload)
    _follow_gradients(model, counter)
    counter.phase = "forward"
    with use_autocast(arguments):
        loss = forward()
    kept = counter.parts.copy()
    counter.part = counter.phase = "logits"
    loss.backward()
    for peak in counter.peaks.values():
        for name, size in kept.items():
            peak[name] += round((units - 1) * size)
    return counter.peaks


def prepare_training(model: Any, arguments: Any) -> None:
    """Puts a model into the state in which it is trained."""
    model.train()
    if arguments.gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=arguments.gradient_checkpointing_kwargs)
        if hasattr(model, "peft_config"):
            model.enable_input_require_grads()


def _follow_gradients(model: torch.nn.Module, counter: LiveBytes) -> None:
    """Counts gradients as a part of their own from when they are complete; tells how far the backward pass is."""
    middle = model.config.get_text_config().num_hidden_layers // 2  # type: ignore[union-attr, operator]

    def follow(name: str) -> Callable[[torch.Tensor], None]:
        def note(weight: torch.Tensor) -> None:
            assert weight.grad is not None
            counter.move(weight.grad, "gradients")
            if ".visual." in name:
                counter.phase = "vision tower"
            elif f"language_model.layers.{middle}." in name:
                counter.phase = "first layers"

        return note

    for name, weight in model.named_parameters():
        if weight.requires_grad:
            weight.register_post_accumulate_grad_hook(follow(name))


def use_autocast(arguments: Any) -> AbstractContextManager[Any]:
    """The mixed precision of a run."""
    dtype = torch.bfloat16 if arguments.bf16 else torch.float16 if arguments.fp16 else None
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype=dtype)


def count_parts(config: Config, arguments: Any, batch: dict[str, Any]) -> tuple[int, int]:
    """(episodes in the largest part of a device batch, parts)."""
    if config.train.micro_batch_tokens is None:
        return len(batch["prompt_ids"]), 1
    parts = split_by_tokens(batch, config.train.micro_batch_tokens)
    return max(map(len, parts)), len(parts)


def _build_grpo_forward(
    model: Any, config: Config, arguments: Any, workload: Workload, counter: LiveBytes
) -> tuple[Callable[[], torch.Tensor], float]:
    """The forward pass of one group, and how many such groups the part has."""
    device_batch, group = arguments.per_device_train_batch_size, arguments.num_generations
    architecture, image_id = get_architecture(model.config), model.config.image_token_id
    whole = build_batch(workload, device_batch, group, image_id)
    part, _ = count_parts(config, arguments, whole)
    one_group = min(part, group)
    batch = select(whole, range(one_group))
    known = None
    if is_tower_frozen(model):
        tower = next(architecture.get_vision_tower(model).parameters())
        known = KnownFeatures(model, torch.bfloat16 if arguments.bf16 else tower.dtype)
    pixels = build_batch_pixels(batch, model)
    log_probs = CountedLogProbs(model, architecture, image_id, 0, 1.0, pixels, known)  # type: ignore[arg-type]
    log_probs.counter = counter

    def forward() -> torch.Tensor:
        logps, _ = log_probs(batch)
        return logps.sum()

    return forward, part / one_group


def _build_sft_forward(model: Any, arguments: Any, workload: Workload) -> tuple[Callable[[], torch.Tensor], float]:
    """The forward pass of one of the batches of a device batch, and how many there are."""
    device_batch = arguments.per_device_train_batch_size
    episodes = -(-device_batch // SFT_BATCHES)
    batch = build_batch(workload, episodes, 1, model.config.image_token_id)
    pixels = build_batch_pixels(batch, model)
    images = [pixels[key] for row in batch["image_keys"].tolist() for key in row]
    batch |= get_architecture(model.config).build_vision_inputs(images, model.device, torch.float32)
    batch["mm_token_type_ids"] = (
        torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1) == model.config.image_token_id
    ).int()
    batch["weights"] = batch["tool_mask"].float()

    def forward() -> torch.Tensor:
        return compute_sft_loss(model, [batch], 1.0)

    return forward, device_batch / episodes
