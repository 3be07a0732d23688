"""The process of one check, in the fresh environment: `python child.py CONTEXT`, a JSON file that `trial.py` writes.

This folder is loaded as the package `viewbox_checks`, because the fresh environment of a published package has only the
package's own copy of viewbox, in which this folder is not.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

CHECKS = "viewbox_checks"


def main(context: dict[str, Any]) -> None:
    """Run the function that a context names, and write what it gave."""
    result = Path(context["result"])
    try:
        modules = _load_checks()
        guard = modules("guard").Guard(Path(context["events"]), Path(context["root"]))
        function = getattr(modules(context["module"]), context["function"])
        result.write_text(json.dumps({"value": _call(function, modules("opening"), context, guard)}), encoding="utf-8")
    except BaseException as error:  # the author's code may raise anything, also SystemExit
        result.write_text(json.dumps(_describe(error)), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads and exit handlers the author's code leaves


def _load_checks() -> Callable[[str], Any]:
    package = ModuleType(CHECKS)
    package.__path__ = [str(Path(__file__).parent)]
    sys.modules[CHECKS] = package
    return lambda name: import_module(f"{CHECKS}.{name}")


def _call(function: Callable[..., Any], opening: Any, context: dict[str, Any], guard: Any) -> Any:
    project = context["project"]
    if not context["opens"]:
        return function(project)
    loaded = opening.load_environment(project)
    guard.refuses_calls = context["offline"]
    return function(opening.make_environment(loaded, project), project)


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
