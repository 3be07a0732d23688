"""A server of tokens as a generator: it is sent the ids of a conversation so far, and gives those of the next reply.

How the server is asked is up to `ask`, so the same class serves vLLM over HTTP, the server of verl's trainer, and a
model in the same process. Ids are exact on both sides: what was sampled is what is sent with the next turn.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ...configs.sections import RolloutSection
from ...errors import ModelError
from ...images.ref import ImageRef
from ...records import Reply, RunConfig
from ...utils import concurrency
from ...version import get_versions
from ..generator import Conversation, Generator, Load, ReplyError
from ..hf.chat_tokens import ChatTokens


@dataclass(frozen=True)
class TokenRequest:
    """What a server needs for one reply: every token so far, its images, and the seed of this reply."""

    conversation: Conversation
    ids: tuple[int, ...]
    images: tuple[ImageRef, ...]
    max_tokens: int
    seed: int


@dataclass(frozen=True)
class SampledTokens:
    """A server's reply: the ids it sampled, and the log-prob of each under the distribution it sampled from."""

    ids: Sequence[int]
    logprobs: Sequence[float] | None


Ask = Callable[[TokenRequest], Awaitable[SampledTokens]]


class TokenServerGenerator(Generator):
    """Replies from a server of tokens; fills `conversation.record` as the local engine does. The model of `tokens` must
    be the server's. Of what `ask` raises, `ReplyError` ends that episode, `GeneratorError` and `ModelError` the run."""

    def __init__(self, tokens: ChatTokens, ask: Ask, settings: RolloutSection, *, model_name: str = "") -> None:
        self.tokens, self.ask, self.settings = tokens, ask, settings
        self.run_config = RunConfig(
            model_name, settings.temperature, max_tokens=settings.max_completion_tokens, versions=get_versions()
        )
        self._in_flight = self._sampled = 0

    def get_load(self) -> Load:
        return Load(self._in_flight, tokens=self._sampled)

    async def reply(self, conversation: Conversation) -> Reply:
        """Return the next reply; `budget` without a text if no token is left for it. Raise as `check_sampled` does."""
        record, limit = conversation.record, self.settings.max_completion_tokens
        for message in conversation.messages[record.messages :]:
            for image in message.images:
                await concurrency.run_in_thread(self.tokens.count_image_tokens, image)  # opens it, off the event loop
        if not self.tokens.observe(conversation, limit):
            return Reply("", finish_reason="budget")
        offset = len(record.completion_ids)
        request = TokenRequest(
            conversation,
            (*record.prompt_ids, *record.completion_ids),
            tuple(record.images),
            min(self.settings.max_reply_tokens, self.tokens.get_room(record, limit) - offset),
            derive_seed(conversation.seed, offset),
        )
        self._in_flight += 1
        try:
            sampled = await self.ask(request)
        finally:
            self._in_flight -= 1
        ids, logprobs = check_sampled(sampled, request, self.tokens)
        record.add_sampled(ids, logprobs)
        self._sampled += len(ids)
        text = self.tokens.decode(ids)
        ended = ids[-1] in self.tokens.stop_ids or any(stop in text for stop in self.settings.stop)
        return Reply(text, (), "stop" if ended else "length", tuple(ids), tuple(logprobs))


def derive_seed(seed: int, offset: int) -> int:
    """Return the seed of the reply that begins after `offset` tokens of an episode; servers take at most 31 bits.

    >>> derive_seed(7, 0) == derive_seed(7, 0) != derive_seed(7, 12)
    True
    """
    return (seed * 1_000_003 + offset * 31 + 1) % 2**31


def check_sampled(sampled: SampledTokens, request: TokenRequest, tokens: ChatTokens) -> tuple[list[int], list[float]]:
    """Return the ids and log-probs of a reply. Raise `ReplyError` for a token past the end or the limit, a sampled
    placeholder, or a log-prob that is none: all would be trained on; `ModelError` if the server sends no log-probs at
    all."""
    ids = list(sampled.ids)
    if not ids:
        raise ReplyError("the server sent no token")
    size = len(tokens.tokenizer)
    wrong = next((i for i in ids if type(i) is not int or not 0 <= i < size), None)
    if wrong is not None:
        raise ReplyError(f"the server sent the token {_show(wrong)!r}; allowed: 0 to {size - 1}")
    if len(ids) > request.max_tokens:
        raise ReplyError(f"the server sent {len(ids)} tokens; allowed: at most {request.max_tokens}")
    if tokens.stop_ids.intersection(ids[:-1]):
        raise ReplyError("the server sampled on after an end token; it must be given `stop_token_ids`")
    if not set(tokens.never_sampled).isdisjoint(ids):
        raise ReplyError("the server sampled a placeholder of an image; it must be given `logit_bias` against it")
    if sampled.logprobs is None:
        raise ModelError("the server sent no log-probs; allowed: one for each token")
    if len(sampled.logprobs) != len(ids):
        raise ReplyError(f"the server sent {len(sampled.logprobs)} log-probs for {len(ids)} tokens")
    for value in sampled.logprobs:
        if not is_logprob(value):
            raise ReplyError(f"the server sent the log-prob {_show(value)}; allowed: finite numbers up to 0")
    return ids, [min(float(value), 0.0) for value in sampled.logprobs]


def is_logprob(value: object) -> bool:
    """Return whether a server may send this as a log-prob: a finite number up to 0, which rounding may exceed a little.

    >>> [is_logprob(value) for value in (-0.5, 0, float("nan"), -(10**400), True, "-1")]
    [True, True, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and -sys.float_info.max <= value <= 1e-3


def _show(value: object) -> str:
    return str(value)[:40] if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
