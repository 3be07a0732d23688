"""The process that decodes files: one at a time, with a limit on its memory and its time.

`viewbox.images.files.pool` starts it. The kernel ends it when a decoder takes too long or more memory than the header
of the file explains, and when its parent is gone; no decoder can keep it from that. It reads files that it is given
open, opens none itself but those of a folder that it is given, and has none of the parent's environment variables.
"""

import fcntl
import io
import os
import resource
import select
import signal
import socket
import stat
import sys
import warnings
from contextlib import suppress

from PIL import Image

from .. import limits
from ..source import Source
from . import formats
from .paths import StackSelection, describe_failure
from .transfer import Channel, ChannelClosed, Message, pack_picture, pack_source

IDLE = 60.0  # seconds without a file after which a worker ends
LIBRARIES = 2**28  # bytes of address space for pydicom, nibabel or OpenCV, which are imported when a file needs them
GROWN = 2**29  # bytes more than at its start with which a worker ends
OPEN_FILES = 64


def main(descriptor: int, watched: int) -> None:
    """Decode the files that come through a socket, until it is closed; the parent has the other end of `watched`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to parent and worker
    silence(os.devnull)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    end_with_parent(watched)
    Image.MAX_IMAGE_PIXELS = limits.MAX_BYTES // 2  # Pillow refuses twice as many; a strip of a TIFF has so many bytes
    with socket.socket(fileno=descriptor) as sock:
        worker = Worker(Channel(sock))
        while worker.serve():
            pass


def silence(path: str) -> None:
    """Discard what decoders print, because it may quote the file."""
    warnings.simplefilter("ignore")
    sys.dont_write_bytecode = True
    nowhere = os.open(path, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def end_with_parent(watched: int) -> None:
    """Have the kernel end this process when the parent is gone, even while a decoder hangs (Linux): it sends SIGIO when
    the pipe closes. The signals of a socket may come late, when their message has long been read."""
    if sys.platform == "linux":
        fcntl.fcntl(watched, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(watched, fcntl.F_SETFL, fcntl.fcntl(watched, fcntl.F_GETFL) | fcntl.FASYNC)
        if select.select([watched], [], [], 0)[0]:  # it closed before
            sys.exit()


class Worker:
    """Decodes one file after the other, each within its limits."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        channel.sock.settimeout(None)
        self.waiting = select.poll()
        self.waiting.register(channel.sock, select.POLLIN)
        self.first_size = self.size = get_size()  # of the address space: at the start, and before the present file
        self.memory_limit = 0

    def serve(self) -> bool:
        """Decode one file; return whether to wait for another."""
        if not (self.channel.ahead or self.waiting.poll(IDLE * 1000)):
            return False
        try:
            request, descriptors = self.channel.receive()
            vars(limits).update(request.get("limits", {}))
            content: formats.Content
            if descriptors:
                (descriptor,) = descriptors
                content = descriptor if stat.S_ISDIR(os.fstat(descriptor).st_mode) else os.fdopen(descriptor, "rb")
            else:
                inline = bytearray(request["inline"])
                self.channel.read_into(memoryview(inline))
                content = io.BytesIO(inline)
            message, payload = self.decode(request["what"], content, StackSelection(*request.get("selection", ())))
            stays = (self.size or 0) < (self.first_size or 0) + GROWN
            self.channel.send({**message, "stays": stays}, payload)
        except ChannelClosed:
            return False
        if isinstance(content, int):
            os.close(content)
        else:
            content.close()
        return stays

    def decode(
        self, what: str, content: formats.Content, selection: StackSelection
    ) -> tuple[Message, "bytes | memoryview"]:
        """Return the message about a file, and the bytes behind it."""
        self.size = get_size()
        self.set_limits(0)
        try:
            read = formats.read_picture if what == "picture" else formats.read_source
            decoded = read(content, self.reserve, selection)
            return pack_source(decoded) if isinstance(decoded, Source) else pack_picture(decoded)
        except ChannelClosed:
            raise
        except Exception as error:  # decoders raise anything for a damaged file
            return {"error": describe_failure(error)}, b""
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def reserve(self, decoded: int) -> None:
        """Ask the parent for the memory that `decoded` bytes of pixels take while they are opened, and wait for it."""
        memory = limits.PEAK * decoded
        if memory <= limits.SMALL:
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        self.channel.send({"memory": memory})
        self.channel.receive()
        self.set_limits(memory)

    def set_limits(self, memory: int) -> None:
        """Set the limits for a file that takes `memory` bytes: beyond the time, the kernel sends SIGPROF, which ends
        the process; an allocation beyond the memory raises `MemoryError`."""
        signal.setitimer(signal.ITIMER_PROF, limits.get_cpu_seconds(memory))
        if self.size is None:
            return
        limit = self.size + max(memory, limits.SMALL) + LIBRARIES
        if limit != self.memory_limit:
            with suppress(OSError, ValueError):  # a lower limit of the user's own
                resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
            self.memory_limit = limit


def get_size() -> int | None:
    """Bytes of this process's address space; None on a system that does not tell, and there memory has no limit."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None
