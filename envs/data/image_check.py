"""Opens every image of a dataset in the worker processes, and writes the rows whose images can be shown."""

import os
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...errors import BadRow, ConfigError, describe_value
from ...utils.files import replace_atomically
from ...utils.terminal import describe_error, make_line
from .env import DataEnv

MAX_ROWS_NAMED = 3  # of the rows that one problem spoils
UNOPENED = "an image that can be opened ("  # how `RowImages` begins what was expected
MAX_REASON = 200  # characters of a problem


@dataclass(frozen=True)
class CheckedRows:
    """The rows of a source: how many there are, and the bad ones by number."""

    total: int
    bad: dict[int, BadRow]

    def list_problems(self) -> list[str]:
        """Each problem once, with the rows it spoils."""
        places: dict[str, list[str]] = {}
        for error in self.bad.values():
            why = f"expected {error.expected}"
            if error.expected.startswith(UNOPENED):  # "… (image 'a.png': why)": the name is said already
                why = error.expected.removeprefix(UNOPENED).rpartition("': ")[2].removesuffix(")")
            line = f"{error.column} {describe_value(error.given)}: {why}"
            places.setdefault(make_line(line, MAX_REASON), []).append(
                f"row {error.row}" if isinstance(error.row, int) else error.row
            )
        return [f"{line} ({_join(rows)})" for line, rows in places.items()]


def _join(rows: list[str]) -> str:
    more = len(rows) - MAX_ROWS_NAMED
    return ", ".join(rows[:MAX_ROWS_NAMED]) + (f" and {more} more" if more > 0 else "")


def write_clean_rows(env: DataEnv, path: Path, bad: Collection[int], total: int) -> None:
    """Write the rows that are not bad: a JSONL file's lines as they are, those of another file as JSON.

    Raises:
        ConfigError: the source has no lines, or is the file to write.
    """
    read_line = check_clean_path(env, path)
    with replace_atomically(path) as file:
        for number in range(total):
            if number not in bad:
                file.write(read_line(number))


def check_clean_path(env: DataEnv, path: Path) -> Callable[[int], bytes]:
    """What reads the lines to write. Raises `ConfigError` as `write_clean_rows` does."""
    if path.exists():
        raise ConfigError(f"--write = {str(path)!r}: is there already; allowed: a new file", key="write", given=path)
    if not path.parent.is_dir():
        raise ConfigError(f"--write = {str(path)!r}: there is no folder {str(path.parent)!r}", key="write", given=path)
    return env.get_line_reader()


def open_all_rows(env: DataEnv, on_row: Callable[[int], object]) -> CheckedRows:
    """Open every image of every row of the source, whatever `hold_out`, `where`, `sample` and `limit` choose.

    `on_row(1)` is called after each row.
    """
    whole = env.change_data(hold_out=None, where=(), difficulty=None, sample=None, limit=None, bad_rows="skip")
    bad = dict(whole.tasks.skipped)
    opened: dict[str, str] = {}

    def check(number: int) -> BadRow | None:
        try:
            whole.open_row(number, opened)
        except BadRow as error:
            return error
        except Exception as error:  # an author's `read_row` may raise anything
            return BadRow(
                str(whole.data.source), number, "(the row)", None, f"a task ({describe_error(error, MAX_REASON)})"
            )
        return None

    numbers = whole.tasks.numbers
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for number, error in zip(numbers, pool.map(check, numbers), strict=True):
            on_row(1)
            if error is not None:
                bad[number] = error
    return CheckedRows(len(numbers) + len(whole.tasks.skipped), dict(sorted(bad.items())))
