"""What a DICOM file says of its picture beside the pixels: sides, regions of an ultrasound, shutters, overlays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ImageError
from ..source import Region
from .dicom_header import EDGES, OVERLAYS, SHUTTER, get_count, get_text, get_value, list_values, parse_numbers

AXES = dict(zip("RLAPHF", "xxyyzz", strict=True))
OPPOSITE = dict(zip("RLAPHF", "LRPAFH", strict=True))
CENTIMETERS = [3.0]  # PS3.3 C.8.5.5.1.15, a code of Physical Units
MAX_REGIONS = 100


def list_words(dataset: Any, keyword: str, frame: int = 0) -> list[str]:
    return [str(word).strip().upper() for word in list_values(get_value(dataset, keyword, frame) or "")]


def find_marks(
    dataset: Any, shape: tuple[int, int], frames: Sequence[int]
) -> tuple[str | None, np.ndarray | None, list[str]]:
    """Return the sides of a picture, what its shutter covers in each of the frames, bool (n, h, w) or None, and notes
    on both and on overlays."""
    sides, notes = _find_sides(dataset)
    planes = sum(tag in dataset and tag >> 16 != get_count(dataset, "ShutterOverlayGroup", 0) for tag in OVERLAYS)
    notes += [f"overlay planes of the file (marks over the picture) that are not drawn: {planes}"] if planes else []
    if "MOSAIC" in list_words(dataset, "ImageType"):
        notes.append("a mosaic of Siemens: the slices of a volume side by side; dcm2niix makes a volume of it")
    covered = [_find_covered(dataset, shape, frame, notes) for frame in frames]
    if all(outside is None for outside in covered):
        return sides, None, notes
    return sides, np.stack([np.zeros(shape, bool) if outside is None else outside for outside in covered]), notes


def _find_sides(dataset: Any) -> tuple[str | None, list[str]]:
    """Return the patient's sides at the left, right, top and bottom of a picture, and what is odd about them. PS3.3
    C.7.6.1.1.1: PatientOrientation names where rows and columns lead, the first letter weighs most; cosines say the
    same."""
    cosines = parse_numbers(dataset.get("ImageOrientationPatient"))
    directions = np.reshape(cosines, (2, 3)) if len(cosines) == 6 else ()
    leading = [("LPH" if max(one, key=abs) > 0 else "RAF")[np.abs(one).argmax()] for one in directions]
    words = list(filter(None, list_words(dataset, "PatientOrientation"))) or leading
    x, y = (word[0] for word in words) if len(words) == 2 else ("", "")
    person = get_text(dataset, "AnatomicalOrientationType") != "QUADRUPED" and set("".join(words)) <= AXES.keys()
    if person and AXES.get(x) != AXES.get(y):
        return OPPOSITE[x] + x + OPPOSITE[y] + y, []
    return None, ["PatientOrientation (or the cosines) names no two sides of a person: no letters"] if words else []


def list_regions(dataset: Any) -> tuple[Region, ...]:
    """Return the regions of an ultrasound picture, with millimeters per pixel if both axes are lengths."""
    items = (get_value(dataset, "SequenceOfUltrasoundRegions") or ())[:MAX_REGIONS]
    return tuple(_read_region(item) for item in items)


def _read_region(item: Any) -> Region:
    ends = [parse_numbers(item.get(f"RegionLocation{end}")) for end in ("MinX0", "MinY0", "MaxX1", "MaxY1")]
    steps = [parse_numbers(item.get(f"PhysicalDelta{axis}")) for axis in "XY"]
    left, top, right, bottom = (end[0] for end in ends) if all(ends) else (0.0, 0.0, -1.0, -1.0)
    lengths = all(parse_numbers(item.get(f"PhysicalUnits{axis}Direction")) == CENTIMETERS for axis in "XY")
    x, y = (abs(10 * step[0]) for step in steps) if lengths and all(step and step[0] for step in steps) else (0.0, 0.0)
    return left, top, right + 1, bottom + 1, x, y


def _find_covered(dataset: Any, shape: tuple[int, int], frame: int, notes: list[str]) -> np.ndarray | None:
    """Return which pixels of a frame the file's shutter covers, bool (h, w); None if there is none that is applied."""
    kinds, outside = list(filter(None, list_words(dataset, "ShutterShape", frame))), np.zeros(shape, bool)
    note = "what the shutter of the file covers counts as not measured"
    try:
        for kind in kinds:
            outside |= _cover(dataset, shape, frame, kind)
    except (ImageError, KeyError, TypeError, ValueError):
        outside[:] = True
    if outside.all():
        note = "the shutter of the file covers everything, is damaged or of an unknown kind: it is not applied"
    notes += [note] if outside.any() and note not in notes else []
    return outside if outside.any() and not outside.all() else None


def _cover(dataset: Any, shape: tuple[int, int], frame: int, kind: str) -> np.ndarray:
    import cv2

    def get(keyword: str) -> list[float]:
        return parse_numbers(get_value(dataset, keyword, frame))

    y, x = np.ogrid[1 : shape[0] + 1, 1 : shape[1] + 1]  # rows and columns count from 1
    if kind == "RECTANGULAR":
        (left,), (right,), (top,), (bottom,) = map(get, EDGES)
        return np.asarray((x < left) | (x > right) | (y < top) | (y > bottom))
    if kind == "CIRCULAR":
        (row, column), (radius,) = map(get, SHUTTER[4:6])
        return np.asarray((x - column) ** 2 + (y - row) ** 2 > radius**2)
    if kind == "POLYGONAL":
        corners = np.rint(get(SHUTTER[6])).clip(-(2**15), 2**15).astype(np.int32).reshape(-1, 2)
        if len(corners) < 3:
            raise ImageError("a polygon of fewer than three corners")
        return cv2.fillPoly(np.ones(shape, np.uint8), [corners[:, ::-1] - 1], 0) > 0
    group, size = get_count(dataset, "ShutterOverlayGroup") << 16, shape[0] * shape[1]
    bits = np.unpackbits(np.frombuffer(dataset[group + 0x3000].value, np.uint8), bitorder="little")
    if kind != "BITMAP" or (dataset[group + 0x10].value, dataset[group + 0x11].value) != shape:
        raise ImageError("a shutter of another kind or size")
    return bits[:size].reshape(shape) > 0
