"""Checks an environment that has no package yet: what `viewbox publish` would write is written and checked."""

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from .checks import Limits, Row, check_package
from .checks.project import is_project
from .checks.rows import Failed
from .checks.written import write_published

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
        home = os.path.expanduser("~")
        try:
            out = write_published(target, settings, Path(temporary).resolve(), limits=limits, home=home)
        except Failed as error:
            row = Row("package", False, error.finding, MEND)
            if on_row is not None:
                on_row(row)
            return [row]
        return check_package(out, limits=limits, rows=rows, on_row=on_row)
