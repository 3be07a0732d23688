"""A blocking client of a judge model: cached, with limits on requests, attempts and time.

It sends requests with `OpenAIGenerator` (its retries, pauses, size limits and protection of the key) on the event loop
of `background.py`.
"""

import asyncio
import hashlib
import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Lock
from typing import Any

from ...configs.sections import SamplingParams
from ...engines.generator import Conversation
from ...engines.openai.client import EndpointError, OpenAIGenerator, build_completions_url
from ...errors import ConfigError
from ...network import background
from ...network.answers import AnswerCache
from ...network.data_policy import check_sending
from ...network.hosts import read_api_key
from ...records import Message, Reply
from ...utils.files import expand_path, get_cache_folder
from ...utils.sanitize import replace_surrogates

log = logging.getLogger("viewbox.judge")

FILE = "judge.sqlite"
MAX_SHOWN = 200  # characters of a reply
REFUSALS = ("content_filter", "refusal")  # finish reasons that are about the text
COOLDOWN = 30.0  # seconds without requests after no connection could be made
COUNTED = ("calls", "cached", "unreachable", "unreadable", "refused")
# Statuses that are about the key, the quota, the load or the network. Every other 4xx is about what the request says.
NOT_ABOUT_THE_TEXT = frozenset({401, 402, 407, 408, 409, 425, 429})
ABOUT_THE_ADDRESS = frozenset({200, 301, 302, 303, 307, 308, 404, 405})  # unless the judge has replied before


def find_cache_folder(name: object) -> object:
    """Return the folder of a judge's replies. Text is the name of a folder in the user's cache folder, because a config
    may be somebody else's. Anything else (a `Path`, which only a program can give, or None) is returned as it is. Raise
    `ConfigError` if the name leads out of the user's cache folder.

    >>> find_cache_folder("reports").relative_to(get_cache_folder() / "judge").as_posix()
    'reports'
    """
    if not isinstance(name, str):
        return name
    root = (get_cache_folder() / "judge").resolve()
    try:
        folder = (root / expand_path(name)).resolve()
        inside = name.strip() and folder != root and folder.is_relative_to(root)
    except (OSError, ValueError, RuntimeError):  # a zero byte in it, a circle of links
        inside = False
    if not inside:
        raise ConfigError(
            f"cache = {name!r:.200}: replies are kept in your cache folder; allowed: the name of a folder in {root}",
            key="cache",
        )
    return folder


class RequestRefusedError(Exception):
    """The judge refuses this request, as a content filter does, or fails on it while it answers others."""


class JudgeClient:
    """A client of one judge. Safe for threads and forks.
    Raises `ConfigError` if the endpoint is not a valid address or the environment variable `api_key_env` is not set."""

    def __init__(self, judge: Any) -> None:  # a `JudgeReward`, whose module imports this one
        self._judge, self.concurrency, self.timeout = judge, judge.concurrency, judge.timeout
        build_completions_url(judge.endpoint)
        self._start()

    def _start(self) -> None:
        """Set up the state that belongs to one process."""
        judge = self._judge
        self._generator = OpenAIGenerator(
            judge.endpoint,
            judge.model,
            api_key=read_api_key(judge.endpoint, judge.api_key_env) if judge.api_key_env else None,
            sampling=SamplingParams(temperature=0.0),
            max_tokens=judge.max_tokens,
            extra={"seed": None, **judge.extra},
            attempts=judge.attempts,
        )
        self._cache = AnswerCache(None if judge.cache is None else Path(judge.cache) / FILE, days=math.inf)
        self._semaphore = asyncio.Semaphore(self.concurrency)
        self._pending: dict[str, Future[str | RequestRefusedError | None]] = {}  # by the hash of the request
        self._has_replied = False
        self.has_judged = False  # whether any reply was a verdict
        self._last_reply = 0.0  # when it came (`time.monotonic`)
        self._counts: Counter[str] = Counter()
        self._lock = Lock()
        self._unusable_until = 0.0
        self._last_logged = -COOLDOWN
        self._process = os.getpid()

    def ask(self, messages: Sequence[Message], is_verdict: Callable[[str], bool]) -> str | None:
        """Return the reply to `messages`, from the cache if possible; None if the judge cannot be reached, or its reply
        was cut off.

        Equal requests that are made at the same time are sent once. Only replies that are a verdict are kept. Raise
        `RequestRefusedError` if the judge works, but refuses this request."""
        check_sending(self._generator.url)
        if self._process != os.getpid():
            self._start()
        conversation = Conversation(list(messages), (), 0, 0, reply_format="native")
        request = [self._generator.url, self._generator.build_request(conversation)]
        key = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        with self._lock:
            pending = self._pending.get(key)
            if pending is None:
                future = self._pending[key] = Future()
        if pending is not None:  # another thread has sent this request
            reply = pending.result()
            if not isinstance(reply, RequestRefusedError):
                self.count("unreachable" if reply is None else "cached")
        else:
            reply = None
            try:
                reply = self._get_or_generate(key, conversation, is_verdict)
            finally:
                with self._lock:
                    del self._pending[key]
                future.set_result(reply)
        if isinstance(reply, RequestRefusedError):
            self.count("refused")
            raise reply
        return reply

    def _get_or_generate(
        self, key: str, conversation: Conversation, is_verdict: Callable[[str], bool]
    ) -> str | RequestRefusedError | None:
        stored = self._cache.get(key)
        if stored is not None and is_verdict(stored.decode()):
            self.has_judged = True
            self.count("cached")
            return stored.decode()
        try:
            reply = background.run(self._generate_reply(conversation))
        except Exception as error:  # a failure concerns only this judgment
            last = conversation.info.get("last_failure")
            late = f"not within {self.timeout:g} s" + (f"; the last failure: {last}" if last else "")
            reason = late if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            return self._fail(reason, self._is_refusal(error))
        self._has_replied, self._last_reply = True, time.monotonic()
        text, reason = replace_surrogates(reply.text), reply.finish_reason
        if reason not in ("stop", "tool_calls"):
            advice = f"; max_tokens = {self._judge.max_tokens} may be too small" if reason == "length" else ""
            return self._fail(f"its reply ended early (finish_reason: {reason}{advice})", reason in REFUSALS)
        if not is_verdict(text):
            self._log("gave no verdict", self.has_judged, repr(text[:MAX_SHOWN]))
            return text
        self.has_judged = True
        if stored is not None:
            self._cache.drop(key)
        return self._cache.put(key, text.encode()).decode()

    def _fail(self, reason: str, refused: bool) -> RequestRefusedError | None:
        """Log and return that there is no reply, or that the request was refused."""
        self._log("refused the request" if refused else "gave no reply", refused, reason)
        if refused:
            return RequestRefusedError(f"the judge refused the request: {reason}")
        self.count("unreachable")
        return None

    def _is_refusal(self, error: Exception) -> bool:
        """Return whether an error is about what the request says, and so about what the policy wrote."""
        status = getattr(error, "status", None)
        if status in NOT_ABOUT_THE_TEXT:
            return False
        if status is None or status >= 500:
            since = getattr(error, "failed_since", None)  # here, while the judge answered another request
            return since is not None and self._last_reply > since
        return self._has_replied or status not in ABOUT_THE_ADDRESS

    def _log(self, event: str, is_zero: bool, reason: str) -> None:
        """Log why there was no verdict, at most every `COOLDOWN` seconds, because a judge that is down fails often."""
        if time.monotonic() >= self._last_logged + COOLDOWN:
            self._last_logged = time.monotonic()
            effect = "an answer scores 0" if is_zero else "the episode has no score"
            log.warning("the judge %s %s, so %s: %s", self._generator.url, event, effect, reason)

    async def _generate_reply(self, conversation: Conversation) -> Reply:
        async with self._semaphore:
            if time.monotonic() < self._unusable_until:
                raise EndpointError("it could not be used a moment ago")
            self.count("calls")
            conversation.deadline = asyncio.get_running_loop().time() + self.timeout
            try:
                async with asyncio.timeout_at(conversation.deadline):
                    return await self._generator.reply(conversation)
            except EndpointError as error:
                if error.status is None:  # no connection; a status may be about this request alone
                    self._unusable_until = time.monotonic() + COOLDOWN
                raise

    def count(self, name: str) -> None:
        """Count an event; `name` is one of `COUNTED`."""
        with self._lock:
            self._counts[name] += 1

    def take_counts(self) -> dict[str, int]:
        with self._lock:
            counts = {name: self._counts[name] for name in COUNTED}
            self._counts.clear()
        return counts
