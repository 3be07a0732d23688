"""NIfTI volumes, .nii and .nii.gz: no more bytes are read or inflated than the header says and the limit allows."""

import gzip
import io
import math
from collections.abc import Sequence
from itertools import product
from typing import IO, Any, BinaryIO, Literal

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import Range, rescale
from ..source import Source, Volume, build_volume
from .paths import Reserve, read_exactly

SIZES = (348, 540)  # bytes of a header, version 1 and 2
MM = {"mm": 1.0, "meter": 1000.0, "micron": 0.001, "unknown": 1.0}
RAS_TO_LPS = np.array([-1.0, -1.0, 1.0])  # NIfTI counts to the right and to the front, `Volume` to the left and back
FAR = 1.0  # mm by which sform and qform may differ without a word
BYTE_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


def get_header_size(head: bytes) -> int | None:
    """Return the size of the header of a NIfTI volume, of either byte order; None if the file does not begin with
    one."""
    for order in BYTE_ORDERS:
        size = int.from_bytes(head[:4], order)
        if size in SIZES and (head[344:347] if size == 348 else head[4:7]) in (b"n+1", b"n+2", b"ni1", b"ni2"):
            return size
    return None


def read(file: BinaryIO, reserve: Reserve, *, zipped: bool) -> Source:
    """Return the middle axial slice of a volume; if there are several volumes in time, of the first.

    Of many volumes in time, no more are read than `limits.MAX_TIMES` allows.
    """
    import nibabel

    stream: IO[bytes] = gzip.GzipFile(fileobj=file) if zipped else file  # type: ignore[assignment]
    head = stream.read(max(SIZES))
    size = get_header_size(head)
    if size is None:
        raise ImageError("the gzip file does not hold a NIfTI volume")
    kind: Any = nibabel.Nifti1Header if size == 348 else nibabel.Nifti2Header
    header = kind.from_fileobj(io.BytesIO(head[:size]), check=False)
    if not bytes(header["magic"]).startswith(b"n+"):
        raise ImageError("the pixels of this NIfTI header are in a second file; allowed: .nii and .nii.gz")
    if not 1 <= header["dim"][0] <= 7:
        raise ImageError("dim[0] in the NIfTI header, the number of axes, is not 1 to 7")
    sides, dtype = tuple(map(int, header.get_data_shape())), header.get_data_dtype()
    if dtype.kind not in "iuf" or min(sides, default=0) < 1:
        kind = header.get_value_label("datatype")
        raise ImageError(f"NIfTI voxels of type {kind}, shape {sides}; allowed: integers and floats, one per voxel")
    offset = int(header.get_data_offset())
    if not size + 4 <= offset <= limits.MAX_BYTES:  # four bytes behind the header say whether there is more of it
        raise ImageError(f"vox_offset in the NIfTI header is {offset}; allowed: {size + 4} to {limits.MAX_BYTES}")
    stream.seek(offset)
    stored, unread = read_stack(stream, reserve, sides, dtype)
    return _build_volume(header, stored, unread).get_middle_slice()


def read_stack(stream: Any, reserve: Reserve, sides: Sequence[int], dtype: np.dtype[Any]) -> tuple[np.ndarray, int]:
    """Return the values (t, z, y, x) of an array, and how many time points `limits.MAX_TIMES` does not allow to read.

    `sides` are those of the array, the fastest axis first; all axes beyond the third count as time.
    """
    shape = (*sides, 1, 1)[2::-1]
    limits.check_size(shape, dtype.itemsize)
    once, count = limits.estimate_size(shape, dtype.itemsize), math.prod(sides[3:])
    times = min(count, max(1, limits.MAX_TIMES // once))
    reserve(times * once)
    content = read_exactly(stream, times * math.prod(shape) * dtype.itemsize)
    return content.view(dtype).reshape(times, *shape), count - times


def _build_volume(header: Any, stored: np.ndarray, unread: int) -> Volume:
    """Return the volume of stored values (t, z, y, x), turned to the patient's axes by the header's affine."""
    slope, intercept = (float(header[name]) for name in ("scl_slope", "scl_inter"))
    if slope == 0 or math.isnan(slope):  # the values are as they are stored
        slope, intercept = 1.0, 0.0
    if not (math.isfinite(slope) and math.isfinite(intercept)):
        raise ImageError(f"the header has scl_slope {slope:g} and scl_inter {intercept:g}; allowed: finite numbers")
    affine, notes = _get_affine(header, stored.shape[:0:-1])
    components = math.prod(header.get_data_shape()[4:])
    if components > 1:
        notes.append(f"{components} components of each voxel (axes 5 to 7 of the file) are shown as time points")
    values = rescale(stored, slope, intercept)
    display = choose_display(values.pixels, (float(header["cal_min"]), float(header["cal_max"])))
    known = max(int(header["sform_code"]), int(header["qform_code"])) > 0  # else the affine is nibabel's default
    more: dict[str, Any] = {"known": known, "blank": values.blank, "unread_times": unread, "notes": tuple(notes)}
    return build_volume(values.pixels, affine, display, **more)


def _get_affine(header: Any, sides: Sequence[int]) -> tuple[np.ndarray, list[str]]:
    """Return the affine of a header, to millimeters (LPS), and what is odd about it; by sform if there is one."""
    codes, notes = (int(header["sform_code"]), int(header["qform_code"])), list[str]()
    if not codes[0]:
        notes += _mend_pixdim(header["pixdim"], sides)
    header["pixdim"][0] = -1 if header["pixdim"][0] < 0 else 1  # 0 means 1 (nifti1.h)
    try:
        qform = header.get_qform() if codes[1] else None
    except Exception:  # nibabel refuses what is no rotation
        qform = None
        if not codes[0]:
            raise ImageError("quatern_b, quatern_c and quatern_d in the NIfTI header are no rotation") from None
    affine = header.get_sform() if codes[0] else header.get_base_affine() if qform is None else qform
    check_affine(affine, "srow_x, srow_y, srow_z" if codes[0] else "pixdim, quatern_b, quatern_c, quatern_d")
    turn = np.diag([*(RAS_TO_LPS * MM.get(header.get_xyzt_units()[0], 1.0)), 1.0])
    if codes[0] and qform is not None:
        corners = [[*corner, 1] for corner in product(*((0, side - 1) for side in sides))]
        apart = np.linalg.norm((turn @ (affine - qform))[:3] @ np.array(corners).T, axis=0).max()
        if apart > FAR:
            notes.append(f"sform and qform of the file place it up to {apart:.1f} mm apart: sform is used")
    return turn @ affine, notes


def _mend_pixdim(pixdim: np.ndarray, sides: Sequence[int]) -> list[str]:
    """Make the sizes of voxels positive, or raise `ImageError`; returns what was changed."""
    notes = []
    for axis, side in enumerate(sides, 1):
        if pixdim[axis] < 0:
            notes.append(f"pixdim[{axis}] is {pixdim[axis]:g}: taken without its sign")
            pixdim[axis] *= -1
        if pixdim[axis] == 0 and side == 1:  # of an axis that the file does not have
            pixdim[axis] = 1
        if not 0 < pixdim[axis] < math.inf:
            raise ImageError(f"pixdim[{axis}] in the NIfTI header is {pixdim[axis]:g}; allowed: above 0")
    return notes


def check_affine(affine: np.ndarray, elements: str) -> None:
    """Raise `ImageError` if an affine, which these elements of a header give, is not finite or has no inverse."""
    with np.errstate(all="ignore"):
        sizes = np.linalg.norm(affine[:3, :3], axis=0)
        if np.isfinite(affine).all() and sizes.min() > 0 and abs(np.linalg.det(affine[:3, :3] / sizes)) >= 1e-3:
            return
    raise ImageError(f"the header does not say how the volume lies: its affine is singular ({elements})")


def choose_display(values: np.ndarray, wanted: Range = (0.0, 0.0)) -> Range:
    """Return the range that a file asks for, if it shows any values; else the lowest and the highest, of 8 bits too."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if wanted[0] < wanted[1] < math.inf and -math.inf < wanted[0] < high and wanted[1] > low:
        return wanted
    return low, high
