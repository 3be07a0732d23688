"""Pictures as the bytes of files, and files damaged at random."""

import io
import random

import numpy as np
from PIL import Image

from viewbox.errors import ImageError
from viewbox.images.files import open_image

RANDOM = np.random.default_rng(0)
GRAY = RANDOM.integers(0, 256, (12, 17), dtype=np.uint8)
COLOR = RANDOM.integers(0, 256, (12, 17, 3), dtype=np.uint8)
DEEP = RANDOM.integers(0, 65536, (12, 17), dtype=np.uint16)


def saved(picture, kind, **options):
    """The bytes of a file of this kind that Pillow writes."""
    picture = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def save_film(path, pixels, bits, window=None, *, inverted=False):
    """Save a radiograph as DICOM; with `inverted` as MONOCHROME1, which looks the same."""
    from tests.support.odd_images import dicom  # with the libraries of every format, which others do not need

    stored = (2**bits - 1 - pixels if inverted else pixels).astype(np.uint16)
    shown = {"PhotometricInterpretation": "MONOCHROME1" if inverted else "MONOCHROME2", "BitsStored": bits}
    if window:
        shown |= {"WindowCenter": (window[0] + window[1]) / 2, "WindowWidth": window[1] - window[0]}
    return str(dicom(path, stored, "DX", **shown))


def npy(array):
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def same(source, expected):
    """Whether a source holds exactly these pixels."""
    return source.pixels.dtype == expected.dtype and np.array_equal(source.pixels, expected)


def damage(content, seed, reaches):
    """The bytes cut off at a random place, or with some of them changed among the first of `reaches`, or anywhere."""
    chance = random.Random(seed)
    content = bytearray(content)
    if chance.random() < 0.3:
        del content[chance.randrange(len(content)) :]
    else:
        reach = min(len(content), chance.choice([*reaches, len(content)]))
        for _ in range(chance.choice([1, 3, 20])):
            content[chance.randrange(reach)] = chance.choice([0, 127, 128, 255, chance.randrange(256)])
    return bytes(content)


def open_damaged(content):
    """Whether a damaged file opens or is refused by the reader, and none of its decoders crashes."""
    try:
        open_image(content)
    except ImageError as error:
        return "crashed" not in str(error)
    return True
