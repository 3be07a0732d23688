"""`Volume`: a stack of slices (a series, a multi-frame file, a NIfTI volume), seen one slice at a time.

All slices share one array: those that lie together in its memory are views of it, others are copied when asked for.
"""

from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal

import numpy as np

from viewbox.errors import ImageError, describe_unknown
from viewbox.images.source import Source

Plane = Literal["axial", "coronal", "sagittal"]
# axis that is cut through, for an array of axes (z, y, x): z toward the head, y toward the back, x toward the left
AXES: dict[Plane, int] = {"axial": 0, "coronal": 1, "sagittal": 2}


@dataclass(frozen=True, eq=False)
class Volume:
    """Voxels (z, y, x), or frames (n, height, width[, 3]) where `planes` is False; `spacing` is (z, y, x) in mm.

    Slices are shown as radiologists expect: axial and coronal with the patient's right on the left of the picture,
    sagittal with the face to the left, and the head up. Frames have no distance: their z spacing is 0. `plane` and
    `index` say which slice a source shows.

    >>> volume = Volume(np.zeros((10, 30, 20), np.uint8), (0, 255), spacing=(5, 1, 2))
    >>> [(plane, volume.count(plane), volume.slice(0, plane).size, volume.slice(0, plane).spacing) for plane in AXES]
    [('axial', 10, (20, 30), (2, 1)), ('coronal', 30, (20, 10), (2, 5)), ('sagittal', 20, (30, 10), (1, 5))]
    """

    voxels: np.ndarray
    display: tuple[float, float]
    spacing: tuple[float, float, float] | None = None
    unit: Literal["HU"] | None = None
    planes: bool = True
    plane: Plane = "axial"
    index: int = 0

    @property
    def allowed(self) -> tuple[Plane, ...]:
        """The planes there are; frames have one, called axial."""
        return tuple(AXES) if self.planes else ("axial",)

    def count(self, plane: Plane = "axial") -> int:
        """How many slices there are along a plane; raises `ImageError` for a plane this stack does not have."""
        if plane not in self.allowed:
            raise ImageError(describe_unknown("plane", plane, self.allowed))
        return self.voxels.shape[AXES[plane]]

    def slice(self, index: int, plane: Plane = "axial") -> Source:
        """Slice `index` (from 0) of a plane, as a source that knows its volume and place."""
        count = self.count(plane)
        if not 0 <= index < count:
            what = f"{plane} slice" if self.planes else "frame"
            raise ImageError(f"{what} {index}; allowed: 0 to {count - 1}")
        pixels = self.voxels[(slice(None),) * AXES[plane] + (index,)]
        if plane != "axial":
            pixels = pixels[::-1]  # z grows toward the head
        return Source(pixels, self.display, self.spacing_of(plane), self.unit, replace(self, plane=plane, index=index))

    def middle(self, plane: Plane = "axial") -> Source:
        """The slice in the middle of a plane."""
        return self.slice(self.count(plane) // 2, plane)

    def spacing_of(self, plane: Plane) -> tuple[float, float] | None:
        """(x, y) of the pictures of a plane, in mm."""
        if self.spacing is None:
            return None
        z, y, x = self.spacing
        return {"axial": (x, y), "coronal": (x, z), "sagittal": (y, z)}[plane]

    def distance(self, plane: Plane) -> float | None:
        """Millimeters from one slice of a plane to the next; None where that is not known."""
        return (self.spacing[AXES[plane]] or None) if self.spacing else None


def upright(
    voxels: np.ndarray, axes: np.ndarray, steps: tuple[float, float, float]
) -> tuple[np.ndarray, tuple[float, float, float], Plane]:
    """Voxels of any orientation as (z, y, x), a view of them, with the spacing (z, y, x) and the plane of their axis 0.

    Row i of `axes` is the direction (x to the left, y to the back, z to the head) in which axis i of `voxels` grows, by
    `steps[i]` mm. Oblique volumes are turned to the nearest axes and not resampled.
    """
    turned = np.abs(axes)
    order = max(permutations(range(3)), key=lambda order: sum(turned[order[i], 2 - i] for i in range(3)))
    voxels = voxels.transpose(order)
    for i, axis in enumerate(order):
        if axes[axis, 2 - i] < 0:
            voxels = np.flip(voxels, i)
    z, y, x = (steps[axis] for axis in order)
    return voxels, (z, y, x), tuple(AXES)[order.index(0)]
