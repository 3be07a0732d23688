"""Random hostile files: `make_file(seed)` gives the bytes of one, `check_file(content)` checks what comes of them.

python -m tests.attacks.files.fuzz FIRST_SEED COUNT
"""

import random
import sys
from functools import cache

import numpy as np
from PIL import Image
from pydicom.data import get_testdata_file

from tests.attacks.files import makers
from viewbox.errors import ImageError
from viewbox.images.files import open_image
from viewbox.images.pixels import DEPTHS

DICOM = ("CT_small.dcm", "MR_small_RLE.dcm", "SC_rgb_jpeg_dcmtk.dcm", "MR_small_jp2klossless.dcm", "image_dfl.dcm",
         "examples_palette.dcm", "rtdose.dcm", "liver_1frame.dcm")  # fmt: skip
NUMBERS = (0, 1, 127, 128, 254, 255)
STRETCH = 64  # bytes that one change touches at most


@cache
def get_seeds() -> tuple[bytes, ...]:
    """Small files of every format, whole and good."""
    color, frames = makers.COLOR, {"save_all": True, "append_images": [Image.fromarray(255 - makers.COLOR)]}
    found = [makers.saved(color, kind) for kind in ("PNG", "JPEG", "TIFF", "BMP", "WEBP", "GIF")]
    found += [makers.saved(color, kind, **frames) for kind in ("PNG", "TIFF", "WEBP", "GIF")]
    deep = color[:, :, 0].astype(np.uint16) * 257
    found += [makers.saved(deep, "PNG"), makers.saved(deep, "TIFF", compression="tiff_lzw")]
    found += [makers.saved(color, "TIFF", compression="tiff_deflate"), makers.saved(color, "JPEG", progressive=True)]
    found += [makers.saved(Image.fromarray(color).convert("P"), "BMP"), makers.saved(color, "WEBP", lossless=True)]
    for name in DICOM:
        with open(str(get_testdata_file(name, download=False)), "rb") as file:
            found.append(file.read())
    found += [makers.raw_dicom(), makers.nifti(), makers.nifti(kind=makers.nibabel.Nifti2Image)]
    found.append(makers.npy("{'descr': '<f4', 'fortran_order': True, 'shape': (4, 4)}"))
    found += [makers.gzip.compress(makers.nifti())]
    return tuple(found)


def make_file(seed: int) -> bytes:
    """A good file with random damage: bytes and stretches changed, copied, cut out, put in, or taken from another."""
    chance = random.Random(seed)
    seeds = get_seeds()
    content = bytearray(chance.choice(seeds))
    reach = min(len(content), chance.choice([64, 400, 2000, len(content)]))  # headers are near the beginning
    for _ in range(chance.choice([1, 1, 2, 5, 30])):
        place, size = chance.randrange(max(1, min(reach, len(content)))), chance.randrange(1, STRETCH)
        kind = chance.randrange(8)
        if kind <= 2:
            content[place : place + 1] = bytes([chance.choice([*NUMBERS, chance.randrange(256)])])
        elif kind == 3:
            content[place : place + 4] = chance.choice(
                [b"\0\0\0\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f"]
            )
        elif kind == 4:
            del content[place : place + size]
        elif kind == 5:
            content[place:place] = content[place : place + size] * chance.choice([1, 2, 500])
        elif kind == 6:
            other = chance.choice(seeds)
            start = chance.randrange(len(other))
            content[place : place + size] = other[start : start + size]
        else:
            content[place : place + 1] = bytes([content[place] ^ 1 << chance.randrange(8)]) if content else b""
        if not content:
            break
    if chance.random() < 0.1:
        del content[chance.randrange(len(content) + 1) :]
    return bytes(content)


def check_file(content: bytes) -> str | None:
    """Open a file; returns the error if it is refused, and raises if what comes out is no image."""
    try:
        source = open_image(content)
    except ImageError as error:
        return str(error)
    for shown in (source, source.volume.get_slice(source.volume.count_slices() - 1)) if source.volume else (source,):
        assert shown.pixels.dtype.name in DEPTHS
        assert np.isfinite([*shown.limits, *shown.display, *(shown.spacing or ())]).all()
        assert shown.unit in (None, "HU")
    return None


if __name__ == "__main__":
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        refused = check_file(make_file(seed))
        if refused and ("crashed" in refused or "takes more" in refused):
            print(seed, refused)
