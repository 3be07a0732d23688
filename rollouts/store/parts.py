"""The lines of a folder of episodes, and parts of them for several processes."""

import json
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ...errors import StoreError
from ...utils.files import open_regular
from .layout import LINES, MAX_FILE
from .lines import MAX_LINE

_BLOCK = 2**20  # bytes that are searched for the ends of lines at a time


class LinePart(NamedTuple):
    """A part of the lines: where it begins, how many lines it has (None: all that follow), the number of the first."""

    start: int = 0
    lines: int | None = None
    first: int = 1


def split_lines(folder: Path, size: int) -> list[LinePart]:
    """Split the lines of a folder into parts of about `size` bytes, for several processes; the last takes what follows.

    One part if a line is longer than is read.
    """
    parts, start, first, line, place, last_end = [], 0, 1, 0, 0, 0
    with open_lines(folder) as file:
        while block := file.read(_BLOCK):
            end = block.rfind(b"\n") + 1
            if not end:
                if place + len(block) - last_end > MAX_LINE:
                    return [LinePart()]
            else:
                line += block.count(b"\n")
                last_end = place + end
                if last_end - start >= size:
                    parts.append(LinePart(start, line + 1 - first, first))
                    start, first = last_end, line + 1
            place += len(block)
    return [*parts, LinePart(start, None, first)]


def is_passed_over(line: bytes | None) -> bool:
    """Whether a line is blank, or the partial last line of a killed process."""
    if line is None:
        return False
    return (not line.endswith(b"\n") and not is_json(line)) or line.isspace()


def open_lines(folder: Path) -> BinaryIO:
    """The lines of a folder of episodes; raises `StoreError` if they cannot be read."""
    try:
        return open_regular(folder / LINES, limit=MAX_FILE, inside=folder)
    except OSError as error:
        raise StoreError(f"{folder / LINES}: cannot be read ({error.strerror})") from error


def is_json(line: bytes) -> bool:
    """Whether a line is complete JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError, MemoryError):
        return False
    return True
