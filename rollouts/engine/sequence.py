"""A conversation inside the engine."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from viewbox.rollouts.generator import Conversation, GeneratedReply


@dataclass(eq=False)
class Row:
    """Where a conversation is in the cache, what it says now, and when it is expected back."""

    conversation: Conversation
    due: int  # the step at which it is expected
    slot: int | None = None
    length: int = 0  # tokens in the cache
    position: int = 0  # of the next token
    future: "asyncio.Future[GeneratedReply] | None" = None  # of the reply it waits for
    said: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    uniform: Any = None  # random numbers of this reply; their count is how long it may become
    images: list[Any] = field(default_factory=list)  # (hash, pixels) of those among its new tokens
    prompt: Any = None  # (ids, hashes of images): who has the same may copy it
    after_prompt: Any = None  # (logits, next position) after it
    gone: bool = False  # its conversation is over
    late: bool = False  # it was waited for in vain

    @property
    def place(self) -> int:
        """Its slot, where it has one."""
        assert self.slot is not None
        return self.slot

    @property
    def new_tokens(self) -> list[int]:
        """What of its conversation is not in the cache."""
        record = self.conversation.record
        return [*record.prompt_ids, *record.completion_ids][self.length :]


@dataclass
class Stats:
    """What an engine has done so far."""

    steps: int = 0  # decode forwards
    prefills: int = 0  # forwards of new tokens
    tokens: int = 0  # sampled
    prefilled: int = 0  # tokens, without what was copied
    forward_seconds: float = 0.0  # inside them (on a GPU: until they were launched)
    busy_seconds: float = 0.0  # with rows in flight
