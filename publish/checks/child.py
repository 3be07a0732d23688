"""The process of the author's code, in the fresh environment: `python child.py CONTEXT`, a JSON file of `trial.py`.

It imports the package, and then runs the functions that the context names, one after the other, each in a time of its
own. Their modules are loaded in the package `viewbox_checks`, because the fresh environment of a published package has
only the package's own copy of viewbox, without this folder.
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
    opening, project = import_module(f"{CHECKS}.opening"), context["project"]
    modules = {job["module"]: import_module(f"{CHECKS}.{job['module']}") for job in context["jobs"]}
    report = Report(Path(context["report"]), context["seconds"])
    guard = Guard(report, context["root"])
    env: Any = None

    def run(job: Mapping[str, Any]) -> Any:
        nonlocal env
        if env is None:
            env = opening.make_environment(opening.load_environment(project), project)
        return getattr(modules[job["module"]], job["function"])(env, project)

    report.call("import", lambda: opening.import_package(project))
    guard.refuses_calls = context["offline"]
    for job in context["jobs"]:
        if report.failed.intersection(job["needs"]):
            report.failed.add(job["name"])
        else:
            report.call(job["name"], partial(run, job))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads and exit handlers the author's code leaves


class Report:
    """Writes how each function ended to a file, a JSON line each, and what was refused in it before."""

    def __init__(self, path: Path, seconds: float) -> None:
        self.failed: set[str] = set()
        self._file, self._seconds = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), seconds

    def write(self, value: object) -> None:
        """Write a line."""
        os.write(self._file, (json.dumps(value) + "\n").encode())

    def call(self, name: str, function: Callable[[], Any]) -> None:
        """Call a function in its time, after which the process ends."""
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            self.write({"name": name, "value": function()})
        except BaseException as error:  # the author's code may raise anything, also SystemExit
            self.failed.add(name)
            self.write({"name": name, **_describe(error)})


class Guard:
    """Reports and refuses writes outside a folder, and calls at import, with `PermissionError`.

    It is an audit hook of Python: code that is not Python, or that starts a program, passes it. It finds mistakes; it
    does not contain an attacker (docs/security.md).
    """

    def __init__(self, report: Report, root: str) -> None:
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
    what = "ends the process: " if isinstance(error, SystemExit) else ""
    return {"finding": f"{what}{type(error).__name__}: {error!s:.800}{line}", "mend": None}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
