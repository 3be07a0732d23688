"""GRPO on episodes. Loss, optimizer and logging are TRL's; the episodes and the forward pass are viewbox's.

TRL asks for a batch with `_generate_and_score_completions`. Its own version can put images only into prompts or into
its own tool loop, and drops the pixels of a whole batch if one sample does not fit. Here a batch takes five stages:

    sample_tasks          the tasks that this process plays
    play_episodes         the engine plays them (`player.py`)
    score_episodes        one reward an episode
    compute_advantages    what each episode, or each of its replies, is worth in its group (`credit.py`)
    build_loss_tensors    sampled tokens, masks and pixels, as TRL's loss reads them (`batch.py`)

`compute_loss` then learns from it: the log-probs are ours (`logprobs.py`), the loss is TRL's.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device
from torch.nn.utils.rnn import pad_sequence
from transformers import TrainerCallback, TrainerControl, TrainerState
from trl import GRPOTrainer

from ...configs.sections import RolloutSection
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...engines.hf.architectures import Pixels
from ...engines.hf.chat_tokens import ChatTokens, build_stand_in, describe_problem
from ...engines.hf.vision_cache import VisionCache
from ...engines.vllm.weights import WeightSender
from ...errors import ConfigError, ModelError
from ...records import Episode
from ...rollouts.scoring.metrics import compute_environment_metrics, measure_sameness
from ..checkpoints import Checkpoints
from ..generation import Sampler
from ..precision import use_float32_adapters
from ..trainer_args import check_additive_loss, check_credit
from .batch import collate, collect_pixels, compute_share, find_learned, get_sampled, select, split_by_tokens
from .credit import build_credit, name_credit, spread
from .groups import summarize_rewards
from .logprobs import BatchLogProbs, add_compute_argument
from .player import BatchPlayer

# Every private name of TRL 1.16 that viewbox uses; only this file uses them. `training/checkpoints.py` lists those of
# transformers, and `tests/training/grpo/test_private_names.py` checks both lists.
PRIVATE_NAMES = {
    "_generate_and_score_completions": "overridden: the five stages",
    "_get_per_token_logps_and_entropies": "overridden: our forward pass gives the log-probs of the loss",
    "_compute_loss": "extended: measures how far the log-probs are from the engine's",
    "_metrics": "written: lists of values that TRL averages and logs",
    "_step": "saved and restored: batches used so far",
    "_buffered_inputs": "saved and restored: a batch that still serves updates",
}

log = logging.getLogger("viewbox.train")
MAX_FIRST_DIFFERENCE = 0.5  # of log-probs, in the mean, between a server and the loss before any update
MAX_UNSCORED = 3  # batches at the beginning in which no episode has a score, after which a run ends


class EpisodeGRPOTrainer(Checkpoints, GRPOTrainer):
    """`GRPOTrainer` whose completions are whole episodes of an environment. Raise `ConfigError` if the settings do not
    fit each other or the way the run was launched."""

    model: Any
    args: Any
    train_dataset: Any
    _current_batch: dict[str, Any] | None = None  # the batch whose loss TRL computes
    _unscored: float = 0  # batches so far in which no episode had a score; -inf once one had
    _problem = ""  # why an episode had none

    def __init__(
        self,
        *args: Any,
        env: BaseMultiTurnEnv,
        rollout: RolloutSection,
        model_name: str = "",
        episodes_folder: Path | None = None,
        episodes_per_step: int | None = None,
        importance_sampling_cap: float | None = None,
        micro_batch_tokens: int | None = None,
        credit: str = "episode",
        weights: WeightSender | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, reward_funcs=score_nothing, **kwargs)
        self.aux_loss_enabled = False  # a mixture of experts: no loss of its routers, whose logits are not computed
        use_float32_adapters(self.model)
        check_additive_loss(micro_batch_tokens, vars(self.args))
        self.importance_sampling_cap, self.micro_batch_tokens = importance_sampling_cap, micro_batch_tokens
        check_credit(credit, vars(self.args))
        self.env, self.credit_name, self.credit = env, credit, build_credit(credit, self.scale_rewards)
        policy = self.accelerator.unwrap_model(self.model)
        self.tokens = ChatTokens(self.processing_class, policy.config, policy.generation_config)
        self._vision_cache = VisionCache(policy, self.tokens.architecture)
        self.player = BatchPlayer(
            self.accelerator,
            Sampler(self.tokens, rollout, model_name, weights, self._vision_cache),
            seed=self.args.seed,
            folder=episodes_folder,
            episodes_per_step=episodes_per_step,
        )
        self.log_probs = BatchLogProbs(
            self.accelerator, self.tokens, self._vision_cache, self.temperature, micro_batch_tokens
        )
        self.tokens.pixel_cache.dtype = self.tokens.architecture.get_pixel_dtype(policy)
        self._skip_empty = SkipEmptyUpdates(self.accelerator)
        self.add_callback(self._skip_empty)
        add_compute_argument(self.model)

    def collect_state(self) -> dict[str, object]:
        self._vision_cache.clear()  # a resumed run has none either, and rounding depends on the batch of a forward
        pending = bool(self._step % (self.args.steps_per_generation * self.num_iterations))
        return super().collect_state() | {
            "step": self._step,
            "played": self.player.num_played,
            "metrics": {name: list(values) for name, values in self._metrics["train"].items()},
            "batch": self._buffered_inputs if pending else None,
            "made_with": self._list_batch_settings(),
            "reference": self._get_reference().state_dict() if self.args.sync_ref_model else None,
            "pixels": {k: (dict(p.inputs), p.tokens, p.text) for k, p in self.log_probs.pixels.items() if pending},
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        super().restore_state(state)
        self._step, self.player.num_played = state["step"], state["played"]
        self._metrics["train"].update(state["metrics"])
        if self.args.sync_ref_model and state["reference"] is not None:
            self._get_reference().load_state_dict(state["reference"])
        # a batch that was made with other settings is made again: TRL does so if there is none
        batch = state["batch"] if state["made_with"] == self._list_batch_settings() else None
        self._buffered_inputs = send_to_device(batch, self.accelerator.device)
        self.log_probs.pixels = {key: Pixels(*parts) for key, parts in state["pixels"].items()}

    def _list_batch_settings(self) -> list[object]:
        """Return the settings that the tensors of a batch depend on, beside its shape."""
        loss = [self.temperature, self.beta, self.importance_sampling_cap, self.loss_type, self.scale_rewards]
        return loss if self.credit_name == "episode" else [*loss, self.credit_name]  # as before there were others

    def _get_reference(self) -> torch.nn.Module:
        model: torch.nn.Module = self.accelerator.unwrap_model(self.ref_model)
        return model

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        started = time.perf_counter()
        tasks = self.sample_tasks(inputs)
        with self.tokens.pixel_cache.hold():
            episodes = self.play_episodes(tasks)
            generated = time.perf_counter()
            rewards = self.score_episodes(episodes)
            advantages = self.compute_advantages(episodes, rewards)
            batch = self.build_loss_tensors(episodes, rewards, advantages)
        self.player.store(episodes, advantages.tolist())
        for name, value in {**compute_environment_metrics(episodes, self.env), **measure_sameness(episodes)}.items():
            if name != "reward":
                self._add_mean(name, value)
        self._add_mean("episodes/dropped", float(rewards.isnan().sum()))
        self._add_mean("time/generation", generated - started)
        self._add_mean("time/scoring", time.perf_counter() - generated)
        return batch | self.compute_fixed_logps(batch)

    def sample_tasks(self, inputs: Sequence[Mapping[str, Any]]) -> list[int]:
        """Stage 1: the tasks of this process's episodes, by index; TRL's sampler repeats each for its group."""
        return [row["task"] for row in inputs]

    def play_episodes(self, tasks: Sequence[int]) -> list[Episode]:
        """Stage 2: an episode for each task."""
        started = time.perf_counter()
        episodes = self._play_tasks(tasks)
        self.player.sampler.release()
        played, seconds = len(episodes) * self.accelerator.num_processes, time.perf_counter() - started
        self._add_mean("time/episodes_per_second", played / seconds)
        self.add_figures({"episodes/played": played})
        return episodes

    def score_episodes(self, episodes: Sequence[Episode]) -> torch.Tensor:
        """Stage 3: (B,) rewards; NaN for an episode that teaches nothing: it leaves its group, with a warning."""
        problems = [describe_problem(episode, self.tokens) for episode in episodes]
        for problem, count in Counter(filter(None, problems)).items():
            self._problem = problem
            log.warning("%d of %d episodes teach nothing: %s", count, len(episodes), problem)
        usable = [e.scores if problem is None else None for e, problem in zip(episodes, problems, strict=True)]
        rewards = [math.nan if scores is None or scores.total is None else scores.total for scores in usable]
        return torch.tensor(rewards, device=self.accelerator.device)

    def compute_advantages(self, episodes: Sequence[Episode], rewards: torch.Tensor) -> torch.Tensor:
        """Stage 4: (B, 1 or replies) group-relative advantages; a group may be spread over processes."""
        everyone = self.accelerator.gather(rewards)
        self._require_scores(everyone)
        self.add_figures(summarize_rewards(everyone, self.num_generations))
        first = self.accelerator.process_index * len(rewards)
        with name_credit(self.credit_name):
            numbers = [
                self.credit.read(episode, self.env.for_task(episode.task).reward) if is_usable else [math.nan]
                for episode, is_usable in zip(episodes, (~rewards.isnan()).tolist(), strict=True)
            ]
            own = pad_sequence([rewards.new_tensor(row) for row in numbers], batch_first=True, padding_value=math.nan)
        rows = self.accelerator.gather(self.accelerator.pad_across_processes(own, dim=1, pad_index=math.nan))
        group, is_idle = self.num_generations, bool(rows.isnan().all())
        with name_credit(self.credit_name):
            weighed = torch.zeros(len(rows), 1) if is_idle else self.credit.weigh(rows, group)
            advantages = torch.as_tensor(weighed).detach().to(rewards).contiguous()
        usable = (episode for episode, reward in zip(episodes, rewards, strict=True) if not reward.isnan())
        replies = max((episode.num_turns for episode in usable), default=1)
        is_wide = advantages.ndim == 2 and (advantages.shape[1] == 1 or advantages.shape[1] >= replies)
        if not is_wide or len(advantages) != len(rows) or not advantages.isfinite().all():
            problem = f"train.credit = {self.credit_name}: gives advantages of {tuple(advantages.shape)}"
            raise ConfigError(f"{problem}; allowed: finite ones, ({len(rows)}, 1) or ({len(rows)}, replies)")
        idle = (advantages.view(-1, group * advantages.shape[1]) == 0).all(1)
        self.add_figures({"groups/idle": idle.float().mean().item()})
        return advantages[first : first + len(rewards)]

    def _require_scores(self, rewards: torch.Tensor) -> None:
        """Raise `ConfigError` if no episode of the first steps has a reward: nothing would be learned."""
        self._unscored = self._unscored + 1 if bool(rewards.isnan().all()) else -math.inf
        is_last = self.state.global_step + 1 >= self.state.max_steps
        if self._unscored >= (1 if is_last else MAX_UNSCORED):
            raise ConfigError(f"no episode so far has a score, so that nothing is learned: {self._problem}")

    def build_loss_tensors(
        self, episodes: Sequence[Episode], rewards: torch.Tensor, advantages: torch.Tensor
    ) -> dict[str, Any]:
        """Stage 5: the tensors that TRL's loss reads. Dropped and masked episodes keep a row; its `tool_mask` is 0."""
        usable, stand_in = ~rewards.isnan(), build_stand_in(self.tokens)
        rows = [e.tokens if ok else stand_in for e, ok in zip(episodes, usable.tolist(), strict=True)]
        learned = [tokens for tokens in rows if tokens is not None]
        self.log_probs.pixels = collect_pixels(learned, self.tokens)
        batch = collate(learned, self.tokens, self.accelerator.device)
        if self.mask_truncated_completions:
            usable &= torch.tensor([not episode.truncated for episode in episodes], device=usable.device)
        batch["tool_mask"] *= usable[:, None]
        batch["advantages"] = spread(advantages, learned, batch["completion_ids"].shape[1])
        batch["num_items_in_batch"] = self.accelerator.gather(get_sampled(batch).sum()).sum()
        batch["sampling_per_token_logps"] = batch.pop("logprobs")
        return batch

    def compute_fixed_logps(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """(B, C) log-probs that stay fixed for all updates of a batch: before the first, and of the reference model."""
        fixed: dict[str, torch.Tensor] = {}
        size = self.args.per_device_train_batch_size
        reused = self.args.gradient_accumulation_steps % (self.args.steps_per_generation * self.num_iterations)
        if reused or self.player.weights is not None:
            cap = self.importance_sampling_cap
            fixed, figures = self.log_probs.compute_old(self.model, batch, size, cap, self.loss_type)
            self.add_figures(figures)
        if self.beta != 0.0:
            fixed["ref_per_token_logps"] = self.log_probs.compute_reference(self.model, self.ref_model, batch, size)
        return fixed

    def _play_tasks(self, indices: Sequence[int]) -> list[Episode]:
        known, step = to_sequence(self.env.tasks, self.env.name), self.state.global_step + 1
        return self.player.play(self.model, self.env, [known[index] for index in indices], step, self.num_generations)

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Log-probs and entropies of `_current_batch`, for TRL's loss."""
        assert self._current_batch is not None
        return *self.log_probs.compute(model, self._current_batch, self._find_learned(self._current_batch)), None

    def _find_learned(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """(B,): whether the loss needs an episode's log-probs. All of TRL's losses are multiples of the advantage, but
        for what KL and entropies add; an entropy of what filters left is none of the policy."""
        args = self.args
        entropies = args.entropy_coef != 0.0 or args.use_adaptive_entropy or self.top_entropy_quantile < 1.0
        if self.beta != 0.0 or entropies or self.player.sampler.rollout.list_filters():
            return torch.ones_like(batch["completion_ids"][:, 0], dtype=torch.bool)
        return find_learned(batch)

    def compute_loss(
        self, model: object, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: object = None
    ) -> torch.Tensor:
        """Return the loss of a batch. With `micro_batch_tokens`, all parts but the last also do their backward pass
        here."""
        if self.micro_batch_tokens is None:
            return self._compute_loss(model, inputs)

        def compute(part: Sequence[int]) -> torch.Tensor:
            return self._compute_loss(model, select(inputs, part)) * compute_share(inputs, part, self.loss_type)

        share, learned = self.tokens.architecture.shares_prompts, self._find_learned(inputs)
        gather = self.accelerator.gather
        *parts, last = split_by_tokens(inputs, self.micro_batch_tokens, gather, share=share, learned=learned)
        earlier = torch.zeros((), device=self.accelerator.device)
        for part in parts:
            with self.accelerator.no_sync(model):  # processes synchronize in the last part
                loss = compute(part)
                self.accelerator.backward(loss)
            earlier += loss.detach()
        return compute(last) + earlier

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        started = time.perf_counter()
        self._skip_empty.add(get_sampled(inputs).sum())
        self._current_batch = inputs
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        self._current_batch = None
        computed = get_sampled(inputs).bool() & self._find_learned(inputs)[:, None]
        gap = (self.log_probs.latest - inputs["sampling_per_token_logps"]).abs()[computed]
        if self.player.weights is not None and self.state.global_step == 0:
            check_first_difference(gap)
        self._add_mean("sampling/logp_difference/mean", gap.mean().item())
        self._add_mean("sampling/logp_difference/max", gap.max().item() if len(gap) else math.nan)
        self._add_mean("time/loss_forward", time.perf_counter() - started)
        return loss

    def add_figures(self, figures: Mapping[str, float]) -> None:
        """Add figures that are the same on all processes."""
        for name, value in figures.items():
            self._metrics["train"][name].append(value)

    def _add_mean(self, name: str, value: float) -> None:
        """Add the mean over processes. All of them must call it; a process without a value gives NaN."""
        mean = self.accelerator.gather(torch.tensor([float(value)], device=self.accelerator.device)).nanmean().item()
        if not math.isnan(mean):
            self.add_figures({name: mean})


def check_first_difference(gap: torch.Tensor) -> None:
    """Raise `ModelError` if a server's log-probs of the first batch are not those of the same weights here.

    Args:
        gap: (tokens,) absolute differences. Rounding to two bytes makes them about 0.02 in the mean.

    >>> check_first_difference(torch.tensor([0.01, 0.04]))
    """
    if len(gap) and not gap.mean() <= MAX_FIRST_DIFFERENCE:
        raise ModelError(
            f"rollout.engine = vllm: its log-probs of the first batch differ by {gap.mean():.2g} in the mean from "
            f"those of the same weights here, and by up to {gap.max():.2g}; allowed: {MAX_FIRST_DIFFERENCE:g}. It "
            "computes another model; allowed: rollout.engine = hf, or a vLLM that supports this family",
            key="rollout.engine",
        )


def score_nothing(**columns: object) -> list[None]:
    """Stand for the reward without which TRL makes no trainer: it is never called, as episodes come with scores."""
    raise NotImplementedError


class SkipEmptyUpdates(TrainerCallback):
    """Takes away the gradients before an optimizer step if no process had a token to learn from since the last one."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self._learned = torch.zeros((), device=accelerator.device)

    def add(self, tokens: torch.Tensor) -> None:
        """Count tokens that the update learns from, a tensor of one number."""
        self._learned += tokens

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        learned = self.accelerator.gather(self._learned).sum().item()
        self._learned.zero_()
        if not learned:
            kwargs["model"].zero_grad(set_to_none=True)  # an optimizer passes over a weight without a gradient
