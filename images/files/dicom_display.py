"""How a DICOM file wants to be shown: lookup tables and windows (PS3.3 C.11.2), apart from its values.

pydicom's `apply_voi_lut` is not used: it needs the whole picture where a curve will do, and of its tables with entries
of 8 bits it reads the first 256 only (3.0.2).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..pixels import Range
from .dicom_header import get_value, parse_numbers

Display = tuple[Range, bytes | None]  # values shown as black and as white, and the gray levels between them
NEGATIVE = bytes(range(255, -1, -1))
LEVELS = 2048  # of a sigmoid, over `REACH` widths: less than half a gray level is lost
REACH = 4.0
STEP = 1e-3  # the width of a window of one value, which is a threshold


class Table(NamedTuple):
    """A lookup table: the first value that it maps, what it maps them to (uint16), and the highest that this can be."""

    first: int
    entries: np.ndarray
    highest: int


def get_display(dataset: Any, frame: int, possible: Range) -> Display | None:
    """Return how a frame asks to be shown: by the first lookup table, or the first window of two numbers.

    `possible` are the lowest and the highest value that its pixels can have.
    """
    for item in get_value(dataset, "VOILUTSequence", frame) or ():
        table = read_table(dataset, item, possible)
        if table is not None and len(table.entries) > 1:
            curve = np.rint(table.entries * (255 / table.highest)).clip(0, 255).astype(np.uint8).tobytes()
            return (float(table.first), float(table.first + len(curve) - 1)), curve
    function = str(get_value(dataset, "VOILUTFunction", frame) or "LINEAR").strip()
    windows = (_list_numbers(dataset, f"Window{part}", frame) for part in ("Center", "Width"))
    for center, width in zip(*windows, strict=False):
        if center is None or width is None or width <= 0:
            continue
        if function == "SIGMOID":  # C.11.2.1.3.1
            places = np.linspace(-REACH / 2, REACH / 2, LEVELS)
            curve = np.rint(255 / (1 + np.exp(-4 * places))).astype(np.uint8).tobytes()
            return (center - REACH / 2 * width, center + REACH / 2 * width), curve
        if function == "LINEAR" and width >= 1:  # C.11.2.1.2.1
            center, width = center - 0.5, max(width - 1, STEP)
        return (center - width / 2, center + width / 2), None
    return None


def _list_numbers(dataset: Any, keyword: str, frame: int) -> list[float | None]:
    """Return the numbers of an element, None for those that are blank."""
    value = get_value(dataset, keyword, frame)
    values = value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]
    return [(*parse_numbers(part), None)[0] for part in values]


def read_table(dataset: Any, item: Any, possible: Range) -> Table | None:
    """Return a lookup table of a file; None if it has no entries.

    The first value may be written with the wrong sign; it counts so that the table maps values that pixels can have.
    """
    numbers, data = parse_numbers(item.get("LUTDescriptor")), item.get("LUTData")
    if len(numbers) != 3 or data is None:
        return None
    count, first, bits = int(numbers[0]) % 65536 or 65536, int(numbers[1]), int(numbers[2])
    if isinstance(data, bytes):
        order = "<" if dataset.original_encoding[1] is not False else ">"
        data = np.frombuffer(data[: 2 * count], f"{order}u2") if len(data) >= 2 * count else np.frombuffer(data, "u1")
    entries = np.atleast_1d(np.asarray(data)).astype(np.uint16)[:count]
    starts = (first, first - 65536, first + 65536)
    fitting = (start for start in starts if start <= possible[1] and start + count > possible[0])
    return Table(next(fitting, first), entries, 2 ** min(max(bits, 8), 16) - 1) if len(entries) else None


def choose_display(wish: Display | None, measured: Range, usual: Range, *, inverted: bool) -> Display:
    """Return how values are shown: as the file asks, if that tells any of those apart that were measured, or the usual
    range.

    Inverted, the lowest value is white (MONOCHROME1).
    """
    fits = wish is not None and wish[0][0] < measured[1] and wish[0][1] > measured[0]
    (black, white), curve = wish if wish is not None and fits else (usual, None)
    if not inverted:
        return (black, white), curve
    return (white, black), None if curve is None else curve[::-1].translate(NEGATIVE)
