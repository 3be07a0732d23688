"""What a right answer is about, as boxes of its images: a picture is one, and a slice is a thin box of its volume."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..records import Episode
from ..utils.values import reaches
from .fields import compute_area, get_field
from .marks import PLACE_FIELDS, Mark, Place, Views, find_marks, get_place_fields

Solid = tuple[float, float, float, float, float, float]  # x1, y1, z1, x2, y2, z2; z of a single picture is 0 to 1
WHOLE: Solid = (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
MAX_SOLIDS = 100  # whose union is measured
MAX_CELLS = 64  # sides of a mask
FEW = 4  # boxes for which their intersections cost less than NumPy: most episodes have no more
AXIS = {"sagittal": 0, "coronal": 1}  # of the slices of a plane; of any other 2


class Region(NamedTuple):
    """What the right answer is about: boxes of an image, one but for a mask, and the box around them.
    `plane` is the axis of the slices that show it; None: any. `mark` is the box as a page draws it."""

    label: str
    image: int
    parts: tuple[Solid, ...]
    bounds: Solid
    mark: Mark | None = None
    plane: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole slice, plane or image."""
        return self.mark is None and self.label != "mask"

    @property
    def size(self) -> float:
        return compute_area(self.parts[0]) if len(self.parts) == 1 else sum(map(compute_area, self.parts))

    def measure(self, solids: Sequence[Solid]) -> float:
        """Return the share of it that lies in these boxes."""
        if len(solids) > 1:
            solids = list(dict.fromkeys(solids))[:MAX_SOLIDS]
        if len(self.parts) == 1:
            return measure_union(solids, self.parts[0])
        sizes = [compute_area(part) for part in self.parts]
        shares = (measure_union(solids, part) * size for part, size in zip(self.parts, sizes, strict=True))
        return sum(shares) / sum(sizes)


def find_regions(episode: Episode, views: Views) -> list[Region]:
    """Return what the right answer is about: what the task's `evidence` names, or else its reference.
    That are all boxes; or a mask, rows of 0 and 1 across the image or the slice; or a slice, a plane or an image, as
    the fields say that name one."""
    evidence, declared = episode.task.metadata.get("evidence"), "place" in episode.info
    fields = get_place_fields(episode.info)
    for value, names, may_name in ((evidence, PLACE_FIELDS, True), (episode.task.reference, fields, declared)):
        if not value:
            continue
        regions = [to_region(mark, views) for mark in find_marks(value, "gold", names, views)]
        if not regions and may_name and isinstance(value, Mapping):
            regions = [*_find_place(value, names, views)]
        if regions:
            return regions
    return []


def to_region(mark: Mark, views: Views) -> Region:
    if mark.depth is not None and len(mark.depth) == 6:
        return Region(mark.label, mark.place.image, (mark.depth,), mark.depth, mark)
    solid = _place((*mark.corners[0], *mark.corners[2]), mark.place, views)
    return Region(mark.label, mark.place.image, (solid,), solid, mark)


def _place(flat: Sequence[float], place: Place, views: Views) -> Solid:
    count = views.count_slices(place.image, place.plane)
    return to_solid(flat, place.plane, place.slices or (None, None), count)[0]


def _find_place(value: Mapping[str, Any], fields: Mapping[str, str], views: Views) -> Iterator[Region]:
    """Yield the mask, or the slice, plane or image that an object names."""
    named = {part: get_field(value, name) for part, name in fields.items()}
    place = views.find_place(named)
    plane = AXIS.get(place.plane or "", 2)
    parts = tuple(_place(box, place, views) for box in _list_cells(value.get("mask")))
    if parts:
        low, high = (tuple(edge(sides) for sides in zip(*parts, strict=True)) for edge in (min, max))
        yield Region("mask", place.image, parts, (*low[:3], *high[3:]))
    elif named.get("slice") is not None:
        solid = _place((0.0, 0.0, 1.0, 1.0), place, views)
        yield Region("slice", place.image, (solid,), solid, plane=plane)
    elif named.get("plane") is not None:
        yield Region("plane", place.image, (WHOLE,), WHOLE, plane=plane)
    elif isinstance(named.get("image"), int):
        yield Region("image", place.image, (WHOLE,), WHOLE)


def _list_cells(rows: Any) -> Iterator[tuple[float, float, float, float]]:
    """Yield the runs of ones in a mask as boxes.

    >>> list(_list_cells([[0, 1, 1, 1], [0, 0, 0, 0]]))
    [(0.25, 0.0, 1.0, 0.5)]
    """
    if not isinstance(rows, list | tuple) or not 0 < len(rows) <= MAX_CELLS:
        return
    for y, row in enumerate(rows):
        if not isinstance(row, list | tuple) or not 0 < len(row) <= MAX_CELLS:
            return
        edges = [x for x in range(len(row) + 1) if (x > 0 and bool(row[x - 1])) != (x < len(row) and bool(row[x]))]
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            yield start / len(row), y / len(rows), end / len(row), (y + 1) / len(rows)


def to_solid(
    corners: Sequence[float], plane: str | None, slices: tuple[int | None, int | None], count: int | None
) -> tuple[Solid, int]:
    """Return a box of a picture, or of the slices first to last of `count`, as a box of its volume, and its thin axis.

    >>> to_solid((0.5, 0.25, 0.75, 0.5), None, (None, None), None)
    ((0.5, 0.25, 0.0, 0.75, 0.5, 1.0), 2)
    >>> to_solid((0.5, 0.0, 1.0, 0.25), "coronal", (1, 1), 4)  # the head is up
    ((0.5, 0.25, 0.75, 1.0, 0.5, 1.0), 1)
    """
    left, top, right, bottom = corners
    x1, x2 = (left, right) if left <= right else (right, left)
    y1, y2 = (top, bottom) if top <= bottom else (bottom, top)
    first, last = slices
    low, high = (0.0, 1.0) if first is None or last is None or not count else (first / count, (last + 1) / count)
    if plane == "coronal":
        return (x1, low, 1 - y2, x2, high, 1 - y1), 1
    if plane == "sagittal":
        return (low, x1, 1 - y2, high, x2, 1 - y1), 0
    return (x1, y1, low, x2, y2, high), 2


def measure_overlap(solid: Solid, whole: Solid, axis: int) -> float:
    """Return the share of a side of `whole` that lies in a box."""
    first, last = whole[axis], whole[axis + 3]
    low, high = solid[axis], solid[axis + 3]
    return 1.0 if low <= first and high >= last else max(0.0, min(high, last) - max(low, first)) / (last - first)


def _measure_share(solid: Solid, whole: Solid) -> float:
    (x1, y1, z1, x2, y2, z2), (a1, b1, c1, a2, b2, c2) = solid, whole
    x, y, z = min(x2, a2) - max(x1, a1), min(y2, b2) - max(y1, b1), min(z2, c2) - max(z1, c1)
    return x / (a2 - a1) * (y / (b2 - b1)) * (z / (c2 - c1)) if x > 0 and y > 0 and z > 0 else 0.0


def _intersect(one: Solid, other: Solid) -> Solid | None:
    (a1, b1, c1, a2, b2, c2), (d1, e1, f1, d2, e2, f2) = one, other
    both = max(a1, d1), max(b1, e1), max(c1, f1), min(a2, d2), min(b2, e2), min(c2, f2)
    return both if both[0] < both[3] and both[1] < both[4] and both[2] < both[5] else None


def _measure_few(solids: Sequence[Solid], whole: Solid) -> float:
    """Return the share that few boxes cover together, by inclusion and exclusion."""
    if not solids:
        return 0.0
    first, *others = solids
    both = [overlap for other in others if (overlap := _intersect(first, other)) is not None]
    return _measure_share(first, whole) + _measure_few(others, whole) - _measure_few(both, whole)


def measure_union(solids: Sequence[Solid], whole: Solid) -> float:
    """Return the share of `whole` that these boxes cover together.

    >>> measure_union([(0, 0, 0, 0.5, 1, 1), (0.25, 0, 0, 0.75, 1, 1)], (0.0, 0.0, 0.0, 1.0, 1.0, 1.0))
    0.75
    """
    if len(solids) == 1:
        return _measure_share(solids[0], whole)
    shares = [_measure_share(item, whole) for item in solids]
    if not shares or reaches(max(shares), 1.0):
        return max(shares, default=0.0)
    if len(solids) <= FEW:
        return _measure_few(solids, whole)
    low, high = np.array(whole[:3]), np.array(whole[3:])
    boxes = np.array(solids, float).reshape(-1, 2, 3).clip(low, high)
    edges = [np.unique([*boxes[:, :, axis].ravel(), low[axis], high[axis]]) for axis in range(3)]
    filled = np.zeros([len(item) - 1 for item in edges], bool)
    for box in boxes:
        filled[tuple(slice(*np.searchsorted(edges[axis], box[:, axis])) for axis in range(3))] = True
    x, y, z = map(np.diff, edges)
    return float(np.einsum("ijk,i,j,k", filled, x, y, z) / np.prod(high - low))
