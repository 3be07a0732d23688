"""Checks a package before it is published: `check_package` gives a table of rows.

Each row is a function with `@check` in one of the themes below. The author's code runs in processes of its own, with
what it declares, and with limits on time and memory; code that hangs, exits or takes too much costs its row. It is run,
not contained: docs/security.md.
"""

import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from ...errors import ConfigError, describe_unknown
from . import after  # noqa: F401  (and with it the rows of `before` and `inside`, in the order of the table)
from .process import Limits
from .project import copy_project, read_project
from .rows import CHECKS, Check, CheckRow, Failed, NotTried
from .trial import Trial

__all__ = ["CHECKS", "CheckRow", "Limits", "check_package"]


def check_package(
    path: str | Path,
    *,
    limits: Limits | None = None,
    rows: Collection[str] | None = None,
    on_row: Callable[[CheckRow], None] | None = None,
) -> list[CheckRow]:
    """Check the package in a folder: an author's project, or what `viewbox publish` wrote.

    It is copied elsewhere first, and nothing in `path` is changed. No network is used, but by the author's own code.

    Args:
        path: a folder with a pyproject.toml, in which `[project.entry-points."viewbox.environments"]` has one entry.
        limits: of each process that runs the author's code.
        rows: the names of the rows to try, with those that they need; default: all.
        on_row: called with each row, as soon as it is known.

    Returns:
        The rows, in the order of the table. All is well if each has `passed`.

    Raises:
        ConfigError: there is no readable pyproject.toml, or no row has a name of `rows`.
    """
    project = read_project(Path(path))
    wanted = set(CHECKS) if rows is None else _add_needed(rows)
    table: dict[str, CheckRow] = {}
    with tempfile.TemporaryDirectory(prefix="viewbox-check-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve()
        trial = Trial(copy_project(project, folder / "project"), folder, limits or Limits())
        chosen = [
            check
            for name, check in CHECKS.items()
            if name in wanted and (check.applies is None or check.applies(trial))
        ]
        trial.inside = [check for check in chosen if check.inside]
        for check in chosen:
            table[check.name] = row = _run_check(check, trial, table)
            if on_row is not None:
                on_row(row)
    return list(table.values())


def _add_needed(rows: Collection[str]) -> set[str]:
    for name in rows:
        if name not in CHECKS:
            raise ConfigError(describe_unknown("row", name, CHECKS), key="row")
    wanted = set(rows)
    for name in reversed(CHECKS):
        wanted |= set(CHECKS[name].needs) if name in wanted else set()
    return wanted


def _run_check(check: Check, trial: Trial, table: Mapping[str, CheckRow]) -> CheckRow:
    missing = [name for name in check.needs if not table[name].passed]
    if missing:
        return CheckRow(check.name, False, f"not tried: needs {', '.join(missing)}", tried=False)
    try:
        finding = trial.first.get(check.name) if check.inside else check.run(trial)
    except Failed as error:
        return CheckRow(check.name, False, error.finding, check.mend if error.mend is None else error.mend)
    except NotTried as error:
        return CheckRow(check.name, False, f"not tried: {error}", tried=False)
    except Exception as error:  # files of an author's may hold anything
        return CheckRow(check.name, False, f"{type(error).__name__}: {error!s:.500}", check.mend)
    return CheckRow(check.name, True, str(finding["finding"] if isinstance(finding, dict) else finding))
