"""The pictures of a page as PNG files that this program wrote itself: no byte of a stored file reaches the browser."""

import io
from typing import Any

import numpy as np
from PIL import Image

from ..errors import ImageError
from ..images.ref import ImageRef
from ..records import Episode
from ..rollouts.store.layout import iter_images

SHOWN = ("L", "RGB", "RGBA", "LA")


def encode_picture(ref: ImageRef) -> bytes:
    """Return a stored picture as PNG; other modes than 8-bit ones are stretched to 8 bits, as a person looks at them.

    Raises:
        ImageError: it cannot be opened, or has not the pixels of its hash.
    """
    try:
        picture: Any = ref.open()
    except (ValueError, OSError) as error:
        raise ImageError(str(error)) from error
    if picture.mode not in SHOWN:
        picture = picture.convert("RGB") if picture.mode in ("P", "1", "CMYK", "YCbCr") else _stretch(picture)
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(picture)).save(buffer, "PNG", compress_level=1)  # without the file's own metadata
    return buffer.getvalue()


def list_pictures(episode: Episode) -> dict[str, ImageRef]:
    return {ref.hash: ref for ref in iter_images(episode)}


def _stretch(picture: Image.Image) -> Image.Image:
    values = np.asarray(picture).astype(np.float64)
    low, high = (float(np.nanmin(values)), float(np.nanmax(values))) if np.isfinite(values).any() else (0.0, 1.0)
    scaled = np.nan_to_num((values - low) / ((high - low) or 1.0) * 255)
    return Image.fromarray(np.clip(scaled, 0, 255).astype(np.uint8))
