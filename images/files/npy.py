"""NumPy's .npy files: the shape is checked before the values are read, and pickled objects are never loaded."""

import ast
from collections.abc import Callable
from typing import BinaryIO

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import SHAPES
from ..source import Source
from .paths import read_exactly

MAGIC = b"\x93NUMPY"


def read(file: BinaryIO, reserve: Callable[[int], None]) -> Source:
    """The array in a file; raises `ImageError` for another shape or type, a damaged header, or missing bytes."""
    version = np.lib.format.read_magic(file)
    length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if not 0 < length < 10_000:
        raise ImageError("the header of the .npy file is damaged")
    header = ast.literal_eval(file.read(length).decode("latin1"))
    shape, dtype = tuple(header["shape"]), np.dtype(header["descr"])
    if dtype.kind not in "biuf" or not all(isinstance(side, int) for side in shape):
        raise ImageError(f"a .npy file of {str(dtype)[:40]}; allowed: booleans, integers and floats")
    if len(shape) not in (2, 3):
        raise ImageError(f"array of shape {str(shape)[:60]}; allowed: {SHAPES}")
    limits.check_size(shape, dtype.itemsize)
    reserve(limits.estimate_size(shape, dtype.itemsize))
    content = read_exactly(file, int(np.prod(shape)) * dtype.itemsize)
    return Source.of(content.view(dtype).reshape(shape, order="F" if header["fortran_order"] else "C"))
