"""NIfTI volumes, .nii and .nii.gz: no more bytes are read or inflated than the header says and the limit allows."""

import gzip
import io
from typing import Any, BinaryIO

import numpy as np

from viewbox.errors import ImageError
from viewbox.images.files import limits
from viewbox.images.files.arrays import exactly, linear
from viewbox.images.source import Source
from viewbox.images.volume import Volume, upright

SIZES = {348: "1", 540: "2"}  # bytes of a header → its version
MM = {"mm": 1.0, "meter": 1000.0, "micron": 0.001, "unknown": 1.0}
RAS_TO_LPS = np.array([-1.0, -1.0, 1.0])  # NIfTI counts to the right and to the front, `Volume` to the left and back


def is_nifti(head: bytes) -> bool:
    """Whether a file begins with the header of a NIfTI volume, of either byte order."""
    return _header_size(head) is not None


def _header_size(head: bytes) -> int | None:
    for order in ("little", "big"):
        size = int.from_bytes(head[:4], order)  # type: ignore[arg-type]
        if size in SIZES and (head[344:347] if size == 348 else head[4:7]) in (b"n+1", b"n+2", b"ni1", b"ni2"):
            return size
    return None


def read(file: BinaryIO, *, zipped: bool) -> Source:
    """The middle axial slice of a volume; of several volumes in time, the first."""
    import nibabel

    stream: Any = gzip.GzipFile(fileobj=file) if zipped else file
    head = stream.read(max(SIZES))
    size = _header_size(head)
    if size is None:
        raise ImageError("the gzip file holds no NIfTI volume")
    kind = nibabel.Nifti1Header if size == 348 else nibabel.Nifti2Header
    header = kind.from_fileobj(io.BytesIO(head[:size]), check=False)
    if not bytes(header["magic"]).startswith(b"n+"):
        raise ImageError("the pixels of this NIfTI header are in a second file; allowed: .nii and .nii.gz")
    shape = (*map(int, header.get_data_shape()), 1, 1)[:3]
    dtype = header.get_data_dtype()
    if dtype.kind not in "iuf" or any(int(side) < 1 for side in header.get_data_shape()):
        raise ImageError(f"NIfTI voxels of type {str(dtype)[:40]}; allowed: integers and floats, one a voxel")
    limits.check(shape, dtype.itemsize)
    offset = max(int(header.get_data_offset()), size)
    if offset > limits.MAX_BYTES:
        raise ImageError("the NIfTI header is damaged")
    stream.seek(offset)
    stored = np.frombuffer(exactly(stream, int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape[::-1])  # z, y, x
    return _volume(header, stored).middle()


def _volume(header: Any, stored: np.ndarray) -> Volume:
    from nibabel.affines import voxel_sizes

    affine = header.get_best_affine()
    sizes = voxel_sizes(affine)
    if not np.isfinite(affine).all() or sizes.min() <= 0 or abs(np.linalg.det(affine[:3, :3] / sizes)) < 1e-3:
        raise ImageError("the NIfTI header does not say how the volume lies (its affine is singular)")
    slope, intercept = header.get_slope_inter()
    values = linear(stored, *((1.0, 0.0) if slope is None else (float(slope), float(intercept or 0))))
    axes = ((affine[:3, :3] / sizes).T * RAS_TO_LPS)[::-1]  # rows: the directions of z, y and x of `stored`
    scale = MM.get(header.get_xyzt_units()[0], 1.0)
    voxels, steps, _ = upright(values, axes, tuple(round(float(size) * scale, 6) for size in sizes[::-1]))  # type: ignore[arg-type]
    return Volume(voxels, _display(header, values), steps)


def _display(header: Any, values: np.ndarray) -> tuple[float, float]:
    """The range the header asks for, where it shows something; else all values, and 8 bits as they are."""
    low, high = float(values.min()), float(values.max())
    asked = float(header["cal_min"]), float(header["cal_max"])
    if asked[0] < asked[1] and asked[0] < high and asked[1] > low:
        return asked
    return (0.0, 255.0) if values.dtype == np.uint8 else (low, high)
