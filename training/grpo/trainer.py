"""GRPO on episodes. Loss, optimizer and logging are TRL's; the episodes and the forward pass are viewbox's.

TRL asks for a batch with `_generate_and_score_completions`. Its own version can put images only into prompts or into
its own tool loop, and drops the pixels of a whole batch if one sample does not fit. Here a batch takes five stages:

    sample_tasks          the tasks that this process plays
    play_episodes         the engine plays them; dynamic sampling replaces groups that teach nothing
    score_episodes        one reward an episode
    compute_advantages    each reward relative to its group (`advantages.py`)
    build_loss_tensors    sampled tokens, masks and pixels, as TRL's loss reads them (`batch.py`)

`compute_loss` then learns from it: the log-probs are computed by `logprobs.py`, the loss by TRL.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import send_to_device
from transformers import PreTrainedModel
from trl import GRPOTrainer

from viewbox.configs.sections import SamplingParams
from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.envs.tasks import to_sequence
from viewbox.errors import ConfigError
from viewbox.records import Episode, EpisodeTokens, Task
from viewbox.rollouts.engine.architectures import Pixels
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.engine.engine import HFGenerator
from viewbox.rollouts.engine.vision_cache import VisionCache
from viewbox.rollouts.play import play_many, sample_seed
from viewbox.rollouts.scoring.metrics import compute_environment_metrics
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.training.checkpoints import Checkpoints
from viewbox.training.generation import use_for_generation
from viewbox.training.grpo.advantages import group_advantages, summarize_rewards
from viewbox.training.grpo.batch import collate, collect_pixels, describe_mismatch
from viewbox.training.grpo.curriculum import Curriculum
from viewbox.training.grpo.dynamic_sampling import check_whole_groups, draw_other_tasks, replace_uniform_groups
from viewbox.training.grpo.empty_updates import SkipEmptyUpdates
from viewbox.training.grpo.importance_sampling import compute_importance_ratio, summarize_ratio, weight_advantages
from viewbox.training.grpo.logprobs import EpisodeLogProbs, add_compute_argument
from viewbox.training.grpo.micro_batches import check_additive_loss, compute_share, select, split_by_tokens
from viewbox.training.precision import use_float32_adapters

# Every private name of TRL 1.16 that viewbox uses; only this file uses them. `training/checkpoints.py` lists those of
# transformers, and `tests/training/grpo/test_private_names.py` checks both lists.
PRIVATE_NAMES = {
    "_generate_and_score_completions": "overridden: the five stages",
    "_get_per_token_logps_and_entropies": "overridden: our forward pass gives the log-probs of the loss",
    "_compute_loss": "extended: measures how far the log-probs are from the engine's",
    "_set_signature_columns_if_needed": "overridden: a row of the dataset holds the index of a task",
    "_signature_columns": "set: the columns of such a row",
    "_metrics": "written: lists of values that TRL averages and logs",
    "_step": "saved and restored: batches used so far",
    "_buffered_inputs": "saved and restored: a batch that still serves updates",
}

log = logging.getLogger("viewbox.train")


class EpisodeGRPOTrainer(Checkpoints, GRPOTrainer):
    """`GRPOTrainer` whose completions are whole episodes of an environment.

    Args:
        env: the environment; `task` in a row of the dataset is an index into its tasks.
        generation: keyword arguments of `HFGenerator`.
        timeout: maximum seconds of an episode; None: no limit.
        episodes_folder: the folder to which the first `episodes_per_step` episodes of every step are appended.
        importance_sampling_cap: see `importance_sampling.py`. None: the engine's log-probs are used in place of the
            trainer's own, which saves a forward pass.
        dynamic_sampling_rounds: see `dynamic_sampling.py`.
        micro_batch_tokens: see `micro_batches.py`. None: one forward and backward pass for a batch.
        curriculum: see `curriculum.py`. None: `env` is played at every step.

    Raises:
        ConfigError: the settings do not fit each other or the way the run was launched.
    """

    model: Any
    args: Any
    train_dataset: Any
    _current_batch: dict[str, Any] | None = None  # the batch whose loss TRL computes
    _current_logps: torch.Tensor | None = None

    def __init__(
        self,
        *args: Any,
        env: BaseMultiTurnEnv,
        generation: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        episodes_folder: Path | None = None,
        episodes_per_step: int = 0,
        importance_sampling_cap: float | None = None,
        dynamic_sampling_rounds: int = 0,
        micro_batch_tokens: int | None = None,
        curriculum: Curriculum | None = None,
        **kwargs: Any,
    ) -> None:
        if getattr(kwargs.get("args"), "use_vllm", False):
            raise ConfigError("train.use_vllm: episodes are generated by viewbox; allowed: false", key="train.use_vllm")
        super().__init__(*args, **kwargs)
        use_float32_adapters(self.model)
        if self.is_fsdp_enabled or getattr(self, "is_deepspeed_enabled", False):
            raise ConfigError("the launcher chose FSDP or DeepSpeed; allowed: one device, or several with DDP")
        check_additive_loss(micro_batch_tokens, self.args)
        batch_size = self.args.per_device_train_batch_size * self.args.steps_per_generation
        check_whole_groups(dynamic_sampling_rounds, batch_size, self.args.num_generations)
        self.importance_sampling_cap, self.dynamic_sampling_rounds = importance_sampling_cap, dynamic_sampling_rounds
        self.micro_batch_tokens = micro_batch_tokens
        self.env, self.timeout, self.curriculum = env, timeout, curriculum
        policy = self.accelerator.unwrap_model(self.model)
        self.tokens = ChatTokens(self.processing_class, policy.config, policy.generation_config)
        self.generation = {"sampling": SamplingParams(temperature=self.temperature), **(generation or {})}
        self.writer = EpisodeWriter(episodes_folder) if episodes_folder is not None and episodes_per_step else None
        self.episodes_per_step = episodes_per_step
        # steps that are repeated after a resume play the same episodes again; each is stored only once
        self._stored = {e.info.get("number") for e in load(self.writer.path)} if self.writer else set()
        self.latest_episodes: list[Episode] = []  # the first of the last batch
        self.on_episode: Callable[[int, int], None] = lambda done, total: None
        self._played = 0  # sample numbers used so far by all processes; each is a seed
        self._vision_cache = VisionCache(policy, self.tokens.architecture)
        self._pixels: Mapping[int, Pixels] = {}  # of the current batch, on the host
        self.tokens.pixel_cache.dtype = self.tokens.architecture.get_pixel_dtype(policy)
        self._learned = torch.zeros((), device=self.accelerator.device)  # tokens of the update that are learned from
        self.add_callback(SkipEmptyUpdates(self._take_learned))
        add_compute_argument(self.model)

    def collect_state(self) -> dict[str, Any]:
        self._vision_cache.clear()  # a resumed run has none either, and rounding depends on the batch of a forward
        pending = bool(self._step % (self.args.steps_per_generation * self.num_iterations))
        return super().collect_state() | {
            "step": self._step,
            "played": self._played,
            "metrics": {name: list(values) for name, values in self._metrics["train"].items()},
            "batch": self._buffered_inputs if pending else None,
            "curriculum": self.curriculum and self.curriculum.state_dict(),
            "pixels": {key: (p.values, p.grid, p.tokens) for key, p in self._pixels.items() if pending},
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        super().restore_state(state)
        self._step, self._played = state["step"], state["played"]
        self._metrics["train"].update(state["metrics"])
        if self.curriculum is not None and state.get("curriculum") is not None:
            self.curriculum.load_state_dict(state["curriculum"])
        self._buffered_inputs = send_to_device(state["batch"], self.accelerator.device)
        self._pixels = {key: Pixels(*parts) for key, parts in state["pixels"].items()}

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns: Any = ["task", "prompt"]

    # ------------------------------------------------------------------ a batch, in five stages
    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        mode = "train" if self.model.training else "eval"
        group_size = (self.num_generations if mode == "train" else self.num_generations_eval) or 1
        started = time.perf_counter()
        if self.curriculum is not None and mode == "train":
            self.env = self.curriculum.get_env(self.state.global_step)
            self._log_value(mode, "curriculum/level", self.curriculum.get_level(self.state.global_step))
        tasks = self.sample_tasks(inputs)
        with self.tokens.pixel_cache.hold():
            episodes = self.play_episodes(tasks, group_size, mode)
            generated = time.perf_counter()
            rewards = self.score_episodes(episodes)
            advantages = self.compute_advantages(rewards, group_size, mode)
            batch = self.build_loss_tensors(episodes, rewards, advantages)
        self._store_episodes(episodes, mode)
        self._log_episodes(episodes, rewards, mode)
        self._log_mean(mode, "time/generation", generated - started)
        self._log_mean(mode, "time/scoring", time.perf_counter() - generated)
        return batch | self.compute_fixed_logps(batch, mode)

    def sample_tasks(self, inputs: Sequence[Mapping[str, Any]]) -> list[int]:
        """Stage 1: the tasks of this process's episodes, by index; TRL's sampler repeats each for its group."""
        return [row["task"] for row in inputs]

    def play_episodes(self, tasks: Sequence[int], group_size: int, mode: str) -> list[Episode]:
        """Stage 2: an episode for each task; groups that teach nothing may be replaced by groups of other tasks."""
        started = time.perf_counter()
        episodes, replaced = self._play_tasks(self._get_tasks(tasks)), 0
        if self.dynamic_sampling_rounds and mode == "train":
            episodes, replaced = self._replace_uniform_groups(episodes, tasks, group_size)
        played, processes = len(episodes) + replaced * group_size, self.accelerator.num_processes
        seconds = time.perf_counter() - started
        self._log_mean(mode, "time/episodes_per_second", played * processes / seconds)
        self._log_mean(mode, "episodes/played", played, processes)
        if self.dynamic_sampling_rounds and mode == "train":
            self._log_mean(mode, "dynamic_sampling/groups", replaced, processes)
        return episodes

    def score_episodes(self, episodes: Sequence[Episode]) -> torch.Tensor:
        """Stage 3: (B,) rewards; NaN for an episode that teaches nothing: it leaves its group, with a warning."""
        problems = [problem for episode in episodes if (problem := self._describe_problem(episode)) is not None]
        for problem, count in Counter(problems).items():
            log.warning("%d of %d episodes teach nothing: %s", count, len(episodes), problem)
        rewards = [self._get_reward(episode) for episode in episodes]
        values = [math.nan if reward is None else reward for reward in rewards]
        return torch.tensor(values, device=self.accelerator.device)

    def compute_advantages(self, rewards: torch.Tensor, group_size: int, mode: str) -> torch.Tensor:
        """Stage 4: (B,) group-relative advantages; a group may be spread over processes."""
        everyone = self.accelerator.gather(rewards)
        if self.curriculum is not None and mode == "train":
            self.curriculum.add_reward(everyone.nanmean().item())
        for name, value in summarize_rewards(everyone, group_size).items():
            self._log_value(mode, name, value)
        first = self.accelerator.process_index * len(rewards)
        return group_advantages(everyone, group_size, self.scale_rewards)[first : first + len(rewards)]

    def build_loss_tensors(
        self, episodes: Sequence[Episode], rewards: torch.Tensor, advantages: torch.Tensor
    ) -> dict[str, Any]:
        """Stage 5: the tensors that TRL's loss reads. Dropped and masked episodes keep a row; its `tool_mask` is 0."""
        usable = ~rewards.isnan()
        rows = [e.tokens if ok else self._build_stand_in() for e, ok in zip(episodes, usable.tolist(), strict=True)]
        learned = [tokens for tokens in rows if tokens is not None]
        self._pixels = collect_pixels(learned, self.tokens)
        batch = collate(learned, self.tokens, self.accelerator.device)
        if self.mask_truncated_completions:
            usable &= torch.tensor([not episode.truncated for episode in episodes], device=usable.device)
        batch["tool_mask"] *= usable[:, None]
        batch["advantages"] = advantages
        batch["num_items_in_batch"] = self.accelerator.gather(_get_sampled(batch).sum()).sum()
        batch["sampling_per_token_logps"] = batch.pop("logprobs")
        return batch

    def compute_fixed_logps(self, batch: dict[str, Any], mode: str) -> dict[str, torch.Tensor]:
        """(B, C) log-probs that stay fixed for all updates of a batch: before the first, and of the reference model."""
        fixed: dict[str, torch.Tensor] = {}
        reused = self.args.gradient_accumulation_steps % (self.args.steps_per_generation * self.num_iterations)
        if mode == "train" and reused:
            fixed |= self._compute_old_logps(batch)
        if self.beta != 0.0:
            fixed["ref_per_token_logps"] = self._compute_reference_logps(batch, mode)
        return fixed

    # ------------------------------------------------------------------ playing
    def _get_tasks(self, indices: Sequence[int]) -> list[Task]:
        tasks = to_sequence(self.env.tasks, self.env.name)
        return [tasks[index % len(tasks)] for index in indices]  # a level of a curriculum may have fewer

    def _play_tasks(self, tasks: Sequence[Task], num_seeds: int | None = None) -> list[Episode]:
        """An episode for each task, in order, each with its own seed.

        `num_seeds` seeds are reserved for each process (default: one for each task), whether they are used or not.
        """
        num_seeds = len(tasks) if num_seeds is None else num_seeds
        first = self._played + self.accelerator.process_index * num_seeds
        self._played += num_seeds * self.accelerator.num_processes
        settings = {"slots": len(tasks), **self.generation}
        settings["slots"] = min(settings["slots"], len(tasks))

        async def play(model: PreTrainedModel) -> list[Episode]:
            generator = HFGenerator(model, self.tokens, vision_cache=self._vision_cache, **settings)
            seed = sample_seed(self.args.seed, first)
            limits = {"concurrency": settings["slots"], "timeout": self.timeout}
            episodes: list[Episode] = []
            async for episode in play_many(self.env, tasks, generator, seed=seed, **limits):
                episodes.append(episode)
                self.on_episode(len(episodes), len(tasks))
            step = {"step": self.state.global_step + 1}
            episodes = [replace(e, info={**e.info, **step, "number": first + e.info["index"]}) for e in episodes]
            return sorted(episodes, key=lambda episode: episode.info["index"])

        with use_for_generation(self.accelerator, self.model) as model:
            return asyncio.run(play(model))

    def _replace_uniform_groups(
        self, episodes: list[Episode], tasks: Sequence[int], group_size: int
    ) -> tuple[list[Episode], int]:
        """The batch with its uniform groups replaced, and how many groups this process played for that.

        All processes shuffle the tasks in the same way and take every n-th of them. A process does not know how many
        rounds the others play, so the sample numbers of all rounds are reserved.
        """
        process, processes, batch_size = self.accelerator.process_index, self.accelerator.num_processes, len(tasks)
        taken = self.accelerator.gather(torch.tensor(tasks, device=self.accelerator.device))
        rounds = self.dynamic_sampling_rounds
        seed = sample_seed(self.args.seed, self._played)
        others = draw_other_tasks(
            self.train_dataset["task"], taken.tolist(), rounds * processes * batch_size // group_size, seed
        )
        after = self._played + rounds * processes * batch_size
        result = replace_uniform_groups(
            episodes,
            group_size,
            rounds,
            others[process::processes],
            self._get_reward,
            lambda drawn: self._play_tasks(self._get_tasks(drawn), batch_size),
        )
        self._played = after
        return result

    def _get_reward(self, episode: Episode) -> float | None:
        if self._describe_problem(episode) is not None:
            return None
        return episode.scores.total if episode.scores else None

    def _describe_problem(self, episode: Episode) -> str | None:
        """Why an episode teaches nothing; None if it does.

        A fault of the environment and a reward that fails say nothing about the policy. `max_turns`, `max_tokens` and
        `malformed` are its own doing.
        """
        if (problem := episode.explain_missing_score()) is not None:
            return problem
        if episode.tokens is None or not episode.tokens.completion_ids:
            return f"no tokens (end: {episode.end_reason})"
        return describe_mismatch(episode.tokens, self.tokens)

    def _build_stand_in(self) -> EpisodeTokens:
        """The row of a dropped episode: no image, and no token to learn."""
        end = (self.tokens.end_id,)
        return EpisodeTokens(end, end, (0,), (0.0,))

    def _store_episodes(self, episodes: Sequence[Episode], mode: str) -> None:
        self.latest_episodes = list(episodes[: self.episodes_per_step])
        if self.writer is not None and mode == "train" and self.accelerator.is_main_process:
            for episode in self.latest_episodes:
                if episode.info["number"] not in self._stored:
                    self.writer.append_or_error(episode)

    # ------------------------------------------------------------------ log-probs
    def _compute_old_logps(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """For a batch that serves several updates: log-probs before the first, and importance-weighted advantages."""
        engine = batch["sampling_per_token_logps"]
        if self.importance_sampling_cap is None:
            return {"old_per_token_logps": engine}  # they equal those of a full forward pass (tested)
        old = self._compute_logps_in_parts(self.model, batch, "train")
        ratio = compute_importance_ratio(old, engine, _get_sampled(batch))
        for name, value in summarize_ratio(ratio, _get_sampled(batch), self.accelerator).items():
            self._log_value("train", f"sampling/importance_ratio/{name}", value)
        weighted = weight_advantages(batch["advantages"], ratio, self.importance_sampling_cap, self.loss_type)
        return {"old_per_token_logps": old, **weighted}

    def _compute_reference_logps(self, batch: dict[str, Any], mode: str) -> torch.Tensor:
        if self.ref_model is not None:
            return self._compute_logps_in_parts(self.ref_model, batch, mode)
        with self.accelerator.unwrap_model(self.model).disable_adapter():
            return self._compute_logps_in_parts(self.model, batch, mode)

    @torch.no_grad()
    def _compute_logps_in_parts(self, model: Any, batch: dict[str, Any], mode: str) -> torch.Tensor:
        """(B, C) log-probs of a whole batch under a model, computed in parts."""
        size = self.args.per_device_train_batch_size if mode == "train" else self.args.per_device_eval_batch_size
        count = len(batch["prompt_ids"])
        parts = [list(range(count))[start : start + size] for start in range(0, count, size)]
        if self.micro_batch_tokens is not None:
            parts = split_by_tokens(batch, self.micro_batch_tokens)
        unwrapped = self.accelerator.unwrap_model(model)
        logps = torch.cat([self._compute_logps(unwrapped, select(batch, part))[0] for part in parts])
        return logps[torch.tensor([k for part in parts for k in part], device=logps.device).argsort()]

    def _compute_logps(self, model: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (B, C), of a batch under `model`."""
        unwrapped = self.accelerator.unwrap_model(model)
        log_probs = EpisodeLogProbs(
            unwrapped,
            self.tokens.architecture,
            self.tokens.image_id,
            self.tokens.pad_id,
            self.temperature,
            self._pixels,
            self._vision_cache if self._vision_cache.frozen and unwrapped is self._vision_cache.model else None,
        )
        with self.accelerator.autocast():
            return log_probs(batch) if model is unwrapped else model(compute=partial(log_probs, batch))

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> tuple:
        """Log-probs and entropies of `_current_batch`, for TRL's loss."""
        assert self._current_batch is not None
        logps, entropies = self._compute_logps(model, self._current_batch)
        self._current_logps = logps.detach()
        return logps, entropies, None

    # ------------------------------------------------------------------ the loss
    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """The loss of a batch. With `micro_batch_tokens`, all parts but the last also do their backward pass here."""
        if self.micro_batch_tokens is None or not torch.is_grad_enabled():
            return self._compute_loss(model, inputs)
        *parts, last = split_by_tokens(inputs, self.micro_batch_tokens, self.accelerator.gather)
        earlier = torch.zeros((), device=self.accelerator.device)
        for part in parts:
            with self.accelerator.no_sync(model):
                loss = self._compute_part_loss(model, inputs, part)
                self.accelerator.backward(loss)
            earlier += loss.detach()
        return self._compute_part_loss(model, inputs, last) + earlier

    def _compute_part_loss(self, model: Any, inputs: dict[str, Any], part: Sequence[int]) -> torch.Tensor:
        return self._compute_loss(model, select(inputs, part)) * compute_share(inputs, part, self.loss_type)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        started = time.perf_counter()
        self._learned += _get_sampled(inputs).sum()
        self._current_batch = inputs
        loss = super()._compute_loss(model, inputs)
        self._current_batch = None
        mode = "train" if self.model.training else "eval"
        assert self._current_logps is not None
        gap = (self._current_logps - inputs["sampling_per_token_logps"]).abs()[_get_sampled(inputs).bool()]
        self._current_logps = None
        self._log_mean(mode, "sampling/logp_difference/mean", gap.mean().item())
        self._log_mean(mode, "sampling/logp_difference/max", gap.max().item() if len(gap) else math.nan)
        self._log_mean(mode, "time/loss_forward", time.perf_counter() - started)
        return loss

    def _take_learned(self) -> bool:
        """Whether any process has learned from a token since the last call."""
        learned = self.accelerator.gather(self._learned).sum().item() > 0
        self._learned.zero_()
        return learned

    # ------------------------------------------------------------------ metrics
    def _log_episodes(self, episodes: Sequence[Episode], rewards: torch.Tensor, mode: str) -> None:
        """Every component, end reason and rate of the batch, averaged over processes."""
        for name, value in compute_environment_metrics(episodes, self.env).items():
            if name != "reward":
                self._log_mean(mode, name, value)
        self._log_mean(mode, "episodes/dropped", float(rewards.isnan().sum()))

    def add_figures(self, figures: Mapping[str, float]) -> None:
        """Adds figures to the next line of metrics."""
        for name, value in figures.items():
            self._log_value("train", name, value)

    def _log_value(self, mode: str, name: str, value: float) -> None:
        self._metrics[mode][name].append(value)

    def _log_mean(self, mode: str, name: str, value: float, times: int = 1) -> None:
        """Logs the mean over processes. All of them must call it; a process without a value gives NaN."""
        mean = self.accelerator.gather(torch.tensor([float(value)], device=self.accelerator.device)).nanmean().item()
        if not math.isnan(mean):
            self._log_value(mode, name, mean * times)


def _get_sampled(batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(B, C): 1 on the tokens the policy sampled and is trained on."""
    return batch["completion_mask"] * batch["tool_mask"]
