"""What a file says of itself, in the words of requests: format, dimensions, size, voxel size; of a DICOM file also the
kind of image."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from ...errors import ImageError
from ...images.files import dicom_header, recognize
from ...images.source import Source

KINDS: Final[Mapping[str, str]] = {  # of DICOM's codes; others are told as they stand, "other" not at all
    "US": "ultrasound", "IVUS": "ultrasound", "PT": "PET", "NM": "nuclear medicine", "CR": "X-ray", "DX": "X-ray",
    "XA": "X-ray", "RF": "X-ray", "MG": "mammogram", "OP": "fundus", "OPT": "OCT", "SM": "histology", "GM": "histology",
    "ES": "endoscopy", "XC": "photo", "RTDOSE": "radiotherapy dose",
    "OT": "",
}  # fmt: skip


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
    known = {"format": recognize(location)} if isinstance(location, str | bytes) else {}
    known["dimensions"] = f"{dimensions}+t" if times > 1 else dimensions
    known["size"] = f"{' x '.join(map(str, size))} pixels" + (f", {times} frames" if times > 1 else "")
    if spacing and all(side > 0 for side in spacing):
        known["voxel size"] = f"{' x '.join(f'{side:.2g}' for side in spacing)} mm"
    if known.get("format") == "DICOM" and Path(str(location)).is_file():
        with suppress(ImageError, OSError), Path(str(location)).open("rb") as file:
            code = dicom_header.get_text(dicom_header.parse(file, stop_before_pixels=True), "Modality")
            known["modality"] = KINDS.get(code, code)
    return {name: text for name, text in known.items() if text}
