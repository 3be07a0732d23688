"""Colors of another space than sRGB, which is what models and their processors take pixels for.

8-bit RGB with an ICC profile is converted. What else a file says of its colors is not applied, and a note says so:
values of deeper pixels and of gray ones stay as they are stored.
"""

import io
from contextlib import suppress
from typing import Any

import numpy as np
from PIL import ExifTags, Image

SRGB_LIKE = 3  # gray levels by which a profile may differ from sRGB
PRIMARIES = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)  # of sRGB, in the order of a PNG's cHRM
NAMED = ("color space",)  # key of what a reader of ours adds to the info of a picture; no text of a file has it
STRIP = 2**22  # pixels converted at a time
LATTICE = np.stack(np.meshgrid(*[np.arange(0, 256, 51, dtype=np.uint8)] * 3), -1).reshape(-1, 12, 3)


def find_conversion(profile: bytes | None, convertible: bool = True) -> tuple[Any, tuple[str, ...]]:
    """Return Pillow's transform from an ICC profile to sRGB, None if there is nothing to do, and what is to be said.

    `convertible`: whether the pixels are RGB of 8 bits.
    """
    if not profile:
        return None, ()
    from PIL import ImageCms

    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if (space := given.profile.xcolor_space.strip()) == "RGB":
            transform = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), "RGB", "RGB")
            moved = np.abs(convert(LATTICE, transform).astype(int) - LATTICE).max()
            if moved <= SRGB_LIKE:
                return None, ()
            if convertible:
                return transform, ("colors are converted to sRGB from the color profile of the file",)
    except Exception as error:  # LittleCMS and Pillow raise anything for a damaged profile
        space = f"damaged, {type(error).__name__}"
    return None, (f"the color profile of the file ({space}) is not applied: values are as they are stored",)


def convert(pixels: np.ndarray, transform: Any) -> np.ndarray:
    """Return uint8 (h, w, 3) or (h, w, 4), whose first three channels are converted."""
    from PIL import ImageCms

    if transform is None:
        return pixels
    converted = pixels.copy()
    rows = max(1, STRIP // pixels.shape[1])
    for top in range(0, len(pixels), rows):
        strip = Image.fromarray(np.ascontiguousarray(pixels[top : top + rows, :, :3]))
        converted[top : top + rows, :, :3] = np.asarray(ImageCms.applyTransform(strip, transform))
    return converted


def read_colors(image: Image.Image, *, convertible: bool = True) -> tuple[Any, tuple[str, ...]]:
    """`find_conversion` of a picture as Pillow opens it; without a profile, what PNG, BMP and EXIF say instead."""
    info = image.info
    if info.get("icc_profile"):
        return find_conversion(info["icc_profile"], convertible and image.mode in ("RGB", "RGBA", "P", "PA"))
    named = info.get(NAMED) or ("" if "srgb" in info else _find_gamma(info) or _find_in_exif(image))
    said = f"the color space that the file names ({named}) is not sRGB, and is not applied"
    return None, (said,) if named else ()


def _find_gamma(info: dict[Any, Any]) -> str:
    """Return what the chunks gAMA and cHRM of a PNG say, if that is not sRGB; a text of that name is none."""
    gamma, primaries = info.get("gamma"), info.get("chromaticity")
    if isinstance(gamma, float) and abs(gamma - 1 / 2.2) > 0.01:
        return f"gamma {gamma:.4g}"
    other = isinstance(primaries, tuple) and not np.allclose(primaries, PRIMARIES, atol=0.01)
    return "primaries of its own" if other else ""


def _find_in_exif(image: Image.Image) -> str:
    with suppress(Exception):  # what EXIF holds may be damaged
        exif = image.getexif()
        space, index = exif.get_ifd(ExifTags.IFD.Exif).get(0xA001), exif.get_ifd(ExifTags.IFD.Interop).get(1)
        return "Adobe RGB" if space == 2 or index == "R03" else "uncalibrated" if space == 0xFFFF else ""
    return ""
