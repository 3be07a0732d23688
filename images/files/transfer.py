"""Messages between a process and the worker that decodes for it: JSON, followed by the bytes of an array.

A decoded image is JSON and one array. What comes back is checked, because a hostile file may have taken over the
decoder that sent it.
"""

import base64
import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from math import isfinite
from typing import Any

import numpy as np
from PIL import Image

from ...errors import ImageError
from ..pixels import CODES, DEPTHS, ORIENTATION, to_srgb
from ..source import Source, Volume

MAX_MESSAGE = 2**20  # bytes of JSON
AHEAD = 2**16  # bytes that are asked for when a message is expected: a short one comes whole, with what is behind it
MAX_NOTES, MAX_NOTE = 50, 1000  # notes of a reader, and characters of each

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a pair of sockets, whose other side must have answered until `deadline` (`time.monotonic`). `ahead`
    are the bytes that have come and are not read."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.deadline: float | None = None
        self.ahead = memoryview(b"")

    def send(self, message: Message, payload: "bytes | memoryview" = b"", descriptors: Sequence[int] = ()) -> None:
        """Send a message, the bytes behind it, and open files; raise `ChannelClosed` or `TimeoutError`."""
        head = json.dumps(message, separators=(",", ":"), default=_to_plain).encode()
        first = len(head).to_bytes(4, "little") + head
        with self._in_time():
            if descriptors:
                first = first[socket.send_fds(self.sock, [first], descriptors) :]
            self.sock.sendall(first)
            self.sock.sendall(payload)

    def receive(self) -> tuple[Message, list[int]]:
        """Return the next message and the files sent with it; raise `ChannelClosed` or `TimeoutError`."""
        descriptors: list[int] = []
        if not self.ahead:
            with self._in_time():
                start, descriptors, *_ = socket.recv_fds(self.sock, AHEAD, 1)
            if not start:
                raise ChannelClosed
            self.ahead = memoryview(start)
        length = int.from_bytes(self._read(4), "little")
        if length > MAX_MESSAGE:
            raise ChannelClosed
        message = json.loads(str(self._read(length), "utf-8"))
        if not isinstance(message, dict):
            raise ChannelClosed
        return message, descriptors

    def _read(self, count: int) -> memoryview:
        if len(self.ahead) < count:
            whole = memoryview(bytearray(count))
            self.read_into(whole)
            return whole
        chunk, self.ahead = self.ahead[:count], self.ahead[count:]
        return chunk

    def read_into(self, room: memoryview) -> None:
        """Fill `room`, which is contiguous bytes; raise `ChannelClosed` or `TimeoutError`."""
        there = min(len(room), len(self.ahead))
        room[:there], self.ahead = self.ahead[:there], self.ahead[there:]
        room = room[there:]
        while room:
            with self._in_time():
                count = self.sock.recv_into(room)
            if not count:
                raise ChannelClosed
            room = room[count:]

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        """Let the socket wait until the deadline; raise `ChannelClosed` if it fails, and `TimeoutError`."""
        if self.deadline is not None:
            self.sock.settimeout(max(0.001, self.deadline - time.monotonic()))
        try:
            yield
        except TimeoutError:
            raise
        except OSError:
            raise ChannelClosed from None


def _to_plain(value: Any) -> Any:
    """Return what JSON can hold of bytes, an array, or a number of NumPy."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value.tolist()


DTYPES = (*DEPTHS, "bytes")  # of what is sent; "bytes" are those of a Pillow image
ARRAYS = ("pixels", "voxels", "times", "volume")  # fields that are not in the message
SENT = {kind: {one.name: one.default for one in fields(kind) if one.name not in ARRAYS} for kind in (Source, Volume)}


def pack_source(source: Source) -> tuple[Message, memoryview]:
    """Return a source, with all slices if it has a volume, as a message and the bytes behind it."""
    volume, whole = source.volume, source.volume or source
    array, order, flipped = _order_as_in_memory(source.pixels if volume is None else volume.all_voxels)
    pairs = ((name, getattr(whole, name), default) for name, default in SENT[type(whole)].items())
    named: dict[str, Any] = {name: value for name, value, default in pairs if value is not default}
    message: Message = {"dtype": CODES[array.dtype.str[1:]], "shape": array.shape, "fields": named}
    if flipped or order != sorted(order):
        message |= {"order": order, "flipped": flipped}
    if volume is not None:
        message["several"] = volume.times is not None
        if volume.displays is not None:  # most are alike
            distinct = {display: number for number, display in enumerate(dict.fromkeys(volume.displays))}
            message["numbers"] = [distinct[display] for display in volume.displays]
            named["displays"] = list(distinct)
    return message, array.reshape(-1).view(np.uint8).data


def unpack_source(message: Message, array: np.ndarray) -> Source:
    """Return the source of a message; raise for any that `pack_source` cannot have written."""
    import msgspec  # a worker does not need it

    if "order" in message:
        for axis in message["flipped"]:
            array = np.flip(array, int(axis))
        if sorted(message["order"]) != list(range(array.ndim)):
            raise ImageError("it is damaged")
        array = array.transpose([message["order"].index(axis) for axis in range(array.ndim)])
    named = message["fields"]
    if "notes" in named:
        named["notes"] = [note[:MAX_NOTE] for note in named["notes"][:MAX_NOTES]]
    if "several" not in message:
        return _check(msgspec.convert({**named, "pixels": array}, Source))
    if "numbers" in message:
        named["displays"] = [named["displays"][number] for number in message["numbers"]]
    named |= {"voxels": array[named.get("time", 0)], "times": array} if message["several"] else {"voxels": array}
    if named.get("affine") is not None:
        named["affine"] = np.array(named["affine"], float).reshape(4, 4)
    volume = msgspec.convert(named, Volume)
    if sorted(axis for axis, _ in volume.stored_axes) != [0, 1, 2]:
        raise ImageError("it is damaged")
    return _check(volume.get_slice(volume.index, volume.plane))


def _check(source: Source) -> Source:
    """Return the source, whose fields are of the right types; raise `ImageError` for numbers that mean nothing."""
    volume = source.volume
    displays = [(source.display, source.curve), *((volume and volume.displays) or ())]
    numbers = [*(end for display, _ in displays for end in display), *(source.spacing or ()), source.aspect]
    numbers += [] if volume is None or volume.affine is None else volume.affine.ravel().tolist()
    numbers += [number for region in source.regions for number in region]
    odd = len(source.sides or "RLAP") != 4 or not set(source.sides or "") <= set("RLAPHF")
    if odd or not all(map(isfinite, numbers)) or any(curve is not None and len(curve) < 2 for _, curve in displays):
        raise ImageError("it is damaged")
    return source


def _order_as_in_memory(array: np.ndarray) -> tuple[np.ndarray, list[int], list[int]]:
    """Return the same values in one piece, if it can be without a copy; its axes in `array`, and those turned."""
    order = [int(axis) for axis in np.argsort([-abs(stride) for stride in array.strides], kind="stable")]
    inside = array.transpose(order)
    flipped = [axis for axis, stride in enumerate(inside.strides) if stride < 0]
    return np.ascontiguousarray(np.flip(inside, tuple(flipped))), order, flipped


def pack_picture(image: Image.Image) -> tuple[Message, memoryview]:
    """Return a Pillow image (RGB and RGBA as sRGB), with palette, transparency and rotation, as a message and its
    bytes."""
    message: Message = {"dtype": "bytes", "mode": image.mode, "size": image.size}
    if image.palette is not None and image.mode in ("P", "PA"):
        kind = "RGBA" if image.palette.mode == "RGBA" else "RGB"
        message["palette"] = [kind, image.getpalette(kind)]
    transparency = image.info.get("transparency")
    if transparency is not None:
        message["transparency"] = list(transparency) if isinstance(transparency, bytes | tuple) else transparency
    message["rotation"] = image.getexif().get(ORIENTATION, 1)
    content = image.tobytes()
    if (profile := image.info.get("icc_profile")) and image.mode in ("RGB", "RGBA"):
        pixels = np.array(image)
        pixels[..., :3] = to_srgb(pixels[..., :3], profile)[0]
        content = pixels.tobytes()
    return message | {"shape": [len(content)]}, memoryview(content)


def unpack_picture(message: Message, content: np.ndarray) -> Image.Image:
    """Return the Pillow image of a message."""
    image = Image.frombytes(message["mode"], tuple(message["size"]), content)
    if "palette" in message:
        kind, palette = message["palette"]
        image.putpalette(palette, kind)
    transparency = message.get("transparency")
    if transparency is not None:
        many = bytes if image.mode == "P" else tuple
        image.info["transparency"] = many(transparency) if isinstance(transparency, list) else transparency
    if message["rotation"] in range(2, 9):
        exif = Image.Exif()
        exif[ORIENTATION] = message["rotation"]
        image.info["exif"] = exif.tobytes()
    return image
