"""The process of an MCP server that speaks over stdin and stdout, bounded: the transport of `mcp`'s client.

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
from typing import Any

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
