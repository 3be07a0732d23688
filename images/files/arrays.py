"""Arrays as native pixels: one of four depths, every value finite, and the range that is shown.

8 and 16 bits stay. Wider integers become 16 bits where all values fit, else float32; float64 becomes float32. Where
that would change a value by more than a thousandth of the range of all of them, the array is refused, not spoiled.
"""

import ast
from typing import Any, BinaryIO

import numpy as np

from viewbox.errors import ImageError
from viewbox.images.files import limits
from viewbox.images.source import DEPTHS, Source

SHAPES = "(h, w), (h, w, 1), (h, w, 3) or (h, w, 4)"
LOSS = 1e-3  # of the range of all values, by which float32 may differ from what was given


def of_array(pixels: np.ndarray, **about: Any) -> Source:
    """The source of an array of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4), of booleans, integers or floats.

    8 bits are shown as they are, other depths from the lowest to the highest finite value; NaN counts as the lowest.
    A fourth channel is opacity, over black: up to 255, 65535, or 1.0 in floats.

    >>> of_array(np.array([[0.0, np.nan, 2.0]])).pixels.tolist()
    [[0.0, 0.0, 2.0]]
    """
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))):
        raise ImageError(f"array of shape {pixels.shape}; allowed: {SHAPES}")
    if pixels.size == 0:
        raise ImageError(f"array of shape {pixels.shape}: nothing to show")
    limits.check(pixels.shape, min(pixels.dtype.itemsize, 4))
    if pixels.ndim == 3 and pixels.shape[2] == 4:
        pixels = _over_black(pixels)
    pixels, display = settled(pixels)
    return Source(pixels, **{"display": display, **about})


def settled(values: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """(`values` in a native depth and finite, the range shown); of any shape. Never writes to what was given."""
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255), (0.0, 255.0)
    if values.dtype.kind not in "iuf":
        raise ImageError(f"values of type {values.dtype}; allowed: booleans, integers and floats")
    if values.dtype == np.uint8:
        return values, (0.0, 255.0)
    if values.dtype.kind == "f":
        return _floats(values)
    low, high = int(values.min()), int(values.max())
    return integers(values, low, high), (float(low), float(high))


def integers(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Integers from `low` to `high` as they are where 8 or 16 bits, else in 16 bits where they fit, else float32."""
    if values.dtype.newbyteorder("=").name in DEPTHS:
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    for depth in (np.int16, np.uint16):
        if np.iinfo(depth).min <= low and high <= np.iinfo(depth).max:
            return values.astype(depth)
    return _checked(values, float(low), float(high))


def linear(stored: np.ndarray, slope: float, intercept: float) -> np.ndarray:
    """`stored · slope + intercept` in a native depth: exact integers where both are whole, else float32.

    >>> linear(np.array([[0, 4095]], np.uint16), 1, -1024).tolist()
    [[-1024, 3071]]
    """
    if not (np.isfinite(slope) and np.isfinite(intercept)):
        raise ImageError("the scale of its values is not finite")
    if (slope, intercept) == (1, 0):
        return settled(stored)[0]
    if stored.dtype.kind in "iu" and slope == int(slope) and intercept == int(intercept):
        ends = [int(end) * int(slope) for end in (stored.min(), stored.max())]
        low, high = min(ends) + int(intercept), max(ends) + int(intercept)
        if max(map(abs, (*ends, low, high))) < 2**31:
            whole = stored.astype(np.int32)
            whole *= np.int32(slope)
            whole += np.int32(intercept)
            return integers(whole, low, high)
    scaled = np.empty(stored.shape, np.float32)
    with np.errstate(all="ignore"):
        for row in range(len(stored)):  # float64 only a part at a time
            scaled[row] = stored[row].astype(np.float64) * slope + intercept
    return settled(scaled)[0]


def _floats(values: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    low, high = float(values.min()), float(values.max())  # NaN, if any value is
    if np.isfinite(low) and np.isfinite(high):
        return _checked(values, low, high), (low, high)
    finite = np.isfinite(values)
    if not finite.any():
        raise ImageError("no value is finite: nothing to show")
    low = float(values.min(where=finite, initial=np.inf))
    high = float(values.max(where=finite, initial=-np.inf))
    return _checked(np.nan_to_num(values, nan=low, neginf=low, posinf=high), low, high), (low, high)


def _checked(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """As float32; raises `ImageError` where it cannot tell the values apart."""
    if values.dtype == np.float32:
        return values.astype(np.float32, copy=False)  # in this machine's byte order
    step = float(np.spacing(np.float32(min(max(abs(low), abs(high)), 3e38))))
    if max(abs(low), abs(high)) > np.finfo(np.float32).max or (high > low and step > LOSS * (high - low)):
        raise ImageError(f"{values.dtype} values from {low:g} to {high:g} are lost in float32; give them another scale")
    return values.astype(np.float32)


def _over_black(pixels: np.ndarray) -> np.ndarray:
    full = {"u1": 255, "u2": 65535}.get(pixels.dtype.str[1:], 1 if pixels.dtype.kind in "fb" else None)
    if full is None:
        raise ImageError(f"four channels of {pixels.dtype}; allowed: uint8, uint16 and floats")
    opaque = pixels[:, :, :3] * (pixels[:, :, 3:].astype(np.float32) / full)
    return opaque if pixels.dtype.kind == "f" else np.rint(opaque).astype(pixels.dtype)


def read_npy(file: BinaryIO) -> Source:
    """A .npy file; its shape is checked before its values are read, and pickled objects are never loaded."""
    version = np.lib.format.read_magic(file)
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if not 0 < length < 10_000:
        raise ImageError("the header of the .npy file is damaged")
    header = ast.literal_eval(file.read(length).decode("latin1"))
    shape, dtype = tuple(header["shape"]), np.dtype(header["descr"])
    if dtype.kind not in "biuf" or not all(isinstance(side, int) for side in shape):
        raise ImageError(f"a .npy file of {str(dtype)[:40]}; allowed: booleans, integers and floats")
    if len(shape) not in (2, 3):
        raise ImageError(f"array of shape {str(shape)[:60]}; allowed: {SHAPES}")
    limits.check(shape, dtype.itemsize)
    content = exactly(file, int(np.prod(shape)) * dtype.itemsize)
    pixels = np.frombuffer(content, dtype)
    return of_array(pixels.reshape(shape, order="F" if header["fortran_order"] else "C"))


def exactly(file: BinaryIO, count: int) -> bytes:
    """The next `count` bytes; raises `ImageError` where there are fewer."""
    content = file.read(count)
    if len(content) < count:
        raise ImageError(f"the file is cut short: {len(content)} of {count} bytes of pixels")
    return content
