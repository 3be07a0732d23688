"""How large an image may be, and what decoding it may cost.

Sizes are checked against the numbers of a header, before anything is decoded. Memory and time are limits of the process
that decodes (`viewbox.images.files.worker`).
"""

import math
from collections.abc import Sequence

from ..errors import ImageError

MAX_BYTES = 2**30  # of one image or volume, decoded: 20000 x 20000 pixels of 16 bits fit, in RGB about 16000 x 16000
MAX_TIMES = 2**28  # bytes of all time points of a volume together, beyond the first: more are not read
MAX_FILE = 2**31  # bytes of a file
MAX_URL = 2**26  # characters of a data URL
MAX_FRAMES = 4096  # of an animation, a multi-page file or a series
MAX_MEMORY = 2**32  # bytes that all images of this process take together while they are opened
PEAK = 4  # times its decoded bytes is what an image takes at most while it is opened
SMALL = 2**26  # bytes that an image takes without being counted; there are at most `MAX_WORKERS` such images at once
MAX_WORKERS = 8  # processes that decode, of this process
CPU_SECONDS = 10.0  # of decoding a file, and for each `BYTES_PER_SECOND` of memory it takes one more
BYTES_PER_SECOND = 2**25
WAIT = 6.0  # times as long a file may take by the clock: its disk may be slow, the machine busy


def check_size(shape: Sequence[int], itemsize: int, *, frames: int = 1) -> int:
    """Return the bytes of `frames` arrays of a shape, (height, width[, 3]) or (z, y, x). Raise `ImageError` if a side
    is 0, there are more than `MAX_FRAMES`, or together they are larger than `MAX_BYTES`.

    >>> check_size((100_000, 100_000), 1)
    Traceback (most recent call last):
    viewbox.errors.ImageError: 100000x100000 pixels need 9.3 GiB; allowed: 1.0 GiB
    """
    total = math.prod(shape) * itemsize * frames
    if min(*shape, itemsize, frames) < 1:
        raise ImageError(f"{_describe_shape(shape, frames)}: nothing to show")
    if frames > MAX_FRAMES:
        raise ImageError(f"{frames} frames; allowed: {MAX_FRAMES}")
    if total > MAX_BYTES:
        size, allowed = total / 2**30, MAX_BYTES / 2**30
        raise ImageError(f"{_describe_shape(shape, frames)} need {size:.1f} GiB; allowed: {allowed:.1f} GiB")
    return total


def estimate_size(shape: Sequence[int], itemsize: int, *, frames: int = 1) -> int:
    """Return the bytes of pixels whose values may become float32, of an array that has passed `check_size`.

    >>> estimate_size((1000, 2000), 2)
    8000000
    """
    return min(MAX_BYTES, math.prod(shape) * frames * max(itemsize, 4))


def get_cpu_seconds(memory: int = 0) -> float:
    """Processor seconds that a file may take, which needs `memory` bytes while it is opened."""
    return CPU_SECONDS + memory / BYTES_PER_SECOND


def _describe_shape(shape: Sequence[int], frames: int) -> str:
    sides = "x".join(str(side) for side in reversed(shape))
    return f"{frames} frames of {sides} pixels" if frames > 1 else f"{sides} {'pixels' if len(shape) < 3 else 'voxels'}"
