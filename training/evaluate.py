"""Measures a policy on held-out tasks: it plays alone, or the environment's oracle looks and the policy answers."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Literal

from accelerate import PartialState
from accelerate.utils import gather_object
from msgspec.structs import replace
from transformers import PreTrainedModel

from ..core.base import BaseMultiTurnEnv
from ..core.tasks import to_sequence
from ..engines.generator import Conversation, Generator
from ..engines.scripted import Script, ScriptedGenerator
from ..records import Episode, EpisodeTokens, Task
from ..rollouts.play import play_many
from ..rollouts.scoring.metrics import compute_environment_metrics, drop_undefined
from ..rollouts.scoring.summary import summarize
from .generation import Sampler

log = logging.getLogger(__name__)


def count_replies(conversation: Conversation) -> int:
    """Return the number of replies in a conversation."""
    return sum(message.role == "assistant" for message in conversation.messages)


def build_script(env: BaseMultiTurnEnv, kind: Literal["oracle", "demonstration"], **habits: float) -> Script:
    """Return a script that gives the environment's own replies, then None, so that the model continues.

    Args:
        env: the environment.
        kind: "oracle" for tool calls only, "demonstration" for whole episodes.
        habits: the probability of each imperfection of a demonstration, such as `guess=0.5`.
    """

    def script(conversation: Conversation) -> str | None:
        assert conversation.task is not None
        played = env.for_task(conversation.task)
        if kind == "oracle":
            replies = played.oracle(conversation.task)
        else:
            replies = played.demonstration(conversation.task, conversation.seed, **habits)
        number = count_replies(conversation)
        return replies[number] if number < len(replies) else None

    return script


def collect_episodes(
    env: BaseMultiTurnEnv,
    tasks: Sequence[Task],
    generator: Generator,
    *,
    slots: int,
    seed: int,
    timeout: float | None = None,
) -> list[Episode]:
    """Play an episode for each task; return them in the order of the tasks.

    If there are several processes, each plays every n-th task with the seed it has anyway; all get all episodes. Those
    of other processes come without pixels and logprobs.
    """
    processes = PartialState()
    rank, count = processes.process_index, processes.num_processes
    others = {(index, 0) for index in range(len(tasks)) if index % count != rank}

    async def play() -> list[Episode]:
        played = play_many(env, tasks, generator, concurrency=slots, seed=seed, skip=others, timeout=timeout)
        return [episode async for episode in played]

    episodes = asyncio.run(play())
    env.release()
    if count > 1:
        light = gather_object([(episode.to_dict(), _drop_heavy(episode.tokens)) for episode in episodes])
        own = {episode.info["index"]: episode for episode in episodes}
        received = (replace(Episode.from_dict(data), tokens=tokens) for data, tokens in light)
        episodes = [own.get(episode.info["index"], episode) for episode in received]
    return sorted(episodes, key=lambda episode: episode.info["index"])


def _drop_heavy(tokens: EpisodeTokens | None) -> EpisodeTokens | None:
    return None if tokens is None else replace(tokens, logprobs=(0.0,) * len(tokens.mask), images=(), prompt_images=0)


def evaluate(
    env: BaseMultiTurnEnv,
    model: PreTrainedModel,
    sampler: Sampler,
    *,
    tasks: int,
    seed: int,
    oracle: bool = False,
) -> tuple[dict[str, Any], list[Episode]]:
    """Play the first `tasks` tasks and return (figures, episodes).

    Args:
        env: the held-out environment.
        model: the policy.
        sampler: how its episodes are sampled.
        tasks: the number of tasks.
        seed: the sampling seed.
        oracle: whether the environment's oracle makes the tool calls, and the policy only answers.

    Returns:
        figures: a float for each name of `compute_environment_metrics` and for each metric of the environment
            (`metrics/NAME`), unless no episode has it; `intervals` maps the same names to [low, high], and `counts` to
            the number of episodes that each counts.
        episodes: in the order of the tasks.
    """
    generator = sampler.prepare(model)()
    if oracle:
        generator = ScriptedGenerator(sampler.tokens, build_script(env, "oracle"), generator)
    selected, slots = to_sequence(env.tasks, env.name)[:tasks], sampler.rollout.slots
    episodes = collect_episodes(env, selected, generator, slots=slots, seed=seed, timeout=sampler.timeout)
    sampler.release()
    return compute_figures(episodes, env), episodes


def compute_figures(episodes: Sequence[Episode], env: BaseMultiTurnEnv) -> dict[str, object]:
    """Return the figures of episodes, as `evaluate` returns them; logs a warning for each metric that fails."""
    summary = summarize(episodes, env)
    for problem in summary.problems:
        log.warning("%s", problem)
    own = {name: value for name, value in summary.get_means().items() if name.startswith("metrics/")}
    means = drop_undefined(compute_environment_metrics(episodes, env))
    return {**means, **own, "intervals": summary.get_intervals(), "counts": summary.get_counts()}
