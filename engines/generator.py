"""The interface between the driver and generators: a conversation, its tokens, and the generator protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..core.prompts.templates import Prompts
from ..core.settings import ReplyFormat
from ..errors import ViewboxError
from ..images.ref import ImageRef
from ..network.errors import RequestError
from ..records import EpisodeTokens, Message, Reply, RunConfig, Task


class ReplyError(RequestError):
    """The generator has no reply for this conversation, which ends as `error`; other conversations continue."""


class GeneratorError(ViewboxError):
    """The generator cannot be used at all; ends the run."""


@dataclass
class TokenRecord:
    """The tokens of an episode in progress, in the fields of `EpisodeTokens`."""

    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    images: list[ImageRef] = field(default_factory=list)
    prompt_images: int = 0
    replies: list[int] = field(default_factory=list)
    messages: int = 0  # number of messages whose tokens are recorded

    def add_observation(self, ids: Sequence[int]) -> None:
        self.completion_ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def add_sampled(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        self.completion_ids += ids
        self.mask += [1] * len(ids)
        self.replies.append(len(ids))
        self.logprobs += logprobs

    def to_episode_tokens(self) -> EpisodeTokens | None:
        """Return the record in its stored form; None if it has no tokens."""
        if not self.prompt_ids:
            return None
        ids, mask = (tuple(self.prompt_ids), tuple(self.completion_ids)), tuple(self.mask)
        images = tuple(self.images), self.prompt_images
        return EpisodeTokens(*ids, mask, tuple(self.logprobs), *images, tuple(self.replies))


@dataclass(eq=False)
class Conversation:
    """One episode as a generator sees it: its messages, which only grow, and for token generators its tokens."""

    messages: list[Message]
    tools: Sequence[Mapping[str, Any]]
    seed: int
    index: int
    task: Task | None = None  # for scripted policies; a model never sees it
    record: TokenRecord = field(default_factory=TokenRecord)
    last_turn: bool = False  # the next reply is the last one allowed
    deadline: float | None = None  # when the episode times out, on the event loop's clock
    info: dict[str, Any] = field(default_factory=dict)  # becomes `episode.info`; a generator may add to it
    reply_format: ReplyFormat = "native"  # the format in which the prompt teaches tool calls
    prompts: Prompts = field(default_factory=Prompts)  # the environment's texts, for the tools section of the prompt
    history: Callable[[Sequence[Message]], list[Message]] = list  # selects what the model sees of the messages
    drops_images: bool = False  # whether `history` leaves images out; token generators refuse this
    answer_schema: Mapping[str, Any] | None = None  # of the answer, for servers that can hold a reply to it
    beside: list[Mapping[str, Any]] = field(default_factory=list)  # what a server sent beside each of its replies

    @property
    def visible_messages(self) -> list[Message]:
        return self.history(self.messages)


@dataclass(frozen=True)
class Load:
    """The current load of a generator, for progress displays. None: unknown or unlimited."""

    busy: int  # conversations in its cache, or requests in progress
    slots: int | None = None  # limit of `busy`
    waiting: int = 0  # conversations that wait for a slot
    tokens: int | None = None  # sampled since the generator was made


class Generator(Protocol):
    """Turns conversations into replies; a token generator also fills `conversation.record`.
    A class needs `run_config` and `reply` only. With `get_load() -> Load`, `viewbox rollout` shows tokens/s and the
    slots in use. An exception held in `failure` ends the run: `reply` raises it for every conversation."""

    run_config: RunConfig
    env_settings: Mapping[str, Any] = {}  # of an environment, that follow from the model

    async def reply(self, conversation: Conversation) -> Reply:
        """Return the next assistant message, after the environment's messages were appended. An exception ends this
        episode as `error`; `GeneratorError`, `ConfigError`, `ModelError` and `failure` end the run."""
        ...

    def join(self, conversation: Conversation) -> None:
        """Note that a conversation starts."""
        return

    def leave(self, conversation: Conversation) -> None:
        """Note that a conversation has ended; its resources can be freed."""
        return

    async def close(self) -> None:
        """Free what is held."""
        return
