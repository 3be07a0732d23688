"""The pictures of an episode: what each shows of which image, and the marks that lie on it.

A page gets them as PNG files that this program wrote itself: no byte of a stored file reaches the browser.
"""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace
from PIL import Image

from ..errors import ImageError
from ..images.ref import ImageRef
from ..images.shown import ShownView
from ..images.view import WHOLE
from ..records import Episode, ToolResult, Turn
from ..rewards import marks
from ..rewards.marks import CLOSE, Mark, Views, find_marks, find_named_picture, get_place
from ..rollouts.store.layout import iter_images
from ..tools import TOOLS
from .page import to_plain

MAX_PICTURES = 1_000  # of an episode on its page
MAX_BESIDE = 8  # views in one picture
MAX_PROBLEMS = 100
MAX_SIDE = 100_000  # pixels
SHOWN_MODES = ("L", "RGB")  # of an original that a browser shows as it is
PLAIN = ("L", "RGB", "RGBA", "LA", "P", "1")  # modes that a browser shows as they are
BAND = 2**20  # values that are stretched at a time


@dataclass
class Picture:
    """A picture of the episode. `views` is empty if it shows no image of the task, or if that is not known."""

    id: str
    ref: ImageRef
    views: tuple[ShownView, ...] = ()
    first_turn: int | None = None
    dropped_at: int | None = None  # the first reply for which the model no longer saw it


@dataclass
class Pictures:
    """The pictures of an episode in order, with its marks. `problems` says what was left out. `of_turns`: for each
    turn, the ids of a message's pictures, or of each result (None: it has none) and then of the pictures that follow
    the results."""

    by_id: dict[str, Picture] = field(default_factory=dict)
    of_turns: list[list[str | None]] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    views: Views = field(default_factory=Views)
    problems: list[str] = field(default_factory=list)
    _by_hash: dict[str, Picture] = field(default_factory=dict)

    @classmethod
    def of(cls, episode: Episode) -> "Pictures":
        """Return the pictures and marks of an episode, which may be forged: what cannot be drawn is left out and
        named."""
        pictures = cls()
        current: Picture | None = None  # on which the next call of a stateful tool works
        for number, turn in enumerate(episode.turns):
            if turn.role == "tool_result":
                current = pictures._add_results(number, turn, current)
            else:
                current = pictures._add_message(number, turn, current)
        fields = marks.get_place_fields(episode.info)
        said = episode.info.get("answers")  # of a person's exchanges, the last one's included
        earlier = (
            [item.get("answer") for item in said if isinstance(item, Mapping)] if isinstance(said, list | tuple) else []
        )
        answers = [("answer", value) for value in dict.fromkeys([*earlier[:-1], episode.answer])]
        golds = [("gold", value) for value in (episode.task.reference, episode.task.metadata.get("evidence"))]
        for kind, value in (*golds, *answers):
            pictures.marks += find_marks(value, kind, fields, pictures.views)  # type: ignore[arg-type]
        pictures._add_originals(episode.task.images)
        pictures._find_dropped(episode)
        return pictures

    def _add_message(self, number: int, turn: Turn, current: Picture | None) -> Picture | None:
        ids: list[str | None] = []
        for place, ref in enumerate(turn.images):
            views = turn.views[place : place + 1]
            if not views and not self.by_id:  # a run that was recorded without views: the first picture is the overview
                views = (ShownView(0),)
            picture = self._add(ref, views, number)
            ids.append(None if picture is None else picture.id)
            if current is None and picture is not None and picture.views:
                current = picture
        self.of_turns.append(ids)
        return current

    def _add_results(self, number: int, turn: Turn, current: Picture | None) -> Picture | None:
        ids: list[str | None] = []
        remaining = Counter(result.image.hash for result in turn.tool_results if result.image is not None)
        for result in turn.tool_results:
            if result.image is None:
                self._mark_call(number, result, current, None)
                ids.append(None)
                continue
            picture = self._add(result.image, result.views, number)
            ids.append(None if picture is None else picture.id)
            self._mark_call(number, result, current, picture)
            if picture is not None and _is_of_view(result, picture):
                current = picture
        for ref in turn.images:
            remaining[ref.hash] -= 1
            if remaining[ref.hash] < 0:  # the original, shown again before the last turn
                again = self._by_hash.get(ref.hash) or self._add(ref, (), number)
                ids.append(None if again is None else again.id)
        self.of_turns.append(ids)
        return current

    def _add(self, ref: ImageRef, views: Sequence[ShownView], number: int | None, name: str = "p") -> Picture | None:
        label = f"picture {len(self.by_id)}" if number is None else f"turn {number}"
        if len(self.by_id) >= MAX_PICTURES:
            self.leave_out(f"more than {MAX_PICTURES} pictures: the others are left out", once=True)
        elif not (0 < ref.width <= MAX_SIDE and 0 < ref.height <= MAX_SIDE):
            self.leave_out(f"{label}: a picture of {to_plain(ref.width)}x{to_plain(ref.height)} pixels")
        else:
            usable = tuple(view for view in views[:MAX_BESIDE] if self._check(view, label))
            picture = self.by_id[f"{name}{len(self.by_id)}"] = Picture(f"{name}{len(self.by_id)}", ref, usable, number)
            self._by_hash.setdefault(ref.hash, picture)
            if number is not None:
                self.views.add(usable)
            return picture
        self.views.add(())  # the others keep their numbers
        return None

    def _check(self, view: ShownView, label: str) -> bool:
        problem = marks.find_problem(view)
        if problem is not None:
            self.leave_out(f"{label}: what a picture shows is recorded as {to_plain(problem)}")
        return problem is None

    def leave_out(self, problem: str, *, once: bool = False) -> None:
        """Name something that is not shown; `once` even if it happens often."""
        if len(self.problems) < MAX_PROBLEMS and not (once and problem in self.problems):
            self.problems.append(problem)

    def _mark_call(self, number: int, result: ToolResult, current: Picture | None, after: Picture | None) -> None:
        """Add the boxes and points of a call's arguments, and the part of its picture that the result shows closer."""
        if result.error is not None or result.arguments is None or len(self.marks) >= marks.MAX_MARKS:
            return
        frame, on = self._find_frame(result.arguments, current)
        if frame is None or frame.image is None:
            return
        known = TOOLS.get(result.tool_name)
        kinds = None if known is None else {name: spec.get("x-kind") for name, spec in known.parameters.items()}
        arguments = marks.find_arguments(result.arguments, kinds)
        closer = None if after is None else _find_closer(frame, after.views)
        if closer is not None:  # says the same, and more exactly, than a center or a box among the arguments
            corners = marks.to_corners(closer)
            self.marks.append(Mark("tool", result.tool_name, corners, get_place(frame), turn=number, on=on))
            return
        for name, points in arguments:
            flat = frame.to_original([value for point in points for value in point])
            corners = tuple(zip(flat[::2], flat[1::2], strict=True))
            label = f"{result.tool_name} {name}".strip()
            self.marks.append(Mark("tool", label, corners, get_place(frame), turn=number, on=on))

    def _find_frame(self, arguments: Mapping[str, Any], current: Picture | None) -> tuple[ShownView | None, str | None]:
        """Return what the picture shows that a call refers to, and its id: the one that it names, or the current
        view's."""
        named = find_named_picture(arguments)
        if named is None:
            return (current.views[0], current.id) if current is not None and len(current.views) == 1 else (None, None)
        kind, number = named
        if kind == "image":
            return self.views.get_overview(number), None
        shown = self.views.numbered[number] if number < len(self.views.numbered) else None
        return shown, next((one.id for one in self.by_id.values() if shown is not None and shown in one.views), None)

    def _add_originals(self, images: Sequence[ImageRef]) -> None:
        """Add the task's own images, if any picture shows a part of them."""
        shown = {view.image for picture in self.by_id.values() for view in picture.views if view.slice is None}
        for number, ref in enumerate(images):
            if number in shown and ref.mode in SHOWN_MODES and ref.hash not in self._by_hash:
                self._add(ref, (ShownView(number),), None, "original")

    def find_original(self, view: ShownView) -> Picture | None:
        """Return the picture that shows all of the image, or of the slice, of which a view shows a part."""
        whole = [
            picture
            for picture in self.by_id.values()
            if len(picture.views) == 1
            and (first := picture.views[0]).area is None
            and first.corners == WHOLE
            and not first.turned
            and (first.image, first.plane, first.slice, first.time) == (view.image, view.plane, view.slice, view.time)
        ]
        whole.sort(key=lambda picture: (picture.first_turn is not None, picture.views[0].window is not None))
        return whole[0] if whole else None

    def _find_dropped(self, episode: Episode) -> None:
        """Find out when the model no longer saw a picture, if it saw only its last ones."""
        shown_last = episode.info.get("last_images")
        if not isinstance(shown_last, int) or isinstance(shown_last, bool) or shown_last < 1:
            return
        seen: list[str] = []
        dropped = 0  # of those seen
        for number, (turn, ids) in enumerate(zip(episode.turns, self.of_turns, strict=True)):
            if turn.role == "assistant":
                again = len(seen) > 1 and seen[-1] == seen[0]  # the original, which does not count
                for name in seen[dropped : len(seen) - shown_last - again]:
                    self.by_id[name].dropped_at = number
                    dropped += 1
                if again:
                    self.by_id[seen[0]].dropped_at = None
            seen += [name for name in ids if name is not None]


def _is_of_view(result: ToolResult, picture: Picture) -> bool:
    """Return whether a result shows the view on which the next call of a stateful tool works."""
    return (
        len(picture.views) == 1
        and picture.views[0].area is None
        and (result.arguments is None or find_named_picture(result.arguments) is None)
    )


def _find_closer(frame: ShownView, after: Sequence[ShownView]) -> tuple[float, float, float, float] | None:
    """Return the box of the original that a result shows, if it is a smaller part of the same picture."""
    if len(after) != 1 or get_place(after[0]) != get_place(frame) or after[0].image != frame.image:
        return None
    (x1, y1, x2, y2), (a1, b1, a2, b2) = (_order(view.corners) for view in (frame, after[0]))
    if a1 < x1 - CLOSE or b1 < y1 - CLOSE or a2 > x2 + CLOSE or b2 > y2 + CLOSE:
        return None
    return None if (a2 - a1) * (b2 - b1) > (1 - CLOSE) * (x2 - x1) * (y2 - y1) else (a1, b1, a2, b2)


def _order(corners: Sequence[float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = corners
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)


def encode_picture(ref: ImageRef) -> bytes:
    """Return a stored picture as PNG; other modes than 8-bit ones are stretched to 8 bits, as a person looks at them.
    Raise `ImageError` if it cannot be opened, or has not the pixels of its hash."""
    try:
        picture: Any = replace(ref).open()  # `ref`, which the episode holds, would keep the pixels
    except (ValueError, OSError) as error:
        raise ImageError(str(error)) from error
    picture = picture.convert("RGB") if picture.mode in ("CMYK", "YCbCr") else picture
    bare = picture.copy() if picture.mode in PLAIN else _stretch(picture)
    bare.info = {}  # none of the file's own metadata
    buffer = io.BytesIO()
    bare.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def list_pictures(episode: Episode) -> dict[str, ImageRef]:
    return {ref.hash: ref for ref in iter_images(episode)}


def _stretch(picture: Image.Image) -> Image.Image:
    """Return the values as 8 bits, a few rows at a time: a small file may hold very many."""
    values = np.asarray(picture)
    bands = np.array_split(values, max(1, values.size // BAND))
    ends = [(finite.min(), finite.max()) for band in bands if (finite := band[np.isfinite(band)]).size] or [(0, 0)]
    low, high = float(np.min(ends)), float(np.max(ends))
    shown = np.empty(values.shape, np.uint8)
    for band, to in zip(bands, np.array_split(shown, len(bands)), strict=True):
        scaled = np.nan_to_num((band.astype(np.float64) - low) / ((high - low) or 1.0) * 255, posinf=255, neginf=0)
        to[:] = np.clip(scaled, 0, 255)
    return Image.fromarray(shown)
