"""Boxes, lines and points of an episode in the frame of the original: of the reference, the answer and the tools."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, Literal, NamedTuple

from ..images.shown import ShownView
from ..images.source import AXES
from ..utils.values import to_finite_float
from .fields import Box, get_field, parse_box

Kind = Literal["gold", "answer", "tool"]
Point = tuple[float, float]
MAX_MARKS = 500  # of the reference, of the answer, and of the tools
MAX_LABEL = 80  # characters
MAX_DEPTH = 70
NAMES = ("label", "name", "finding")  # the keys under which an object beside a box says what it is
CLOSE = 1e-6  # of a fraction


class Place(NamedTuple):
    """The picture on which a mark lies. `slices` are the first and the last slice; None: it is not of a volume."""

    image: int = 0
    plane: str | None = None
    slices: tuple[int, int] | None = None


@dataclass(frozen=True)
class Mark:
    """A box, line or point of the original."""

    kind: Kind
    label: str
    corners: tuple[Point, ...]  # of its outline, fractions of the original: four, two (a line) or one (a point)
    place: Place = field(default=Place())
    depth: Box | None = None  # of a box of a volume: (x1, y1, z1, x2, y2, z2); `corners` are those in an axial slice
    turn: int | None = None  # of a tool: the number of the turn with its result
    on: str | None = None  # of a tool: the id of the picture on which it was called


def to_corners(box: Sequence[float]) -> tuple[Point, ...]:
    """Return the corners of (x1, y1, x2, y2), clockwise from the upper left."""
    x1, y1, x2, y2 = box
    return (x1, y1), (x2, y1), (x2, y2), (x1, y2)


PLACE_FIELDS = {"image": "image", "plane": "plane", "slice": "slice"}  # of an episode that does not say them


def get_place_fields(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the answer's fields for image, plane, slice and view, as an episode's info has them."""
    place = info.get("place")
    if not isinstance(place, Mapping):
        return dict(PLACE_FIELDS)
    return {str(part): name for part, name in place.items() if isinstance(name, str)}


def find_marks(value: object, kind: Kind, fields: Mapping[str, str], views: "Views") -> list[Mark]:
    """Return the boxes in a reference or an answer, each on the picture that the objects around it name.
    `fields` names the fields for image, plane, slice and view. What is not named is that of the first picture."""
    marks = []
    for box, label, around in islice(_walk(value, "", (), 0), MAX_MARKS):
        place = views.find_place({part: _read_part(around, name) for part, name in fields.items()})
        flat, depth = (box, None) if len(box) == 4 else ((box[0], box[1], box[3], box[4]), box)
        marks.append(Mark(kind, label, to_corners(flat), place, depth))
    return marks


def _walk(value: Any, label: str, around: tuple[Any, ...], depth: int) -> Iterator[tuple[Box, str, tuple[Any, ...]]]:
    """Yield every box with its label and the objects around it, the innermost first."""
    if isinstance(value, (list, tuple)):
        box = parse_box(value, "xyxy") or parse_box(value, "xyzxyz")
        if box is not None:
            if min(box) >= 0 and max(box) <= 1:
                yield box, label, around
        elif depth <= MAX_DEPTH:
            for item in value:
                if isinstance(item, (Mapping, list, tuple)):
                    yield from _walk(item, label, around, depth + 1)
    elif depth <= MAX_DEPTH and isinstance(value, Mapping):
        name = next((text for key in NAMES if isinstance(text := value.get(key), str) and text), None)
        for key, item in value.items():
            if not isinstance(item, str):
                yield from _walk(item, (name or str(key))[:MAX_LABEL], (value, *around), depth + 1)


def _read_part(around: Sequence[Any], name: str) -> Any:
    for value in around:
        if (part := get_field(value, name)) is not None:
            return part
    return None


_POINT = re.compile("point|center|centre|position")
_PICTURE = re.compile(r"(view|image)_(\d{1,6})", re.IGNORECASE)


def find_arguments(
    arguments: Mapping[str, object], kinds: Mapping[str, object] | None
) -> list[tuple[str, tuple[Point, ...]]]:
    """Return the boxes and points among the arguments of a call, in fractions of the picture it refers to; two points
    are a line. `kinds` says of each argument of a known tool whether it is a "box" or a "point". Of an author's tool
    (None) four fractions are a box, two a point if the name says so."""
    boxes: list[tuple[str, tuple[Point, ...]]] = []
    points: list[Point] = []
    for name, value in islice(arguments.items(), MAX_MARKS):
        if not isinstance(value, list | tuple) or len(value) not in (2, 4):
            continue
        if any((number := to_finite_float(end)) is None or not -CLOSE <= number <= 1 + CLOSE for end in value):
            continue
        named = "box" if len(value) == 4 else "point" if _POINT.search(str(name).lower()) else None
        kind = named if kinds is None else kinds.get(name)
        if kind == "box" and len(value) == 4 and value[0] < value[2] and value[1] < value[3]:
            boxes.append((str(name), to_corners(value)))
        elif kind == "point" and len(value) == 2:
            points.append((float(value[0]), float(value[1])))
    lines = [("", tuple(points))] if len(points) == 2 else [("", (point,)) for point in points]
    return [*boxes, *lines]


def find_named_picture(arguments: Mapping[str, object]) -> tuple[str, int] | None:
    """Return the first picture that a call names: ("view", 3) for "view_3", ("image", 0) for "image_1"."""
    for value in islice(arguments.values(), MAX_MARKS):
        match = _PICTURE.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 40 else None
        if match is not None:
            kind, number = match[1].lower(), int(match[2])
            return (kind, number) if kind == "view" else (kind, number - 1)
    return None


class Views:
    """What the numbered pictures of an episode show. A place that names no image, plane or slice is the first one's."""

    def __init__(self) -> None:
        self.numbered: list[ShownView | None] = []
        self._first: dict[int, ShownView] = {}
        self._counts: dict[tuple[int, str | None], int] = {}

    def add(self, views: Sequence[ShownView]) -> None:
        self.numbered.append(views[0] if len(views) == 1 else None)
        for view in views:
            if view.image is not None:
                self._first.setdefault(view.image, view)
                if view.slices is not None:
                    self._counts.setdefault((view.image, view.plane), view.slices)

    def get_overview(self, image: int) -> ShownView:
        """Return the whole of an image, at the slice that was shown first."""
        first = self._first.get(image)
        if first is None:
            return ShownView(image)
        return ShownView(image, plane=first.plane, slice=first.slice, slices=first.slices, time=first.time)

    def count_slices(self, image: int, plane: str | None) -> int | None:
        """Return how many slices an image has in a plane, as the pictures say."""
        return self._counts.get((image, plane))

    def find_place(self, named: Mapping[str, object]) -> Place:
        """Return the place that the parts of an answer name."""
        number = _read_number(named.get("view"))
        shown = self.numbered[number] if number is not None and number < len(self.numbered) else None
        image = _read_number(named.get("image"))
        if image is None:
            image = 0 if shown is None or shown.image is None else shown.image
        frame = shown if shown is not None and shown.image == image else self._first.get(image) or ShownView(image)
        stated = named.get("plane")
        plane = stated if isinstance(stated, str) and stated in AXES and frame.slice is not None else frame.plane
        if frame.plane is None and frame.slice is not None:
            plane = None  # frames have one plane, which an answer may call axial
        slices = _read_slices(named.get("slice"))
        if slices is None and plane == frame.plane:
            slices = None if frame.slice is None else (frame.slice, frame.slice)
        elif slices is None and (count := self._counts.get((image, plane))) is not None:
            slices = count // 2, count // 2
        return Place(image, plane, slices)


def _read_number(value: Any) -> int | None:
    number = None if isinstance(value, str) else to_finite_float(value)
    return int(number) if number is not None and number.is_integer() and 0 <= number < 2**31 else None


def _read_slices(value: Any) -> tuple[int, int] | None:
    """Return the first and last slice that a field names: one number, or two."""
    numbers = [_read_number(item) for item in (value if isinstance(value, list | tuple) else [value])[:3]]
    if len(numbers) not in (1, 2) or numbers[0] is None or numbers[-1] is None:
        return None
    return min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])


def get_place(view: ShownView) -> Place:
    """Return the picture that a view shows a part of."""
    return Place(view.image or 0, view.plane, None if view.slice is None else (view.slice, view.slice))


def find_problem(view: ShownView) -> str | None:
    """Return what is wrong with a recorded view, which may be forged; None if it can be drawn."""
    corners = view.corners
    if not _are_finite(corners, 4) or min(corners) < -CLOSE or max(corners) > 1 + CLOSE:
        return f"corners {corners!r:.120}; allowed: 4 fractions of the image"
    if corners[0] == corners[2] or corners[1] == corners[3]:
        return f"corners {corners!r:.120}: nothing of the image"
    if view.area is not None:
        area = view.area
        if not _are_finite(area, 4) or not (0 <= area[0] < area[2] <= 1 and 0 <= area[1] < area[3] <= 1):
            return f"area {area!r:.120}; allowed: a box of the picture, 4 fractions"
    for name, value in zip(_COUNTS, (view.image, view.slice, view.slices, view.time), strict=True):
        if value is not None and (not isinstance(value, int) or not 0 <= value < 2**31):
            return f"{name} {value!r:.120}; allowed: a number from 0"
    if view.size is not None and not all(isinstance(side, int) and 0 < side < 2**31 for side in view.size):
        return f"size {view.size!r:.120}; allowed: two sides above 0"
    if view.plane is not None and view.plane not in AXES:
        return f"plane {view.plane!r:.120}; allowed: {', '.join(AXES)}"
    return None


_COUNTS = ("image", "slice", "slices", "time")


def _are_finite(values: Sequence[Any], count: int) -> bool:
    return len(values) == count and all(
        isfinite(value) if type(value) is float else to_finite_float(value) is not None for value in values
    )


class DrawnMark(NamedTuple):
    """A mark in fractions of a picture: its corners, and whether a part of it lies outside."""

    corners: tuple[Point, ...]
    is_clipped: bool


def place_on(mark: Mark, view: ShownView) -> DrawnMark | None:
    """Return the mark in a picture, clipped to what shows the view; None if nothing of it is seen there."""
    outline = _cut_slice(mark, view) if view.image == mark.place.image else None
    if outline is None:
        return None
    flat = view.from_original([number for point in outline for number in point])
    points = list(zip(flat[::2], flat[1::2], strict=True))
    left, top, right, bottom = view.area or (0.0, 0.0, 1.0, 1.0)
    inside = all(left - CLOSE <= x <= right + CLOSE and top - CLOSE <= y <= bottom + CLOSE for x, y in points)
    if len(points) < 4:
        clipped = tuple((_clip(x, left, right), _clip(y, top, bottom)) for x, y in points)
        return DrawnMark(clipped, False) if inside else None
    x1, x2 = (_clip(end, left, right) for end in (min(x for x, _ in points), max(x for x, _ in points)))
    y1, y2 = (_clip(end, top, bottom) for end in (min(y for _, y in points), max(y for _, y in points)))
    return None if x2 - x1 <= CLOSE or y2 - y1 <= CLOSE else DrawnMark(to_corners((x1, y1, x2, y2)), not inside)


def _cut_slice(mark: Mark, view: ShownView) -> tuple[Point, ...] | None:
    """Return the outline of a mark in the slice that a view shows; None if it lies on another."""
    if mark.depth is None:
        place = get_place(view)
        if place.slices is None or mark.place.slices is None:
            return mark.corners if place.slices is mark.place.slices else None
        first, last = mark.place.slices
        return mark.corners if place.plane == mark.place.plane and first <= place.slices[0] <= last else None
    if view.slice is None or not view.slices:
        return None
    x1, y1, z1, x2, y2, z2 = mark.depth
    low, high, flat = {
        "coronal": (y1, y2, (x1, 1 - z2, x2, 1 - z1)),  # the head is up
        "sagittal": (x1, x2, (y1, 1 - z2, y2, 1 - z1)),
    }.get(view.plane or "axial", (z1, z2, (x1, y1, x2, y2)))
    first = min(view.slices - 1, round(low * view.slices))  # as an answer writes it: `core/answers.py:write_box_3d`
    last = max(first, round(high * view.slices) - 1)
    return to_corners(flat) if first <= view.slice <= last else None


def _clip(value: float, low: float, high: float) -> float:
    return min(high, max(low, value))
