"""MetaImage (.mha, .mhd) and NRRD (.nrrd, .nhdr): a header of lines, and values behind it or in a file beside it.

The elements are those of MetaIO (ITK) and of NRRD (teem.sourceforge.net/nrrd/format.html), which share no name.
"""

import math
import re
import zlib
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from ...errors import ImageError
from ..pixels import to_native_dtype
from ..source import Source, build_volume
from .nifti import check_affine, choose_display, read_stack
from .paths import PART, Reserve, open_in_folder

MAX_HEADER = 2**16  # bytes
META_END, NRRD_END = re.compile(rb"^ElementDataFile[ \t]*=.*\n?", re.MULTILINE), re.compile(rb"\r?\n\r?\n|\Z")
DATA_FILE = re.compile(rb"^(ElementDataFile[ \t]*=|(?i:data ?file):)[ \t]*(?:\./)?(.*?)[ \t\r]*$", re.MULTILINE)
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
        if not unread and values.read(1):
            raise ImageError("there are more bytes of pixels than the sizes and the type in the header explain")
    pixels, _, blank, _ = to_native_dtype(stored)
    notes = ["the fourth axis is shown as time points"] if len(sizes) == 4 else []
    scale = [_get_numbers(fields, 1, f"ElementToIntensityFunction{part}") for part in ("Slope", "Offset")]
    if any(given is not None and given[0] != usual for given, usual in zip(scale, (1, 0), strict=True)):
        notes.append("values are as stored: ElementToIntensityFunction is not applied, as in ITK")
    common: dict[str, Any] = {"blank": blank, "notes": tuple(notes)}
    if len(sizes) == 2:
        x, y = np.linalg.norm(affine[:2, :2], axis=0)
        return Source(pixels[0, 0], choose_display(pixels), None if steps is None else (float(x), float(y)), **common)
    volume = build_volume(pixels, affine, choose_display(pixels), known=known, unread_times=unread, **common)
    return (volume if steps is not None else replace(volume, spacing=None)).get_middle_slice()


def read_header(file: BinaryIO) -> bytes:
    """Return the bytes of a header, with the line that ends it."""
    content = file.read(MAX_HEADER)
    end = (NRRD_END if content.startswith(b"NRRD") else META_END).search(content)
    if end is None or (not end[0] and len(content) == MAX_HEADER):
        raise ImageError(f"the header is cut short, or longer than {MAX_HEADER} bytes")
    return content[: end.end()]


def get_data_name(header: bytes) -> str | None:
    """Return the name of the second file; None if the values stand behind the header."""
    found = DATA_FILE.search(header)
    name = "local" if found is None else found[2].decode("utf-8", "surrogateescape")
    if name.upper().startswith("LIST") or "%" in name:
        raise ImageError("ElementDataFile (or data file) names several files (LIST); allowed: one")
    if name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise ImageError("ElementDataFile (or data file) leads out of the folder; allowed: a file beside the header")
    return None if name.lower() == "local" else name


class Inflater:
    """Reads what is deflated in a file (zlib or gzip), no more of it at a time than is asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.inflate = file, zlib.decompressobj(47)  # either kind of header

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes; none at the end."""
        part, waiting = b"", b"-"
        while not part and waiting:
            waiting = self.inflate.unconsumed_tail or self.file.read(PART)
            part = self.inflate.decompress(waiting, count)
        return part


def _parse(header: bytes) -> dict[str, str]:
    """Return the elements of a header; raise `ImageError` for what is not read."""
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
        vectors = [*re.findall(r"none|\([^)]*\)", fields["space directions"]), "", "", ""][:axes]
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
        numbers = [float(part) for part in re.split(r"[\s,()]+", text) if part]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise ImageError(f"{key} in the header does not hold {count} numbers")
    return np.array(numbers)
