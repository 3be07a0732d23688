"""Stacks of slices that say where they lie: files of a series and frames of a file alike. Knows nothing of DICOM.

Slices of one size, orientation and spacing form a group. `arrange` sorts a group by place, splits it into time points,
and measures the step from one slice to the next, as a vector: a tilted scanner shifts each slice against the last one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Any, TypeVar

import numpy as np

from ...errors import ImageError
from .. import limits

MAX_ANGLE = 1e-3  # largest difference between the direction cosines of slices
MAX_UNEVENNESS = 0.1  # largest deviation from the usual distance of slices, as a share of it
SAME_SPACING = 1e-3  # difference of two spacings, as a share, that is rounding
SAME_PLACE = 1e-4, 0.01  # mm up to which two slices lie at one place: a hundredth of the largest gap, within these ends
MAX_LISTED = 20  # groups that are named one by one
SHOWN = ("M", "P", "R", "I", "MAGNITUDE", "PHASE", "REAL", "IMAGINARY", "WATER", "FAT", "IN_PHASE", "OUT_PHASE")
NOWHERE = np.full((3, 3), np.nan)


@dataclass(frozen=True, eq=False)
class Slice:
    """One picture and where it lies: the middle of its first pixel in mm (x to the patient's left, y to the back, z to
    the head), and unit vectors along its rows and down its columns, (3, 3); `NOWHERE` if it cannot be stacked."""

    name: str  # of its file or frame, in messages
    shape: tuple[int, int]  # (rows, columns)
    place: np.ndarray
    kind: str = ""  # what else slices of one stack share, in words; of a slice that cannot be stacked, why
    spacing: tuple[float, float] | None = None  # millimeters per pixel along x and y, if known
    thickness: tuple[float, ...] = ()  # millimeters from slice to slice, as it states them
    times: Mapping[str, float | str] = field(default_factory=dict)  # what may tell it from others at its place, by name
    number: int = 0  # of its frame
    segment: int = 1  # the number of what it shows, in a segmentation

    @property
    def placed(self) -> bool:
        return self.place is not NOWHERE

    @property
    def normal(self) -> np.ndarray:
        return np.cross(self.place[1], self.place[2])


S = TypeVar("S", bound=Slice)


def build_place(position: Sequence[float], directions: Sequence[float]) -> np.ndarray:
    """Return the place of a slice: `NOWHERE` without a position, or without two directions at right angles."""
    place = np.array([*position, *directions]).reshape(3, 3) if len(position) * len(directions) == 18 else NOWHERE
    return place if np.abs(place[1:] @ place[1:].T - np.eye(2)).max() <= 1e-2 else NOWHERE


def group(slices: Sequence[S]) -> list[list[S]]:
    """Return the slices that may be of one stack together, the largest group first."""
    groups: list[list[S]] = []
    for slice_ in slices:
        fitting = next((members for members in groups if _is_alike(members[0], slice_)), None)
        if fitting is None:
            groups.append([slice_])
        else:
            fitting.append(slice_)
    return sorted(groups, key=len, reverse=True)


def _is_alike(one: Slice, other: Slice) -> bool:
    return (
        (one.shape, one.kind, one.placed) == (other.shape, other.kind, other.placed)
        and np.allclose(one.spacing or (0, 0), other.spacing or (0, 0), rtol=SAME_SPACING, atol=0)
        and np.allclose(one.place[1:], other.place[1:], rtol=0, atol=MAX_ANGLE, equal_nan=True)
    )


def describe(one: Slice) -> str:
    """Return what the slices of a group have in common.

    >>> describe(Slice("", (30, 20), np.eye(3), "localizer", (1.0, 0.5)))
    '20x30 pixels of 1x0.5 mm, sagittal, localizer'
    """
    spacing = "" if one.spacing is None else f" of {one.spacing[0]:.4g}x{one.spacing[1]:.4g} mm"
    words = [f"{one.shape[1]}x{one.shape[0]} pixels{spacing}"] if min(one.shape) else []
    if one.placed:
        side = int(np.abs(one.normal).argmax())
        about = "" if abs(one.normal[side]) > 1 - MAX_ANGLE else "nearly "
        words.append(about + ("sagittal", "coronal", "axial")[side])
    return ", ".join([*words, *filter(None, [one.kind])])


def choose(groups: Sequence[list[S]], stack: int | None, noun: str, *, all_of_them: bool = False) -> list[S]:
    """Return group number `stack`, or else the one that has more than half of all slices, or all of them."""
    most = len(groups[0]) * (1 if all_of_them else 2) > sum(map(len, groups)) - all_of_them
    parts = groups if stack is None else [subset for members in groups for subset in _split_further(members)[0]]
    if most if stack is None else 1 <= stack <= len(parts):
        return parts[(stack or 1) - 1]
    what = f"there are {len(groups)} kinds of {noun}" if stack is None else f"there is no stack {stack}"
    raise ImageError(f"{what}; {_list_stacks(groups, noun)}")


def _split_further(members: list[S]) -> tuple[list[list[S]], tuple[str, ...]]:
    """Return the stacks of a group that is several, and what tells them apart; else the group."""
    parts, names, whole = split(members) if members[0].placed else ([members], (), True)
    return ([members], ()) if whole else (parts, names)


def _list_stacks(groups: Sequence[list[S]], noun: str) -> str:
    """Return the ways to choose a stack, as the end of an error message."""
    listed = [
        f"{len(subset)} {noun}: {', '.join([describe(subset[0]), *_describe_times(subset[0], names)])}"
        for parts, names in map(_split_further, groups)
        for subset in parts
    ]
    numbered = "; ".join(f"{n} ({words})" for n, words in enumerate(listed[:MAX_LISTED], 1))
    return f"choose one as PATH#stack=NUMBER: {numbered}{'; …' if len(listed) > MAX_LISTED else ''}"


def describe_left_out(groups: Sequence[Sequence[Slice]]) -> list[str]:
    """Return a sentence for each group of files that is left out, and one for all beyond `MAX_LISTED`."""
    counts = [(len(members), describe(members[0])) for members in groups[:MAX_LISTED]]
    counts += [(sum(map(len, groups[MAX_LISTED:])), "of other kinds")][: len(groups) - MAX_LISTED > 0]
    return [f"{'1 file is' if count == 1 else f'{count} files are'} left out: {kind}" for count, kind in counts]


def arrange(slices: Sequence[S]) -> tuple[list[list[S]], np.ndarray]:
    """Return the slices of one group by time point, in the order of their places, and (4, 4), from column, row and
    place in that order to millimeters in the patient. Raise `ImageError` if they are no even stack, or one for each
    time point."""
    if not slices[0].placed:
        raise ImageError(f"{describe(slices[0])}: no stack")
    normal = slices[0].normal
    times, _, whole = split(slices)
    if not whole:
        first, second = max(_group_by_place(slices), key=len)[:2]
        most = f"up to {len(times)} slices lie at the same place, such as {first.name} and {second.name}"
        told = f"nothing numbers them as time points of equal length; {_list_stacks([[*slices]], 'slices')}"
        raise ImageError(f"{most}: these are several stacks; {told}")
    return times, _build_affine(times[0][0], _measure_step(times[0], normal))


def describe_times(times: Sequence[Sequence[Slice]]) -> list[str]:
    """Return a sentence on what tells time points apart, unless they are numbered as such."""
    names = split([slice_ for time in times for slice_ in time])[1] if len(times) > 1 else ()
    if not names or names[0].startswith("Temporal"):
        return []
    listed = [" and ".join(_describe_times(time[0], names)) for time in times[:MAX_LISTED]]
    return [f"its time points differ: {', '.join(listed)}"]


def _describe_times(one: Slice, names: Sequence[str]) -> list[str]:
    """Return what a slice says under some names: numbers, and words that are known, for others may say anything."""

    def show(value: float | str | None) -> str:
        if isinstance(value, str):
            return " ".join(word for word in value.split() if word in SHOWN) or "other"
        return "none" if value is None else f"{value:g}"

    return [f"{name} {show(one.times.get(name))}" for name in names]


def _build_affine(first: Slice, step: np.ndarray) -> np.ndarray:
    x, y = first.spacing or (1.0, 1.0)
    upper = np.column_stack([first.place[1] * x, first.place[2] * y, step, first.place[0]])
    return np.vstack([upper, [0.0, 0.0, 0.0, 1.0]])


def _find_starts(places: np.ndarray) -> list[int]:
    """Return the index of the first slice at each place, of sorted places."""
    gaps = np.diff(places)
    same = np.clip(gaps.max(initial=0.0) / 100, *SAME_PLACE)
    return [0, *(int(index) + 1 for index in np.flatnonzero(gaps > same))]


def _group_by_place(slices: Sequence[S]) -> list[list[S]]:
    """Return the slices that lie at each place, in the order of places."""
    normal = slices[0].normal
    ordered = sorted(slices, key=lambda slice_: float(slice_.place[0] @ normal))
    starts = _find_starts(np.array([slice_.place[0] @ normal for slice_ in ordered]))
    return [ordered[start:stop] for start, stop in zip(starts, [*starts[1:], len(ordered)], strict=True)]


def split(slices: Sequence[S]) -> tuple[list[list[S]], tuple[str, ...], bool]:
    """Return stacks of slices in the order of their places, what tells the stacks apart, and if these are time points.
    They differ in none, one or two of what slices say, and none has two slices at one place. If nothing is like that,
    the first at each place make a stack, then the second ones, and so on: no time points."""
    places = _group_by_place(slices)
    where, most = {one: n for n, members in enumerate(places) for one in members}, max(map(len, places))
    names = dict.fromkeys(name for one in slices for name in one.times) if most > 1 else ()
    varying = [name for name in names if len({one.times.get(name) for one in slices}) > 1]
    ranks = {one: [(one.times.get(name) is not None, one.times.get(name) or 0) for name in varying] for one in where}
    for keys in chain.from_iterable(combinations(range(len(varying)), count) for count in range(3)):
        stacks: dict[tuple[Any, ...], list[S]] = {}
        for one in where:
            stacks.setdefault(tuple(ranks[one][key] for key in keys), []).append(one)
        if len(stacks) == most and all(len({where[one] for one in part}) == len(part) for part in stacks.values()):
            even = len(slices) == most * len(places)
            return [stacks[values] for values in sorted(stacks)], tuple(varying[key] for key in keys), even
    layers = [sorted(members, key=lambda one: (ranks[one], one.name)) for members in places]
    parts = [[one[n] for one in layers if n < len(one)] for n in range(most)]
    same = (name for name in varying if all(len({one.times.get(name) for one in part}) == 1 for part in parts))
    return parts, tuple(same), False


def _measure_step(slices: Sequence[Slice], normal: np.ndarray) -> np.ndarray:
    """Return the way from one slice to the next in mm; of a single slice, through it."""
    positions = np.array([slice_.place[0] for slice_ in slices])
    if len(slices) == 1:
        return normal * (slices[0].thickness or (1.0,))[0]
    gaps, step = np.diff(positions @ normal), (positions[-1] - positions[0]) / (len(slices) - 1)
    usual, off = float(np.median(gaps)), positions - positions[0] - np.arange(len(slices))[:, None] * step
    along = off @ normal
    if np.abs(gaps - usual).max() > MAX_UNEVENNESS * usual or np.abs(along).max() > usual / 2:
        raise ImageError(f"slices lie {gaps.min():.2f} to {gaps.max():.2f} mm apart: at least one is missing")
    aside = float(np.linalg.norm(off - along[:, None] * normal, axis=1).max())
    if aside > max(MAX_UNEVENNESS * usual, min(slices[0].spacing or (1.0,)) / 2):
        raise ImageError(f"slices are shifted sideways, unevenly, by up to {aside:.2f} mm")
    return np.asarray(step)


def arrange_sparse(slices: Sequence[Slice]) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each slice in an even stack that may have gaps, from 0, and its affine. Places are as far
    apart as the slices say, or else as the two nearest of them, if all gaps are multiples of that."""
    normal = slices[0].normal
    first = min(slices, key=lambda slice_: float(slice_.place[0] @ normal))
    ways = np.array([slice_.place[0] for slice_ in slices]) - first.place[0]
    along = ways @ normal
    gaps = np.diff(np.sort(along)[_find_starts(np.sort(along))])
    aside = float(np.linalg.norm(ways - along[:, None] * normal, axis=1).max())
    for distance in (*first.thickness, float(gaps.min()) if len(gaps) else 1.0):
        places = np.rint(along / distance).astype(int)
        off = max(aside, float(np.abs(along - places * distance).max()))
        told_apart = len(np.unique(places)) == len(gaps) + 1 and places.max() < limits.MAX_FRAMES
        if told_apart and off <= MAX_UNEVENNESS * distance:
            return places, _build_affine(first, normal * distance)
    raise ImageError(f"slices lie {gaps.min():.2f} to {gaps.max():.2f} mm apart, no multiples of one distance")
