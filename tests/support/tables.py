"""Tests of many rows of a table as one case each: every row is tried, and a failure names its row."""

import functools
import inspect
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest._io.saferepr import saferepr

Test = Callable[..., None]


def each(name: str | Iterable[str], rows: Mapping[Any, Any] | Iterable[Any]) -> Callable[[Test], Test]:
    """Decorate a test to run for every row, which it gets as the argument `name`, or as several: "text, values".

    What a row leaves in `tmp_path` is removed before the next; fixtures are shared.
    """
    table = dict(rows) if isinstance(rows, Mapping) else dict(enumerate(rows))
    names = name.replace(" ", "").split(",") if isinstance(name, str) else list(name)

    if os.environ.get("EACH_ROW"):  # a test of each row, to see which rows are needed
        rows = [pytest.param(*(row if len(names) > 1 else [row]), id=f"row {label}") for label, row in table.items()]
        return pytest.mark.parametrize(names, rows)

    def decorate(test: Test) -> Test:
        parameters = inspect.signature(test).parameters

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            folder: Path | None = fixtures.get("tmp_path")
            before = set(folder.iterdir()) if folder else set()
            for label, row in table.items():
                given = dict(zip(names, row if len(names) > 1 else [row], strict=True))
                for left in set(folder.iterdir()) - before if folder else ():
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
                try:
                    test(**{**fixtures, **given})
                except (Exception, BaseExceptionGroup) as error:
                    error.add_note(f"row {label}: {saferepr(row, 200)}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)

        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [one for one in parameters.values() if one.name not in names]
        )
        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorate
