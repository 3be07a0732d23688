"""Colors of another space than sRGB, which is what models and their processors take pixels for.

8-bit RGB with an ICC profile is converted. What else a file says of its colors is not applied, and a note says so:
values of deeper pixels and of gray ones stay as they are stored.
"""

import io
from contextlib import suppress
from typing import Any

import numpy as np
from PIL import ExifTags, Image

ALIKE = 3  # gray levels by which a profile may differ from sRGB
PRIMARIES = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)  # of sRGB, in the order of a PNG's cHRM
NAMED = (-1, -1)  # key of what a reader of ours adds to the info of a picture; no text of a file has it
STRIP = 2**22  # pixels converted at a time
LATTICE = np.stack(np.meshgrid(*[np.arange(0, 256, 51, dtype=np.uint8)] * 3), -1).reshape(-1, 12, 3)


def to_srgb(pixels: np.ndarray, profile: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return pixels, which are converted by an ICC profile if they are uint8 (…, h, w, 3), and what is to be said."""
    if not profile:
        return pixels, ()
    from PIL import ImageCms

    try:
        given = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if (space := given.profile.xcolor_space.strip()) == "RGB":
            transform = ImageCms.buildTransform(given, ImageCms.createProfile("sRGB"), "RGB", "RGB")
            if np.abs(_convert(LATTICE, transform).astype(int) - LATTICE).max() <= ALIKE:
                return pixels, ()
            if pixels.dtype == np.uint8 and pixels.ndim > 2 and pixels.shape[-1] == 3:
                return _convert(pixels, transform), ("colors are converted to sRGB by the color profile of the file",)
    except Exception as error:  # LittleCMS and Pillow raise anything for a damaged profile
        space = f"damaged, {type(error).__name__}"
    return pixels, (f"the color profile of the file ({space}) is not applied: values are as they are stored",)


def _convert(pixels: np.ndarray, transform: Any) -> np.ndarray:
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
