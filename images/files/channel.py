"""Messages between a process and the worker that decodes for it: JSON, followed by the bytes of an array."""

import json
import socket
import time
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 2**20  # bytes of JSON
JOINED = 2**16  # bytes behind a message that are sent in one call with it
AHEAD = 2**16  # bytes that are asked for when a message is expected: a short one comes whole, with what is behind it

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a pair of sockets.

    Args:
        sock: connected to the other end.

    `deadline` is the time (`time.monotonic`) until which the other side must have answered; None waits for ever.
    `ahead` are the bytes that have come and are not read.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline: float | None = None
        self.ahead = memoryview(b"")

    def send(self, message: Message, payload: "bytes | memoryview" = b"", descriptors: Sequence[int] = ()) -> None:
        """Send a message, the bytes behind it, and open files; raises `ChannelClosed` or `TimeoutError`."""
        head = json.dumps(message, separators=(",", ":")).encode()
        first = len(head).to_bytes(4, "little") + head
        if payload and len(payload) <= JOINED:
            first, payload = first + payload, b""
        try:
            self._set_timeout()
            if descriptors:
                first = first[socket.send_fds(self.sock, [first], descriptors) :]
            self.sock.sendall(first)
            if payload:
                self.sock.sendall(payload)
        except TimeoutError:
            raise
        except OSError:
            raise ChannelClosed from None

    def receive(self) -> tuple[Message, list[int]]:
        """The next message and the files sent with it; raises `ChannelClosed` or `TimeoutError`."""
        descriptors = [] if self.ahead else self._read_ahead()
        length = int.from_bytes(self._read(4), "little")
        if length > MAX_MESSAGE:
            raise ChannelClosed
        message = json.loads(str(self._read(length), "utf-8"))
        if not isinstance(message, dict):
            raise ChannelClosed
        return message, descriptors

    def _read_ahead(self) -> list[int]:
        """Receive what has come, and the files sent with it."""
        self._set_timeout()
        try:
            start, descriptors, *_ = socket.recv_fds(self.sock, AHEAD, 1)
        except TimeoutError:
            raise
        except OSError:
            raise ChannelClosed from None
        if not start:
            raise ChannelClosed
        self.ahead = memoryview(start)
        return descriptors

    def _read(self, count: int) -> memoryview:
        """The next bytes."""
        if len(self.ahead) < count:
            whole = memoryview(bytearray(count))
            self.read_into(whole)
            return whole
        part, self.ahead = self.ahead[:count], self.ahead[count:]
        return part

    def read_into(self, room: memoryview) -> None:
        """Fill `room`, which is contiguous bytes; raises `ChannelClosed` or `TimeoutError`."""
        there = min(len(room), len(self.ahead))
        room[:there], self.ahead = self.ahead[:there], self.ahead[there:]
        room = room[there:]
        while room:
            self._set_timeout()
            try:
                count = self.sock.recv_into(room)
            except TimeoutError:
                raise
            except OSError:
                raise ChannelClosed from None
            if not count:
                raise ChannelClosed
            room = room[count:]

    def _set_timeout(self) -> None:
        if self.deadline is not None:
            self.sock.settimeout(max(0.001, self.deadline - time.monotonic()))
