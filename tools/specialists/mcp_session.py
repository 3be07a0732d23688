"""One connection to an MCP server, by the official client: started, watched and ended.

Of a program's stderr only the end is kept, for messages; a line on its stdout that is no message is skipped. The
replies of an address have a limit.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any, TextIO

from ...errors import ViewboxError
from ...network.client_settings import build_client_settings
from ...network.hosts import read_api_key
from ...network.http import find_compression
from ...utils.secrets import is_secret_name, mask_message, remember
from ...utils.terminal import make_line

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp_types import Tool

log = logging.getLogger("viewbox.envs")

MAX_MESSAGE = 300  # characters of an error
KEPT = 4096  # bytes at the end of stderr, in which the last line is looked for
WAIT = 0.2  # seconds for these to be read, after the program has ended
SILENCE = 300.0  # seconds without a byte from an address, at least


class StartError(ViewboxError):
    """The server cannot be started, or cannot be reached."""


class SessionEndedError(Exception):
    """The connection to the server is gone."""


@dataclass(frozen=True)
class ServerSettings:
    """What a server is; equal settings share one process.

    Args:
        command: the program and its arguments; empty if the server has an address.
        url: its address.
        variables: names of environment variables that the program sees beside PATH, HOME and the like.
        api_key_env: the variable with the key that is sent to the address.
        start_timeout: seconds to start and to shake hands.
        concurrency: calls in progress at once.
        max_reply: bytes of a reply of the address.
    """

    command: tuple[str, ...] = ()
    url: str | None = None
    variables: tuple[str, ...] = ()
    api_key_env: str | None = None
    start_timeout: float = 30.0
    concurrency: int = 8
    max_reply: int = 2**24

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.url or self.command[0]


class Session:
    """One connection, in a task of its own, because the library's contexts must end in the task that entered them."""

    client: "Client"

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.calls: set[object] = set()  # in progress
        self.served = 0  # calls, those in progress included
        self.tools: list[Tool] | None = None  # that the server offers, if it was asked
        self.was_alone = False  # whether at most one call was in progress when it ended
        self.ended = asyncio.Event()
        self._ready = asyncio.Event()
        self._is_warned = False
        self._tail = ErrorTail()

    async def start(self) -> None:
        """Raises `StartError`."""
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(self._see_end)
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait(
                {self.task, ready}, timeout=self.settings.start_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if self._ready.is_set():
                return
            problem = f"no answer within {self.settings.start_timeout:g} s"
            if self.task.done():
                problem = describe_failure(self.task.exception()).replace("Connection closed", "it ended")
            raise StartError(self._describe(problem))
        finally:
            ready.cancel()
            if not self._ready.is_set():
                self.end()
                self.task.cancel()  # the library is still shaking hands

    def _see_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that nobody asked for it
        self.end()

    async def wait_for(self, request: Any) -> Any:
        """The result of a request; raises what it raises, or `SessionEndedError`."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        sent, ended = asyncio.ensure_future(request), asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait({sent, ended}, return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                return sent.result()
        except MCPError as error:  # servers use this code for errors of their own, too
            if error.error.code != CONNECTION_CLOSED or not self.ended.is_set():
                raise
        finally:
            sent.cancel()
            ended.cancel()
        raise SessionEndedError(self._describe("the connection is closed"))

    def end(self) -> None:
        """End it; what is in progress ends with it."""
        if not self.ended.is_set():
            self.was_alone = len(self.calls) <= 1
            self.ended.set()

    async def _run(self) -> None:
        from mcp import Client

        async with self._open() as transport, Client(transport, read_timeout_seconds=None, cache=None) as client:
            self.client = client
            self._ready.set()
            await self.ended.wait()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[AbstractAsyncContextManager[Any]]:
        """The transport."""
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        settings = self.settings
        if settings.url is None:
            logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)  # a traceback for each line
            program, *arguments = settings.command
            variables = read_variables(settings.variables)
            parameters = StdioServerParameters(
                command=program, args=arguments, env=variables, encoding_error_handler="replace"
            )
            with self._tail.open() as stderr:
                yield self._watch(stdio_client(parameters, stderr))
            return
        key = read_api_key(settings.url, settings.api_key_env) if settings.api_key_env else None
        timeout = max(settings.start_timeout, SILENCE)
        async with build_http_client(settings.url, key, max_reply=settings.max_reply, timeout=timeout) as client:
            yield self._watch(streamable_http_client(settings.url, http_client=client))

    @asynccontextmanager
    async def _watch(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """A transport that ends this session before the library sees that nothing more comes."""
        from anyio.abc import ObjectReceiveStream

        async with transport as (read, write):
            session = self

            class Watched(ObjectReceiveStream[Any]):
                async def receive(self) -> Any:
                    try:
                        while isinstance(item := await read.receive(), Exception):
                            session.warn_of_rubbish(item)
                        return item
                    except BaseException:
                        session.end()
                        raise

                async def aclose(self) -> None:
                    await read.aclose()

            yield Watched(), write

    def warn_of_rubbish(self, error: Exception) -> None:
        """Say once that a program writes to stdout what is no message."""
        if not self._is_warned:
            self._is_warned = True
            log.warning("%s writes to stdout what is no message: %s", self.settings.name, describe_failure(error))

    def _describe(self, problem: str) -> str:
        """A problem with the last line that a program wrote to stderr."""
        line = self._tail.read_line(wait=self.task.done()) if self.settings.command else ""
        return _clean(f"{problem}: {line}" if line else problem)


class ErrorTail:
    """The end of what a program writes to stderr, read by a thread; the library takes a file only."""

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._bytes = b""

    @contextmanager
    def open(self) -> Iterator[TextIO]:
        """The file to write to."""
        source, target = os.pipe()
        self._thread = Thread(target=self._read, args=(source,), daemon=True, name="viewbox stderr")
        self._thread.start()
        with os.fdopen(target, "w") as file:
            yield file

    def _read(self, source: int) -> None:
        while chunk := os.read(source, 2**16):
            self._bytes = (self._bytes + chunk)[-KEPT:]
        os.close(source)

    def read_line(self, *, wait: bool) -> str:
        """The last line, "" if there is none; with `wait`, after the program has ended."""
        if self._thread is not None and wait:
            self._thread.join(WAIT)
        lines = self._bytes.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip()[:200] if lines else ""


def read_variables(names: Sequence[str]) -> dict[str, str]:
    """The variables that a config names, which a program sees beside the library's harmless ones."""
    variables = {name: os.environ[name] for name in names if name in os.environ}
    for name, value in variables.items():
        if is_secret_name(name):
            remember(value)
    return variables


def describe_failure(error: BaseException | None) -> str:
    """An error of the library, or of the server, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError | PermissionError):
        return f"it cannot be started ({error.strerror})"
    return _clean(str(error) or type(error).__name__)


def _clean(text: str) -> str:
    return make_line(" ".join(mask_message(text[: 100 * MAX_MESSAGE]).split()), MAX_MESSAGE)


def build_http_client(url: str, key: str | None, *, max_reply: int, timeout: float) -> "httpx2.AsyncClient":
    """The client that `mcp` sends its messages with.

    Args:
        url: of the server.
        key: sent as a bearer token.
        max_reply: limit of a reply, in bytes.
        timeout: seconds to connect, and without a byte.
    """
    import httpx2

    class BoundedStream(httpx2.AsyncByteStream):
        def __init__(self, inner: httpx2.AsyncByteStream) -> None:
            self.inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            received = 0
            async for chunk in self.inner:
                received += len(chunk)
                if received > max_reply:
                    raise httpx2.StreamError(f"the reply is larger than {max_reply} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self.inner.aclose()

    async def bound(response: httpx2.Response) -> None:
        compression = find_compression(response.headers.get("content-encoding"))
        if compression:
            raise httpx2.RemoteProtocolError(f"the reply is compressed ({compression}); allowed: identity")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = BoundedStream(response.stream)

    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout), event_hooks={"response": [bound]}, **build_client_settings(url, key)
    )
