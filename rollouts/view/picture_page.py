"""What a page says of each picture: which part of which original it shows, and the marks on it."""

from collections.abc import Sequence
from typing import Any

from viewbox.images.shown import ShownView
from viewbox.images.view import WHOLE
from viewbox.rollouts.view.marks import CLOSE, Mark, place_on
from viewbox.rollouts.view.pictures import Picture, Pictures
from viewbox.rollouts.view.plain import to_plain

MAX_PLACED = 50_000  # marks times pictures
MAX_WINDOW = 200  # characters
DIGITS = 6  # decimals of a fraction on a page
OF_VIEW = ("image", "original", "outline", "index", "plane", "slice", "slices", "time", "window")


def describe_pictures(pictures: Pictures) -> dict[str, dict[str, Any]]:
    """The pictures by id; see `build_episode_page`."""
    originals: dict[tuple[Any, ...], Picture | None] = {}
    page = {}
    budget = MAX_PLACED
    for picture in pictures.by_id.values():
        boxes, parts = [], []
        for view in picture.views:
            key = view.image, view.plane, view.slice, view.time
            if key not in originals:
                originals[key] = pictures.find_original(view)
            parts.append(_describe_view(view, originals[key]))
            budget -= len(pictures.marks)
            if budget >= 0:
                boxes += _draw_marks(pictures.marks, view)
            else:
                pictures.leave_out("too many boxes and pictures: the later pictures have none", once=True)
        page[picture.id] = {
            "hash": to_plain(picture.ref.hash),
            "mode": to_plain(picture.ref.mode),
            "width": picture.ref.width,
            "height": picture.ref.height,
            **{name: parts[0][name] if parts else None for name in OF_VIEW},
            "boxes": boxes,
            "beside": parts[1:],
            "dropped_at": picture.dropped_at,
        }
    return page


def _draw_marks(marks: Sequence[Mark], view: ShownView) -> list[dict[str, Any]]:
    pairs = ((mark, place_on(mark, view)) for mark in marks)
    return [
        _describe_mark(mark, drawn.corners, drawn.is_clipped)
        for mark, drawn in pairs
        if drawn is not None and not (mark.kind == "tool" and _covers(drawn.corners, view))
    ]


def _covers(corners: Sequence[tuple[float, float]], view: ShownView) -> bool:
    """Whether a drawn box is all that a view shows: its outline would be the edge of the picture."""
    if len(corners) < 4:
        return False
    (x1, y1), (x2, y2) = corners[0], corners[2]
    left, top, right, bottom = view.area or WHOLE
    return x1 <= left + CLOSE and y1 <= top + CLOSE and x2 >= right - CLOSE and y2 >= bottom - CLOSE


def _describe_mark(mark: Mark, corners: Sequence[tuple[float, float]], is_clipped: bool) -> dict[str, Any]:
    points = [[round(x, DIGITS), round(y, DIGITS)] for x, y in corners]
    four = {4: points, 2: [points[0], points[-1], points[-1], points[0]], 1: points * 4}[len(points)]
    shape = {4: "box", 2: "line", 1: "point"}[len(points)]
    described = {"kind": mark.kind, "label": to_plain(mark.label), "shape": shape, "corners": four}
    described["clipped"] = is_clipped
    return described | ({"turn": mark.turn, "on": mark.on} if mark.kind == "tool" else {})


def _describe_view(view: ShownView, original: Picture | None) -> dict[str, Any]:
    left, top, right, bottom = area = view.area or WHOLE
    flat = view.to_original((left, top, right, top, right, bottom, left, bottom))
    return {
        "image": None if original is None else to_plain(original.ref.hash),
        "original": None if original is None else original.id,
        "outline": [[round(x, DIGITS), round(y, DIGITS)] for x, y in zip(flat[::2], flat[1::2], strict=True)],
        "index": view.image,
        "plane": view.plane,
        "slice": view.slice,
        "slices": view.slices,
        "time": view.time,
        "window": None if view.window is None else to_plain(view.window)[:MAX_WINDOW],
        "area": list(area),
    }
