"""What the driver and every generator share: a conversation, its tokens, and the reply."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from viewbox.envs.prompts.templates import Prompts
from viewbox.envs.settings import ReplyFormat
from viewbox.errors import ViewboxError
from viewbox.images.ref import ImageRef
from viewbox.records import EpisodeTokens, Message, Reply, RunConfig, Task


class ReplyError(ViewboxError):
    """No reply could be had for this conversation: it ends as `error`, the others go on."""


@dataclass
class TokenRecord:
    """The tokens of one episode while it is played; the fields are those of `EpisodeTokens`."""

    prompt_ids: list[int] = field(default_factory=list)
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    images: list[ImageRef] = field(default_factory=list)
    prompt_images: int = 0
    messages: int = 0  # how many of the conversation's messages are in the tokens

    def add_observation(self, ids: Sequence[int]) -> None:
        """Adds what the environment said."""
        self.completion_ids += ids
        self.mask += [0] * len(ids)
        self.logprobs += [0.0] * len(ids)

    def add_sampled(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Adds what the policy said."""
        self.completion_ids += ids
        self.mask += [1] * len(ids)
        self.logprobs += logprobs

    def to_episode_tokens(self) -> EpisodeTokens | None:
        """The record as it is stored; None where no token was ever made."""
        if not self.prompt_ids:
            return None
        return EpisodeTokens(
            tuple(self.prompt_ids),
            tuple(self.completion_ids),
            tuple(self.mask),
            tuple(self.logprobs),
            tuple(self.images),
            self.prompt_images,
        )


@dataclass(eq=False)
class Conversation:
    """One episode as a generator sees it: messages that only ever grow, and (token generators) their tokens."""

    messages: list[Message]
    tools: Sequence[Mapping[str, Any]]
    seed: int
    index: int
    task: Task | None = None  # for scripted policies; a model never sees it
    record: TokenRecord = field(default_factory=TokenRecord)
    last_turn: bool = False  # the reply that comes next is the last one allowed
    deadline: float | None = None  # when the episode's time is up, on the event loop's clock
    info: dict[str, Any] = field(default_factory=dict)  # becomes `episode.info`; a generator may add to it
    reply_format: ReplyFormat = "native"  # how the prompt is to teach tool calls
    prompts: Prompts = field(default_factory=Prompts)  # the environment's, for what teaches them
    history: Callable[[Sequence[Message]], list[Message]] = list  # selects what the model gets of the messages
    drops_images: bool = False  # `history` leaves images out, which token generators refuse

    @property
    def visible_messages(self) -> list[Message]:
        """The messages as the model gets them."""
        return self.history(self.messages)


@dataclass(frozen=True)
class Load:
    """What a generator is doing now, for those who watch. None: not known, or not bounded."""

    busy: int  # conversations in its cache, or requests under way
    slots: int | None = None  # of how many
    waiting: int = 0  # conversations that will be busy when a slot is free
    tokens: int | None = None  # sampled since it was made


class Generator(Protocol):
    """Turns conversations into replies; a token generator also fills `conversation.record`.

    It may also have `now() -> Load`: then `viewbox rollout` shows tokens/s and what is in use.
    """

    run_config: RunConfig

    async def reply(self, conversation: Conversation) -> Reply:
        """The next assistant message; called once the environment's messages are in `conversation.messages`.

        `ReplyError` and `ImageError` end this episode as `error`; any other exception ends the run.
        """
        ...

    def join(self, conversation: Conversation) -> None:
        """A conversation starts."""
        ...

    def leave(self, conversation: Conversation) -> None:
        """A conversation is over; what was kept for it may go."""
        ...

    async def close(self) -> None: ...
