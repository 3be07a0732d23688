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
from collections.abc import Sequence
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
from ...records import Message
from ...utils.files import expand_path, get_cache_folder
from ...utils.sanitize import replace_surrogates

log = logging.getLogger("viewbox.judge")

FILE = "judge.sqlite"
COOLDOWN = 30.0  # seconds without requests after no connection could be made
COUNTED = ("calls", "cached", "unreachable", "unreadable", "refused")
# Statuses that are about the key, the quota, the load or the network. Every other 4xx is about what the request says.
NOT_ABOUT_THE_TEXT = frozenset({401, 402, 407, 408, 409, 425, 429})
ABOUT_THE_ADDRESS = frozenset({200, 301, 302, 303, 307, 308, 404, 405})  # unless the judge has replied before


def find_cache_folder(name: object) -> object:
    """Return the folder of a judge's replies.

    Text is the name of a folder in the user's cache folder, because a config may be somebody else's. Anything else (a
    `Path`, which only a program can give, or None) is returned as it is.

    Raises:
        ConfigError: the name leads out of the user's cache folder.

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

    Raises `ConfigError` if the endpoint is not a valid address or the environment variable `api_key_env` is not set.
    """

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
        self._last_reply = 0.0  # when it came (`time.monotonic`)
        self._counts: Counter[str] = Counter()
        self._lock = Lock()
        self._unusable_until = 0.0
        self._last_logged = -COOLDOWN
        self._process = os.getpid()

    # ------------------------------------------------------------------ asking
    def ask(self, messages: Sequence[Message]) -> str | None:
        """Return the reply to `messages`, from the cache if possible; None if the judge cannot be reached.

        Equal requests that are made at the same time are sent once.

        Raises:
            RequestRefusedError: the judge works, but refuses this request.
        """
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
                reply = self._get_or_generate(key, conversation)
            finally:
                with self._lock:
                    del self._pending[key]
                future.set_result(reply)
        if isinstance(reply, RequestRefusedError):
            self.count("refused")
            raise reply
        return reply

    def _get_or_generate(self, key: str, conversation: Conversation) -> str | RequestRefusedError | None:
        kept = self._cache.get(key)
        if kept is not None:
            self.count("cached")
            return kept.decode()
        try:
            reply = background.run(self._generate_reply(conversation))
        except Exception as error:  # a failure concerns only this judgment
            refused = self._is_refusal(error)
            self._log_failure(error, conversation.info.get("last_failure"), refused)
            if refused:
                return RequestRefusedError(f"the judge refused the request: {error}")
            self.count("unreachable")
            return None
        self._has_replied, self._last_reply = True, time.monotonic()
        return self._cache.put(key, replace_surrogates(reply).encode()).decode()

    def _is_refusal(self, error: Exception) -> bool:
        """Return whether an error is about what the request says, and so about what the policy wrote."""
        status = getattr(error, "status", None)
        if status in NOT_ABOUT_THE_TEXT:
            return False
        if (
            status is None or status >= 500
        ):  # of a judge that failed on this request, answered another, and failed again
            since = getattr(error, "failed_since", None)
            return since is not None and self._last_reply > since
        return self._has_replied or status not in ABOUT_THE_ADDRESS

    def _log_failure(self, error: Exception, last: str | None, refused: bool) -> None:
        """Log why there was no reply, at most every `COOLDOWN` seconds, because a judge that is down fails often."""
        if time.monotonic() < self._last_logged + COOLDOWN:
            return
        self._last_logged = time.monotonic()
        late = f"not within {self.timeout:g} s" + (f"; the last failure: {last}" if last else "")
        reason = late if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        effect = "refused an answer, which scores 0" if refused else "gave no reply, so the episode has no score"
        log.warning("the judge %s %s: %s", self._generator.url, effect, reason)

    async def _generate_reply(self, conversation: Conversation) -> str:
        async with self._semaphore:
            if time.monotonic() < self._unusable_until:
                raise EndpointError("it could not be used a moment ago")
            self.count("calls")
            conversation.deadline = asyncio.get_running_loop().time() + self.timeout
            try:
                async with asyncio.timeout_at(conversation.deadline):
                    return (await self._generator.reply(conversation)).text
            except EndpointError as error:
                if error.status is None:  # no connection; a status may be about this request alone
                    self._unusable_until = time.monotonic() + COOLDOWN
                raise

    # ------------------------------------------------------------------ counting
    def count(self, name: str) -> None:
        """Count an event; `name` is one of `COUNTED`."""
        with self._lock:
            self._counts[name] += 1

    def take_counts(self) -> dict[str, int]:
        with self._lock:
            counts = {name: self._counts[name] for name in COUNTED}
            self._counts.clear()
        return counts
