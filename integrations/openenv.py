"""A viewbox environment as an OpenEnv server, and the client that plays it: `viewbox openenv digits`.

    client = ViewboxClient("http://127.0.0.1:8000").sync()
    with client:
        result = client.reset(task=0)
        conversation = result.observation.messages
        while not result.done:
            result = client.step(ask_model(conversation))
            conversation += result.observation.messages

Observations hold the chat messages by which the conversation grew: the reply as the environment keeps it, and what it
answers; images are data URLs. The WebSocket `/ws` keeps
the episode of its connection. OpenEnv's plain HTTP routes `/reset` and `/step` keep none: OpenEnv makes a new
environment for each such request, so they suit a look at the first observation and nothing else.
"""

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import Field

from ..core.base import BaseMultiTurnEnv
from ..core.messages import read_tool_calls, to_openai_messages
from ..envs import make
from ..errors import ConfigError
from ..records import Message, Reply
from ..utils.concurrency import run_in_thread
from ..utils.docstrings import read_docstring
from ..utils.frozen import thaw
from ..version import __version__
from .session import EpisodeSession, check_installed, check_served, list_tasks, pick_task

check_installed("openenv", "viewbox[openenv]", "0.10", replaces="openenv-core")
from openenv.core import EnvClient  # noqa: E402
from openenv.core.client_types import StepResult  # noqa: E402
from openenv.core.env_server import create_app  # noqa: E402
from openenv.core.env_server.interfaces import Environment  # noqa: E402
from openenv.core.env_server.types import Action, ConcurrencyConfig, EnvironmentMetadata, Observation, State  # noqa: E402  # noqa: E402

__all__ = ["ViewboxAction", "ViewboxClient", "ViewboxObservation", "ViewboxServerEnv", "ViewboxState", "build_app"]

# What this file overrides although OpenEnv marks it as private: the three abstract methods of its client.
PRIVATE_NAMES = ("EnvClient._step_payload", "EnvClient._parse_result", "EnvClient._parse_state")
MAX_SESSIONS = 64
SESSION_TIMEOUT = 3600.0  # seconds: a model may think long between two replies


class ViewboxAction(Action):
    """One reply of the model."""

    text: str = Field(default="", description="the reply; it may hold tool calls in the format that the prompt teaches")
    tool_calls: list[dict[str, Any]] = Field(default_factory=list, description="native calls, in OpenAI's format")
    finish_reason: str = Field(default="stop", description="`length` if the reply was cut off")


class ViewboxObservation(Observation):
    """What is new since the last reply. `done` and `reward` are OpenEnv's own; the reward is None before the end."""

    messages: list[dict[str, Any]] = Field(default_factory=list, description="new chat messages, the reply included")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="tool schemas; only after a reset")
    end_reason: str | None = None
    scores: dict[str, float] = Field(default_factory=dict, description="components of the reward, at the end")
    problem: str | None = Field(default=None, description="why an ended episode has no reward")


class ViewboxState(State):
    """The state of an episode that a client may read. It never holds the right answer."""

    environment: str = ""
    task: str | None = None
    end_reason: str | None = None


class ViewboxServerEnv(Environment[ViewboxAction, ViewboxObservation, ViewboxState]):
    """One session of a server: an episode at a time. All sessions share one environment, which never changes."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: BaseMultiTurnEnv) -> None:
        super().__init__()
        self.session = EpisodeSession(env)
        self.tasks = list_tasks(env)
        self.episode_id: str | None = None

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, task: int | None = None, **given: object
    ) -> ViewboxObservation:
        """Start an episode of task number `task`, or of one that `seed` draws."""
        if seed is not None and not isinstance(seed, int):
            raise ConfigError(f"seed: {seed!r}; allowed: an integer", key="seed")
        number = random.Random(seed).randrange(len(self.tasks)) if task is None else task
        chosen = pick_task(self.tasks, number)
        self.episode_id = episode_id
        episode_seed = random.randrange(2**31) if seed is None else seed
        messages = await run_in_thread(lambda: self.session.open(chosen, seed=episode_seed))
        state, played = self.session.get_state(), self.session.played
        if played.reply_format != "native":  # otherwise the client's server teaches it from `tools`
            messages[0] = Message("system", (messages[0].text + self.session.describe_tools(),))
        written = await run_in_thread(partial(to_openai_messages, messages, text_calls=True))
        return ViewboxObservation(messages=written, tools=[thaw(schema) for schema in state.tool_schemas])

    async def step_async(
        self, action: ViewboxAction, timeout_s: float | None = None, **given: object
    ) -> ViewboxObservation:
        """Answer one reply of the model."""
        state = self.session.get_state()
        start = len(state.messages)
        calls = read_tool_calls({"tool_calls": action.tool_calls})
        await self.session.step_async(Reply(action.text, calls, action.finish_reason))
        written = await run_in_thread(partial(to_openai_messages, state.messages[start:], text_calls=True))
        if state.end_reason is None:
            return ViewboxObservation(messages=written)
        record = await run_in_thread(self.session.build_episode)  # a judge waits for the network
        components = record.scores.components if record.scores else {}
        return ViewboxObservation(
            messages=written,
            done=True,
            reward=None if record.scores is None else record.scores.total,
            end_reason=record.end_reason,
            scores={name: value for name, value in components.items() if value is not None},
            problem=record.explain_missing_score(),
        )

    def reset(self, seed: int | None = None, episode_id: str | None = None, **given: object) -> ViewboxObservation:
        raise NotImplementedError("OpenEnv's server calls reset_async")

    def step(self, action: ViewboxAction, timeout_s: float | None = None, **given: object) -> ViewboxObservation:
        raise NotImplementedError("OpenEnv's server calls step_async")

    @property
    def state(self) -> ViewboxState:
        played = self.session.state
        return ViewboxState(
            episode_id=self.episode_id,
            step_count=0 if played is None else played.turn,
            environment=self.session.env.name,
            task=None if played is None else played.task.id,
            end_reason=None if played is None else played.end_reason,
        )

    def get_metadata(self) -> EnvironmentMetadata:
        env = self.session.env
        first_line = (read_docstring(type(env)) or env.name).partition("\n")[0]
        return EnvironmentMetadata(name=env.name, description=first_line, version=__version__)


class ViewboxClient(EnvClient[ViewboxAction | str, ViewboxObservation, ViewboxState]):
    """Plays on an OpenEnv server. `step` takes the model's reply as text, or a `ViewboxAction` with native calls."""

    def _step_payload(self, action: ViewboxAction | str) -> dict[str, Any]:
        return {"text": action} if isinstance(action, str) else action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ViewboxObservation]:
        about = {"done": payload.get("done", False), "reward": payload.get("reward")}
        observation = ViewboxObservation(**payload.get("observation", {}), **about)
        return StepResult(observation=observation, **about)

    def _parse_state(self, payload: dict[str, Any]) -> ViewboxState:
        return ViewboxState(**payload)


def build_app(
    environment: str, settings: Mapping[str, object] | None = None, *, max_sessions: int = MAX_SESSIONS
) -> Any:
    """Return the FastAPI application of an environment, for uvicorn. A session without a request for an hour is freed.
    Raise `ConfigError` also for restricted data: whoever reaches the server sees its images, web pages in a browser on
    this machine included."""
    env = make(environment, **(settings or {}))
    check_served(env)
    env.prepare()
    return create_app(
        lambda: ViewboxServerEnv(env),
        ViewboxAction,
        ViewboxObservation,
        env_name=env.name,
        concurrency_config=ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=SESSION_TIMEOUT),
    )
