"""The state of one conversation inside the engine, and the engine's counters."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import torch

from ...records import Reply
from ..generator import Conversation
from .architectures import Pixels


@dataclass(eq=False)
class Sequence:
    """A conversation as the engine sees it: its slot in the KV cache, its current reply, and when it is due.

    A sequence is *waiting* (it wants a reply and is not decoded yet), *running* (one token a decode step), *away* (its
    tool runs), or *finished* (its conversation has ended and its slot can be freed).
    """

    conversation: Conversation
    due: int  # the decode step at which it is expected back
    slot: int | None = None
    length: int = 0  # tokens in the cache
    position: int = 0  # rotary position of the next token
    future: "asyncio.Future[Reply] | None" = None  # set while a reply is requested
    output_ids: list[int] = field(default_factory=list)  # of the current reply
    logprobs: list[float] = field(default_factory=list)  # one for each of `output_ids`
    uniform: Any = None  # random numbers of this reply, (tokens the reply may have,)
    images: list[tuple[str, Pixels]] = field(default_factory=list)  # (hash, pixels) of the images in `new_ids`
    prompt: tuple[tuple[int, ...], tuple[str, ...]] | None = None  # (ids, image hashes); equal prompts are copied
    after_prompt: tuple[torch.Tensor, int] | None = None  # (logits, next position) at the end of the prompt
    finished: bool = False  # its conversation has ended
    late: bool = False  # missed its deadline; the engine no longer waits for it

    @property
    def held_slot(self) -> int:
        """The slot of a sequence that has one."""
        assert self.slot is not None
        return self.slot

    @property
    def new_ids(self) -> list[int]:
        """The tokens of the conversation that are not in the cache yet."""
        record = self.conversation.record
        return [*record.prompt_ids, *record.completion_ids][self.length :]


@dataclass
class Stats:
    """What an engine has done since it was made."""

    steps: int = 0  # decode forwards
    prefills: int = 0  # prefill forwards
    tokens: int = 0  # sampled tokens
    prefilled: int = 0  # tokens computed in prefills; copied ones do not count
    forward_seconds: float = 0.0  # spent in forwards (on a GPU: until they were launched)
    busy_seconds: float = 0.0  # with sequences in the engine
