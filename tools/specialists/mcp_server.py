"""An MCP server as `kind: mcp` uses it, by the official client: started when it is needed, shared, watched and ended.

A server that dies or hangs takes every call with it that is in progress: each is a fault, which is not charged to the
model, and the next call starts the server again. Everything here but the listing runs on the event loop of
`network.background`. Only the tail of stderr is kept, for messages; stdout lines that are not MCP messages are skipped.
The replies of an address have a limit.
"""

import asyncio
import atexit
import importlib.util
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, TextIO
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, ByteSize, Field

from ...configs.sections import Section
from ...errors import ConfigError, ToolError, ToolFault, ViewboxError, describe_unknown
from ...network import background
from ...network.hosts import read_api_key
from ...network.http import build_client_settings, find_compression
from ...utils.files import expand_path
from ...utils.secrets import is_secret_name, mask_message, remember
from ...utils.terminal import make_line
from .remote import MAX_DESCRIPTION, Parameters, clean_note, read_parameters

if TYPE_CHECKING:
    import httpx2
    from mcp import Client
    from mcp_types import CallToolResult, Tool

log = logging.getLogger("viewbox.envs")

COOLDOWN = 30.0  # seconds without another start after one has failed
MAX_TOOLS = 512  # that a server may list
MAX_PAGES = 64
MAX_MESSAGE = 300  # characters of an error
KEPT = 4096  # bytes at the end of stderr, in which the last line is looked for
WAIT = 0.2  # seconds for these to be read, after the program has ended
SILENCE = 300.0  # seconds without a byte from an address, at least


class StartError(ViewboxError):
    """The server cannot be started, or cannot be reached."""


class McpSettings(Section):
    """What a server is; equal settings share one process."""

    command: Annotated[
        tuple[str, ...],
        AfterValidator(lambda command: (*map(expand_path, command[:1]), *command[1:])),
        Field(description="the program and its arguments; it ends with this process"),
    ] = ()
    url: Annotated[
        str | None, Field(description="in place of `command`: the address (streamable HTTP); this machine, or https")
    ] = None
    variables: tuple[str, ...] = Field(
        default=(), description="environment variables that the program sees, beside PATH, HOME, USER and the like"
    )
    api_key_env: Annotated[
        str | None, Field(min_length=1, description="with `url`: the environment variable with the API key")
    ] = None
    start_timeout: Annotated[float, Field(gt=0, description="seconds for the server to start")] = 30.0
    concurrency: Annotated[int, Field(ge=1, le=256, description="calls in progress at once")] = 8
    max_reply: ByteSize = Field(
        default="16MiB", ge=1024, validate_default=True, description="with `url`: limit of a reply"
    )

    @property
    def server(self) -> "McpSettings":
        """These settings alone."""
        return McpSettings.model_construct(**{name: getattr(self, name) for name in McpSettings.model_fields})

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.url or self.command[0]


class McpSession:
    """One connection, in a task of its own, because the library's contexts must end in the task that entered them."""

    client: "Client"

    def __init__(self, settings: McpSettings) -> None:
        self.settings = settings
        self.tools: list[Tool] | None = None  # that the server offers, if it was asked
        self.ended = asyncio.Event()
        self._ready = asyncio.Event()
        self._tail = b""  # of stderr
        self._tail_reader: Thread | None = None

    async def start(self) -> None:
        """Raise `StartError` if the server does not answer."""
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
            raise StartError(self.describe(problem))
        finally:
            ready.cancel()
            if not self._ready.is_set():
                self.ended.set()
                self.task.cancel()  # the library is still shaking hands

    def _see_end(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():
            task.exception()  # otherwise asyncio logs that nobody asked for it
        self.ended.set()

    async def _run(self) -> None:
        from mcp import Client

        async with self._open() as transport, Client(transport, read_timeout_seconds=None, cache=None) as client:
            self.client = client
            self._ready.set()
            await self.ended.wait()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[AbstractAsyncContextManager[Any]]:
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        settings = self.settings
        if settings.url is None:
            logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)  # a traceback for each line
            program, *arguments = settings.command
            env = read_variables(settings.variables)
            server = StdioServerParameters(command=program, args=arguments, env=env, encoding_error_handler="replace")
            with self._open_stderr() as stderr:
                yield self._watch(stdio_client(server, stderr))
            return
        key = read_api_key(settings.url, settings.api_key_env) if settings.api_key_env else None
        timeout = max(settings.start_timeout, SILENCE)
        async with build_http_client(settings.url, key, max_reply=settings.max_reply, timeout=timeout) as client:
            yield self._watch(streamable_http_client(settings.url, http_client=client))

    @asynccontextmanager
    async def _watch(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Yield a transport that ends this session before the library sees that it is closed."""
        from anyio import BrokenResourceError, ClosedResourceError
        from anyio.abc import ObjectReceiveStream, ObjectSendStream

        session = self

        class WatchedStream(ObjectReceiveStream[Any]):
            async def receive(self) -> object:
                try:
                    return await read.receive()
                except BaseException:
                    session.ended.set()
                    raise

            async def aclose(self) -> None:
                await read.aclose()

        class WatchedSender(ObjectSendStream[Any]):
            async def send(self, item: Any) -> None:
                try:
                    await write.send(item)
                except (BrokenResourceError, ClosedResourceError):  # its pipe breaks before its output ends
                    session.ended.set()
                    raise

            async def aclose(self) -> None:
                await write.aclose()

        async with transport as (read, write):
            yield WatchedStream(), WatchedSender()

    @contextmanager
    def _open_stderr(self) -> Iterator[TextIO]:
        """Yield the file that a program writes its stderr to; the end of it is kept by a thread."""
        source, target = os.pipe()

        def keep() -> None:
            while chunk := os.read(source, 2**16):
                self._tail = (self._tail + chunk)[-KEPT:]
            os.close(source)

        self._tail_reader = Thread(target=keep, daemon=True, name="viewbox stderr")
        self._tail_reader.start()
        with os.fdopen(target, "w") as file:
            yield file

    def describe(self, problem: str) -> str:
        """Return a problem with the last line that a program wrote to stderr."""
        if self._tail_reader is not None and self.task.done():
            self._tail_reader.join(WAIT)
        lines = self._tail.decode("utf-8", "replace").strip().splitlines()
        return _clean(": ".join([problem, *(line.strip()[:200] for line in lines[-1:])]))


def read_variables(names: Sequence[str]) -> dict[str, str]:
    """Return the variables that a config names, which a program sees beside the library's harmless ones."""
    variables = {name: os.environ[name] for name in names if name in os.environ}
    for name, value in variables.items():
        if is_secret_name(name):
            remember(value)
    return variables


def describe_failure(error: BaseException | None) -> str:
    """Return an error of the library, or of the server, in words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError | PermissionError):
        return f"it cannot be started ({error.strerror})"
    return _clean(str(error) or type(error).__name__)


def _clean(text: str) -> str:
    return make_line(" ".join(mask_message(text[: 100 * MAX_MESSAGE]).split()), MAX_MESSAGE)


def build_http_client(url: str, key: str | None, *, max_reply: int, timeout: float) -> "httpx2.AsyncClient":
    """Return the client that `mcp` sends its messages with; `timeout` are seconds to connect, and without a byte."""
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

    hooks: Any = {"response": [bound]}
    return httpx2.AsyncClient(timeout=httpx2.Timeout(timeout), event_hooks=hooks, **build_client_settings(url, key))


class McpServer:
    """The server of some settings, shared by all their tools."""

    def __init__(self, settings: McpSettings) -> None:
        self.settings = settings
        self._session: McpSession | None = None
        self._starting = asyncio.Lock()
        self._places = asyncio.Semaphore(settings.concurrency)
        self._failed: tuple[float, str] | None = None  # when the last start failed, and why

    async def call(self, tool: str, arguments: Mapping[str, object], timeout: float) -> "CallToolResult":
        """Return what the server's tool returns within `timeout` seconds. Raise `ToolError` if it refuses the
        arguments, in words for the model, which do not begin with a name, and `ToolFault` if it cannot be used."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED, INVALID_PARAMS, CallToolRequest, CallToolRequestParams, CallToolResult

        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
        async with self._places:
            try:
                session = await self._connect()
            except StartError as error:
                log.warning("the MCP server %s cannot be used: %s", self.settings.name, error)
                raise ToolFault("has no server at the moment") from None
            try:
                async with asyncio.timeout(timeout):
                    return await session.client.session.send_request(request, CallToolResult)
            except TimeoutError:
                session.ended.set()
                raise ToolFault(f"gave no result within {timeout:g} s") from None
            except Exception as error:
                code = error.error.code if isinstance(error, MCPError) else None
                if code == CONNECTION_CLOSED and session.ended.is_set():  # servers use it for errors of their own
                    problem = session.describe("the connection is closed")
                    log.warning("the MCP server %s ended during a call of %s: %s", self.settings.name, tool, problem)
                    raise ToolFault("ended its server during the call") from None
                raise (ToolError if code == INVALID_PARAMS else ToolFault)(describe_failure(error)) from error

    async def list_tools(self) -> "list[Tool]":
        """Return the tools that the server offered when the session began; raise `StartError`."""
        session = await self._connect()
        if session.tools is not None:
            return session.tools
        tools: list[Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.settings.start_timeout):
                for _ in range(MAX_PAGES):
                    page = await session.client.list_tools(cursor=cursor, cache_mode="bypass")
                    tools += page.tools
                    cursor = page.next_cursor
                    if cursor is None or len(tools) > MAX_TOOLS:
                        break
        except TimeoutError:
            session.ended.set()
            raise StartError(f"no list of tools within {self.settings.start_timeout:g} s") from None
        except Exception as error:
            raise StartError(session.describe(describe_failure(error))) from error
        if len(tools) > MAX_TOOLS or cursor is not None:
            raise StartError(f"it lists more than {MAX_TOOLS} tools")
        session.tools = tools
        return tools

    async def close(self) -> None:
        if self._session is not None:
            self._session.ended.set()
            await asyncio.wait({self._session.task})

    async def _connect(self) -> McpSession:
        async with self._starting:
            if self._session is not None and not self._session.ended.is_set():
                return self._session
            if self._failed is not None and time.monotonic() < self._failed[0] + COOLDOWN:
                raise StartError(self._failed[1])
            session = McpSession(self.settings)
            try:
                await session.start()
            except StartError as error:
                self._failed = time.monotonic(), str(error)
                raise
            self._session, self._failed = session, None
            return session


def get_server(settings: McpSettings) -> McpServer:
    """Return the server of these settings on the running (background) event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _servers:
        _servers[loop] = {}
        atexit.register(_close_all, loop)
    if settings not in _servers[loop]:
        _servers[loop][settings] = McpServer(settings)
    return _servers[loop][settings]


_servers: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[McpSettings, McpServer]]" = WeakKeyDictionary()


def _close_all(loop: asyncio.AbstractEventLoop) -> None:
    """End the servers when the program ends. A forked child has the parent's, and leaves them alone."""

    async def close() -> None:
        await asyncio.gather(*(server.close() for server in list(_servers[loop].values())))

    if loop is background.get_loop():
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(close(), loop).result(timeout=10)


def list_offered(settings: McpSettings, key: str) -> "dict[str, Tool]":
    """Return the tools of a server, which is started or asked, by name; `key` is where it stands in a config."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigError(f"{key}: needs the package mcp; install it with pip install 'viewbox[mcp]'", key=key)
    if settings.command and shutil.which(settings.command[0]) is None:
        key = f"{key}.command"
        raise ConfigError(f"{key}: there is no program {settings.command[0]!r}", key=key)

    async def ask() -> "list[Tool]":
        return await get_server(settings).list_tools()

    try:
        return {tool.name: tool for tool in background.run(ask())}
    except StartError as error:
        raise ConfigError(f"{key}: the MCP server {settings.name}: {error}", key=key) from error


def record_tools(settings: McpSettings, pictures: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Return the tools of a server as `tools` of a config: cleaned, cut and bounded. Arguments named in `pictures` are
    pictures. Raise `ConfigError` if the server cannot be used, or one of its schemas is refused."""
    return {name: _record(name, tool, pictures) for name, tool in list_offered(settings, "mcp").items()}


def _record(name: str, tool: "Tool", pictures: Sequence[str]) -> dict[str, Any]:
    parameters = read_parameters(tool.input_schema, f"tools.{name}.parameters")
    properties = {key: dict(value) for key, value in parameters.properties.items()}
    for key in properties.keys() & set(pictures):
        note = properties[key].get("description")
        properties[key] = {"x-kind": "picture"} | ({"description": note} if note else {})
    schema: dict[str, Any] = {"properties": properties, "required": list(parameters.required)}
    return {"description": clean_note(tool.description, MAX_DESCRIPTION), "parameters": schema}


def find_difference(key: str, tool: str, ours: Parameters, offered: "Mapping[str, Tool]") -> str | None:
    """Return why the server could not answer the calls that a config allows; None if it could."""
    if tool not in offered:
        return describe_unknown("tool of the server", tool, offered)
    theirs = read_parameters(offered[tool].input_schema, f"{key}: of the server")
    unknown = [name for name in ours.properties if name not in theirs.properties]
    if unknown and theirs.properties:
        return describe_unknown("argument at the server", unknown[0], theirs.properties)
    missing = [name for name in theirs.required if name not in ours.required]
    return f"the server needs the argument {missing[0]!r}, which is not required here" if missing else None
