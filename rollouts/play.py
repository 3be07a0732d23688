"""`play_many`: many episodes at once against one generator.

The driver knows neither tokens nor HTTP. It gives a `Conversation` to a `Generator` and the reply to the environment,
which appends its messages to the conversation. A failure of the environment, or of the generator about one reply, ends
that episode alone, as `error`.
"""

import asyncio
import logging
import traceback
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from ..core.base import BaseMultiTurnEnv, build_episode_async
from ..core.loop import Policy, play_to_end
from ..core.messages import apply_history
from ..engines.generator import Conversation, Generator, GeneratorError, ReplyError
from ..engines.scripted import PolicyGenerator
from ..errors import BadRow, ConfigError, ImageError, ModelError, ToolFault
from ..network.data_policy import RESTRICTED, keep_on_this_machine
from ..records import EndReason, Episode, Reply, Task
from ..utils.concurrency import await_foreign, run_in_thread
from ..utils.frozen import EMPTY_DICT
from ..utils.terminal import describe_error, make_line, make_printable

MAX_FAILURES = 16  # exceptions instead of a reply before the first reply, after which the generator itself is broken
MAX_REASON = 1000  # characters kept of an exception's message: it may quote a reply

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
) -> AsyncGenerator[Episode, None]:
    """Play every task `group` times and yield episodes as they end. `episode.info` holds `index` (the task's place in
    `tasks`) and `sample` (0 to group - 1). If the caller stops reading, all episodes in progress are cancelled.

    Args:
        env: the environment; an exception in it ends that episode as `error`.
        tasks: what to play; read as episodes start, so it may be a stream.
        generator: gives the replies; or a plain function of the messages, as in `env.play`.
        group: episodes per task.
        concurrency: episodes in progress at once.
        timeout: seconds per episode, after which it ends as `timeout`; None for no limit.
        seed: each episode derives its own seed from it, so that group members differ and a run can be repeated.
        skip: (index, sample) pairs that are not played, for example because an earlier session stored them.

    Raises:
        GeneratorError, ConfigError, ModelError: the generator raised it, and cannot be used.
        ConfigError: a tool of the environment cannot be prepared (`env.prepare`).
        BadRow: a row of a dataset cannot be used, and `data.bad_rows` is `stop`.
        Exception: the `failure` of the generator; or it raised `MAX_FAILURES` times before it ever gave a reply. Any
            other exception that it raises ends one episode.
    """
    player: Any = generator if hasattr(generator, "reply") else PolicyGenerator(generator)
    health = Health(player)
    await run_in_thread(env.prepare)
    jobs = ((i, k, task) for i, task in enumerate(tasks) for k in range(group) if (i, k) not in skip)
    # the queue is bounded, so that a slow reader slows down the workers
    done: asyncio.Queue[Episode | BaseException | None] = asyncio.Queue(2 * concurrency)

    async def play_jobs() -> None:
        for i, k, task in jobs:
            places = {"index": i, "sample": k, "number": i * group + k}
            with keep_on_this_machine(env):
                episode = await _play_with(health, env, task, sample_seed(seed, places["number"]), places, timeout)
            await done.put(episode)

    async def work() -> None:
        try:
            await done.put(await await_foreign(play_jobs()))
        except Exception as error:  # the generator cannot be used: it concerns every episode and ends the run
            await done.put(error)

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
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


def sample_seed(seed: int, number: int) -> int:
    """Return the seed of sample `number` of a run: different for each sample, and fixed by `seed`.

    >>> sample_seed(0, 1) != sample_seed(0, 2) and sample_seed(0, 1) == sample_seed(0, 1)
    True
    """
    return (seed * 1_000_003 + number) % (2**63)


@dataclass
class Health:
    """A generator, and whether it has worked."""

    generator: Generator
    has_replied: bool = False
    failures: int = 0

    def record_failure(self, error: Exception) -> None:
        """Count an exception; raise it again if it says that the generator itself cannot be used."""
        self.failures += 1
        is_general = isinstance(error, GeneratorError | ConfigError | ModelError) or error is getattr(
            self.generator, "failure", None
        )
        if is_general or (not self.has_replied and self.failures >= MAX_FAILURES):
            raise error


async def play_one(
    env: BaseMultiTurnEnv, task: Task, generator: Generator, *, seed: int = 0, timeout: float | None = None
) -> Episode:
    """Play one episode with a generator, for callers that run a loop of their own. An exception in the environment ends
    it as `error`, and `timeout` seconds end it as `timeout`; None: no limit. Raise `Exception` if the generator cannot
    be used (see `play_many`)."""
    with keep_on_this_machine(env):
        return await _play_with(Health(generator), env, task, seed, {}, timeout)


class Play:
    """One episode in progress: its environment, its conversation, and what gives the replies. `places` are its `index`
    and `sample` for `episode.info`, and its `number` in the run. A failure of this episode alone ends it as `error`."""

    def __init__(
        self, health: Health, env: BaseMultiTurnEnv, task: Task, seed: int, places: Mapping[str, int] = EMPTY_DICT
    ) -> None:
        self.health, self.env = health, env.for_task(task)
        self.state: Any = None  # the `EpisodeState`, once it is open
        index, sample, number = (places.get(name, 0) for name in ("index", "sample", "number"))
        self.places = {"index": index, "sample": sample, RESTRICTED: bool(self.env.restricted)}
        self.conversation = Conversation(
            [],
            (),
            seed,
            number,
            task,
            info={**self.places},
            reply_format=self.env.reply_format,
            prompts=self.env.prompts,
            history=partial(apply_history, self.env),
            drops_images=self.env.history != "full",
            answer_schema=self.env.answer_schema,
        )
        self.run_config = replace(health.generator.run_config, seed=seed, max_turns=self.env.max_turns)
        health.generator.join(self.conversation)

    async def open(self) -> None:
        """Start the episode and put its first messages in the conversation."""
        conversation = self.conversation
        self.state = await run_in_thread(self.env.reset, conversation.task, seed=conversation.seed)
        conversation.messages, conversation.tools = self.state.messages, self.state.tool_schemas

    @asynccontextmanager
    async def end_after(self, timeout: float | None) -> AsyncGenerator[None, None]:
        """End the episode as `timeout` if the block takes longer than so many seconds."""
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        self.conversation.deadline, clock = deadline, asyncio.timeout_at(deadline)
        try:
            async with clock:
                yield
        except TimeoutError:
            if not clock.expired():  # the generator raised it
                raise
            if self.state is not None:
                self.state.end("timeout")

    async def get_reply(self) -> Reply | None:
        self.conversation.last_turn = self.state.last_turn
        try:
            reply = await await_foreign(self.health.generator.reply(self.conversation))
            if not isinstance(reply, Reply):
                raise TypeError(f"the generator returned {type(reply).__name__}; allowed: Reply")
            self.health.has_replied = True
            return reply
        except ImageError as error:  # an image of this episode cannot be shown to the model
            self._fail(describe_error(error, MAX_REASON), logging.WARNING)
        except ReplyError as error:
            self._fail(make_line(error, MAX_REASON), logging.INFO)
        except Exception as error:
            self.health.record_failure(error)
            _log_failure(f"the generator failed on task {self.state.task.id}", error)
            self._fail(describe_error(error, MAX_REASON))
        return None

    async def step(self, reply: Reply) -> None:
        try:
            await await_foreign(self.env.step(self.state, reply))
        except Exception as error:  # an author's bug
            if not isinstance(error, ToolFault):  # which was logged
                _log_failure(f"environment {self.env.name} failed on task {self.state.task.id}", error)
            self._fail(describe_error(error, MAX_REASON))

    def _fail(self, problem: str, level: int = logging.DEBUG) -> None:
        self.conversation.info["error"] = problem
        log.log(level, make_line(f"task {self.state.task.id}: {problem}"))
        self.state.end("error")


async def _play_with(
    health: Health, env: BaseMultiTurnEnv, task: Task, seed: int, places: Mapping[str, int], timeout: float | None
) -> Episode:
    """Return one episode; `places` are those of `Play`."""
    play = Play(health, env, task, seed, places)
    env, info = play.env, play.conversation.info
    try:
        async with play.end_after(timeout):
            if await _open_episode(play):
                await play_to_end(play.state, play.get_reply, play.step)
    finally:
        health.generator.leave(play.conversation)
    if play.state is not None:
        try:
            tokens = play.conversation.record.to_episode_tokens()
            return await await_foreign(build_episode_async(env, play.state, play.run_config, tokens=tokens, info=info))
        except Exception as error:  # a generator or an environment put something into it that no record holds
            _log_failure(f"the episode of task {task.id} cannot be recorded", error)
            info = {**play.places, "error": describe_error(error, MAX_REASON)}
    end: EndReason = "error" if "error" in info else "timeout"
    config = play.run_config
    return Episode(task=task, end_reason=end, truncated=True, environment=env.name, run_config=config, info=info)


async def _open_episode(play: Play) -> bool:
    """Start an episode; False if its task cannot be opened."""
    try:
        await play.open()
    except Exception as error:  # an image that cannot be opened, or an author's bug: it ends this episode only
        if isinstance(error, BadRow) and error.ends_run:
            raise
        problem = play.conversation.info["error"] = describe_error(error, MAX_REASON)
        task = play.conversation.task
        log.warning(make_line(f"environment {play.env.name} could not start task {task and task.id}: {problem}"))
        return False
    return True


def _log_failure(problem: str, error: Exception) -> None:
    """Log a bug with its traceback, as text that acts on no terminal and in no log."""
    lines = "".join(traceback.format_exception(error))
    log.error("%s\n%s", make_line(problem), make_printable(lines, 20 * MAX_REASON))
