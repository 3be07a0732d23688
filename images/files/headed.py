"""MetaImage (.mha, .mhd) and NRRD (.nrrd, .nhdr): a header of lines, and values behind it or in a second file.

The second file must lie in the folder of the header. The elements of a header are those of MetaIO (ITK) and of NRRD
(teem.sourceforge.net/nrrd/format.html).
"""

import math
import re
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ...errors import ImageError
from ..pixels import to_native_dtype
from ..source import Source, build_volume
from .nifti import check_affine, choose_display, read_stack
from .paths import PART, open_in_folder

MAX_HEADER = 2**16  # bytes
META_END, NRRD_END = re.compile(rb"^ElementDataFile *=.*\n?", re.MULTILINE), re.compile(rb"\r?\n\r?\n|\Z")
DATA_FILE = re.compile(rb"^(ElementDataFile *=|data ?file:)[ \t]*(?:\./)?(.*?)[ \t\r]*$", re.MULTILINE)
BYTES = {"char": 1, "short": 2, "int": 4, "long long": 8, "longlong": 8, "float": 4, "double": 8}  # of a value
BYTES |= {"int8": 1, "int16": 2, "int32": 4, "int64": 8}
SPACES = {"left-posterior-superior": (1, 1, 1), "right-anterior-superior": (-1, -1, 1)}  # the signs that make it LPS
SPACES |= {"left-anterior-superior": (1, -1, 1), "lps": (1, 1, 1), "ras": (-1, -1, 1), "las": (1, -1, 1)}
OF_SPACE = {"domain", "space", "none", "???"}  # kinds of axes


class Header(NamedTuple):
    """What a header says: the sizes of the axes, the fastest first, how the values are stored, and where they lie.

    `skip` are the bytes before the values, -1 if they end the file. `steps`, (axes, n), lead from one value to the next
    in millimeters; `origin`, (n,), is the place of the first one in the patient (LPS). None: not known.
    """

    sizes: tuple[int, ...]
    dtype: np.dtype[Any]
    packed: bool
    skip: int
    steps: np.ndarray | None
    origin: np.ndarray | None


def is_headed(head: bytes) -> bool:
    """Return whether a file begins with the header of a MetaImage or NRRD volume."""
    meta = re.match(rb"\s*[A-Z]\w* *=", head) is not None and re.search(rb"^NDims *= *\d", head, re.MULTILINE)
    return head.startswith(b"NRRD000") or bool(meta)


def read(file: BinaryIO, reserve: Callable[[int], None], folder: int | None) -> Source:
    """Return the middle axial slice of a volume, or a picture of two axes; `folder` is the header's, a descriptor."""
    content = read_header(file)
    lines, nrrd = content.decode("latin1").splitlines(), content.startswith(b"NRRD")
    header, name = _parse_nrrd(lines) if nrrd else _parse_meta(lines), get_data_name(content)
    if name is not None and folder is None:
        raise ImageError("its pixels are in a second file; allowed: a .mhd or .nhdr file in its folder")
    with nullcontext(file) if folder is None or name is None else open_in_folder(folder, name) as stream:
        if stream is None:
            raise ImageError("the data file that the header names is not in the folder of the header")
        size = math.prod(header.sizes) * header.dtype.itemsize
        start = len(content) if name is None and (nrrd or header.skip == 0) else 0
        stream.seek(*((-size, 2) if header.skip < 0 else (start + header.skip, 0)))
        values: Any = Inflater(stream) if header.packed else stream
        stored, unread = read_stack(values, reserve, header.sizes, header.dtype)
        if not unread and values.read(1):
            raise ImageError("there are more bytes of pixels than the sizes and the type in the header explain")
    pixels, _, blank = to_native_dtype(stored)
    display, steps = choose_display(pixels), header.steps
    if len(header.sizes) == 2:
        x, y = np.linalg.norm(np.eye(2) if steps is None else steps, axis=1)
        return Source(pixels[0, 0], display, None if steps is None else (float(x), float(y)), blank=blank)
    affine = np.eye(4)
    affine[:3, :3] = np.eye(3) if steps is None else steps[:3, :3].T
    affine[:3, 3] = 0 if header.origin is None else header.origin[:3]
    check_affine(affine, "TransformMatrix, ElementSpacing; space directions, spacings")
    notes = ("the fourth axis is shown as time points",) if len(header.sizes) == 4 else ()
    known = steps is not None and header.origin is not None
    volume = build_volume(pixels, affine, display, known=known, blank=blank, unread_times=unread, notes=notes)
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
    if found is None or found[2].lower() == b"local":
        return None
    name = found[2].decode("utf-8", "surrogateescape")
    if name.upper().startswith("LIST") or "%" in name:
        raise ImageError("ElementDataFile (or data file) names several files (LIST); allowed: one")
    if name in ("", ".", "..") or set(name) & set("/\\\0"):
        raise ImageError("ElementDataFile (or data file) leads out of the folder; allowed: a file beside the header")
    return name


def rename_data(header: bytes, name: str) -> bytes:
    """Return a header that names another second file."""
    return DATA_FILE.sub(lambda found: b"%s %s" % (found[1], name.encode()), header, count=1)


class Inflater:
    """Reads what is deflated in a file (zlib or gzip), no more of it at a time than is asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.inflate = file, zlib.decompressobj(47)  # either kind of header

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes; none at the end."""
        part = waiting = b""
        while not part and not self.inflate.eof:
            waiting = self.inflate.unconsumed_tail or self.file.read(PART)
            part = self.inflate.decompress(waiting, count)
            if not waiting:
                break
        return part


def _parse_meta(lines: list[str]) -> Header:
    fields = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
    if fields.get("BinaryData", "True").lower() != "true":
        raise ImageError("BinaryData is not True: numbers as text; allowed: True")
    if fields.get("ElementNumberOfChannels", "1") != "1":
        raise ImageError("ElementNumberOfChannels is not 1: several channels of a voxel; allowed: 1")
    sizes = _get_sizes(fields, "NDims", "DimSize")
    big = fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "False")).lower() == "true"
    dtype = _get_dtype("ElementType", fields.get("ElementType", "").removeprefix("MET_").replace("_", " "), big)
    count, packed = len(sizes), fields.get("CompressedData", "False").lower() == "true"
    spacing = _get_numbers(fields, count, "ElementSpacing", "ElementSize")
    matrix = _get_numbers(fields, count**2, "TransformMatrix", "Rotation", "Orientation")
    origin = _get_numbers(fields, count, "Offset", "Position", "Origin")
    directions = np.eye(count) if matrix is None else matrix.reshape(count, count)
    steps = None if spacing is None else spacing[:, None] * directions
    if matrix is not None and origin is None:
        origin = np.zeros(count)
    skip = _get_numbers(fields, 1, "HeaderSize")
    return Header(sizes, dtype, packed, 0 if skip is None else int(skip[0]), steps, origin)


def _parse_nrrd(lines: list[str]) -> Header:
    fields = {key.strip().lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    encoding = fields.get("encoding", "").lower()
    if encoding not in ("raw", "gzip", "gz"):
        raise ImageError("encoding is neither raw nor gzip, such as ascii or bzip2; allowed: raw and gzip")
    sizes = _get_sizes(fields, "dimension", "sizes")
    dtype = _get_dtype("type", fields.get("type", ""), fields.get("endian", "").lower() == "big")
    if dtype.itemsize > 1 and "endian" not in fields:
        raise ImageError("endian is missing in the header")
    axes, skips = min(3, len(sizes)), [_get_numbers(fields, 1, f"{kind} skip") for kind in ("line", "byte")]
    skip = 0 if skips[1] is None else int(skips[1][0])
    if skips[0] or (skip and encoding != "raw"):
        raise ImageError("line skip, or byte skip of gzip, is not 0; allowed: byte skip of raw values")
    vectors = re.findall(r"none|\([^)]*\)", fields.get("space directions", ""))[:axes]
    if "none" in vectors or set(fields.get("kinds", "").split()[:axes]) - OF_SPACE:
        raise ImageError(
            "kinds: one of the first three axes is not of space, such as components; allowed: domain, space"
        )
    if set(re.findall(r'"([^"]*)"', fields.get("space units", ""))) - {"mm", "millimeter", ""}:
        raise ImageError("space units are not mm; allowed: mm")
    signs, origin = SPACES.get(fields.get("space", "").lower()), _get_numbers(fields, axes, "space origin")
    if len(vectors) not in (0, axes):
        raise ImageError(f"space directions in the header are not those of {axes} axes")
    if vectors:
        steps = np.array([_to_numbers("space directions", vector, axes) for vector in vectors])
    else:
        spacings = " ".join(fields["spacings"].split()[:axes]) if "spacings" in fields else None
        steps, signs = None if spacings is None else np.diag(_to_numbers("spacings", spacings, axes)), None
    if signs is None or axes < 3 or origin is None:
        return Header(sizes, dtype, encoding != "raw", skip, steps, None)
    return Header(sizes, dtype, encoding != "raw", skip, steps * signs, origin * signs)


def _get_sizes(fields: dict[str, str], count: str, key: str) -> tuple[int, ...]:
    dimensions = _get_numbers(fields, 1, count)
    if dimensions is None or dimensions[0] not in (2, 3, 4):
        raise ImageError(f"{count} in the header is not 2, 3 or 4 dimensions")
    sizes = _get_numbers(fields, int(dimensions[0]), key)
    if sizes is None or (sizes < 1).any() or (sizes != np.rint(sizes)).any():
        raise ImageError(f"{key} in the header are not {dimensions[0]:g} whole numbers above 0")
    return tuple(map(int, sizes))


def _get_dtype(key: str, name: str, big: bool) -> np.dtype[Any]:
    """Return the type of values that a header calls "unsigned short", "uint16_t", or the like."""
    name = name.lower()
    base = re.sub(r"(un)?signed |_t$| int$", "", name).removeprefix("u")
    if base not in BYTES:
        raise ImageError(
            f"{key} in the header is not a type of one number; allowed: integers and floats of up to 64 bits"
        )
    kind = "f" if base in ("float", "double") else "u" if name.startswith("u") else "i"
    return np.dtype(f"{'>' if big else '<'}{kind}{BYTES[base]}")


def _get_numbers(fields: dict[str, str], count: int, *keys: str) -> np.ndarray | None:
    """Return the numbers of the first of these elements that the header has; None if it has none."""
    key = next((key for key in keys if key in fields), None)
    return None if key is None else _to_numbers(key, fields[key], count)


def _to_numbers(key: str, text: str, count: int) -> np.ndarray:
    try:
        numbers = np.array([float(part) for part in re.split(r"[\s,()]+", text) if part])
    except ValueError:
        numbers = np.array([])
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise ImageError(f"{key} in the header does not hold {count} numbers")
    return numbers
