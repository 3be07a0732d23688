"""Held-out figures of a policy: its own play, and the oracle (a look decided for it, then its own reading)."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.records import Episode, Task
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.engine.engine import HFGenerator
from viewbox.rollouts.generator import Conversation, Generator
from viewbox.rollouts.play import play_many
from viewbox.rollouts.scoring.metrics import compute_episode_metrics
from viewbox.rollouts.scoring.summary import summarize
from viewbox.rollouts.scripted import Forced, Script

log = logging.getLogger(__name__)


def replies_so_far(conversation: Conversation) -> int:
    """How many replies the policy has given."""
    return sum(message.role == "assistant" for message in conversation.messages)


def script_of(env: BaseMultiTurnEnv, kind: str, **habits: float) -> Script:
    """A script that plays the environment's `oracle` looks (then leaves it to the model) or a `demonstration`."""

    def script(conversation: Conversation) -> str | None:
        assert conversation.task is not None
        if kind == "oracle":
            replies = env.oracle(conversation.task)
        else:
            replies = env.demonstration(conversation.task, conversation.seed, **habits)
        number = replies_so_far(conversation)
        return replies[number] if number < len(replies) else None

    return script


def collect(
    env: BaseMultiTurnEnv, tasks: Sequence[Task], generator: Generator, *, slots: int, seed: int
) -> list[Episode]:
    """One episode a task, in the tasks' order."""

    async def play() -> list[Episode]:
        played = play_many(env, tasks, generator, concurrency=slots, seed=seed)
        return sorted([episode async for episode in played], key=lambda episode: episode.info["index"])

    return asyncio.run(play())


def evaluate(
    env: BaseMultiTurnEnv,
    model: Any,
    tokens: ChatTokens,
    *,
    tasks: int,
    seed: int,
    generation: dict[str, Any],
    oracle: bool = False,
) -> tuple[dict[str, Any], list[Episode]]:
    """(figures, episodes) on the first `tasks` held-out tasks; with `oracle`, its looks are forced.

    The figures are floats under the names of `compute_episode_metrics`, the environment's own under `metrics/…`, and
    under `intervals` a [low, high] for each of them.
    """
    generator: Generator = HFGenerator(model, tokens, **generation)
    if oracle:
        generator = Forced(tokens, script_of(env, "oracle"), generator)
    chosen = env.tasks[:tasks]  # type: ignore[index]
    episodes = collect(env, chosen, generator, slots=generation.get("slots", 64), seed=seed)
    return figures_of(episodes, env), episodes


def figures_of(episodes: Sequence[Episode], env: BaseMultiTurnEnv) -> dict[str, Any]:
    """The figures of episodes that were played: see `evaluate`."""
    summary = summarize(episodes, env)
    for problem in summary.problems:
        log.warning("%s", problem)
    own = {name: value for name, value in summary.get_means().items() if name.startswith("metrics/")}
    return {**compute_episode_metrics(episodes, env.reward), **own, "intervals": summary.get_intervals()}
