"""How large an image may be. Asked with the numbers of a header, before anything is decoded."""

from viewbox.errors import ImageError

MAX_BYTES = 2**30  # of one image or volume, decoded: 20000 x 20000 pixels of 16 bits fit, in RGB about 16000 x 16000
MAX_FILE = 2**31  # bytes of a file
MAX_URL = 2**26  # characters of a data URL
MAX_FRAMES = 4096  # of an animation, a multi-page file or a series


def check(shape: tuple[int, ...], itemsize: int, *, frames: int = 1) -> None:
    """Raises `ImageError` where an array of that shape would be empty or larger than `MAX_BYTES`.

    >>> check((100_000, 100_000), 1)
    Traceback (most recent call last):
    viewbox.errors.ImageError: 100000x100000 pixels need 9.3 GiB; allowed: 1.0 GiB
    """
    total = itemsize * frames
    for side in shape:
        if side < 1:
            raise ImageError(f"{_words(shape, frames)}: nothing to show")
        total *= side
    if frames > MAX_FRAMES:
        raise ImageError(f"{frames} frames; allowed: {MAX_FRAMES}")
    if total > MAX_BYTES:
        raise ImageError(f"{_words(shape, frames)} need {total / 2**30:.1f} GiB; allowed: {MAX_BYTES / 2**30:.1f} GiB")


def _words(shape: tuple[int, ...], frames: int) -> str:
    sides = "x".join(str(side) for side in reversed(shape))
    return f"{frames} frames of {sides} pixels" if frames > 1 else f"{sides} {'pixels' if len(shape) < 3 else 'voxels'}"
