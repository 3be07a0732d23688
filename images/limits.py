"""How large an image may be. Checked against the numbers of a header, before anything is decoded."""

from collections.abc import Sequence

from viewbox.errors import ImageError

MAX_BYTES = 2**30  # of one image or volume, decoded: 20000 x 20000 pixels of 16 bits fit, in RGB about 16000 x 16000
MAX_FILE = 2**31  # bytes of a file
MAX_URL = 2**26  # characters of a data URL
MAX_FRAMES = 4096  # of an animation, a multi-page file or a series


def check_size(shape: Sequence[int], itemsize: int, *, frames: int = 1) -> None:
    """Check that an array is not empty and not larger than `MAX_BYTES`.

    Args:
        shape: the sides in the order of the array: (height, width[, 3]) or (z, y, x).
        itemsize: bytes of a value.
        frames: how many arrays of that shape there are.

    Raises:
        ImageError: a side is 0, there are more than `MAX_FRAMES` frames, or together they are too large.

    >>> check_size((100_000, 100_000), 1)
    Traceback (most recent call last):
    viewbox.errors.ImageError: 100000x100000 pixels need 9.3 GiB; allowed: 1.0 GiB
    """
    total = itemsize * frames
    for side in shape:
        if side < 1:
            raise ImageError(f"{_describe_shape(shape, frames)}: nothing to show")
        total *= side
    if frames > MAX_FRAMES:
        raise ImageError(f"{frames} frames; allowed: {MAX_FRAMES}")
    if total > MAX_BYTES:
        size, allowed = total / 2**30, MAX_BYTES / 2**30
        raise ImageError(f"{_describe_shape(shape, frames)} need {size:.1f} GiB; allowed: {allowed:.1f} GiB")


def _describe_shape(shape: Sequence[int], frames: int) -> str:
    sides = "x".join(str(side) for side in reversed(shape))
    return f"{frames} frames of {sides} pixels" if frames > 1 else f"{sides} {'pixels' if len(shape) < 3 else 'voxels'}"
