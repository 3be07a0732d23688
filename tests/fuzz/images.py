"""Files of every format, damaged: each opens as an image or is refused with an `ImageError`."""

import random
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.data import get_testdata_file

from tests.attacks.files import makers
from tests.fuzz.mutate import mutate_bytes
from viewbox.errors import ImageError
from viewbox.images.files import open_image
from viewbox.images.pixels import DEPTHS

CPU_SECONDS = 5.0  # of this process; the processes that decode have their own limits
PROCESSES = True
DICOM = ("CT_small.dcm", "MR_small_RLE.dcm", "SC_rgb_jpeg_dcmtk.dcm", "MR_small_jp2klossless.dcm", "image_dfl.dcm",
         "examples_palette.dcm", "rtdose.dcm", "liver_1frame.dcm")  # fmt: skip


@cache
def get_corpus() -> tuple[bytes, ...]:
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
    found += [makers.gzip.compress(makers.nifti(), mtime=0)]
    return tuple(found)


def make_case(chance: random.Random) -> bytes:
    return mutate_bytes(chance, chance.choice(get_corpus()), get_corpus())


def make_file(seed: int) -> bytes:
    return make_case(random.Random(seed))


def check_case(content: bytes, folder: Path) -> None:
    refused = check_file(content) or ""
    if "crashed" in refused:  # twice: a machine without memory also ends processes
        refused = check_file(content) or ""
    assert "crashed" not in refused, refused


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
