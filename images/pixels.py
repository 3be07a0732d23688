"""Pixels in memory, of NumPy or Pillow, as native pixels: one of four depths, and one value for "not measured".

8 and 16 bits stay as they are. Wider integers become 16 bits if all values fit, else float32; float64 becomes float32.
If that would change a value by more than a thousandth of the range of all values, the array is refused. NaN and
infinities are no measurement, nor is what a file calls padding.
"""

import io
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from PIL import ExifTags, Image

from ..errors import ImageError

DEPTHS = ("uint8", "uint16", "int16", "float32")
CODES = {np.dtype(name).str[1:]: name for name in DEPTHS}  # quicker to ask for than a name: "u2" of any byte order
SHAPES = "(h, w), (h, w, 1), (h, w, 3) or (h, w, 4)"
MAX_LOSS = 1e-3  # largest change by float32, as a share of the range of all values
STRIP = 2**22  # pixels copied at a time
FAINT = 0.25  # opacity up to which a pixel counts as invisible
OPAQUE = "it is transparent everywhere, but its colors differ: opacity is left out"
LIGHTNESS = {2: np.ones(1, np.float32), 4: np.array([0.299, 0.587, 0.114], np.float32)}  # by channels (ITU-R BT.601)
ORIENTATION = 0x0112  # EXIF tag
WHITE_IS_ZERO = 262, 0  # a TIFF's PhotometricInterpretation, and its value

Range = tuple[float, float]


class Native(NamedTuple):
    """Native pixels of any shape."""

    pixels: np.ndarray  # of a type in `DEPTHS`
    display: Range  # the values shown as black and as white: 0 and 255 for 8 bits, else the lowest and the highest
    blank: float | None = None  # the value of pixels that were not measured: NaN in floats; None if all were
    ground: float | None = None  # the value on which transparent pixels were laid, if that was not black
    notes: tuple[str, ...] = ()  # what was taken otherwise than it is stored


def to_native_pixels(image: np.ndarray | Image.Image) -> Native:
    """Convert an image in memory to native pixels and the range of values that is shown.
    8 bits are shown as they are, other depths from the lowest to the highest finite value, and colors from 0. A fourth
    channel is opacity, up to 255, 65535, or 1.0 in floats: see `lay_on_ground`.

    Args:
        image: of any Pillow mode, or an array of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) of booleans, integers
            or floats. Never written to; the result may share its memory.

    Raises:
        ImageError: another shape or type, no pixels at all, or values that float32 cannot tell apart.

    >>> to_native_pixels(np.array([[1.0, np.inf, 2.0]]))
    Native(pixels=array([[ 1., nan,  2.]], dtype=float32), display=(1.0, 2.0), blank=nan, ground=None, notes=())
    """
    ground, notes = None, tuple[str, ...]()
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise ImageError(f"image of {image.width}x{image.height} pixels: nothing to show")
        image, ground, notes = pillow_to_array(image)
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))):
        raise ImageError(f"array of shape {image.shape}; allowed: {SHAPES}")
    if image.size == 0:
        raise ImageError(f"array of shape {image.shape}: nothing to show")
    if image.ndim == 3 and image.shape[2] == 4:
        image, ground, notes = lay_on_ground(image)
    native = to_native_dtype(image)._replace(notes=notes, ground=float(_get_full(image.dtype)) if ground else None)
    if image.ndim == 3 and native.pixels.dtype != np.uint8:  # colors keep their hue
        native = native._replace(display=(min(0.0, native.display[0]), native.display[1]))
    return native


def to_native_dtype(values: np.ndarray) -> Native:
    """Convert values of any shape to a native depth."""
    if values.dtype == np.bool_:
        return Native(values.astype(np.uint8) * np.uint8(255), (0.0, 255.0))
    if values.dtype.kind not in "iuf":
        raise ImageError(f"values of type {values.dtype}; allowed: booleans, integers and floats")
    if values.dtype == np.uint8:
        return Native(values, (0.0, 255.0))
    if values.dtype.kind == "f":
        return _to_float32(values)
    low, high = int(values.min()), int(values.max())
    return Native(fit_integers(values, low, high), (float(low), float(high)))


def mark_blank(values: np.ndarray, missing: np.ndarray) -> Native:
    """Return native values in which those that are `missing` hold one value that no other pixel has.
    Integers keep their depth if it has such a value; 8 bits become int16, others float32, if it has none.

    >>> mark_blank(np.array([[-2000, 5, 9]], np.int16), np.array([[True, False, False]]))
    Native(pixels=array([[4, 5, 9]], dtype=int16), display=(5.0, 9.0), blank=4.0, ground=None, notes=())
    """
    if missing.all():
        raise ImageError("every pixel is padding: nothing was measured")
    low, high = find_range(values, ~missing)
    depth, blank = pick_blank(values.dtype, low, high)
    marked = values.astype(depth, copy=not values.flags.writeable)
    marked[missing] = blank
    return Native(marked, (0.0, 255.0) if depth == np.uint8 else (low, high), blank)


def find_range(values: np.ndarray, there: np.ndarray) -> Range:
    """Return the lowest and the highest finite value `there` (booleans); the first is higher if there are none."""
    ends = np.finfo(values.dtype) if values.dtype.kind == "f" else np.iinfo(values.dtype)
    return float(values.min(where=there, initial=ends.max)), float(values.max(where=there, initial=ends.min))


def pick_blank(depth: np.dtype[Any], low: float, high: float) -> tuple[np.dtype[Any], float]:
    """Return a value that lies outside of the measured ones of a type, and a type that has it, the same if it can."""
    if depth.kind == "f":
        return depth, math.nan
    ends = np.iinfo(depth)
    blank = low - 1 if low > ends.min else high + 1
    if blank <= ends.max:
        return depth, blank
    return (np.dtype(np.int16), -1.0) if depth == np.uint8 else (np.dtype(np.float32), math.nan)


def fit_integers(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Convert integers from `low` to `high`: 8 and 16 bits stay, others become 16 bits if they fit, else float32."""
    if values.dtype.newbyteorder("=").name in DEPTHS:
        return values.astype(values.dtype.newbyteorder("="), copy=False)
    for depth in (np.int16, np.uint16):
        if np.iinfo(depth).min <= low and high <= np.iinfo(depth).max:
            return values.astype(depth)
    return _to_float32(values).pixels


def rescale(stored: np.ndarray, slope: float, intercept: float) -> Native:
    """Compute `stored · slope + intercept` in a native depth: exact integers if both are whole, else float32.

    >>> rescale(np.array([[0, 4095]], np.uint16), 1, -1024).pixels.tolist()
    [[-1024, 3071]]
    """
    if not (np.isfinite(slope) and np.isfinite(intercept)):
        raise ImageError("the scale of its values is not finite")
    if (slope, intercept) == (1, 0):
        return to_native_dtype(stored)
    if stored.dtype.kind in "iu" and slope == int(slope) and intercept == int(intercept):
        ends = [int(end) * int(slope) for end in (stored.min(), stored.max())]
        low, high = min(ends) + int(intercept), max(ends) + int(intercept)
        if max(map(abs, (*ends, low, high))) < 2**31:
            depth = fit_integers(np.array([low, high]), low, high).dtype
            whole = np.empty(stored.shape, depth)
            for rows, block in _split(stored):
                whole[rows] = block.astype(np.int32) * np.int32(slope) + np.int32(intercept)
            return Native(whole, (0.0, 255.0) if depth == np.uint8 else (float(low), float(high)))
    scaled = np.empty(stored.shape, np.float32)
    with np.errstate(all="ignore"):
        for rows, block in _split(stored):  # float64 only a part at a time
            scaled[rows] = block.astype(np.float64) * slope + intercept
    return to_native_dtype(scaled)


def _split(values: np.ndarray) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
    """Yield the parts of an array along its first two axes, of about `STRIP` values, and where they are."""
    inner = math.prod(values.shape[2:])
    rows = max(1, STRIP // (inner * values.shape[1]))
    columns = values.shape[1] if rows > 1 else max(1, STRIP // inner)
    for top in range(0, values.shape[0], rows):
        for left in range(0, values.shape[1], columns):
            place = slice(top, top + rows), slice(left, left + columns)
            yield place, values[place]


def _to_float32(values: np.ndarray) -> Native:
    low, high, blank = float(values.min()), float(values.max()), None  # NaN if any value is NaN
    if not (np.isfinite(low) and np.isfinite(high)):
        finite, blank = np.isfinite(values), math.nan
        if not finite.any():
            raise ImageError("no value is finite: nothing to show")
        low, high = find_range(values, finite)
    _check_float32(values.dtype, low, high)
    converted = values.astype(np.float32, copy=blank is not None)  # in this machine's byte order
    if blank is not None:
        converted[np.isinf(converted)] = blank
    return Native(converted, (low, high), blank)


def _check_float32(dtype: np.dtype[Any], low: float, high: float) -> None:
    """Raise `ImageError` if float32 cannot tell values of a type from `low` to `high` apart."""
    if dtype.newbyteorder("=") == np.float32:
        return
    step = float(np.spacing(np.float32(min(max(abs(low), abs(high)), 3e38))))
    if max(abs(low), abs(high)) > np.finfo(np.float32).max or (high > low and step > MAX_LOSS * (high - low)):
        raise ImageError(f"{dtype} values from {low:g} to {high:g} are lost in float32; give them another scale")


def lay_on_ground(pixels: np.ndarray, *, associated: bool = False) -> tuple[np.ndarray, int | None, tuple[str, ...]]:
    """Return transparent pixels, (h, w, 2) or (h, w, 4) with opacity last, as they look on their ground, the ground
    (see `_choose_ground`), and notes. `associated`: the colors are stored times the opacity."""
    full, ground = _get_full(pixels.dtype), _choose_ground(pixels)
    depth = np.result_type(pixels.dtype, np.float32) if pixels.dtype.kind == "f" else pixels.dtype
    laid = np.empty((*pixels.shape[:2], pixels.shape[2] - 1), depth)
    for place, block in _split(pixels):
        color = block[:, :, :-1]
        if ground is not None and block[:, :, -1].min() < full:
            opacity = block[:, :, -1:].astype(np.float32) / full
            mixed = color * (1 if associated else opacity) + (1 - opacity) * (ground * full)
            color = mixed if depth.kind == "f" else np.rint(mixed)
        laid[place] = color
    return laid[:, :, 0] if laid.shape[2] == 1 else laid, ground, (OPAQUE,) * (ground is None)


def _choose_ground(pixels: np.ndarray) -> int | None:
    """Return what lies under a transparent picture: 1 for white, as the processors of VLMs have it, or 0 for black if
    all that can be seen is lighter than mid gray and would vanish on white, or if nothing is transparent. None if
    nothing can be seen although colors differ: some programs leave opacity empty."""
    full, lightest = _get_full(pixels.dtype), math.inf
    if pixels[:, :, -1].min() >= full:
        return 0
    for _, block in _split(pixels):
        light = block[:, :, :-1] @ LIGHTNESS[block.shape[2]]
        lightest = min(lightest, light.min(where=block[:, :, -1] > FAINT * full, initial=math.inf) / full)
        if lightest <= 0.5:
            return 1
    if lightest < math.inf:
        return 0
    return None if (pixels[:, :, :-1] != pixels[:1, :1, :-1]).any() else 1


def _get_full(dtype: np.dtype[Any]) -> int:
    """Return the opacity that lets nothing through."""
    full = {"u1": 255, "u2": 65535}.get(dtype.str[1:], 1 if dtype.kind in "fb" else None)
    if full is None:
        raise ImageError(f"four channels of {dtype}; allowed: uint8, uint16 and floats")
    return full


def pillow_to_array(image: Image.Image) -> tuple[np.ndarray, int | None, tuple[str, ...]]:
    """Return a Pillow image of any mode as (h, w) if it is gray, else (h, w, 3), turned upright by EXIF, in sRGB;
    the ground on which it was laid (0 for black, 1 for white, None if nothing is transparent); and notes. Deep stays
    deep."""
    pixels, ground, notes = np.asarray(_convert(image)), None, tuple[str, ...]()
    if _is_transparent(image):
        pixels, ground, notes = lay_on_ground(pixels)
    deep = pixels.dtype.kind == "u" and pixels.dtype.itemsize == 2
    if deep and getattr(image, "tag_v2", {}).get(WHITE_IS_ZERO[0]) == WHITE_IS_ZERO[1]:
        pixels = 65535 - pixels  # Pillow does this for 8 bits only
    pixels, said = to_srgb(pixels, image.info.get("icc_profile"))
    return turn_upright(pixels, image.getexif().get(ORIENTATION, 1)), ground, (*notes, *said, *name_space(image))


def turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Return a view of pixels stored in an EXIF orientation as they are shown; `ImageOps.exif_transpose` copies."""
    turned = np.swapaxes(pixels, 0, 1) if orientation in (5, 6, 7, 8) else pixels
    if orientation in (2, 3, 6, 7):
        turned = turned[:, ::-1]
    return turned[::-1] if orientation in (3, 4, 7, 8) else turned


def _is_transparent(image: Image.Image) -> bool:
    return image.has_transparency_data and image.mode not in ("I", "F") and not image.mode.startswith("I;16")


def _convert(image: Image.Image) -> Image.Image:
    mode = image.mode
    if _is_transparent(image):
        mode = "LA" if mode in ("1", "L", "LA", "La") else "RGBA"
    elif mode == "1":
        mode = "L"
    elif mode not in ("L", "RGB", "I", "F") and not mode.startswith("I;16"):
        mode = "RGB"
    return image if mode == image.mode else image.convert(mode)  # which copies


# Models and their processors take pixels for sRGB. 8-bit RGB with an ICC profile is converted. What else a file says of
# its colors is not applied, and a note says so: values of deeper pixels and of gray ones stay as they are stored.
ALIKE = 3  # gray levels by which a profile may differ from sRGB
PRIMARIES = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)  # of sRGB, in the order of a PNG's cHRM
NAMED = (-1, -1)  # key of what a reader of ours adds to the info of a picture; no text of a file has it
LATTICE = np.stack(np.meshgrid(*[np.arange(0, 256, 51, dtype=np.uint8)] * 3), -1).reshape(-1, 12, 3)


def to_srgb(pixels: np.ndarray, profile: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return pixels, which are converted by an ICC profile if they are uint8 (…, h, w, 3), and what is to be said."""
    if not profile:
        return pixels, ()
    from PIL import ImageCms

    try:
        stored = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if (space := stored.profile.xcolor_space.strip()) == "RGB":
            transform = ImageCms.buildTransform(stored, ImageCms.createProfile("sRGB"), "RGB", "RGB")
            if np.abs(_transform_colors(LATTICE, transform).astype(int) - LATTICE).max() <= ALIKE:
                return pixels, ()
            if pixels.dtype == np.uint8 and pixels.ndim > 2 and pixels.shape[-1] == 3:
                return _transform_colors(pixels, transform), (
                    "colors are converted to sRGB by the color profile of the file",
                )
    except Exception as error:  # LittleCMS and Pillow raise anything for a damaged profile
        space = f"damaged, {type(error).__name__}"
    return pixels, (f"the color profile of the file ({space}) is not applied: values are as they are stored",)


def _transform_colors(pixels: np.ndarray, transform: Any) -> np.ndarray:
    converted = np.ascontiguousarray(pixels).reshape(-1, *pixels.shape[-2:]).copy()
    rows = max(1, STRIP // converted.shape[1])
    for top in range(0, len(converted), rows):
        strip = converted[top : top + rows]
        strip[:] = np.asarray(transform.apply(Image.fromarray(strip)))
    return converted.reshape(pixels.shape)


def name_space(image: Image.Image) -> tuple[str, ...]:
    """Return a note on the color space that PNG, BMP or EXIF name, if that is not sRGB and there is no profile."""
    info, named = image.info, ""
    gamma, primaries = info.get("gamma"), info.get("chromaticity")  # or a text of that name
    if isinstance(gamma, float) and abs(gamma - 1 / 2.2) > 0.01:
        named = f"gamma {gamma:.4g}"
    elif isinstance(primaries, tuple) and not np.allclose(primaries, PRIMARIES, atol=0.01):
        named = "primaries of its own"
    else:
        with suppress(Exception):  # what EXIF holds may be damaged
            exif = image.getexif()
            space, index = exif.get_ifd(ExifTags.IFD.Exif).get(0xA001), exif.get_ifd(ExifTags.IFD.Interop).get(1)
            named = "Adobe RGB" if space == 2 or index == "R03" else "uncalibrated" if space == 0xFFFF else ""
    named = info.get(NAMED) or named * ("srgb" not in info and not info.get("icc_profile"))
    return (f"the color space that the file names ({named}) is not sRGB, and is not applied",) if named else ()
