"""A viewbox environment as a task of inspect-ai: `inspect eval viewbox/play -T environment=digits --model MODEL`.

The solver plays the environment's own turn loop with the model that inspect-ai was given, whatever its provider. The
log holds the conversation with its images, which the viewer shows, and in its store the episode, from which the scorer
reads the score: `inspect score` computes it again from the log alone.

A file of your own works too:

    from inspect_ai import task
    from viewbox.integrations.inspect_ai import build_task

    @task
    def digits():
        return build_task("digits", {"split": "test"}, limit=50)
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from pydantic import TypeAdapter

from ..core.base import BaseMultiTurnEnv
from ..core.loop import play_to_end
from ..core.messages import ToolImages, apply_history, read_reasoning, to_openai_messages
from ..errors import ConfigError
from ..network.data_policy import check_may_leave, keep_on_this_machine
from ..records import EndReason, Episode, Message, Reply, ToolCall
from ..records import Task as ViewboxTask
from ..rollouts.exchange.inspect_log import from_openai
from ..utils.concurrency import run_in_thread
from ..utils.frozen import thaw
from .session import EpisodeSession, check_installed, list_tasks, make_cached

check_installed("inspect-ai", "viewbox[inspect]", "0.3")
from inspect_ai import Task, task  # noqa: E402
from inspect_ai.dataset import MemoryDataset, Sample  # noqa: E402
from inspect_ai.model import ChatMessage, ChatMessageAssistant, Model, ModelOutput, get_model  # noqa: E402
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr  # noqa: E402
from inspect_ai.solver import Generate, Solver, TaskState, solver  # noqa: E402
from inspect_ai.tool import ToolInfo, ToolParams  # noqa: E402
from inspect_ai.util import LimitExceededError, store  # noqa: E402

__all__ = ["build_task", "play", "play_episode", "reward"]

STORE = "viewbox"  # the key of the episode in the sample's store
# The end reason of an episode that inspect-ai stopped at one of its own limits; any other is one of time.
ENDS: Mapping[str, EndReason] = {
    "message": "max_turns",
    "turn": "max_turns",
    "token": "max_tokens",
    "cost": "max_tokens",
}
STOPS = {"max_tokens": "length", "model_length": "length", "content_filter": "content_filter"}
MESSAGE: TypeAdapter[ChatMessage] = TypeAdapter(ChatMessage)
LOCAL_PROVIDERS = ("mockllm", "hf", "vllm", "sglang", "ollama", "llama-cpp-python", "transformer_lens")


@task
def play(
    environment: str = "digits",
    settings: str | dict[str, Any] | None = None,
    limit: int = 100,
    tool_images: str = "user",
) -> Task:
    """Return the first `limit` tasks of an environment; `settings` may be JSON text, as the command line gives it."""
    parsed = json.loads(settings) if isinstance(settings, str) else settings
    return build_task(environment, parsed, limit=limit, tool_images=tool_images)


def build_task(
    environment: str, settings: Mapping[str, object] | None = None, *, limit: int = 100, tool_images: str = "user"
) -> Task:
    """Return a task of inspect-ai with dataset, solver and scorer: the first `limit` tasks of an environment. Raise
    `ConfigError`. With `tool_images` "user", a tool's image follows in a user message, because most of inspect-ai's
    providers send the text of a tool message alone; with "tool" it stays there."""
    if tool_images not in ("tool", "user"):
        raise ConfigError(f"tool_images: {tool_images!r}; allowed: tool, user", key="tool_images")
    if limit < 1:
        raise ConfigError(f"limit: {limit}; allowed: at least 1", key="limit")
    values = dict(settings or {})
    env = make_cached(environment, json.dumps(values, sort_keys=True))
    samples = [
        Sample(
            input=env.for_task(task).user_message(task),
            target=json.dumps(thaw(task.reference), ensure_ascii=False),
            id=task.id,
            metadata={"number": number},
        )
        for number, task in enumerate(islice(list_tasks(env), limit))
    ]
    return Task(
        name=env.name,
        dataset=MemoryDataset(samples, name=env.name),
        solver=play_episode(environment, values, tool_images),
        scorer=reward(environment, values),
    )


@solver
def play_episode(environment: str, settings: dict[str, Any], tool_images: ToolImages = "user") -> Solver:
    """Play one episode of the environment with the model in use."""
    env = make_cached(environment, json.dumps(settings, sort_keys=True))
    tasks = list_tasks(env)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        model = get_model()
        check_provider(env, model)
        episode = _Player(EpisodeSession(env), model, state, tool_images)
        with keep_on_this_machine(env):
            await episode.play(tasks[state.metadata["number"]], seed=state.epoch)
        return state

    return solve


def check_provider(env: BaseMultiTurnEnv, model: Model) -> None:
    """Raise `ConfigError` if a model elsewhere would receive images of an environment whose data is restricted."""
    provider = str(model).partition("/")[0]
    address = model.api.base_url or (None if provider in LOCAL_PROVIDERS else f"the provider {provider}")
    check_may_leave(env, address, action="inspect-ai would send its images to", allowed="a model on this machine")


class _Player:
    """One episode: inspect-ai's model answers, the environment replies, and the sample shows what was said."""

    def __init__(self, session: EpisodeSession, model: Model, sample: TaskState, tool_images: ToolImages) -> None:
        self.session, self.model, self.sample, self.tool_images = session, model, sample, tool_images
        self.replies: list[ChatMessageAssistant] = []  # as the provider gave them, with their reasoning

    async def play(self, task: ViewboxTask, seed: int) -> None:
        await run_in_thread(lambda: self.session.open(task, seed=seed))
        state = self.session.get_state()
        try:
            await play_to_end(state, self._ask, self.session.step_async)
            record = await run_in_thread(self.session.build_episode)  # a judge waits for the network
            self._store(record)
        except LimitExceededError as error:
            self._end(ENDS.get(error.type, "timeout"))
            raise
        except asyncio.CancelledError:  # a limit of time; nothing can be awaited any more
            self._end("timeout")
            raise
        except Exception as error:
            self.session.problem = f"{type(error).__name__}: {error}"
            self._end("error")
            raise

    def _end(self, reason: EndReason) -> None:
        """Store an episode that did not end by itself; what was said so far is scored."""
        self.session.get_state().end(reason)
        self._store(self.session.build_episode())

    def _store(self, record: Episode) -> None:
        store().set(STORE, record.to_dict())
        self.sample.completed = True
        with suppress(LimitExceededError):  # inspect-ai counts messages where they are set
            self.sample.messages = self._write(self.session.get_state().messages)

    async def _ask(self) -> Reply:
        state, played = self.session.get_state(), self.session.played
        self.sample.messages = await run_in_thread(self._write, apply_history(played, state.messages))
        native = played.reply_format == "native"
        # The tools stay in the prompt on the last turn, as in training. The environment refuses calls there.
        tools = [_describe_tool(thaw(schema)) for schema in state.tool_schemas] if native else []
        output = await self.model.generate(self.sample.messages, tools=tools)
        self.sample.output = output
        self.replies.append(output.message)
        return _read_reply(output)

    def _write(self, messages: Sequence[Message]) -> list[ChatMessage]:
        wire = to_openai_messages(messages, tool_images=self.tool_images, text_calls=True)
        if self.session.played.reply_format != "native":
            wire[0]["content"] += self.session.describe_tools()
        replies = iter(zip(self.replies, (one.text for one in messages if one.role == "assistant"), strict=False))
        return [
            _keep(*next(replies)) if one["role"] == "assistant" else MESSAGE.validate_python(from_openai(one))
            for one in wire
        ]


def _keep(reply: ChatMessageAssistant, kept: str) -> ChatMessageAssistant:
    """Return the model's reply, with its reasoning; a very long text is cut, as the environment keeps it."""
    return reply if len(reply.text) <= len(kept) else reply.model_copy(update={"content": kept})


def _describe_tool(schema: dict[str, Any]) -> ToolInfo:
    function = schema.get("function", schema)
    return ToolInfo(
        name=function["name"],
        description=function.get("description", ""),
        parameters=ToolParams.model_validate(function.get("parameters", {})),
    )


def _read_reply(output: ModelOutput) -> Reply:
    """Return a reply of inspect-ai's model. A call whose arguments its provider could not parse keeps their text."""
    message = output.message
    calls = []
    for call in message.tool_calls or ():
        texts = (value for value in call.arguments.values() if isinstance(value, str))  # under the first parameter
        arguments = next(texts, "") if call.parse_error else json.dumps(call.arguments)
        calls.append(ToolCall(call.id, call.function, arguments))
    parts = [] if isinstance(message.content, str) else [part.model_dump() for part in message.content]
    reason = "error" if output.error else STOPS.get(output.stop_reason, "stop")
    return Reply(message.text, tuple(calls), reason, reasoning=read_reasoning({"content": parts}))


@scorer(metrics=[mean(), stderr()])
def reward(environment: str, settings: dict[str, Any]) -> Scorer:
    """Return the environment's reward of the stored episode; its components are metadata of the score."""
    env = make_cached(environment, json.dumps(settings, sort_keys=True))

    async def score(state: TaskState, target: Target) -> Score:
        stored = state.store.get(STORE)
        if stored is None:
            return Score.unscored(explanation="the sample has no episode of viewbox")
        episode = Episode.from_dict(stored)
        scores = await run_in_thread(env.score, episode)  # a judge waits for the network
        about: dict[str, Any] = {"end_reason": episode.end_reason, "components": thaw(scores.components)}
        answer = None if episode.answer is None else json.dumps(thaw(episode.answer), ensure_ascii=False)
        if scores.total is None:
            why = next(iter(scores.faults.values()), None) or episode.explain_missing_score()
            return Score.unscored(answer=answer, explanation=why, metadata=about)
        return Score(value=scores.total, answer=answer, explanation=episode.end_reason, metadata=about)

    return score
