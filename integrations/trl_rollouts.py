"""A viewbox environment for TRL's own `GRPOTrainer`, which plays it with its own loop (`environment_factory`).

    rollouts = TRLRollouts(viewbox.make("digits", max_malformed=1))
    trainer = GRPOTrainer(
        model,
        args=GRPOConfig(max_tool_calling_iterations=rollouts.max_tool_calling_iterations, ...),
        train_dataset=rollouts.build_dataset(64),
        **rollouts.arguments,
    )

The model's chat template teaches the tools, with the environment's own schemas; pictures of tools are multimodal tool
results. `rollouts.arguments` are the factory and the reward. For all that this loop cannot do (`LIMITS`), there is
`viewbox train`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..core.base import BaseMultiTurnEnv, get_offered_tools, vary
from ..core.messages import read_reasoning, read_text, read_tool_calls
from ..core.tasks import to_sequence
from ..errors import ConfigError
from ..images.ref import ImageRef
from ..records import Episode, Message, Reply, ToolCall
from ..utils.frozen import thaw
from .session import EpisodeSession

if TYPE_CHECKING:
    from datasets import Dataset

__all__ = ["LIMITS", "TRLRollouts"]

log = logging.getLogger("viewbox.envs")

LIMITS: Mapping[str, str] = {
    "nudges": "a malformed reply ends the episode; nothing asks again (max_malformed=1 does so everywhere)",
    "notes": "a reply with `continue: true` ends the episode as `malformed`",
    "unknown tools": "TRL answers a call of a tool that does not exist; the environment does not learn of it",
    "offered tools": "each prompt has every tool; the environment refuses a call of one that its task does not offer",
}
FIRST = 32  # tasks of which the tools are listed: `open_image` is offered with several images
ENDED = "The episode has ended ({reason}). No tool can be called any more."
Blocks = list[dict[str, Any]]


async def _async_function(**arguments: Any) -> Any:
    """Its code object marks a tool as a coroutine function for `inspect.iscoroutinefunction`."""


class _Tool(dict[str, Any]):
    """A tool of one rollout: its JSON schema, which chat templates are given as it is (TRL would make a poorer one of a
    function's annotations), and callable. TRL asks `inspect` whether to await it; the attributes of a function answer
    that."""

    __code__ = _async_function.__code__
    __defaults__ = None
    __kwdefaults__ = None

    def __init__(self, name: str, schema: Mapping[str, Any], call: Callable[..., Any]) -> None:
        super().__init__(schema)
        self.__name__, self.__annotations__, self._call = schema.get("function", schema)["name"], {}, call
        self._own_name = name

    async def __call__(self, /, **arguments: Any) -> Blocks:
        blocks: Blocks = await self._call(self._own_name, arguments)
        return blocks


class TRLRollouts:
    """What TRL's trainer needs of an environment; its limits that apply are logged as warnings.

    Tool calls are native, whatever `reply_format` says: TRL parses them. A tool whose name TRL reserves, such as
    `reset`, is called `reset_tool` there; the episode has its own name. `on_episode` is called with every scored
    `Episode`. Raise `ConfigError` if TRL cannot play the environment.

    >>> from viewbox.envs.digits import Digits
    >>> rollouts = TRLRollouts(Digits(max_turns=3, max_malformed=1))
    >>> rollouts.max_tool_calling_iterations, rollouts.limits
    (2, ('notes', 'unknown tools'))
    """

    def __init__(self, env: BaseMultiTurnEnv, *, on_episode: Callable[[Episode], None] | None = None) -> None:
        _check_playable(env)
        env = vary(env, reply_format="native")  # the framework parses calls
        self.env, self.on_episode = env, on_episode
        self.tasks = to_sequence(env.tasks, env.name)
        self.limits = tuple(_list_limits(env))
        for name in self.limits:
            log.warning("%s in TRL's own loop: %s", env.name, LIMITS[name])
        self.max_tool_calling_iterations = env.max_turns - 1
        self._seeds = count()
        # TRL lists the functions of the class, and then takes the attributes of the instance with their names.
        self._class = type(f"{env.name}_rollout", (_Rollout,), dict.fromkeys(_list_tools(env), _async_function))

    @property
    def arguments(self) -> dict[str, Any]:
        return {"environment_factory": self.make_rollout, "reward_funcs": self.compute_rewards}

    def make_rollout(self) -> "_Rollout":
        """Return a rollout, which TRL resets for each episode it plays in that place of its batch."""
        rollout: _Rollout = self._class(self)
        return rollout

    def build_dataset(self, limit: int | None = None) -> "Dataset":
        """Return the first `limit` tasks (None: all) as TRL's dataset: system prompt and number of the task; `reset`
        gives the rest."""
        from datasets import Dataset

        number = len(self.tasks) if limit is None else min(limit, len(self.tasks))
        texts = [self.env.for_task(task).build_system_prompt(task) for task in (self.tasks[i] for i in range(number))]
        prompts = [
            [{"role": "system", "content": [{"type": "text", "text": text}]}, {"role": "user", "content": []}]
            for text in texts
        ]
        return Dataset.from_dict({"prompt": prompts, "task": list(range(number))})

    def compute_rewards(
        self, completions: Sequence[Sequence[Mapping[str, Any]]], environments: Sequence["_Rollout"], **columns: object
    ) -> list[float | None]:
        """Return the score of each finished rollout; None if it has none (`Episode.explain_missing_score`)."""
        totals: list[float | None] = []
        for rollout, completion in zip(environments, completions, strict=True):
            episode = rollout._finish(completion)
            if episode is not None and self.on_episode is not None:
                self.on_episode(episode)
            totals.append(None if episode is None or episode.scores is None else episode.scores.total)
        return totals


class _Rollout:
    """One rollout of TRL: `reset` opens a task, the tools step the environment, and the reward ends the episode. TRL
    runs the calls of one reply at the same time; together they are one reply of the environment's loop."""

    def __init__(self, owner: TRLRollouts) -> None:
        self._owner = owner
        self._session = EpisodeSession(owner.env)
        self._calls: list[ToolCall] = []
        self._answers: asyncio.Task[list[Blocks]] | None = None
        for called, (name, schema) in _list_tools(owner.env).items():
            self.__dict__[called] = _Tool(name, schema, self._call)

    def reset(self, *, task: int, **columns: object) -> Blocks:
        """Open task number `task`; its question and image. One that cannot be opened costs its own rollout."""
        self._calls, self._answers = [], None
        try:
            messages = self._session.open(self._owner.tasks[task], seed=next(self._owner._seeds))
        except Exception as error:
            log.warning("%s: task %s cannot be opened: %s", self._owner.env.name, task, error)
            return [{"type": "text", "text": "The task cannot be opened."}]
        return _write_blocks(messages[1])

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Blocks:
        number = len(self._calls)
        self._calls.append(ToolCall(f"call_{number}", name, dict(arguments)))
        if self._answers is None:  # the calls beside this one are tasks that wait to run before this new one
            self._answers = asyncio.ensure_future(self._answer_calls())
        answers = await self._answers
        return answers[number]

    async def _answer_calls(self) -> list[Blocks]:
        calls, self._calls, self._answers = tuple(self._calls), [], None
        state = self._session.state
        if state is None or state.end_reason is not None:
            reason = "error" if state is None else state.end_reason
            return [[{"type": "text", "text": ENDED.format(reason=reason)}] for _ in calls]
        result = await self._session.step_async(Reply("", calls))
        if not result.messages:  # this reply ended the episode
            return [[{"type": "text", "text": ENDED.format(reason=result.end_reason)}] for _ in calls]
        return [_write_blocks(message) for message in result.messages]

    def _finish(self, completion: Sequence[Mapping[str, Any]]) -> Episode | None:
        """Return the episode after the model's last message, which TRL does not hand to an environment."""
        session = self._session
        state = session.state
        if state is None:
            return None
        replies = [message for message in completion if message["role"] == "assistant"]
        if state.end_reason is None and len(replies) > state.turn:
            last = replies[-1]
            session.step(Reply(read_text(last.get("content")), read_tool_calls(last), reasoning=read_reasoning(last)))
            if state.end_reason is None:  # the environment would ask again; TRL has stopped
                state.end("malformed")
        elif state.end_reason is None:  # TRL dropped the tool's result or the reply to it: they were too long
            state.end("max_tokens")
        return _add_texts(session.build_episode(), [read_text(reply.get("content")) for reply in replies])


def _list_tools(env: BaseMultiTurnEnv) -> dict[str, tuple[str, Any]]:
    """Return the environment's tools by their name in TRL: the own name, and the schema as chat templates take it."""
    offered = (name for task in islice(env.tasks, FIRST) for name in get_offered_tools(env, task))
    names = tuple(dict.fromkeys((*env.tools, *offered)))
    tools = {}
    for schema in (thaw(schema) for schema in env.toolbox.build_schemas(names)):
        about = schema.get("function", schema)
        name = about["name"]
        if name in ("reset", "get_reward") or name.startswith("_"):
            about["name"] = f"{name.lstrip('_')}_tool"
        tools[about["name"]] = (name, schema)
    return tools


def _check_playable(env: BaseMultiTurnEnv) -> None:
    problem = None
    if _overrides(env, "on_answer"):
        problem = "its user answers the model's answer, and TRL ends an episode at the first reply without a tool call"
    elif _overrides(env, "for_task"):
        problem = "it mixes environments; give TRL a factory for each of them"
    elif env.history != "full":
        problem = "settings.history: TRL never shortens the history; allowed: full"
    if problem:
        raise ConfigError(f"{env.name} cannot be played by TRL's own loop: {problem}. `viewbox train` plays it.")


def _list_limits(env: BaseMultiTurnEnv) -> list[str]:
    applies = {
        "nudges": env.max_turns > 1 and env.max_malformed > 1,
        "notes": env.max_turns > 1 and env.answer is not None,
        "unknown tools": bool(env.tool_schemas),
        "offered tools": bool(env.tool_schemas) and _overrides(env, "tools_of"),
    }
    return [name for name in LIMITS if applies[name]]


def _overrides(env: BaseMultiTurnEnv, method: str) -> bool:
    return getattr(type(env), method) is not getattr(BaseMultiTurnEnv, method)


def _write_blocks(message: Message) -> Blocks:
    return [
        {"type": "image", "image": part.open()} if isinstance(part, ImageRef) else {"type": "text", "text": part}
        for part in message.content
    ]


def _add_texts(episode: Episode, texts: Sequence[str]) -> Episode:
    """Return the episode with what the model wrote beside its calls, which a tool is not told."""
    said = [number for number, turn in enumerate(episode.turns) if turn.role == "assistant"]
    if len(said) != len(texts):
        return episode
    turns = list(episode.turns)
    for number, text in zip(said, texts, strict=True):
        turns[number] = replace(turns[number], content=turns[number].content or text)
    return replace(episode, turns=tuple(turns))
