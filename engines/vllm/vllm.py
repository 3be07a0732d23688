"""A vLLM server as a generator.

A reply in which the policy sampled an image placeholder is drawn again. To ban these tokens would be simpler, but would
move the log-probs of all others, by as much as a young policy gives to placeholders.

Before its first reply the server is asked what it serves, and for one token after two pictures, which shows whether its
image processor resizes as ours does and whether its log-probs are those of the distribution that it samples from.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Annotated

import httpx
import numpy as np
from msgspec import Meta, Struct

from ...configs.sections import RolloutSection, SamplingParams
from ...errors import ConfigError
from ...images.ref import ImageRef
from ...network.connection import MAX_ATTEMPTS
from ...network.hosts import ALLOWED_URL, parse_url, show_url
from ...utils import concurrency
from ..generator import Conversation, ReplyError
from ..hf.chat_tokens import ChatTokens
from ..openai.client import ChatConnection, EndpointError
from .generator import SampledTokens, TokenRequest, TokenServerGenerator, derive_seed, is_logprob
from .process import FLAGS, MAX_STARTS, PAUSE, ServerProcess
from .wire import build_request, parse_generated, read_as

GENERATE = "/inference/v1/generate"
DRAWS = 4  # of a reply, if image placeholders are sampled in it; they are banned in the last one
PROBED = 64, 512  # sides of the pictures that a server is asked with, of an image processor with other limits
CERTAIN = 1e-3  # how far from 0 the log-prob of the only token allowed may be


@dataclass(frozen=True)
class Served:
    """A server: the model's name there (None: the first one served), the version of the weights that it was sent (None:
    none, and it is checked before the first reply), and its process, if this process runs it."""

    url: str
    model: str | None = None
    version: str | None = None
    process: ServerProcess | None = None


class VLLMGenerator(TokenServerGenerator):
    """Replies from one vLLM server. With a known version nothing is asked beforehand, and a server that is away costs
    replies, not the run. One that this process runs is started before the first reply, and again if it dies."""

    def __init__(
        self,
        served: Served,
        tokens: ChatTokens,
        settings: RolloutSection,
        *,
        model_name: str = "",
        attempts: int = MAX_ATTEMPTS,
        first_pause: float = 0.5,
    ) -> None:
        super().__init__(tokens, self._ask, settings, model_name=model_name)
        self.url = clean_url(served.url)
        self.model, self.version, self.process = served.model, served.version, served.process
        self._is_checked = served.version is not None
        self.connection = ChatConnection(
            self.url + GENERATE,
            attempts=attempts,
            first_pause=first_pause,
            is_known=self._is_checked,
            is_up=(lambda: True) if self.process is None else self.process.is_ready,
        )
        self._checking = asyncio.Lock()

    async def close(self) -> None:
        await self.connection.close()

    async def _ask(self, request: TokenRequest) -> SampledTokens:
        """Return the next reply. Raise `ReplyError` if this request has none, `EndpointError` if the server cannot be
        used."""
        for attempt in range(MAX_STARTS + 1):
            started = await self._prepare()
            try:
                return await self._draw(request)
            except ReplyError:
                process = self.process
                has_died = process is not None and (not process.is_running() or process.num_started != started)
                if not has_died or attempt == MAX_STARTS:
                    raise
        raise AssertionError("unreachable")

    async def _prepare(self) -> int:
        """Return how often the server was started, once it can be used. Raise `GeneratorError` if it cannot."""
        async with self._checking:
            process = self.process
            while process is not None and not process.is_ready() and not await concurrency.run_in_thread(process.poll):
                await asyncio.sleep(PAUSE)
            if not self._is_checked:
                await self.check()
                self._is_checked = True
            return 0 if process is None else process.num_started

    async def _draw(self, request: TokenRequest) -> SampledTokens:
        for draw in range(DRAWS):
            seed = derive_seed(request.seed, draw) if draw else request.seed
            sampled = await self._generate(replace(request, seed=seed), self.settings.sampling, bans=draw == DRAWS - 1)
            ids = [token for token in sampled.ids if isinstance(token, int)]  # others are refused later, by name
            if set(self.tokens.never_sampled).isdisjoint(ids):
                break
        if sampled.logprobs is None:
            raise ReplyError("the reply has no log-probs")
        if self.process is not None:
            self.process.confirm()
        return sampled

    async def _generate(self, request: TokenRequest, sampling: SamplingParams, *, bans: bool = False) -> SampledTokens:
        # Every attempt sends the same, seed included: what was lost on the way is sampled again
        body = await asyncio.to_thread(
            lambda: json.dumps(build_request(str(self.model), request, self.tokens, sampling, bans=bans)).encode()
        )
        return await self.connection.post(
            lambda _: body,
            lambda reply: parse_generated(reply, request.ids, self.version),
            deadline=request.conversation.deadline,
            info=request.conversation.info,
        )

    async def check(self) -> str:
        """Ask what is served, and for one token after two pictures; return the model's name at the server. Raise
        `EndpointError`, with the flags to add, if it cannot be used as it was started."""
        try:
            served = await self.connection.request("GET", self.url + "/v1/models", _parse_models)
            self.model = served[0] if self.model is None else self.model  # adapters come after the model
            if self.model not in served:
                names = json.dumps([name[:80] for name in served[:8]])
                raise EndpointError(f"model {self.model!r} is not served; served: {names}")
            # With only one token allowed, the log-prob of what is sampled is 0 unless it is one from before filters
            sampled = await self._generate(build_probe(self.tokens), SamplingParams(top_k=1))
        except EndpointError as error:
            if error.status in (403, 404, 405):
                raise EndpointError(f"{error}; a vLLM server (0.31 or later) needs the flags `{FLAGS}`") from error
            raise
        except ReplyError as error:
            raise EndpointError(f"{self.url}: the server cannot be used: {error}") from error
        if not sampled.logprobs:
            raise EndpointError(f"{self.url}: the server sends no log-probs; it needs the flags `{FLAGS}`")
        if not is_logprob(sampled.logprobs[0]):
            raise EndpointError(f"{self.url}: the server sends log-probs that are not finite numbers up to 0")
        if abs(sampled.logprobs[0]) > CERTAIN:
            raise EndpointError(
                f"{self.url}: the server's log-probs are not those of the distribution it samples from: the only token "
                f"allowed has {sampled.logprobs[0]:.4g} instead of 0; it needs the flags `{FLAGS}`"
            )
        return self.model


def clean_url(url: str) -> str:
    """Return the address of the server without a path `/v1`, which OpenAI's clients want. Raise `ConfigError`."""
    try:
        parse_url(url)
        return str(httpx.URL(url)).rstrip("/").removesuffix("/v1").rstrip("/")
    except (ConfigError, httpx.InvalidURL, UnicodeError) as error:
        raise ConfigError(f"rollout.url = {show_url(url)}: {error}; {ALLOWED_URL}", key="rollout.url") from None


def build_probe(tokens: ChatTokens) -> TokenRequest:
    """Return a request for one token after a small and a large picture: the smallest and the largest that an
    environment shows, where the image processor counts pixels."""
    images, sides = tokens.processor.image_processor, PROBED
    if getattr(images, "merge_size", None) is not None:
        side = images.patch_size * images.merge_size
        sides = side, max(side, int(images.size["longest_edge"] ** 0.5) // side * side)
    pictures = [ImageRef.of(np.zeros((n, n, 3), np.uint8)) for n in sides]
    shown = [tokens.pixel_cache.describe(picture)[1] for picture in pictures]
    ids = tokens.encode_plain("a b c" + "d".join(shown) + "d")
    return TokenRequest(Conversation([], (), seed=0, index=0), tuple(ids), tuple(pictures), max_tokens=1, seed=0)


class _Model(Struct):
    id: str


class _Models(Struct):
    data: Annotated[list[_Model], Meta(min_length=1)]


def _parse_models(body: bytes) -> list[str]:
    return [model.id for model in read_as(body, _Models, "the list of models").data]
