"""One connection to an MCP server, by the official client: started, watched and ended.

The library's own `stdio_client` collects a line of any length, and copies it with every chunk. Here a message has a
limit, lines that are no message are dropped up to that limit, and of stderr only the end is kept, for messages. The
process has a group of its own, which ends with this process; it sees only the variables that it is given.
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....errors import ViewboxError
from ....network.client_settings import build_client_settings
from ....network.hosts import read_api_key
from ....network.http import find_compression
from ....utils.secrets import is_secret_name, mask_message, remember
from ....utils.terminal import make_line

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


log = logging.getLogger("viewbox.envs")

KEPT = 4096  # bytes of stderr
GRACE = 2.0  # seconds to end after stdin is closed, and again after SIGTERM
POLL = 0.02  # seconds


class ServerProcess:
    """One process; `problem` says why it cannot be used any more.

    Args:
        command: the program and its arguments.
        variables: all environment variables that it sees.
        max_message: bytes of a message, and of everything that it writes between two replies.
        on_end: called when nothing more will be read.
    """

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], max_message: int, on_end: Callable[[], None]
    ) -> None:
        self.command, self.variables, self.max_message = tuple(command), dict(variables), max_message
        self.on_end = on_end
        self.problem: str | None = None
        self.hurry = False  # whether to end it without waiting: it hangs, or floods
        self._errors = bytearray()  # the end of its stderr
        self._process: asyncio.subprocess.Process | None = None
        self._closing = self._left = False  # whether it was told to end; whether it ended without that

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        """Start the process; the streams are those of `mcp.ClientSession`.

        Raises:
            OSError: there is no such program, or it cannot be started.
        """
        import anyio
        from mcp.shared.message import SessionMessage

        process = self._process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.variables,
            limit=self.max_message,
            start_new_session=True,
        )
        to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        work = (self._read_messages(to_session), self._write_messages(from_session), self._read_errors())
        tasks = [asyncio.create_task(one) for one in work]
        try:
            yield from_server, to_server
        finally:
            await asyncio.shield(self._end(process))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()

    @property
    def is_started(self) -> bool:
        """Whether there is, or was, a process."""
        return self._process is not None

    def describe_end(self, problem: str) -> str:
        """Why it ended, with the last line that it wrote to stderr; `problem` if it does not know."""
        status = self._process.returncode if self._process else None
        if self._left:
            problem = "it ended" if status is None else f"it ended with status {status}"
        lines = self._errors.decode("utf-8", "replace").strip().splitlines()
        return (self.problem or problem) + (f": {lines[-1].strip()[:200]}" if lines else "")

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self.hurry = True
        if self._process is not None:
            _signal_group(self._process, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)

    async def _read_messages(self, to_session: Any) -> None:
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

        stdout = self._get_process().stdout
        assert stdout is not None
        unread = 0  # bytes since the last reply
        async with to_session:
            while self.problem is None:
                try:
                    line = await stdout.readline()
                except ValueError:
                    self.problem = f"it sent a message of more than {self.max_message} bytes"
                    break
                if not line:
                    self._left = not self._closing
                    break
                unread += len(line)
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except (ValueError, RecursionError):
                    if b'"jsonrpc"' in line[:256]:
                        self.problem = "it sent a message that cannot be read"
                        break
                    if unread == len(line):
                        log.warning("%s writes to stdout what is no message: %.200r", self.command[0], line)
                else:
                    unread = 0 if isinstance(message, JSONRPCResponse | JSONRPCError) else unread
                    await to_session.send(SessionMessage(message))
                if unread > self.max_message:
                    self.problem = f"it wrote more than {self.max_message} bytes without a reply"
            self.hurry |= self.problem is not None
            self.on_end()  # before the session sees that the stream is closed

    async def _write_messages(self, from_session: Any) -> None:
        stdin = self._get_process().stdin
        assert stdin is not None
        async with from_session:
            async for item in from_session:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(text.encode() + b"\n")
                with suppress(ConnectionError):  # the reader sees that the server has ended
                    await stdin.drain()

    async def _read_errors(self) -> None:
        stderr = self._get_process().stderr
        assert stderr is not None
        while chunk := await stderr.read(2**16):
            self._errors = (self._errors + chunk)[-KEPT:]

    def _get_process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        self._closing = True
        process.stdin.close()
        if not self.hurry and await _wait_for_end(process):
            return
        _signal_group(process, signal.SIGTERM)
        if self.hurry or not await _wait_for_end(process):
            self.kill()
            await _wait_for_end(process)


async def _wait_for_end(process: asyncio.subprocess.Process) -> bool:
    """Whether the process ends in time. `Process.wait` would also wait for children that hold its pipes."""
    for _ in range(round(GRACE / POLL)):
        if process.returncode is not None:
            return True
        await asyncio.sleep(POLL)
    return process.returncode is not None


def _signal_group(process: asyncio.subprocess.Process, number: int) -> None:
    """Signal the process and its children."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.kill()
