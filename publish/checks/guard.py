"""Sees what an author's code does while a check runs, and refuses writes outside its folder, and calls at import.

It is an audit hook of Python: code that is not Python, or that starts a program, passes it. It finds mistakes; it does
not contain an attacker (docs/security.md).
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {  # event: which of its arguments name a path that is changed
    "os.mkdir": (0,),
    "os.rmdir": (0,),
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.chown": (0,),
    "os.utime": (0,),
    "shutil.rmtree": (0,),
    "shutil.move": (0, 1),
}
CALLS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
DEVICES = ("/dev", "/proc/self")


class Guard:
    """Writes each refused action to a file, as one JSON line `[kind, detail]`, and raises `PermissionError`.

    Args:
        events: the file.
        root: the folder in which the code may write.
    """

    def __init__(self, events: Path, root: Path) -> None:
        self.refuses_calls = True  # until the package is imported
        self._file = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._roots = (os.path.realpath(root), *DEVICES)
        sys.addaudithook(self._see)

    def move(self, events: Path) -> None:
        """Write to another file, as a forked process does."""
        self._file = os.open(events, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(args[2], int) and args[2] & WRITES:
                self._check_path(args[0])
        elif event in CHANGES:
            for place in CHANGES[event]:
                self._check_path(args[place])
        elif event in CALLS and self.refuses_calls:
            address = args[1] if event in ("socket.connect", "socket.sendto") else args[0]
            if not isinstance(address, str | bytes) or event not in ("socket.connect", "socket.sendto"):
                self._refuse("network", f"{event} {address!r:.100}")

    def _check_path(self, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        real = os.path.realpath(os.fsdecode(path))
        if not any(real == root or real.startswith(root + os.sep) for root in self._roots):
            self._refuse("write", real)

    def _refuse(self, kind: str, detail: str) -> None:
        os.write(self._file, (json.dumps([kind, detail]) + "\n").encode())
        raise PermissionError(f"viewbox check refuses: {kind} {detail}")
