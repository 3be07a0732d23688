"""Checks an environment that has no package yet: the package that `viewbox publish` would write is written and checked.

Writing it imports the author's code, so that a process with limits does it, too.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from viewbox.files import read_regular
from viewbox.publish.checks import Limits, Row, check_package
from viewbox.publish.checks.process import run_limited
from viewbox.publish.checks.project import is_project

WRITE = """
import json, sys
from pathlib import Path
from viewbox.errors import ViewboxError
from viewbox.publish import publish

given = json.loads(sys.argv[1])
try:
    publish(given["environment"], given["out"], settings=given["settings"], check=lambda folder: [])
except ViewboxError as error:
    Path(given["problem"]).write_text(str(error), encoding="utf-8")
    sys.exit(2)
"""
MEND = "give a name that `viewbox publish` takes, or the folder of a package (`viewbox new NAME` writes one)"


def check_any(
    target: str,
    settings: Mapping[str, Any],
    *,
    limits: Limits | None = None,
    rows: Collection[str] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """The rows of a folder with a package, or of the package that `viewbox publish` would write of an environment.

    Args:
        target: the folder; or a name, `package.module:Class`, `file.py:Class` or a config.
        settings: of a named environment.
        limits: of each process.
        rows: the names of the rows to try; default: all.
        on_row: called with each row, as by `check_package`.
    """
    if is_project(target) or Path(target).is_dir():
        return check_package(target, limits=limits, rows=rows, on_row=on_row)
    limits = limits or Limits()
    with tempfile.TemporaryDirectory(prefix="viewbox-check-", ignore_cleanup_errors=True) as temporary:
        out, problem = Path(temporary, "package"), Path(temporary, "problem.txt")
        given = {"environment": target, "settings": dict(settings), "out": str(out), "problem": str(problem)}
        outcome = run_limited(
            [sys.executable, "-P", "-c", WRITE, json.dumps(given)],
            folder=Path.cwd(),
            home=Path(temporary, "home"),
            limits=limits,
            variables={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": os.path.expanduser("~")},
        )
        if not out.is_dir():
            try:
                said = read_regular(problem, limit=2**20, inside=problem.parent).decode("utf-8", "replace")
            except OSError:  # it ended without a word
                said = outcome.explain()
            row = Row("package", False, said, MEND)
            if on_row is not None:
                on_row(row)
            return [row]
        return check_package(out, limits=limits, rows=rows, on_row=on_row)
