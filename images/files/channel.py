"""Messages between a process and the worker that decodes for it: JSON, followed by the bytes of an array."""

import json
import socket
import time
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 2**20  # bytes of JSON
JOINED = 2**16  # bytes behind a message that are sent in one call with it

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a pair of sockets.

    Args:
        sock: connected to the other end.

    `deadline` is the time (`time.monotonic`) until which the other side must have answered; None waits for ever.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline: float | None = None

    def send(self, message: Message, payload: "bytes | memoryview" = b"", descriptors: Sequence[int] = ()) -> None:
        """Send a message, the bytes behind it, and open files; raises `ChannelClosed` or `TimeoutError`."""
        head = json.dumps(message).encode()
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
        self._set_timeout()
        try:
            start, descriptors, *_ = socket.recv_fds(self.sock, 4, 1)
        except TimeoutError:
            raise
        except OSError:
            raise ChannelClosed from None
        if not start:
            raise ChannelClosed
        size = bytearray(4)
        size[: len(start)] = start
        self.read_into(memoryview(size)[len(start) :])
        length = int.from_bytes(size, "little")
        if length > MAX_MESSAGE:
            raise ChannelClosed
        head = bytearray(length)
        self.read_into(memoryview(head))
        message = json.loads(head)
        if not isinstance(message, dict):
            raise ChannelClosed
        return message, descriptors

    def read_into(self, room: memoryview) -> None:
        """Fill `room`, which is contiguous; raises `ChannelClosed` or `TimeoutError`."""
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
        self.sock.settimeout(None if self.deadline is None else max(0.001, self.deadline - time.monotonic()))
