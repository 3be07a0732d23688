"""`ViewboxAgentLoop`: verl's agent loop that plays an episode of an environment with verl's own servers.

Read of verl 0.9.1: `experimental/agent_loop/agent_loop.py` (the interface), `trainer/ppo/v1/agent_loop_tq.py` (who
calls it), `workers/rollout/vllm_rollout/vllm_async_server.py` (what the server does with ids, images and settings).
"""

import logging
import math
import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from PIL import Image
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from ...core.messages import is_failure
from ...engines.generator import GeneratorError, ReplyError
from ...engines.hf.chat_tokens import build_stand_in, describe_problem
from ...engines.vllm.generator import SampledTokens, TokenRequest, TokenServerGenerator
from ...errors import ConfigError, ImageError
from ...images.ref import ImageRef
from ...records import Episode, Task
from ...rollouts.play import MAX_REASON, play_one
from ...utils import concurrency
from ...utils.terminal import describe_error, make_line
from .stage import HELD_OUT, TRAIN, Stage, build_reward_info, open_stage

log = logging.getLogger("viewbox.rollouts")


class ViewboxAgentLoop(AgentLoopBase):
    """Plays one row of the exported tasks. verl makes a loop for every row; what they share is made once a process. The
    path `config` of the exported config begins at the folder of the agent-loop YAML."""

    def __init__(self, *args: Any, config: str, tools: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.stage: Stage = open_stage(config, self.config, self.processor)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Return the tokens, images and reward of the episode of a row.

        One that teaches nothing is no row in training, so that it does not count in the mean of its group; in
        validation, and in verl's older trainer, it is a row without a token to learn. Raise `ConfigError` if the task
        or a setting does not fit, `GeneratorError` if verl's server failed."""
        started = time.monotonic()
        stage = self.stage
        env, task = stage.find_task(row["extra_info"])
        server = _Server(self, task, sampling_params)
        generator = TokenServerGenerator(
            stage.tokens,
            server.ask,
            stage.config.rollout.model_copy(update={"max_completion_tokens": self.rollout_config.response_length}),
        )
        episode = await play_one(
            env, task, generator, seed=stage.derive_seed(task, row), timeout=stage.config.rollout.timeout
        )
        problem = describe_problem(episode, stage.tokens)
        # Not in verl's older trainer, which has no sessions, nor under a filter of groups, which ends at an empty one
        may_leave_out = row["extra_info"]["split"] == TRAIN and "session_id" in row
        if problem is not None and may_leave_out and not self.config.algorithm.filter_groups.enable:
            log.warning(make_line(f"task {task.id}: left out of its group: {problem}"))
            return []
        output = self._build_output(episode, server, problem is None)
        output.metrics.tool_calls = max(0.0, time.monotonic() - started - server.seconds)
        missing = None if row["extra_info"]["split"] == HELD_OUT else math.nan
        output.extra_fields = {
            "reward_extra_info": build_reward_info(episode, env, missing),
            "min_global_steps": min(server.steps, default=row.get("global_steps")),
            "max_global_steps": max(server.steps, default=row.get("global_steps")),
        }
        return output

    def _build_output(self, episode: Episode, server: "_Server", teaches: bool) -> AgentLoopOutput:
        """Return the tokens, images and reward of an episode as verl takes them; a stand-in if it teaches nothing."""
        tokens = episode.tokens if teaches else build_stand_in(self.stage.tokens)
        assert tokens is not None
        reward = episode.scores.total if teaches and episode.scores is not None else 0.0
        # Episodes that a limit cut off may train nothing, though their rewards count in their groups
        masks = self.stage.config.train.arguments.get("mask_truncated_completions", False)
        is_learned = not (masks and episode.truncated)
        return AgentLoopOutput(
            prompt_ids=[*tokens.prompt_ids],
            response_ids=[*tokens.completion_ids],
            response_mask=[bit * is_learned for bit in tokens.mask],
            response_logprobs=[*tokens.logprobs],
            multi_modal_data={"images": server.images[: len(tokens.images)]} if tokens.images else {},
            reward_score=reward,
            num_turns=len(episode.turns),
            metrics=AgentLoopMetrics(generate_sequences=server.seconds, num_preempted=server.num_preempted),
        )


class _Server:
    """verl's servers for one episode: one request id, so that all its replies come from the server that knows them."""

    def __init__(self, loop: ViewboxAgentLoop, task: Task, sampling_params: Mapping[str, Any]) -> None:
        self.task = task
        self.manager, self.request_id = loop.server_manager, uuid4().hex
        self.mm_processor_kwargs = dict(loop.mm_processor_kwargs or {}) or None
        tokens, stop = loop.stage.tokens, loop.stage.config.rollout.stop
        self.sampling = {
            **sampling_params,
            "stop_token_ids": sorted(tokens.stop_ids),
            "logit_bias": dict.fromkeys(tokens.never_sampled, -100.0),
            **({"stop": list(stop), "include_stop_str_in_output": True} if stop else {}),
        }
        self.prompt_length = loop.rollout_config.prompt_length
        self.is_seeded = bool(loop.rollout_config.get("full_determinism", False))
        self.images: list[Image.Image] = []  # opened once, in the order of their placeholders
        self.steps: list[int] = []  # versions of the weights that replied
        self.seconds, self.num_preempted = 0.0, -1

    async def ask(self, request: TokenRequest) -> SampledTokens:
        """Return a reply of verl's server. Raise `ConfigError` if the prompt is longer than verl's rows,
        `ReplyError` if the server gave the reply up, and `GeneratorError` if it failed: verl then decides what
        becomes of the group."""
        prompt = len(request.conversation.record.prompt_ids)
        if prompt > self.prompt_length:
            raise ConfigError(
                f"data.max_prompt_length = {self.prompt_length}: the prompt of task {self.task.id} has "
                f"{prompt} tokens; allowed: at least that many",
                key="data.max_prompt_length",
            )
        for image in request.images[len(self.images) :]:
            self.images.append(await concurrency.run_in_thread(_open_image, image))
        seed = {"seed": request.seed} if self.is_seeded else {}  # a seed in each request slows vLLM's sampler down
        started = time.monotonic()
        try:
            output = await self.manager.generate(
                request_id=self.request_id,
                prompt_ids=list(request.ids),
                sampling_params={**self.sampling, **seed, "max_tokens": request.max_tokens},
                image_data=list(self.images) or None,
                mm_processor_kwargs=self.mm_processor_kwargs,
            )
        except Exception as error:
            raise GeneratorError(f"verl's server failed: {describe_error(error, MAX_REASON)}") from error
        self.seconds += time.monotonic() - started
        if is_failure(output.stop_reason):
            raise ReplyError("verl's server gave the reply up (its weights changed)")
        if output.num_preempted is not None:
            self.num_preempted = max(0, self.num_preempted) + output.num_preempted
        versions = (output.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps", "global_steps"))
        self.steps += [version for version in versions if version is not None]
        return SampledTokens(list(output.token_ids), output.log_probs)


def _open_image(image: ImageRef) -> Image.Image:
    """Return the picture for verl's server and trainer, of the size by which its tokens were counted."""
    picture = image.open().convert("RGB")
    if picture.size != (image.width, image.height):
        size = f"{picture.width}x{picture.height}"
        raise ImageError(f"image {image.hash[:12]} is {size}; allowed: its recorded {image.width}x{image.height}")
    return picture
