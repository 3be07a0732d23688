"""A viewbox environment for verifiers 0.4: its tasks, its turn loop, and its reward.

    class Taskset(ViewboxTaskset):
        environment = "digits"

is a complete adapter. A verifiers task carries the number of a viewbox task and the settings of the environment, but no
image: each process makes the environment from these settings. The turn loop steps the environment through verifiers'
`interaction.turn`, so the messages are the same as in viewbox's own driver. The episode is stored in
`trace.info["viewbox"]`. Rewards read only this record, so `vf-replay` can recompute them.

verifiers requires that every model call goes through its own endpoint, because its trace records the calls there. A
harness that does so needs no separate program. This one offers the tools that the environment allows in the current
turn and returns every tool call to the environment, which runs it. The private parts of verifiers that are used here
are checked by `tests/integrations/test_verifiers.py`.
"""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from msgspec.structs import replace
from pydantic import Field

from ..core.base import BaseMultiTurnEnv, get_offered_tools
from ..core.contract import EpisodeState
from ..core.loop import play_to_end, shorten_reply
from ..core.messages import ToolImages, is_failure, read_reasoning, read_tool_calls, render_tools, to_openai_messages
from ..envs import make
from ..errors import ConfigError, ViewboxError
from ..network.data_policy import check_may_leave, check_sending, keep_on_this_machine
from ..network.http import is_temporary
from ..records import EndReason, Episode, Message, Reply, RunConfig, Scores, Task
from ..utils.concurrency import contain_exit
from ..utils.frozen import thaw
from ..version import __version__
from .session import check_installed, make_cached

check_installed("verifiers", "verifiers>=0.4,<0.5", "0.4")
import aiohttp  # noqa: E402
import verifiers.v1 as vf  # noqa: E402
from verifiers.v1.dialects.chat import REASONING_FIELDS, message_to_wire  # noqa: E402
from verifiers.v1.harness import HarnessSession  # noqa: E402

__all__ = ["ViewboxEnv", "ViewboxHarness", "ViewboxTask", "ViewboxTaskset"]

PUSH_MODE = "PRIME_RUNS_MODE"
OWN_FILES = ("data/", "files/", "models/", "snapshots/")  # folders beside the code of a published package
INFO = "viewbox"  # the key of the episode in `trace.info`
# The end reason of an episode that verifiers stopped at one of its own limits (`--env.agent.*`).
ENDS: Mapping[str | None, EndReason] = {
    "max_turns": "max_turns",
    "max_input_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "max_total_tokens": "max_tokens",
    "agent_timeout": "timeout",
}


RETRY_HEADER = "x-stainless-retry-count"  # by this header verifiers tells a repeated request from a new turn
OK = vf.ProgramResult(exit_code=0, stdout="", stderr="")


class OfferedTools(vf.State):
    """The tools that the environment offers in the next turn; not saved with the trace."""

    tools: list[dict[str, Any]] = Field(default_factory=list)


class ViewboxHarnessConfig(vf.HarnessConfig):
    attempts: int = Field(default=3, ge=1)
    """Attempts per model call if the endpoint is overloaded or fails (status 408, 409, 425, 429, most of 5xx)."""
    wait: float = Field(default=0.5, ge=0)
    """Seconds before the second attempt. The pause doubles before each further attempt."""


class ViewboxSession(HarnessSession):
    """One conversation, to which the environment's messages and the model's replies are appended."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.http = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None), cookie_jar=aiohttp.DummyCookieJar()
        )
        system, _ = self.harness.resolve_prompt(self.data)
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []

    async def _run(self, messages: list[Any] | None) -> vf.ProgramResult:
        self.messages += [message_to_wire(message) for message in messages or []]
        reply, problem = await self._ask(self.harness.config)
        if reply is None:
            return vf.ProgramResult(exit_code=1, stdout="", stderr=problem)
        self.messages.append(repeat_message(reply))
        return OK

    async def _ask(self, config: Any) -> tuple[Mapping[str, Any] | None, str]:
        """Return the model's next message; None and an error message if every attempt failed."""
        check_sending(self.endpoint)
        body: dict[str, Any] = {"model": self.ctx.model, "messages": self.messages}
        if self.trace.state.tools:
            body["tools"] = self.trace.state.tools
        for attempt in range(config.attempts):
            if attempt:
                await asyncio.sleep(config.wait * 2 ** (attempt - 1))
            headers = {"Authorization": f"Bearer {self.secret}", RETRY_HEADER: str(attempt)}
            async with self.http.post(
                f"{self.endpoint}/chat/completions", json=body, headers=headers, allow_redirects=False
            ) as response:
                text = await response.text()
                if response.status < 300:
                    choice = (await response.json())["choices"][0]
                    if not (choice.get("error") or is_failure(choice.get("finish_reason"))):
                        return choice["message"], ""
                elif not is_temporary(response.status):
                    break
        return None, f"HTTP {response.status}: {text[:2000]}"

    async def close(self) -> None:
        await super().close()
        await self.http.close()


def repeat_message(reply: Mapping[str, Any]) -> dict[str, object]:
    """Return the model's message as the next request repeats it, including its reasoning; a very long text is cut.

    >>> repeat_message({"role": "assistant", "content": None, "refusal": None, "reasoning": "Hm."})
    {'role': 'assistant', 'content': '', 'reasoning': 'Hm.'}
    """
    shortened = shorten_reply(Reply(reply.get("content") or "", read_tool_calls(reply)))
    return to_openai_messages([shortened.to_message()])[0] | {
        name: reply[name] for name in REASONING_FIELDS if reply.get(name)
    }


class ViewboxHarness(vf.Harness[ViewboxHarnessConfig]):
    """verifiers uses this harness because the published package exports it beside its taskset."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def session(self, *args: object, **kwargs: object) -> ViewboxSession:
        return ViewboxSession(self, *args, **kwargs)

    async def launch(self, *args: object, **kwargs: object) -> vf.ProgramResult:
        raise NotImplementedError("ViewboxSession makes the model calls of this harness")


class ViewboxData(vf.TaskData):
    """Identifies a task of an environment. `prompt` stays empty, because the environment opens the conversation."""

    environment: str
    settings: dict[str, Any] = Field(default_factory=dict)
    number: int

    def env(self) -> BaseMultiTurnEnv:
        return make_cached(self.environment, json.dumps(self.settings, sort_keys=True))

    def played(self) -> BaseMultiTurnEnv:
        """Return the environment of the task, which a mixture has for each."""
        return self.env().for_task(self.task())

    def task(self) -> Task:
        tasks = self.env().tasks
        return tasks[self.number] if isinstance(tasks, Sequence) else next(islice(tasks, self.number, None))


class ViewboxTask(vf.Task[ViewboxData, OfferedTools]):
    """The reward is the environment's total; its components are metrics, except those that do not apply. An episode
    without a score is an error of its trace, which verifiers leaves out of training."""

    @vf.reward(weight=1.0)
    async def total(self, trace: vf.Trace) -> float:
        scores = await asyncio.to_thread(self._scores, trace)  # a judge waits for the network
        if scores.total is None and not trace.errors:
            episode = replace(Episode.from_dict(trace.info[INFO]), scores=scores)
            raise ViewboxError(f"the episode has no score: {episode.explain_missing_score()}")
        return scores.total or 0.0

    @vf.metric
    async def components(self, trace: vf.Trace) -> dict[str, float]:
        scores = await asyncio.to_thread(self._scores, trace)
        return {name: value for name, value in scores.components.items() if value is not None}

    def _scores(self, trace: vf.Trace) -> Scores:
        data: ViewboxData = self.data
        return data.env().score(Episode.from_dict(trace.info[INFO]))


class ViewboxTasksetConfig(vf.TasksetConfig):
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment, which override the published ones: `--env.taskset.settings '{"max_turns": 3}'`."""


class ViewboxTaskset(vf.Taskset[ViewboxTask, ViewboxTasksetConfig]):
    """The tasks of `environment` (a name, or `package.module:Class`) with `settings`; a subclass sets both."""

    environment: ClassVar[str] = ""
    settings: ClassVar[Mapping[str, Any]] = {}
    folder: ClassVar[str] = ""  # of the package: what `publish` wrote beside its code is relative to it

    def load(self) -> Iterator[ViewboxTask]:
        settings = {**self.settings, **self.config.settings}
        if self.folder:
            settings = _find_own_files(settings, Path(self.folder))
        env = make(self.environment, **settings)
        if env.restricted:
            os.environ[PUSH_MODE] = "disabled"  # otherwise vf-eval uploads the traces, images included
        if env.history != "full":
            raise ConfigError("settings.history: verifiers never shortens the history; allowed: full", key="history")
        for number, task in enumerate(env.tasks):
            played = env.for_task(task)
            offered = get_offered_tools(played, task) if played.reply_format != "native" else ()  # the API tells them
            taught = render_tools(played.toolbox.build_schemas(offered), played.reply_format, played.prompts)
            prompt = played.build_system_prompt(task) + taught
            fields: dict[str, Any] = {"environment": self.environment, "settings": settings, "number": number}
            yield ViewboxTask(ViewboxData(id=task.id, system_prompt=prompt, **fields), self.config.task)


def _find_own_files(value: Any, folder: Path) -> Any:
    """Return settings in which a text that names a file or folder of the package is its path."""
    if isinstance(value, Mapping):
        return {key: _find_own_files(item, folder) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_find_own_files(item, folder) for item in value]
    is_own = isinstance(value, str) and value.startswith(OWN_FILES) and (folder / value).exists()
    return str(folder / value) if is_own else value


class ViewboxEnvConfig(vf.SingleAgentEnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())  # the default is a remote sandbox
    tool_images: ToolImages = "tool"
    """`user`: images of tools go in a user message, for endpoints that accept no images in tool messages."""


class ViewboxEnv(vf.SingleAgentEnv, vf.Env[ViewboxEnvConfig]):  # vf-replay accepts only a SingleAgentEnv
    """Plays one episode as one verifiers interaction: `env.step` answers each reply."""

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        with keep_on_this_machine(task.data.env()):
            async with agents.agent.interaction(task) as interaction:
                await _play(task.data, interaction, self.config.tool_images)


def check_agent(env: BaseMultiTurnEnv, agent: vf.AgentConfig) -> None:
    """Raise `ConfigError` if verifiers would send images of a restricted environment to another machine."""
    to = agent.client.base_url if agent.client else "a client that is not known here"
    check_may_leave(env, to, action="verifiers sends its images to", allowed="--client.base-url on localhost")
    if not isinstance(agent.runtime, vf.SubprocessConfig):
        runtime = type(agent.runtime).__name__
        check_may_leave(
            env, runtime, action="its images are sent into a", allowed="--env.agent.runtime.type subprocess"
        )


async def _play(data: ViewboxData, interaction: vf.Interaction, tool_images: ToolImages) -> None:
    trace = interaction.trace
    config = _build_run_config(trace)
    assert config.seed is not None
    state, problem = None, None
    try:
        check_agent(data.env(), trace.agent.config)
        env = data.played()
        state = await asyncio.to_thread(_open_episode, data, config.seed)
        player = _VerifiersPlayer(env, state, interaction, tool_images)
        with contain_exit():
            await play_to_end(state, player.get_reply, partial(env.step, state))
    except Exception as error:  # an image that cannot be opened, or an author's bug: verifiers records it
        problem = f"{type(error).__name__}: {error}"
        raise
    finally:
        trace.info[INFO] = _build_record(data, state, config, problem)
    trace.stop(state.end_reason)  # otherwise verifiers records `user_closed`, which is not truncated


@dataclass
class _VerifiersPlayer:
    """Asks for replies through verifiers' interaction, which sends only the new messages of a turn."""

    env: BaseMultiTurnEnv
    state: EpisodeState
    interaction: vf.Interaction
    tool_images: ToolImages
    num_sent: int = 1  # messages sent so far; the harness sends the system prompt itself

    async def get_reply(self) -> Reply | None:
        trace, state = self.interaction.trace, self.state
        # The tools stay in the prompt on the last turn, as in training. The environment refuses calls there.
        trace.state.tools = thaw(state.tool_schemas) if self.env.reply_format == "native" else []
        new = state.messages[self.num_sent :]  # begins with the last reply, which shows which calls were native
        self.num_sent = len(state.messages)
        wire = await asyncio.to_thread(to_openai_messages, new, tool_images=self.tool_images, text_calls=True)
        segment = await self.interaction.turn([message for message in wire if message["role"] != "assistant"])
        if segment.terminated:
            state.end("error" if trace.errors else ENDS.get(trace.stop_condition, "cancelled"))
            return None
        message, reason = segment.messages[-1], trace.calls[-1].finish_reason
        said = message_to_wire(message)
        return Reply(message.content or "", read_tool_calls(said), reason or "stop", reasoning=read_reasoning(said))


def _open_episode(data: ViewboxData, seed: int) -> EpisodeState:
    data.env().prepare()
    state = data.played().reset(data.task(), seed=seed)
    state.messages[0] = Message("system", (data.system_prompt or "",))  # a run may have replaced it
    return state


def _build_run_config(trace: vf.Trace) -> RunConfig:
    sampling = trace.agent.config.sampling
    return RunConfig(
        model_name=trace.agent.config.model or "",
        temperature=sampling.temperature,
        seed=int(trace.id[:12], 16),  # different for every rollout of a group
        max_tokens=sampling.max_tokens,
        versions={"viewbox": __version__, "verifiers": version("verifiers")},
    )


def _build_record(
    data: ViewboxData, state: EpisodeState | None, config: RunConfig, problem: str | None
) -> dict[str, Any]:
    info = {} if problem is None else {"error": problem}
    if state is None:
        end: EndReason = "error" if problem else "cancelled"
        task = Task(data.id or "")
        return Episode(task, end_reason=end, truncated=True, environment=data.environment, info=info).to_dict()
    if problem is not None:
        state.end("error")
    return data.played().build_episode(state, replace(config, max_turns=state.max_turns), info=info).to_dict()
