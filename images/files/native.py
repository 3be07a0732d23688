"""A source in one file of a store: the message that a decoder sends (`transfer.py`), and behind it the packed pixels.

All that a source holds comes back bit for bit: values, unit, spacing, display, the whole stack and its affine. The file
of somebody else is checked as what comes from a decoder is; nothing in it is run.
"""

import hashlib
import json
import math
import zlib
from os import PathLike
from pathlib import Path

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import DEPTHS
from ..source import Source
from .transfer import MAX_MESSAGE, _to_plain, pack_source, unpack_source

MAGIC = b"viewbox source 1\n"
SUFFIX = ".source"
LENGTH = 4  # bytes of the length of the message


def _pack(source: Source) -> tuple[bytes, memoryview]:
    message, pixels = pack_source(source)
    return json.dumps(message, separators=(",", ":"), default=_to_plain).encode(), pixels


def compute_hash(source: Source) -> str:
    """Return the SHA-256 of all that a source holds."""
    head, pixels = _pack(source)
    digest = hashlib.sha256(head + b"\n")
    digest.update(pixels)
    return digest.hexdigest()


def encode_native(source: Source) -> bytes:
    """Return the file of a source.

    >>> source = Source.of(np.array([[-1000, 300]], np.int16), unit="HU", spacing=(0.7, 0.7))
    >>> back = decode_native(encode_native(source))
    >>> back.pixels.tolist(), back.unit, back.spacing, compute_hash(back) == compute_hash(source)
    ([[-1000, 300]], 'HU', (0.7, 0.7), True)
    """
    head, pixels = _pack(source)
    if len(head) > MAX_MESSAGE:
        raise ImageError(f"what is known of it has {len(head):,} bytes; allowed: {MAX_MESSAGE:,}")
    return MAGIC + len(head).to_bytes(LENGTH, "little") + head + zlib.compress(pixels, 1)


def decode_native(content: bytes) -> Source:
    """Return the source in a file; raise `ImageError` for one that `encode_native` cannot have written."""
    try:
        start = len(MAGIC) + LENGTH
        length = int.from_bytes(content[len(MAGIC) : start], "little")
        if not content.startswith(MAGIC) or length > MAX_MESSAGE:
            raise ImageError("it is no source")
        message = json.loads(content[start : start + length])
        shape, dtype = tuple(int(side) for side in message["shape"]), np.dtype(DEPTHS[DEPTHS.index(message["dtype"])])
        size = math.prod(shape) * dtype.itemsize
        if not 0 < size <= limits.MAX_BYTES + limits.MAX_TIMES or min(shape) < 1:
            raise ImageError(f"it says that it holds {size:,} bytes")
        packed = zlib.decompressobj()
        pixels = packed.decompress(memoryview(content)[start + length :], size + 1)
        if len(pixels) != size or packed.unused_data:
            raise ImageError("it is damaged")
        return unpack_source(message, np.frombuffer(pixels, dtype).reshape(shape))
    except ImageError:
        raise
    except Exception as error:  # whatever a forged message makes the checks raise
        raise ImageError("it is damaged") from error


def read_native(path: str, folder: str | PathLike[str] | None, digest: str) -> Source:
    """Return the source in a file of a store, whose hash must be `digest`."""
    from ...utils.files import read_regular

    name = f"image {digest[:12]}"
    try:
        content = read_regular(path, limit=limits.MAX_FILE, inside=None if folder is None else Path(folder))
        source = decode_native(content)
    except (OSError, ImageError) as error:
        raise ImageError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    if compute_hash(source) != digest:
        raise ImageError(f"{name}: its file holds other pixels; it was changed after it was stored")
    return source
