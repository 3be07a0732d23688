"""Checks a package before it is published: `check_package` gives a table of rows.

Each row is a function with `@check` in one of the themes below. The author's code runs in processes of its own, in a
fresh environment, with limits on time and memory; code that hangs, exits or takes too much costs its row. It is run,
not contained: docs/security.md.
"""

import os
import tempfile
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from ...errors import ConfigError, describe_unknown
from . import determinism, hub, installation, metadata, opening, playing, readme, schemas, written
from .process import Limits, end_running
from .project import copy_project, read_project
from .rows import CHECKS, Check, Failed, NotTried, Row
from .trial import Trial

__all__ = ["Limits", "Row", "check_package"]

THEMES = (
    metadata,
    installation,
    opening,
    schemas,
    playing,
    determinism,
    hub,
    written,
    readme,
)  # the order of the table
ORDER = {one.name: one for theme in THEMES for one in CHECKS.values() if one.run.__module__ == theme.__name__}
PROCESSES = 4  # at most at once


def check_package(
    path: str | Path,
    *,
    limits: Limits | None = None,
    rows: Collection[str] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Check the package in a folder: an author's project, or what `viewbox publish` wrote.

    It is copied elsewhere first, and nothing in `path` is changed. No network is used, but by the author's own code.

    Args:
        path: a folder with a pyproject.toml, in which `[project.entry-points."viewbox.environments"]` has one entry.
        limits: of each process that runs the author's code.
        rows: the names of the rows to try, with those that they need; default: all.
        on_row: called with each row, in the order of the table, as soon as it and those before it are known.

    Returns:
        The rows, in the order of the table. All is well if each has `passed`.

    Raises:
        ConfigError: there is no readable pyproject.toml, or no row has a name of `rows`.
    """
    project = read_project(Path(path))
    wanted = set(ORDER) if rows is None else _add_needed(rows)
    with tempfile.TemporaryDirectory(prefix="viewbox-check-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary).resolve()
        trial = Trial(copy_project(project, folder / "project"), folder, limits or Limits())
        chosen = {
            name: check
            for name, check in ORDER.items()
            if name in wanted and (check.applies is None or check.applies(trial))
        }
        inside = [check for check in chosen.values() if check.inside]
        done: dict[str, Future[Row]] = {}
        with ThreadPoolExecutor(min(PROCESSES, os.cpu_count() or 1)) as pool:
            for name, check in chosen.items():
                done[name] = pool.submit(_run_check, check, trial, inside, dict(done))
            table: list[Row] = []
            try:
                for future in done.values():
                    table.append(future.result())
                    if on_row is not None:
                        on_row(table[-1])
            except BaseException:  # such as Ctrl-C: nothing that was started goes on
                pool.shutdown(wait=False, cancel_futures=True)
                while not all(future.done() for future in done.values()):
                    end_running()  # again and again: a row may be about to start its next process
                    wait(done.values(), timeout=0.1)
                raise
        return table


def _add_needed(rows: Collection[str]) -> set[str]:
    for name in rows:
        if name not in ORDER:
            raise ConfigError(describe_unknown("row", name, ORDER), key="row", given=name, allowed=ORDER)
    wanted = set(rows)
    for name in reversed(ORDER):
        wanted |= set(ORDER[name].needs) if name in wanted else set()
    return wanted


def _run_check(check: Check, trial: Trial, inside: Sequence[Check], done: dict[str, "Future[Row]"]) -> Row:
    """The row of a check. It waits for the rows that it needs, which began before it."""
    missing = [name for name in check.needs if not done[name].result().passed]
    if missing:
        return Row(check.name, False, f"not tried: needs {', '.join(missing)}", tried=False)
    try:
        finding = trial.run_batch(inside, check.name).get() if check.inside else check.run(trial)
    except Failed as error:
        return Row(check.name, False, error.finding, check.mend if error.mend is None else error.mend)
    except NotTried as error:
        return Row(check.name, False, f"not tried: {error}", tried=False)
    except Exception as error:  # files of an author's may hold anything
        return Row(check.name, False, f"{type(error).__name__}: {error!s:.500}", check.mend)
    return Row(check.name, True, str(finding))
