"""Stacks of slices that say where they lie: files of a series and frames of a file alike. Knows nothing of DICOM.

Slices of one size, orientation and spacing form a group. `arrange` sorts a group by place, splits it into time points,
and measures the step from one slice to the next, as a vector: a tilted scanner shifts each slice against the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import ImageError
from .. import limits

MAX_ANGLE = 1e-3  # largest difference between the direction cosines of slices
MAX_UNEVENNESS = 0.1  # largest deviation from the usual distance of slices, as a share of it
SAME_SPACING = 1e-3  # difference of two spacings, as a share, that is rounding
SAME_PLACE = 1e-4, 0.01  # mm up to which two slices lie at one place: a hundredth of the largest gap, within these ends
MAX_LISTED = 20  # groups that a message lists


@dataclass(frozen=True, eq=False)
class Slice:
    """One picture and where it lies.

    Args:
        number: of its file or frame, from 0.
        name: of its file or frame, in messages.
        shape: (rows, columns).
        kind: in words, what else sets it apart: slices of one stack are of one kind.
        place: the middle of its first pixel in mm (x to the patient's left, y to the back, z to the head), and unit
            vectors along its rows and down its columns: (3, 3). None: it cannot be stacked, and `kind` says why.
        spacing: millimeters per pixel along x and y, if known.
        thickness: millimeters from slice to slice as it states them: of the spacing between slices, of a slice.
        times: what may number its time point, by name.
        segment: the number of what it shows, in a segmentation.
    """

    number: int
    name: str
    shape: tuple[int, int]
    kind: str = ""
    place: np.ndarray | None = None
    spacing: tuple[float, float] | None = None
    thickness: tuple[float, ...] = ()
    times: Mapping[str, int | None] = field(default_factory=dict)
    segment: int = 0

    @property
    def where(self) -> np.ndarray:
        """`place`, of a slice that can be stacked."""
        assert self.place is not None
        return self.place

    @property
    def normal(self) -> np.ndarray:
        """The direction of slices at right angles to its rows and columns."""
        return np.cross(self.where[1], self.where[2])


def build_place(position: Sequence[float], directions: Sequence[float]) -> np.ndarray | None:
    """Return the place of a slice; None if it has no position or no two directions at right angles."""
    if len(position) != 3 or len(directions) != 6:
        return None
    place = np.array([*position, *directions]).reshape(3, 3)
    return None if np.abs(place[1:] @ place[1:].T - np.eye(2)).max() > 1e-2 else place


def group(slices: Sequence[Slice]) -> list[list[Slice]]:
    """Return the slices that may be of one stack together, the largest group first."""
    groups: list[list[Slice]] = []
    for one in slices:
        fitting = next((members for members in groups if _is_alike(members[0], one)), None)
        if fitting is None:
            groups.append([one])
        else:
            fitting.append(one)
    return sorted(groups, key=len, reverse=True)


def _is_alike(one: Slice, other: Slice) -> bool:
    if (one.shape, one.kind) != (other.shape, other.kind) or (one.spacing is None) != (other.spacing is None):
        return False
    if one.spacing is not None and not np.allclose(one.spacing, other.spacing or (), rtol=SAME_SPACING, atol=0):
        return False
    if one.place is None or other.place is None:
        return one.place is other.place
    return bool(np.abs(one.place[1:] - other.place[1:]).max() <= MAX_ANGLE)


def describe(one: Slice) -> str:
    """Return what the slices of a group have in common.

    >>> describe(Slice(0, "", (30, 20), "localizer", np.eye(3), (1.0, 0.5)))
    '20x30 pixels of 1x0.5 mm, sagittal, localizer'
    """
    spacing = "" if one.spacing is None else f" of {one.spacing[0]:.4g}x{one.spacing[1]:.4g} mm"
    words = [f"{one.shape[1]}x{one.shape[0]} pixels{spacing}"] if min(one.shape) else []
    if one.place is not None:
        side = int(np.abs(one.normal).argmax())
        about = "" if abs(one.normal[side]) > 1 - MAX_ANGLE else "nearly "
        words.append(about + ("sagittal", "coronal", "axial")[side])
    return ", ".join([*words, *([one.kind] if one.kind else [])])


def list_groups(groups: Sequence[Sequence[Slice]], noun: str) -> str:
    """Return the groups with the numbers by which they are chosen."""
    shown = [f"{n} ({len(group)} {noun}: {describe(group[0])})" for n, group in enumerate(groups[:MAX_LISTED], 1)]
    return "choose one as PATH#stack=NUMBER: " + "; ".join(shown) + ("; …" if len(groups) > MAX_LISTED else "")


def choose(groups: Sequence[list[Slice]], stack: int | None) -> tuple[list[Slice], list[str]]:
    """Return the group of files that is meant, by its number or because it has more than half of all, and a note on
    what is left out."""
    if stack is not None and not 1 <= stack <= len(groups):
        raise ImageError(f"there is no stack {stack}; {list_groups(groups, 'files')}")
    if stack is None and 2 * len(groups[0]) <= sum(map(len, groups)):
        raise ImageError(
            f"its files are of {len(groups)} kinds, none of them more than half; {list_groups(groups, 'files')}"
        )
    chosen = groups[(stack or 1) - 1]
    return chosen, describe_left_out([members for members in groups if members is not chosen])


def describe_left_out(groups: Sequence[Sequence[Slice]]) -> list[str]:
    """Return a sentence for each group of files that is left out, and one for all beyond `MAX_LISTED`."""
    counts = [(len(members), describe(members[0])) for members in groups[:MAX_LISTED]]
    if more := sum(map(len, groups[MAX_LISTED:])):
        counts.append((more, "of other kinds"))
    return [f"{'1 file is' if count == 1 else f'{count} files are'} left out: {kind}" for count, kind in counts]


def arrange(slices: Sequence[Slice]) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of the slices of one group, and the affine of their stack.

    Raises:
        ImageError: they are not an even stack, or one for each of several time points.

    Returns:
        The numbers of the slices at each time point in the order of their places, (t, n); and (4, 4), from column, row
        and place in that order to millimeters in the patient.
    """
    normal = slices[0].normal
    times = _split_times(sorted(slices, key=lambda one: float(one.where[0] @ normal)), normal)
    step = _measure_step(np.array([one.where[0] for one in times[0]]), normal, times[0][0])
    return np.array([[one.number for one in members] for members in times]), _build_affine(times[0][0], step)


def _build_affine(first: Slice, step: np.ndarray) -> np.ndarray:
    affine = np.eye(4)
    x, y = first.spacing or (1.0, 1.0)
    affine[:3] = np.column_stack([first.where[1] * x, first.where[2] * y, step, first.where[0]])
    return affine


def _find_starts(places: np.ndarray) -> list[int]:
    """Return the index of the first slice at each place, of sorted places."""
    gaps = np.diff(places)
    same = np.clip(gaps.max(initial=0.0) / 100, *SAME_PLACE)
    return [0, *(int(index) + 1 for index in np.flatnonzero(gaps > same))]


def _split_times(slices: list[Slice], normal: np.ndarray) -> list[list[Slice]]:
    """Return the slices of each time point; one stack if no two lie at the same place.

    Time points are told apart by the first of their numbers that has as many values as there are slices at a place, and
    each of them once at every place.

    Args:
        slices: sorted by their place.
        normal: the direction in which the places grow.
    """
    starts = _find_starts(np.array([one.where[0] @ normal for one in slices]))
    if len(starts) == len(slices):
        return [slices]
    groups = [slices[start:stop] for start, stop in zip(starts, [*starts[1:], len(slices)], strict=True)]
    for name in slices[0].times:
        by_time = [{one.times.get(name): one for one in group} for group in groups]
        times = sorted(time for time in by_time[0] if time is not None)
        if all(len(one) == len(group) and one.keys() == set(times) for one, group in zip(by_time, groups, strict=True)):
            return [[one[time] for one in by_time] for time in times]
    most = max(groups, key=len)
    named = " and ".join(one.name for one in most[:2])
    told = f"time points must have a {' or '.join(slices[0].times) or 'number'} each, and the same number of slices"
    raise ImageError(
        f"up to {len(most)} slices lie at the same place, such as {named}: these are several stacks; {told}"
    )


def _measure_step(positions: np.ndarray, normal: np.ndarray, first: Slice) -> np.ndarray:
    """Return the way from one slice to the next in mm; of a single slice, through it."""
    if len(positions) == 1:
        return normal * (first.thickness or (1.0,))[0]
    gaps = np.diff(positions @ normal)
    usual, step = float(np.median(gaps)), (positions[-1] - positions[0]) / (len(positions) - 1)
    off = positions - positions[0] - np.arange(len(positions))[:, None] * step
    along = off @ normal
    if np.abs(gaps - usual).max() > MAX_UNEVENNESS * usual or np.abs(along).max() > usual / 2:
        raise ImageError(f"slices lie {gaps.min():.2f} to {gaps.max():.2f} mm apart: at least one is missing")
    aside = float(np.linalg.norm(off - along[:, None] * normal, axis=1).max())
    if aside > max(MAX_UNEVENNESS * usual, min(first.spacing or (1.0,)) / 2):
        raise ImageError(f"slices are shifted sideways, unevenly, by up to {aside:.2f} mm")
    return np.asarray(step)


def arrange_sparse(slices: Sequence[Slice]) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each slice in an even stack that may have gaps, from 0, and the affine of that stack.

    Places are as far apart as the slices say, or else as the two nearest of them, if all gaps are multiples of that.
    """
    first = min(slices, key=lambda one: float(one.where[0] @ one.normal))
    ways = np.array([one.where[0] for one in slices]) - first.where[0]
    along = ways @ first.normal
    if np.linalg.norm(ways - along[:, None] * first.normal, axis=1).max() > min(first.spacing or (1.0,)) / 2:
        raise ImageError("slices are shifted sideways")
    there = np.sort(along)
    gaps = np.diff(there[_find_starts(there)])
    for distance in (*first.thickness, float(gaps.min()) if len(gaps) else 1.0):
        indices = np.rint(along / distance).astype(int)
        even = np.abs(along - indices * distance).max() <= MAX_UNEVENNESS * distance
        if even and len(np.unique(indices)) == len(gaps) + 1 and indices.max() < limits.MAX_FRAMES:
            return indices, _build_affine(first, first.normal * distance)
    raise ImageError(f"slices lie {gaps.min():.2f} to {gaps.max():.2f} mm apart, no multiples of one distance")
