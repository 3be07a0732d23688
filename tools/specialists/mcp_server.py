"""An MCP server as `kind: mcp` uses it: shared by its calls, started when it is needed, and what it offers.

A server that dies or hangs takes every call with it that is in progress. Only one of them may be the reason. So each of
them is sent once more, alone, to a fresh session: the call that ends the server again fails, and the others get what
they would have got without it. Everything here but the listing runs on the event loop of `network.background`.
"""

import asyncio
import atexit
import importlib.util
import logging
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from ...errors import ConfigError, ToolError, ToolFault, describe_unknown
from ...network import background
from .mcp_session import ServerSettings, Session, SessionEndedError, StartError, describe_failure
from .schemas import MAX_DESCRIPTION, Parameters, clean_note, read_parameters

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

log = logging.getLogger("viewbox.envs")

COOLDOWN = 30.0  # seconds without another start after one has failed
MAX_TOOLS = 512  # that a server may list
MAX_PAGES = 64


class LostError(Exception):
    """The session ended during a call."""

    def __init__(self, message: str, *, alone: bool) -> None:
        super().__init__(message)
        self.alone = alone


class McpServer:
    """The server of some settings, shared by all their tools."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._session: Session | None = None
        self._starting = asyncio.Lock()
        self._places = asyncio.Semaphore(settings.concurrency)
        self._alone = asyncio.Lock()
        self._failed: tuple[float, str] | None = None  # when the last start failed, and why

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout: float, *, resend: bool) -> "CallToolResult":
        """What the server's tool returns.

        Args:
            tool: its name at the server.
            arguments: of the call.
            timeout: seconds for each of two attempts.
            resend: whether the call may be sent once more if the server ended while others were in progress.

        Raises:
            ToolError: the server refuses the arguments, in words for the model, which do not begin with a name.
            ToolFault: the server cannot be used.
        """
        try:
            try:
                async with self._places:
                    return await self._attempt(tool, arguments, timeout)
            except LostError as lost:
                if lost.alone or not resend:
                    raise
            async with self._hold_all_places():
                return await self._attempt(tool, arguments, timeout)
        except LostError as lost:
            problem = str(lost)
        except StartError as error:
            log.warning("the MCP server %s cannot be used: %s", self.settings.name, error)
            problem = "has no server at the moment"
        raise ToolFault(problem)

    async def list_tools(self) -> "list[Tool]":
        """The tools that the server offered when the session began; raises `StartError`."""
        session = await self._connect()
        if session.tools is not None:
            return session.tools
        tools: list[Tool] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self.settings.start_timeout):
                for _ in range(MAX_PAGES):
                    page = await session.wait_for(session.client.list_tools(cursor=cursor, cache_mode="bypass"))
                    tools += page.tools
                    cursor = page.next_cursor
                    if cursor is None or len(tools) > MAX_TOOLS:
                        break
        except TimeoutError:
            session.end()
            raise StartError(f"no list of tools within {self.settings.start_timeout:g} s") from None
        except Exception as error:
            raise StartError(describe_failure(error)) from error
        if len(tools) > MAX_TOOLS or cursor is not None:
            raise StartError(f"it lists more than {MAX_TOOLS} tools")
        session.tools = tools
        return tools

    async def close(self) -> None:
        """End the session, and the process."""
        if self._session is not None:
            self._session.end()
            await asyncio.wait({self._session.task})

    # ------------------------------------------------------------------ one attempt
    async def _attempt(self, tool: str, arguments: Mapping[str, Any], timeout: float) -> "CallToolResult":
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS, CallToolRequest, CallToolRequestParams, CallToolResult

        session = await self._connect()
        call = object()
        session.calls.add(call)
        session.served += 1
        params = CallToolRequestParams(name=tool, arguments=dict(arguments))
        try:
            async with asyncio.timeout(timeout):
                request = session.client.session.send_request(CallToolRequest(params=params), CallToolResult)
                result: CallToolResult = await session.wait_for(request)
                return result
        except TimeoutError:
            session.end()
            raise LostError(f"gave no result within {timeout:g} s", alone=session.was_alone) from None
        except asyncio.CancelledError:
            session.end()
            raise
        except SessionEndedError as error:
            session.end()
            log.warning("the MCP server %s ended during a call of %s: %s", self.settings.name, tool, error)
            # A session that has served others may have ended by itself, or because of one of them.
            alone = session.was_alone and session.served == 1
            raise LostError("ended its server during the call", alone=alone) from None
        except Exception as error:
            is_about_call = isinstance(error, MCPError) and error.error.code == INVALID_PARAMS
            raise (ToolError if is_about_call else ToolFault)(describe_failure(error)) from error
        finally:
            session.calls.discard(call)

    @asynccontextmanager
    async def _hold_all_places(self) -> AsyncIterator[None]:
        """Inside the block no other call is in progress."""
        held = 0
        async with self._alone:
            try:
                while held < self.settings.concurrency:
                    await self._places.acquire()
                    held += 1
                yield
            finally:
                for _ in range(held):
                    self._places.release()

    async def _connect(self) -> Session:
        async with self._starting:
            if self._session is not None and not self._session.ended.is_set():
                return self._session
            if self._failed is not None and time.monotonic() < self._failed[0] + COOLDOWN:
                raise StartError(self._failed[1])
            session = Session(self.settings)
            try:
                await session.start()
            except StartError as error:
                self._failed = time.monotonic(), str(error)
                raise
            self._session, self._failed = session, None
            return session


def get_server(settings: ServerSettings) -> McpServer:
    """The server of these settings on the running (background) event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _servers:
        _servers[loop] = {}
        atexit.register(_close_all, loop)
    if settings not in _servers[loop]:
        _servers[loop][settings] = McpServer(settings)
    return _servers[loop][settings]


_servers: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ServerSettings, McpServer]]" = WeakKeyDictionary()


def _close_all(loop: asyncio.AbstractEventLoop) -> None:
    """End the servers when the program ends. A forked child has the parent's, and leaves them alone."""

    async def close() -> None:
        await asyncio.gather(*(server.close() for server in list(_servers[loop].values())))

    if loop is background.get_loop():
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(close(), loop).result(timeout=10)


# ---------------------------------------------------------------------- what it offers
class OfferedTool(NamedTuple):
    """A tool of a server: its description, cleaned, and the JSON Schema of its arguments as the server sent it."""

    description: str
    schema: dict[str, Any]


def list_offered(settings: ServerSettings, key: str) -> dict[str, OfferedTool]:
    """The tools of a server, which is started or asked, by name.

    Args:
        settings: of the server.
        key: where it stands in a config.

    Raises:
        ConfigError: the package or the program is missing, or the server cannot be used.
    """
    if importlib.util.find_spec("mcp") is None:
        raise ConfigError(f"{key}: needs the package mcp; install it with pip install 'viewbox[mcp]'", key=key)
    if settings.command and shutil.which(settings.command[0]) is None:
        key = f"{key}.command"
        raise ConfigError(f"{key}: there is no program {settings.command[0]!r}", key=key, given=settings.command)
    try:
        tools = background.run(_list_tools(settings))
    except StartError as error:
        raise ConfigError(f"{key}: the MCP server {settings.name}: {error}", key=key) from error
    return {tool.name: OfferedTool(clean_note(tool.description, MAX_DESCRIPTION), tool.input_schema) for tool in tools}


async def _list_tools(settings: ServerSettings) -> list[Any]:
    return list(await get_server(settings).list_tools())


def record_tools(settings: ServerSettings, pictures: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """The tools of a server as `tools` of a config: cleaned, cut and bounded.

    Args:
        settings: of the server.
        pictures: names of arguments that are pictures, of every tool.

    Raises:
        ConfigError: the server cannot be used, or one of its schemas is refused.
    """
    return {name: _record(name, tool, pictures) for name, tool in list_offered(settings, "mcp").items()}


def find_difference(key: str, tool: str, ours: Parameters, offered: dict[str, OfferedTool]) -> str | None:
    """Why the server could not answer the calls that a config allows; None if it could.

    Args:
        key: of the tool in the config.
        tool: its name at the server.
        ours: its parameters in the config.
        offered: what the server offers.
    """
    if tool not in offered:
        return describe_unknown("tool of the server", tool, offered)
    theirs = read_parameters(offered[tool].schema, f"{key}: of the server")
    unknown = [name for name in ours.properties if name not in theirs.properties]
    if unknown and theirs.properties:
        return describe_unknown("argument at the server", unknown[0], theirs.properties)
    missing = [name for name in theirs.required if name not in ours.required]
    return f"the server needs the argument {missing[0]!r}, which is not required here" if missing else None


def _record(name: str, tool: OfferedTool, pictures: Sequence[str]) -> dict[str, Any]:
    parameters = read_parameters(tool.schema, f"tools.{name}.parameters")
    properties = {key: dict(value) for key, value in parameters.properties.items()}
    for key in properties.keys() & set(pictures):
        note = properties[key].get("description")
        properties[key] = {"x-kind": "picture"} | ({"description": note} if note else {})
    schema: dict[str, Any] = {"properties": properties, "required": list(parameters.required)}
    return {"description": tool.description, "parameters": schema}
