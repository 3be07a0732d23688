"""What a file says of itself, in the words of requests: format, dimensions, size, voxel size; of a DICOM file also the
kind of image."""

import io
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from ...errors import ImageError
from ...images.files import dicom_header, dicom_series, paths, recognize
from ...images.source import Source
from ...utils.frozen import FrozenDict
from .phrases import KNOWN

CODES: Final[Mapping[str, str]] = KNOWN["codes"]  # of DICOM, and the kinds of images that they stand for
OPENED: Final[Mapping[str, tuple[str, ...]]] = KNOWN["opened"]


def describe_file(source: Source, location: object = None) -> Mapping[str, str]:
    """Return what is known of an image; of a file also its format.

    >>> import numpy as np
    >>> describe_file(Source.of(np.zeros((20, 30), np.uint8), spacing=(0.5, 0.5)))
    {'dimensions': '2D', 'size': '30 x 20 pixels', 'voxel size': '0.5 x 0.5 mm'}
    """
    volume, size, dimensions = source.volume, source.size, "2D"
    spacing: tuple[float, ...] | None = source.spacing
    times = 0 if volume is None else volume.count_times() if volume.planes else len(volume.voxels)
    if volume is not None and volume.planes:
        size, dimensions = volume.voxels.shape[2::-1], "3D"
        spacing = volume.spacing and volume.spacing[::-1]
    location = location if isinstance(location, str | bytes) else b""
    format = recognize(location) if location else ""
    modality = _read_modality(location) if format == "DICOM" else ""
    sides = spacing if spacing and all(side > 0 for side in spacing) else ()
    return write_report(format, f"{dimensions}+t" if times > 1 else dimensions, size, times, sides, modality=modality)


def write_report(
    format: str, dimensions: str, size: Sequence[int], frames: int, sides: Sequence[float], unit: str = "mm",
    modality: str = "",
) -> Mapping[str, str]:  # fmt: skip
    """Return what is told of a file with a size in pixels and voxels of such sides; what is empty is not known."""
    known = {
        "format": format,
        "dimensions": dimensions,
        "size": f"{' x '.join(map(str, size))} pixels" + (f", {frames} frames" if frames > 1 else ""),
        "voxel size": f"{' x '.join(f'{side:.2g}' for side in sides)} {unit}" if sides else "",
        "modality": modality,
    }
    return FrozenDict({name: text for name, text in known.items() if text})


def _read_modality(location: str | bytes) -> str:
    """Return the kind of image of a DICOM file, or of the first file of a series in a folder; empty if unknown."""
    place, selection = paths.split_selection(location)
    with suppress(ImageError, OSError), ExitStack() as opened:
        content, _ = opened.enter_context(paths.open_location(place, None))
        if isinstance(content, int):
            name = dicom_series.list_files(Path(str(place)), selection)[0]
            content = opened.enter_context(paths.open_in_folder(content, name)) or b""
        file = io.BytesIO(content) if isinstance(content, bytes) else content
        code = dicom_header.get_text(dicom_header.parse(file, stop_before_pixels=True), "Modality")
        return CODES.get(code, code)
    return ""
