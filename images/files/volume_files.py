"""Volumes behind a header: NIfTI (.nii, .nii.gz), MetaImage (.mha, .mhd) and NRRD (.nrrd, .nhdr).

No more bytes are read or inflated than the header says and the limit allows. The elements are those of NIfTI, of MetaIO
(ITK), and of NRRD (teem.sourceforge.net/nrrd/format.html); the last two share no name, and their values stand behind a
header of lines, or in a file beside it.
"""

import gzip
import io
import math
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from typing import IO, Any, BinaryIO, Literal

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import Range, rescale, to_native_dtype
from ..source import Source, Volume, build_volume
from .paths import Inflater, Reserve, open_in_folder, read_exactly

SIZES = (348, 540)  # bytes of a header, version 1 and 2
MM = {"mm": 1.0, "meter": 1000.0, "micron": 0.001, "unknown": 1.0}
RAS_TO_LPS = np.array([-1.0, -1.0, 1.0])  # NIfTI counts to the right and to the front, `Volume` to the left and back
FAR = 1.0  # mm by which sform and qform may differ without a word
BYTE_ORDERS: tuple[Literal["little", "big"], ...] = ("little", "big")


def get_header_size(head: bytes) -> int | None:
    """Return the size of the header of a NIfTI volume, of either byte order; None if the file begins with no such."""
    for order in BYTE_ORDERS:
        size = int.from_bytes(head[:4], order)
        if size in SIZES and (head[344:347] if size == 348 else head[4:7]) in (b"n+1", b"n+2", b"ni1", b"ni2"):
            return size
    return None


def read_nifti(file: BinaryIO, reserve: Reserve, *, zipped: bool) -> Source:
    """Return the middle axial slice of a volume, of several in time of the first; see `read_stack`."""
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
    `sides` are those of the array, the fastest axis first; all axes beyond the third count as time."""
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
    """Make the sizes of voxels positive, or raise `ImageError`; return what was changed."""
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


MAX_HEADER = 2**16  # bytes
META_END, NRRD_END = re.compile(rb"^ElementDataFile[ \t]*=.*\n?", re.MULTILINE), re.compile(rb"\r?\n\r?\n|\Z")
DATA_FILE = re.compile(rb"^(ElementDataFile[ \t]*=|(?i:data ?file):)(.*)$", re.MULTILINE)  # linear: no spaces apart
BYTES = dict.fromkeys(["char", "int8"], 1) | dict.fromkeys(["short", "int16"], 2) | dict.fromkeys(["int", "int32"], 4)
BYTES |= dict.fromkeys(["long long", "longlong", "int64", "double"], 8) | {"float": 4}  # of a value
LPS, RAS, LAS = (1, 1, 1), (-1, -1, 1), (1, -1, 1)  # the signs that make a place LPS
SPACES = {"left-posterior-superior": LPS, "right-anterior-superior": RAS, "left-anterior-superior": LAS}
SPACES |= {"lps": LPS, "ras": RAS, "las": LAS}
ALLOWED = {"BinaryData": ["true"], "ElementNumberOfChannels": ["1"], "line skip": ["0"]}  # what is read of elements
ALLOWED |= {"encoding": ["raw", "gzip", "gz"], "space units": ['"mm" "mm" "mm"', '"mm" "mm"']}


def is_headed(head: bytes) -> bool:
    """Return whether a file begins with the header of a MetaImage or NRRD volume."""
    meta = re.match(rb"\s*[A-Z]\w*[ \t]*=", head) is not None and re.search(rb"^NDims[ \t]*=\s*\d", head, re.MULTILINE)
    return head.startswith(b"NRRD000") or bool(meta)


def read(file: BinaryIO, reserve: Reserve, folder: int | None) -> Source:
    """Return the middle axial slice of a volume, or a picture of two axes; `folder` is the header's, a descriptor."""
    header = read_header(file)
    fields, name = _parse(header), get_data_name(header)
    sizes, dtype = _get_sizes(fields), _get_dtype(fields)
    steps, affine, known = _get_place(fields, len(sizes))
    packed = fields.get("CompressedData", "").lower() == "true" or fields.get("encoding", "raw").lower() != "raw"
    skip = int((_get_numbers(fields, 1, "HeaderSize", "byte skip") or [0])[0])
    if packed and skip:
        raise ImageError("HeaderSize (or byte skip) of compressed values is not 0")
    if name is not None and folder is None:
        raise ImageError("its pixels are in a second file; allowed: a .mhd or .nhdr file in its folder")
    with nullcontext(file) if folder is None or name is None else open_in_folder(folder, name) as stream:
        if stream is None:
            raise ImageError("the data file that the header names is not in the folder of the header")
        start = len(header) if name is None and ("HeaderSize" not in fields or skip == 0) else 0
        stream.seek(*((-math.prod(sizes) * dtype.itemsize, 2) if skip < 0 else (start + skip, 0)))
        values: Any = Inflater(stream) if packed else stream
        stored, unread = read_stack(values, reserve, sizes, dtype)
        if not unread and values.read(3) not in (b"", b"\n", b"\r\n"):  # some writers end the file with a line break
            raise ImageError("there are more bytes of pixels than the sizes and the type in the header explain")
    pixels, _, blank, *_ = to_native_dtype(stored)
    notes = ["the fourth axis is shown as time points"] if len(sizes) == 4 else []
    scale = [_get_numbers(fields, 1, f"ElementToIntensityFunction{end}") for end in ("Slope", "Offset")]
    if any(stated is not None and stated[0] != usual for stated, usual in zip(scale, (1, 0), strict=True)):
        notes.append("values are as stored: ElementToIntensityFunction is not applied, as in ITK")
    common: dict[str, Any] = {"blank": blank, "notes": tuple(notes)}
    if len(sizes) == 2:
        x, y = np.linalg.norm(affine[:2, :2], axis=0)
        return Source(pixels[0, 0], choose_display(pixels), None if steps is None else (float(x), float(y)), **common)
    volume = build_volume(pixels, affine, choose_display(pixels), known=known, unread_times=unread, **common)
    return (volume if steps is not None else replace(volume, spacing=None)).get_middle_slice()


def read_header(file: BinaryIO) -> bytes:
    content = file.read(MAX_HEADER)
    end = (NRRD_END if content.startswith(b"NRRD") else META_END).search(content)
    if end is None or (not end[0] and len(content) == MAX_HEADER):
        raise ImageError(f"the header is cut short, or longer than {MAX_HEADER} bytes")
    return content[: end.end()]


def get_data_name(header: bytes) -> str | None:
    """Return the name of the second file; None if the values stand behind the header."""
    match = DATA_FILE.search(header)
    name = "local" if match is None else match[2].strip(b" \t\r").removeprefix(b"./").decode("utf-8", "surrogateescape")
    if name.upper().startswith("LIST") or "%" in name:
        raise ImageError("ElementDataFile (or data file) names several files (LIST); allowed: one")
    if name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise ImageError("ElementDataFile (or data file) leads out of the folder; allowed: a file beside the header")
    return None if name.lower() == "local" else name


def _parse(header: bytes) -> dict[str, str]:
    nrrd = header.startswith(b"NRRD")
    lines = (line.partition(":" if nrrd else "=") for line in header.decode("latin1").splitlines())
    fields = {key.strip(): value.strip() for key, _, value in lines if not (nrrd and value.startswith("="))}
    if nrrd:  # fields may be written in one word, and in any case; key:=value is none
        fields = {re.sub(r"(?<=byte|line|data)(?=skip|file)", " ", key.lower()): fields[key] for key in fields}
    for key, allowed in ALLOWED.items():
        if fields.get(key, allowed[0]).lower() not in allowed:
            raise ImageError(f"{key} in the header is not read as it is; allowed: {', '.join(allowed)}")
    if set(re.findall(r'[^\s"]+', fields.get("units", ""))[:3]) - {"mm", "none", "???"}:
        raise ImageError("units in the header is not read as it is; allowed: mm")
    if set(fields.get("kinds", "").split()[:3]) - {"domain", "space", "none", "???"}:
        raise ImageError("kinds in the header: an axis before the fourth is not of space, such as components")
    return fields


def _get_sizes(fields: dict[str, str]) -> tuple[int, ...]:
    count = _get_numbers(fields, 1, "NDims", "dimension")
    if count is None or count[0] not in (2, 3, 4):
        raise ImageError("NDims (or dimension) in the header is not 2, 3 or 4")
    sizes = _get_numbers(fields, int(count[0]), "DimSize", "sizes")
    if sizes is None or not (np.isfinite(sizes) & (sizes >= 1) & (sizes % 1 == 0)).all():
        raise ImageError("DimSize (or sizes) in the header are not whole numbers above 0")
    return tuple(map(int, sizes))


def _get_dtype(fields: dict[str, str]) -> np.dtype[Any]:
    """Return the type of values that a header calls "MET_USHORT", "unsigned short", "uint16_t", or the like."""
    name = fields.get("ElementType", fields.get("type", "")).lower().removeprefix("met_").replace("long_", "long ")
    base = re.sub(r"(un)?signed |_t$| int$", "", name).removeprefix("u")
    order = fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", fields.get("endian"))) or ""
    if base not in BYTES or ("type" in fields and BYTES[base] > 1 and not order):
        raise ImageError("ElementType (or type, endian) in the header is no type of one number that is known")
    kind = "f" if base in ("float", "double") else "u" if name.startswith("u") else "i"
    return np.dtype(f"{'>' if order.lower() in ('true', 'big') else '<'}{kind}{BYTES[base]}")


def _get_place(fields: dict[str, str], count: int) -> tuple[np.ndarray | None, np.ndarray, bool]:
    """Return the steps along the axes of space, if they are known, the affine, and whether it is that of a patient."""
    axes, meta = min(count, 3), "NDims" in fields
    matrix = _get_numbers(fields, count**2, "TransformMatrix", "Rotation", "Orientation")
    origin = _get_numbers(fields, count if meta else axes, "Offset", "Position", "Origin", "space origin")
    if "space directions" in fields:
        vectors = [*re.findall(r"none|\([^()]*\)", fields["space directions"]), "", "", ""][:axes]
        steps: np.ndarray | None = np.array([_to_numbers("space directions", vector, axes) for vector in vectors])
    else:
        directions = np.eye(count) if matrix is None else matrix.reshape(count, count)
        spacing = _get_numbers(fields, count, "ElementSpacing", "ElementSize", "spacings")
        steps = None if spacing is None else (spacing[:, None] * directions)[:axes, :axes]
    if matrix is not None and origin is None:
        origin = np.zeros(count)
    affine, signs = np.eye(4), SPACES.get(fields.get("space", "lps" if meta else "").lower())
    affine[:axes, :axes] = np.eye(axes) if steps is None else steps.T
    affine[:axes, 3] = 0 if origin is None else origin[:axes]
    check_affine(affine, "TransformMatrix, ElementSpacing; space directions, spacings")
    known = steps is not None and origin is not None and signs is not None and axes == 3
    return steps, np.diag([*(signs or LPS), 1]) @ affine, known and (meta or "space directions" in fields)


def _get_numbers(fields: dict[str, str], count: int, *keys: str) -> np.ndarray | None:
    """Return the numbers of the first of these elements that the header has; None if it has none."""
    return next((_to_numbers(key, fields[key], count) for key in keys if key in fields), None)


def _to_numbers(key: str, text: str, count: int) -> np.ndarray:
    try:
        numbers = [float(word) for word in re.split(r"[\s,()]+", text) if word]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise ImageError(f"{key} in the header does not hold {count} numbers")
    return np.array(numbers)
