"""One connection to an MCP server, by the official client: started, watched and ended."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from viewbox.envs.tools.specialist.mcp_server.process import ServerProcess
from viewbox.errors import ViewboxError
from viewbox.network.client_settings import build_client_settings
from viewbox.network.hosts import read_api_key
from viewbox.network.http import find_compression
from viewbox.network.secrets import is_secret_name, mask_message, remember
from viewbox.terminal import make_line

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp_types import Tool

MAX_MESSAGE = 300  # characters of an error
SILENCE = 300.0  # seconds without a byte from an address, at least


class StartError(ViewboxError):
    """The server cannot be started, or cannot be reached."""


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
        max_message: bytes of a message.
    """

    command: tuple[str, ...] = ()
    url: str | None = None
    variables: tuple[str, ...] = ()
    api_key_env: str | None = None
    start_timeout: float = 30.0
    concurrency: int = 8
    max_message: int = 2**24

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.url or self.command[0]


class SessionEndedError(Exception):
    """The connection to the server is gone."""


class Session:
    """One connection, in a task of its own, because the library's contexts must end in the task that entered them."""

    client: "Client"

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.calls: set[object] = set()  # in progress
        self.served = 0  # calls, those in progress included
        self.tools: list[Tool] | None = None  # that the server offers, if it was asked
        self.ended = False
        self.was_alone = False  # whether at most one call was in progress when it ended
        self._process: ServerProcess | None = None
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Raises `StartError`."""
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(self._see_end)
        try:
            async with asyncio.timeout(self.settings.start_timeout):
                events: list[asyncio.Future[Any]] = [self.task, self._ready]
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        except BaseException as error:
            self.end(f"no answer within {self.settings.start_timeout:g} s")
            self.task.cancel()  # the library is still shaking hands
            if not isinstance(error, TimeoutError):
                raise
            raise StartError(self._describe("")) from None
        if not self._ready.done():
            cause = None if self.task.cancelled() else self.task.exception()
            self.end()
            raise StartError(self._describe(describe_failure(cause) if cause else "it ended")) from cause
        self.client = self._ready.result()

    def _see_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that nobody asked for it
        self.end()

    async def wait_for(self, request: Any) -> Any:
        """The result of a request; raises what it raises, or `SessionEndedError`."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        sent = asyncio.ensure_future(request)
        try:
            await asyncio.wait({sent, self.task}, return_when=asyncio.FIRST_COMPLETED)
            if sent.done():
                return sent.result()
        except MCPError as error:  # servers use this code for errors of their own, too
            if error.error.code != CONNECTION_CLOSED or not (self.ended or self.task.done()):
                raise
        finally:
            sent.cancel()
        raise SessionEndedError(self._describe("the connection is closed"))

    def end(self, reason: str | None = None, *, hurry: bool = True) -> None:
        """End it; what is in progress ends with it."""
        if self.ended:
            return
        self.ended, self.was_alone = True, len(self.calls) <= 1
        if self._process is not None:
            self._process.problem = self._process.problem or reason
            if hurry:
                self._process.kill()
        self._stop.set()

    async def _run(self) -> None:
        from mcp import Client

        async with self._open() as transport, Client(transport, read_timeout_seconds=None, cache=None) as client:
            self._ready.set_result(client)
            await self._stop.wait()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        """The transport."""
        settings = self.settings
        if settings.url is None:
            self._process = ServerProcess(
                settings.command, read_variables(settings.variables), settings.max_message, self.end
            )
            yield self._process.open()
            return
        from mcp.client.streamable_http import streamable_http_client

        key = read_api_key(settings.url, settings.api_key_env) if settings.api_key_env else None
        timeout = max(settings.start_timeout, SILENCE)
        async with build_http_client(settings.url, key, max_message=settings.max_message, timeout=timeout) as client:
            yield streamable_http_client(settings.url, http_client=client)

    def _describe(self, problem: str) -> str:
        if self._process is not None and self._process.is_started:
            return _clean(self._process.describe_end(problem))
        return _clean(problem)


def read_variables(names: Sequence[str]) -> dict[str, str]:
    """The environment variables that a server's process sees: harmless ones, and those that the config names."""
    from mcp.client.stdio import get_default_environment

    variables = get_default_environment()
    for name in names:
        if name in os.environ:
            variables[name] = os.environ[name]
            if is_secret_name(name):
                remember(os.environ[name])
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


def build_http_client(url: str, key: str | None, *, max_message: int, timeout: float) -> "httpx2.AsyncClient":
    """The client that `mcp` sends its messages with.

    Args:
        url: of the server.
        key: sent as a bearer token.
        max_message: limit of a reply, in bytes.
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
                if received > max_message:
                    raise httpx2.StreamError(f"the reply is larger than {max_message} bytes")
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
