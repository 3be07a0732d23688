"""One MCP server of this process: its session, which is started when it is needed, and again after it ended.

A server that dies or hangs takes every call with it that is in progress. Only one of them may be the reason. So each of
them is sent once more, alone, to a fresh session: the call that ends the server again fails, and the others get what
they would have got without it. Everything here runs on the event loop of `network.background`.
"""

import asyncio
import atexit
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ....errors import ToolError, ToolFault
from ....network import background
from .session import (
    ServerSettings,
    Session,
    SessionEndedError,
    StartError,
    describe_failure,
)

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
            session.end("it did not list its tools in time")
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
            self._session.end("closed", hurry=False)
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
            session.end(f"gave no result within {timeout:g} s")
            raise LostError(f"gave no result within {timeout:g} s", alone=session.was_alone) from None
        except asyncio.CancelledError:
            session.end("a call was given up")
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

    async def _connect(self) -> "Session":
        async with self._starting:
            if self._session is not None and not self._session.ended:
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
