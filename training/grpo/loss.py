"""TRL's GRPO loss on episodes: our forward, in micro-batches by tokens, its log-probs held against the engine's."""

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from trl import GRPOTrainer

from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.training.grpo.logprobs import Scorer, takes_scorers
from viewbox.training.grpo.micro_batches import check_sums, chosen, micro_batches


class EpisodeLoss(GRPOTrainer):
    """The half of the trainer that learns from a batch. `micro_batch_tokens`: see `micro_batches`; None: one part."""

    model: Any
    tokens: ChatTokens
    _scored: dict[str, Any] | None = None  # the batch whose loss is worked out
    _last_logps: torch.Tensor | None = None

    def __init__(self, *args: Any, micro_batch_tokens: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_sums(micro_batch_tokens, self.args)
        self.micro_batch_tokens = micro_batch_tokens
        takes_scorers(self.model)

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> tuple:
        """What TRL's loss asks for, of the batch it is about."""
        assert self._scored is not None
        logps, entropies = self._log_probs(model, self._scored)
        self._last_logps = logps.detach()
        return logps, entropies, None

    def _log_probs(self, model: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (B, C), of a batch under `model`."""
        whole = self.accelerator.unwrap_model(model)
        scorer = Scorer(whole, self.tokens.architecture, self.tokens.image_id, self.tokens.pad_id, self.temperature)
        with self.accelerator.autocast():
            return scorer(batch) if model is whole else model(scorer=partial(scorer, batch))

    @torch.no_grad()
    def _logps(self, model: Any, batch: dict[str, Any], mode: str) -> torch.Tensor:
        """(B, C) log-probs of a whole batch under a model, in parts."""
        size = self.args.per_device_train_batch_size if mode == "train" else self.args.per_device_eval_batch_size
        count = len(batch["prompt_ids"])
        parts = [list(range(count))[start : start + size] for start in range(0, count, size)]
        if self.micro_batch_tokens is not None:
            parts = micro_batches(batch, self.micro_batch_tokens)
        whole = self.accelerator.unwrap_model(model)
        found = torch.cat([self._log_probs(whole, chosen(batch, part))[0] for part in parts])
        return found[torch.tensor([k for part in parts for k in part], device=found.device).argsort()]

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """The loss of a batch; with `micro_batch_tokens`, its parts but the last are also propagated back here."""
        if self.micro_batch_tokens is None or not torch.is_grad_enabled():
            return self._compute_loss(model, inputs)
        parts = micro_batches(inputs, self.micro_batch_tokens, self.accelerator.gather)
        earlier = torch.zeros((), device=self.accelerator.device)
        for part in parts[:-1]:
            with self.accelerator.no_sync(model):
                loss = self._compute_loss(model, chosen(inputs, part)) * self._share(inputs, part)
                self.accelerator.backward(loss)
            earlier += loss.detach()
        return self._compute_loss(model, chosen(inputs, parts[-1])) * self._share(inputs, parts[-1]) + earlier

    def _share(self, batch: dict[str, Any], part: Sequence[int]) -> float:
        """What the loss of a part counts for in the batch's: what TRL's loss types take the mean over."""
        if self.loss_type in ("dapo", "cispo", "vespo"):  # sums over tokens, divided by the whole batch's
            return 1.0
        if self.loss_type == "bnpo":
            sampled = (batch["completion_mask"] * batch["tool_mask"]).sum(1)
            return (sampled[list(part)].sum() / sampled.sum().clamp(min=1)).item()
        return len(part) / len(batch["prompt_ids"])

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        started = time.perf_counter()
        self._scored = inputs
        loss = super()._compute_loss(model, inputs)
        self._scored = None
        mode = "train" if self.model.training else "eval"
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        assert self._last_logps is not None
        gap = (self._last_logps - inputs["sampling_per_token_logps"]).abs()[mask]
        self._last_logps = None
        self._log_mean(mode, "sampling/logp_difference/mean", gap.mean().item())
        self._log_mean(mode, "sampling/logp_difference/max", gap.max().item() if len(gap) else math.nan)
        self._log_mean(mode, "time/loss_forward", time.perf_counter() - started)
        return loss

    def _log_value(self, mode: str, name: str, value: float) -> None:
        self._metrics[mode][name].append(value)

    def _log_mean(self, mode: str, name: str, value: float, times: int = 1) -> None:
        """The mean over processes, all of which must ask; those with nothing to tell give NaN."""
        mean = self.accelerator.gather(torch.tensor([float(value)], device=self.accelerator.device)).nanmean().item()
        if not math.isnan(mean):
            self._log_value(mode, name, mean * times)
