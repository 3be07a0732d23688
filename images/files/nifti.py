"""NIfTI volumes, .nii and .nii.gz: no more bytes are read or inflated than the header says and the limit allows."""

import gzip
import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import IO, Any, BinaryIO, Literal

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import rescale
from ..source import Source, Volume, build_volume
from .paths import read_exactly

SIZES = (348, 540)  # bytes of a header, version 1 and 2
MM = {"mm": 1.0, "meter": 1000.0, "micron": 0.001, "unknown": 1.0}
RAS_TO_LPS = np.array([-1.0, -1.0, 1.0])  # NIfTI counts to the right and to the front, `Volume` to the left and back
BYTE_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


def is_nifti(head: bytes) -> bool:
    """Return whether a file begins with the header of a NIfTI volume, of either byte order."""
    return _get_header_size(head) is not None


def _get_header_size(head: bytes) -> int | None:
    for order in BYTE_ORDERS:
        size = int.from_bytes(head[:4], order)
        if size in SIZES and (head[344:347] if size == 348 else head[4:7]) in (b"n+1", b"n+2", b"ni1", b"ni2"):
            return size
    return None


def read(file: BinaryIO, reserve: Callable[[int], None], *, zipped: bool) -> Source:
    """Return the middle axial slice of a volume; if there are several volumes in time, of the first.

    Of many volumes in time, no more are read than `limits.MAX_TIMES` allows.
    """
    import nibabel

    stream: IO[bytes] = gzip.GzipFile(fileobj=file) if zipped else file  # type: ignore[assignment]
    head = stream.read(max(SIZES))
    size = _get_header_size(head)
    if size is None:
        raise ImageError("the gzip file does not hold a NIfTI volume")
    kind: Any = nibabel.Nifti1Header if size == 348 else nibabel.Nifti2Header
    header = kind.from_fileobj(io.BytesIO(head[:size]), check=False)
    if not bytes(header["magic"]).startswith(b"n+"):
        raise ImageError("the pixels of this NIfTI header are in a second file; allowed: .nii and .nii.gz")
    sides = (*map(int, header.get_data_shape()), 1, 1, 1)
    shape = sides[:3]
    dtype = header.get_data_dtype()
    if dtype.kind not in "iuf" or any(int(side) < 1 for side in header.get_data_shape()):
        raise ImageError(f"NIfTI voxels of type {str(dtype)[:40]}; allowed: integers and floats, one per voxel")
    limits.check_size(shape, dtype.itemsize)
    once = limits.estimate_size(shape, dtype.itemsize)
    times = min(sides[3], max(1, limits.MAX_TIMES // once))
    reserve(times * once)
    offset = max(int(header.get_data_offset()), size)
    if offset > limits.MAX_BYTES:
        raise ImageError("the NIfTI header is damaged")
    stream.seek(offset)
    content = read_exactly(stream, times * math.prod(shape) * dtype.itemsize)
    stored = content.view(dtype).reshape(times, *shape[::-1])  # t, z, y, x
    return replace(_build_volume(header, stored), unread_times=sides[3] - times).get_middle_slice()


def _build_volume(header: Any, stored: np.ndarray) -> Volume:
    """Return the volume of stored values (t, z, y, x), turned to the patient's axes by the header's affine."""
    from nibabel import affines

    affine = header.get_best_affine()
    sizes: np.ndarray = affines.voxel_sizes(affine)  # type: ignore[no-untyped-call]
    if not np.isfinite(affine).all() or sizes.min() <= 0 or abs(np.linalg.det(affine[:3, :3] / sizes)) < 1e-3:
        raise ImageError("the NIfTI header does not give the orientation of the volume (its affine is singular)")
    slope, intercept = header.get_slope_inter()
    values = rescale(stored, *((1.0, 0.0) if slope is None else (float(slope), float(intercept or 0))))
    lps = np.diag([*(RAS_TO_LPS * MM.get(header.get_xyzt_units()[0], 1.0)), 1.0]) @ affine
    known = max(int(header["sform_code"]), int(header["qform_code"])) > 0  # else the affine is nibabel's default
    display = _choose_display(header, values.pixels)
    return build_volume(values.pixels, lps, display, known=known, blank=values.blank)


def _choose_display(header: Any, values: np.ndarray) -> tuple[float, float]:
    """Return the range that the header asks for, if it shows any values; else all values, or 0 to 255 for 8 bits."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    wanted = float(header["cal_min"]), float(header["cal_max"])
    if wanted[0] < wanted[1] and wanted[0] < high and wanted[1] > low:
        return wanted
    return (0.0, 255.0) if values.dtype == np.uint8 else (low, high)
