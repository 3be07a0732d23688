"""`play_many`: many episodes at once against one generator.

The driver knows neither tokens nor HTTP: it hands a `Conversation` to a `Generator`, gives the reply to the
environment, and adds what the environment says. Up to `concurrency` episodes are in flight; each ends with a named
reason, and an episode whose environment fails ends as `error` without harming the others. Whoever stops listening
leaves no task behind.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from viewbox.envs import concurrency
from viewbox.envs.base import BaseMultiTurnEnv, EpisodeState, Reply
from viewbox.errors import ImageError
from viewbox.records import EndReason, Episode, Message, Task
from viewbox.rewards.remote import is_blocking
from viewbox.rollouts.generator import Conversation, Generator, ReplyError
from viewbox.rollouts.policy import Policy, PolicyGenerator

T = TypeVar("T")
log = logging.getLogger("viewbox.rollouts")


async def play_many(
    env: BaseMultiTurnEnv,
    tasks: Iterable[Task],
    generator: Generator | Policy,
    *,
    group: int = 1,
    concurrency: int = 64,
    timeout: float | None = None,
    seed: int = 0,
    skip: Collection[tuple[int, int]] = (),
) -> AsyncIterator[Episode]:
    """Plays every task `group` times and yields episodes as they end.

    `episode.info` holds `index` (the task's place in `tasks`) and `sample` (0 … group−1). Every sample has its own
    seed, drawn from `seed`, so group members differ and a run can be repeated. `timeout` is in seconds an episode.
    The (index, sample) pairs in `skip` are not played: those that an earlier session has stored. A plain function of
    the messages may stand for a generator, as in `env.play`.
    """
    player: Any = generator if hasattr(generator, "reply") else PolicyGenerator(generator)
    jobs = ((i, k, task) for i, task in enumerate(tasks) for k in range(group) if (i, k) not in skip)
    done: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue(2 * concurrency)  # a slow reader slows the play
    workers = [asyncio.create_task(_work(env, jobs, player, group, timeout, seed, done)) for _ in range(concurrency)]
    running = len(workers)
    try:
        while running:
            item = await done.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        jobs.close()
        left = set(workers)
        while left:  # more than once: a policy may swallow a cancellation
            for worker in left:
                worker.cancel()
            _, left = await asyncio.wait(left, timeout=1.0)


async def _work(
    env: BaseMultiTurnEnv,
    jobs: Iterator[tuple[int, int, Task]],
    generator: Generator,
    group: int,
    timeout: float | None,
    seed: int,
    done: asyncio.Queue,
) -> None:
    try:
        for i, k, task in jobs:
            await done.put(await _episode(env, task, generator, (i, k, i * group + k), timeout, seed))
        await done.put(None)
    except Exception as error:  # the generator's failure is everybody's: it ends the run
        await done.put(error)


def sample_seed(seed: int, number: int) -> int:
    """The seed of the `number`-th sample of a run: distinct for each, fixed by `seed`.

    >>> sample_seed(0, 1) != sample_seed(0, 2) and sample_seed(0, 1) == sample_seed(0, 1)
    True
    """
    return (seed * 1_000_003 + number) % (2**63)


async def _episode(
    env: BaseMultiTurnEnv,
    task: Task,
    generator: Generator,
    place: tuple[int, int, int],
    timeout: float | None,
    seed: int,
) -> Episode:
    index, sample, number = place
    own_seed = sample_seed(seed, number)
    info: dict[str, Any] = {"index": index, "sample": sample}
    deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
    conversation = Conversation(
        [],
        (),
        own_seed,
        number,
        task,
        deadline=deadline,
        info=info,
        reply_format=env.reply_format,
        prompts=env.prompts,
        history=env.shown,
        cut=env.history != "full",
    )
    run_config = replace(generator.run_config, seed=own_seed, max_turns=env.max_turns)
    generator.join(conversation)
    state = None
    clock = asyncio.timeout_at(deadline)
    try:
        async with clock:
            state = await _opened(env, task, conversation)
            if state is not None:
                await _play(env, state, conversation, generator)
    except TimeoutError:
        if not clock.expired():  # the generator's own
            raise
        if state is not None:
            state.end("timeout")
    finally:
        generator.leave(conversation)
    if state is None:
        end: EndReason = "error" if "error" in info else "timeout"
        return Episode(
            task=task, end_reason=end, truncated=True, environment=env.name, run_config=run_config, info=info
        )
    episode = partial(state.episode, run_config, tokens=conversation.record.frozen(), info=info)
    return await concurrency.run(episode) if is_blocking(env.reward) else episode()  # a judge waits for its network


async def _opened(env: BaseMultiTurnEnv, task: Task, conversation: Conversation) -> EpisodeState | None:
    """A new play, its opening in the conversation; None where the task cannot be opened."""
    try:
        state = await concurrency.run(env.reset, task, seed=conversation.seed)
    except Exception as error:  # an image that cannot be opened, or an author's bug: this episode's alone
        log.warning("environment %s could not start task %s: %s", env.name, task.id, error)
        conversation.info["error"] = f"{type(error).__name__}: {error}"
        return None
    conversation.messages, conversation.tools = list(state.messages), state.tool_schemas
    return state


async def _play(env: BaseMultiTurnEnv, state: EpisodeState, conversation: Conversation, generator: Generator) -> None:
    info = conversation.info
    while state.end_reason is None:
        conversation.last_turn = state.last_turn
        try:
            said = await _heard(generator.reply(conversation))
        except ImageError as error:  # one of its own images cannot be shown to the model
            log.warning("task %s: %s", state.task.id, error)
            info["error"] = f"ImageError: {error}"
            state.end("error")
            return
        except ReplyError as error:
            log.info("task %s: %s", state.task.id, error)
            info["error"] = str(error)
            state.end("error")
            return
        if said.finish_reason == "budget":
            state.end("max_tokens")
            return
        conversation.messages.append(Message("assistant", (said.text,), tool_calls=said.tool_calls))
        state.messages.append(conversation.messages[-1])
        try:
            result = await _heard(env.step(state, Reply(said.text, said.tool_calls, said.finish_reason)))
        except Exception as error:  # an author's bug: this episode's alone
            log.exception("environment %s failed on task %s", env.name, state.task.id)
            info["error"] = f"{type(error).__name__}: {error}"
            state.end("error")
            return
        conversation.messages.extend(result.messages)


async def _heard(said: Awaitable[T]) -> T:
    """What is awaited. A cancellation of something it waited for, which is not this task's own, is a `RuntimeError`."""
    try:
        return await said
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("what was waited for was cancelled") from error
