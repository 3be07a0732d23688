"""The process of the author's code, in the fresh environment: `python child.py CONTEXT`, a JSON file of `trial.py`.

It imports the package once, which may take seconds, and then runs each function that the context names in a forked
process of its own: code that hangs or exits costs its own row. This folder is loaded as the package `viewbox_checks`,
because the fresh environment of a published package has only the package's own copy of viewbox, without this folder.
So functions that run here import from `viewbox` by its name.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

CHECKS = "viewbox_checks"


def main(context: Mapping[str, Any]) -> None:
    """Do what a context says, and write the result."""
    _write_result(Path(context["result"]), lambda: _run(context))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads and exit handlers the author's code leaves


def _run(context: Mapping[str, Any]) -> Any:
    _add_checks()
    guard = _load("guard").Guard(Path(context["events"]), Path(context["root"]))
    project, opening, jobs = context["project"], _load("opening"), context["jobs"]
    if not context["opens"]:
        return getattr(_load(jobs[0]["module"]), jobs[0]["function"])(project)
    loaded = opening.load_environment(project)
    guard.refuses_calls = context["offline"]
    env = opening.make_environment(loaded, project)
    if len(jobs) == 1:
        return getattr(_load(jobs[0]["module"]), jobs[0]["function"])(env, project)
    ended: dict[str, Any] = {}
    for job in jobs:
        if not any(ended.get(need, {}).get("failed") for need in job["needs"]):
            ended[job["name"]] = _run_forked(job, guard, env, project, context["seconds"])
        else:
            ended[job["name"]] = {"failed": True}
    return ended


def _run_forked(
    job: Mapping[str, Any], guard: Any, env: Any, project: Mapping[str, Any], seconds: float
) -> dict[str, Any]:
    """Run a function in a process of its own; returns how that ended. Its result, output and actions are in files."""
    started, result = time.monotonic(), Path(job["result"])
    process = os.fork()
    if process == 0:
        output = os.open(job["output"], os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        guard.move(Path(job["events"]))
        _write_result(result, lambda: getattr(_load(job["module"]), job["function"])(env, project))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    status = _wait(process, seconds)
    failed = not result.is_file() or result.read_bytes()[:8] != b'{"value"'
    return {"status": status, "seconds": time.monotonic() - started, "failed": failed}


def _wait(process: int, seconds: float) -> int | None:
    """The exit status of a process; None if it took longer than `seconds` and was ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None


def _add_checks() -> None:
    package = ModuleType(CHECKS)
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules[CHECKS] = package


def _load(name: str) -> Any:
    return import_module(f"{CHECKS}.{name}")


def _write_result(path: Path, call: Callable[[], Any]) -> None:
    try:
        text = json.dumps({"value": call()})
    except BaseException as error:  # the author's code may raise anything, also SystemExit
        text = json.dumps(_describe(error))
    path.write_text(text, encoding="utf-8")


def _describe(error: BaseException) -> dict[str, Any]:
    """A failure as JSON: of a check, in its words; of the author's code, with the line that failed."""
    if type(error).__name__ in ("Failed", "NotTried") and type(error).__module__.startswith(CHECKS):
        return {"kind": type(error).__name__, "finding": str(error), "mend": getattr(error, "mend", None)}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and not frame.filename.startswith(str(Path(__file__).parent))
    ]
    line = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    what = "ends the process: " if isinstance(error, SystemExit) else ""
    return {"kind": "Failed", "finding": f"{what}{type(error).__name__}: {error!s:.800}{line}", "mend": None}


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
