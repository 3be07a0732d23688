"""Keeps a leaderboard in one JSON file, and beside it as Markdown and HTML.

    row = add_run("leaderboard.json", "runs/mine")

A run that is added again replaces its row. Several processes may add at once: each reads, changes and replaces the file
under a lock, and a process that is killed leaves the old file or the new one.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_random

from viewbox.errors import ConfigError
from viewbox.files import check_writable, lock_file, read_regular, write_atomically
from viewbox.rollouts.leaderboard.record import FORMAT, MAX_ROWS, Leaderboard, Row
from viewbox.rollouts.leaderboard.render import render_html, render_markdown
from viewbox.rollouts.leaderboard.row import read_row
from viewbox.terminal import make_line

MAX_FILE = 2**26  # bytes
_WAIT = 60.0  # seconds for the lock; it is held for milliseconds
_SHOWN = {".md": render_markdown, ".html": render_html}


def read_board(path: str | Path) -> Leaderboard:
    """Read a leaderboard; one without rows if there is no file yet.

    Raises:
        ConfigError: it is no regular file, too large, or not what `add_run` writes.
    """
    path = Path(path)
    try:
        return msgspec.json.decode(read_regular(path, limit=MAX_FILE), type=Leaderboard)
    except FileNotFoundError:
        return Leaderboard(FORMAT, [])
    except (OSError, ValueError, RecursionError) as error:
        why = make_line(getattr(error, "strerror", None) or error, 300)
        raise ConfigError(f"{path}: not a leaderboard that this viewbox reads ({why})") from error


def add_run(path: str | Path, run: str | Path, *, resamples: int = 1000) -> Row:
    """Add the row of a run, or replace the one it has; writes the JSON file, and Markdown and HTML beside it.

    Args:
        path: the leaderboard, a file that ends in .json.
        run: a folder; see `read_row`.
        resamples: bootstrap draws for the intervals; 0: none.

    Raises:
        ConfigError: the run or the leaderboard cannot be read, or it cannot be written.
        StoreError: the run holds no episodes.
    """
    path = _check_path(path)
    row = read_row(run, path.parent, resamples=resamples)
    with _lock(path):
        rows = [one for one in read_board(path).rows if one.run != row.run]
        if len(rows) >= MAX_ROWS:
            raise ConfigError(f"{path}: has {len(rows):,} rows; allowed: {MAX_ROWS:,}; begin another with --board")
        rows = sorted([*rows, row], key=lambda one: (one.environment, one.model, one.run))
        board = Leaderboard(FORMAT, rows)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(board), indent=2) + b"\n")
        _write_pages(path, board)
    return row


def render_board(path: str | Path) -> list[Path]:
    """Write a leaderboard as Markdown and HTML beside its file; returns the two paths.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    path = _check_path(path)
    if not path.exists():
        raise ConfigError(f"{path}: no such leaderboard; `viewbox leaderboard add RUN` begins one")
    with _lock(path):
        return _write_pages(path, read_board(path))


def _write_pages(path: Path, board: Leaderboard) -> list[Path]:
    pages = [path.with_suffix(suffix) for suffix in _SHOWN]
    for page, render in zip(pages, _SHOWN.values(), strict=True):
        write_atomically(page, render(board))
    return pages


def _check_path(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix != ".json":
        raise ConfigError(f"--board {path}: allowed: a file that ends in .json; .md and .html are written beside it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for one in (path, *(path.with_suffix(suffix) for suffix in _SHOWN)):
            check_writable(one, path.parent)
    except OSError as error:
        raise ConfigError(f"--board {path}: cannot be written ({error.filename}: {error.strerror})") from error
    return path


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock of a leaderboard, waiting for other processes."""
    waiting = Retrying(
        retry=retry_if_exception_type(BlockingIOError), wait=wait_random(0.01, 0.05), stop=stop_after_delay(_WAIT)
    )
    with ExitStack() as stack:
        try:
            waiting(lambda: stack.enter_context(lock_file(path.with_name(f".{path.name}.lock"))))
        except RetryError:
            raise ConfigError(f"{path}: another process has held its lock for {_WAIT:g} seconds") from None
        yield
