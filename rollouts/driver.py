"""`play_many`: many episodes at once against one generator.

The driver knows neither tokens nor HTTP: it hands a `Conversation` to a `Generator`, gives the reply to the
environment, and adds what the environment says. Up to `concurrency` episodes are in flight; each ends with a named
reason, and an episode whose environment fails ends as `error` without harming the others.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any

from viewbox.envs.base import BaseMultiTurnEnv, EpisodeState, Reply
from viewbox.envs.types import Episode, Message, Task
from viewbox.errors import ImageError
from viewbox.rollouts.conversation import Conversation, Generator, ReplyError

log = logging.getLogger("viewbox.rollouts")


async def play_many(
    env: BaseMultiTurnEnv,
    tasks: Iterable[Task],
    generator: Generator,
    *,
    group: int = 1,
    concurrency: int = 64,
    time_limit: float | None = None,
    seed: int = 0,
    skip: Collection[tuple[int, int]] = (),
) -> AsyncIterator[Episode]:
    """Plays every task `group` times and yields episodes as they end.

    `episode.info` holds `index` (the task's place in `tasks`) and `sample` (0 … group−1). Every sample has its own
    seed, drawn from `seed`, so group members differ and a run can be repeated. `time_limit` is in seconds an episode.
    The (index, sample) pairs in `skip` are not played: those that an earlier session has stored.
    """
    jobs = ((i, k, task) for i, task in enumerate(tasks) for k in range(group) if (i, k) not in skip)
    done: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue()
    workers = [
        asyncio.create_task(_work(env, jobs, generator, group, time_limit, seed, done)) for _ in range(concurrency)
    ]
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
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def _work(
    env: BaseMultiTurnEnv,
    jobs: Iterator[tuple[int, int, Task]],
    generator: Generator,
    group: int,
    time_limit: float | None,
    seed: int,
    done: asyncio.Queue,
) -> None:
    try:
        for i, k, task in jobs:
            done.put_nowait(await _episode(env, task, generator, (i, k, i * group + k), time_limit, seed))
        done.put_nowait(None)
    except Exception as error:  # the generator's failure is everybody's: it ends the run
        done.put_nowait(error)


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
    time_limit: float | None,
    seed: int,
) -> Episode:
    index, sample, number = place
    own_seed = sample_seed(seed, number)
    info: dict[str, Any] = {"index": index, "sample": sample}
    try:
        state = env.reset(task, seed=own_seed)
    except Exception as error:  # an image that cannot be opened, or an author's bug: this episode's alone
        log.warning("environment %s could not start task %s: %s", env.name, task.id, error)
        info["error"] = f"{type(error).__name__}: {error}"
        return Episode(task=task, end_reason="error", truncated=True, environment=env.name, info=info)
    deadline = None if time_limit is None else asyncio.get_running_loop().time() + time_limit
    conversation = Conversation(
        list(state.messages), state.tool_schemas, own_seed, number, task, deadline=deadline, info=info
    )
    generator.join(conversation)
    try:
        async with asyncio.timeout(time_limit):
            await _play(env, state, conversation, generator)
    except TimeoutError:
        state.end("timeout")
    finally:
        generator.leave(conversation)
    run_config = replace(generator.run_config, seed=own_seed, max_turns=env.max_turns)
    return state.episode(run_config, tokens=conversation.record.frozen(), info=info)


async def _play(env: BaseMultiTurnEnv, state: EpisodeState, conversation: Conversation, generator: Generator) -> None:
    info = conversation.info
    while state.end_reason is None:
        conversation.last_turn = state.last_turn
        try:
            said = await generator.reply(conversation)
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
            result = await env.step(state, Reply(said.text, said.tool_calls, said.finish_reason))
        except Exception as error:  # an author's bug: this episode's alone
            log.exception("environment %s failed on task %s", env.name, state.task.id)
            info["error"] = f"{type(error).__name__}: {error}"
            state.end("error")
            return
        conversation.messages.extend(result.messages)
