"""The process of the author's code: `python child.py CONTEXT`, JSON of `trial.py`.

It imports the package from the folder of its wheel, where only what it declares can be imported, and then runs the rows
of `inside.py`, each in a time of its own. These are loaded in the package `viewbox_checks`, because a published package
has only its own copy of viewbox, without this folder.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

CHECKS = "viewbox_checks"
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = dict.fromkeys(  # event: which of its arguments name a path that is changed
    ("mkdir", "rmdir", "remove", "truncate", "chmod", "chown", "utime"), (0,)
) | {"rename": (0, 1), "link": (1,), "symlink": (1,)}
SENDS = ("socket.connect", "socket.sendto")
CALLS = (*SENDS, "socket.getaddrinfo", "socket.gethostbyname")
DEVICES = ("/dev", "/proc/self")
MAX_REFUSED = 1000  # actions that are reported


def main(context: Mapping[str, Any]) -> None:
    """Do what a context says, and report each function that ends."""
    package = ModuleType(CHECKS)
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules[CHECKS] = package
    inside, project = import_module(f"{CHECKS}.inside"), context["project"]
    for name in context["hidden"]:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # it is then not found
    report = CheckReport(context["report"], context["seconds"])
    guard = Guard(report, context["root"])
    report.call("import", lambda: inside.import_package(project))
    guard.refuses_calls = context["offline"]
    made: list[Any] = []

    def run(function: str) -> Any:
        if not made:
            made.append(inside.make_environment(inside.load_environment(project), project))
        return getattr(inside, function)(made[0], project)

    for name, function, needs in context["jobs"]:
        report.call(name, partial(run, function), needs)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads and exit handlers the author's code leaves


class CheckReport:
    """Writes how each function ended to an open file, a JSON line each, and what was refused in it before."""

    def __init__(self, file: int, seconds: float) -> None:
        self._failed: set[str] = set()
        self._file, self._seconds = file, seconds

    def write(self, value: object) -> None:
        """Write a line."""
        os.write(self._file, (json.dumps(value) + "\n").encode())

    def call(self, name: str, function: Callable[[], Any], needs: list[str] | None = None) -> None:
        """Call a function in its time, after which the process ends, unless what it needs has failed."""
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            if self._failed.intersection(needs or ()):
                raise LookupError("what it needs has failed")
            self.write({"name": name, "value": function()})
        except BaseException as error:  # the author's code may raise anything, also SystemExit
            self._failed.add(name)
            self.write({"name": name, **_describe(error)})


class Guard:
    """Reports and refuses writes outside a folder, and calls at import, with `PermissionError`.

    It is an audit hook of Python: code that is not Python, or that starts a program, passes it. It finds mistakes; it
    does not contain an attacker (docs/security.md)."""

    def __init__(self, report: CheckReport, root: str) -> None:
        self.refuses_calls = True  # until the package is imported
        self._report, self._count = report, 0
        self._roots = (os.path.realpath(root), *DEVICES)
        sys.addaudithook(self._see)

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            if isinstance(args[2], int) and args[2] & WRITES:
                self._check_path(args[0])
        elif event.startswith("os.") and event[3:] in CHANGES:
            for place in CHANGES[event[3:]]:
                self._check_path(args[place])
        elif event in CALLS and self.refuses_calls:
            address = args[1] if event in SENDS else args[0]
            if not isinstance(address, str | bytes) or event not in SENDS:
                self._refuse("network", f"{event} {address!r:.100}")

    def _check_path(self, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        real = os.path.realpath(os.fsdecode(path))
        if not any(real == root or real.startswith(root + os.sep) for root in self._roots):
            self._refuse("write", real)

    def _refuse(self, kind: str, detail: str) -> None:
        self._count += 1
        if self._count <= MAX_REFUSED:
            self._report.write([kind, detail])
        raise PermissionError(f"viewbox check refuses: {kind} {detail}")


def _describe(error: BaseException) -> dict[str, Any]:
    """Describe a failure: of a check, in its words; of the author's code, with the line that failed."""
    if type(error).__name__ == "Failed" and type(error).__module__.startswith(CHECKS):
        return {"finding": str(error), "mend": getattr(error, "mend", None)}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not frame.filename.startswith(str(Path(__file__).parent))
    ]
    line = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    if isinstance(error, ModuleNotFoundError) and error.name in sys.modules:
        error = ModuleNotFoundError(f"No module named {error.name!r} in what the package declares")
    what = "ends the process: " if isinstance(error, SystemExit) else ""
    return {"finding": f"{what}{type(error).__name__}: {error!s:.800}{line}", "mend": None}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
