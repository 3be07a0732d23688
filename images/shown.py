"""`ShownView`: what a picture shows of the images of a task, recorded when it is made. No model ever reads it."""

from collections.abc import Sequence

from ..utils.frozen import Record
from .view import WHOLE, View, map_points

DIGITS = 9  # decimals of a recorded fraction: exact to a thousandth of a pixel in any zoom of any image


class ShownView(Record, frozen=True):
    """The part of one image that a picture shows, or that a part of the picture shows.
    Whatever the chain of tools, a picture shows an upright box of its image, perhaps turned and mirrored. So two of its
    corners and `turned` are an exact map between fractions of the picture and fractions of the image.

    Args:
        image: number of the task's image, from 0; None if it is none of them.
        corners: where the upper left and the lower right corner of the picture lie, (x, y, x, y) in fractions of the
            image, or of the slice. x falls from the first to the second if left and right are swapped.
        turned: whether x of the picture runs along y of the image.
        plane, slice, slices: of a volume: which slice of how many of that plane, from 0; of frames the plane is None.
        time: of a volume with several time points: which of them, from 0.
        window: the range of values that is shown, as the tool named it; None: the image's own.
        area: the box of the picture, in fractions, in which it is shown; None: all of it.
        size: width and height of the image, or of the slice, in its own pixels; None: recorded before 0.3.

    >>> shown = ShownView(0, (0.5, 0.25, 0.75, 0.5))
    >>> shown.to_original((0.0, 1.0)), shown.from_original((0.5, 0.375))
    ((0.5, 0.5), (0.0, 0.5))
    """

    image: int | None = None
    corners: tuple[float, ...] = WHOLE
    turned: bool = False
    plane: str | None = None
    slice: int | None = None
    slices: int | None = None
    time: int | None = None
    window: str | None = None
    area: tuple[float, ...] | None = None
    size: tuple[int, int] | None = None

    @classmethod
    def of(cls, view: View, image: int | None, area: Sequence[float] | None = None) -> "ShownView":
        """Return what a view shows; `image` is the number of its image among those of the task."""
        volume = view.source.volume
        stack = {} if volume is None else {"slice": volume.index, "slices": volume.count_slices(volume.plane)}
        return cls(
            image,
            tuple(round(value, DIGITS) for value in view.corners),
            view.turned,
            volume.plane if volume is not None and volume.planes else None,
            **stack,
            time=None if volume is None or volume.times is None else volume.time,
            window=", ".join(filter(None, (getattr(step, "shown_range", None) for step in view.operations))) or None,
            area=None if area is None else tuple(area),
            size=view.source.size,
        )

    def to_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Map alternating x and y from fractions of the picture to fractions of the image."""
        return map_points(points, self.area or WHOLE, self.corners, turned=self.turned)

    def from_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Map alternating x and y from fractions of the image to fractions of the picture (outside: not shown)."""
        return map_points(points, self.corners, self.area or WHOLE, turned=self.turned)

    def measure_scale(self, width: float, height: float) -> float | None:
        """Return how many pixels of a picture of this size show one pixel of the image, along the side with fewer.

        >>> ShownView(0, (0.5, 0.25, 0.75, 0.5), size=(192, 192)).measure_scale(48, 48)
        1.0
        """
        if self.size is None:
            return None
        (x1, y1, x2, y2), (left, top, right, bottom) = self.area or WHOLE, self.corners
        shown = ((x2 - x1) * width, (y2 - y1) * height)
        x, y = reversed(shown) if self.turned else shown
        return min(x / (abs(right - left) * self.size[0]), y / (abs(bottom - top) * self.size[1]))

    def to_dict(self) -> dict[str, object]:
        """Return the fields that differ from those of a whole single image: most pictures need two or three."""
        default = ShownView()
        return {key: item for key, item in super().to_dict().items() if getattr(self, key) != getattr(default, key)}
