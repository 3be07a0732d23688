"""What a user's own file says of itself, in the words of requests: format, dimensions, size, voxel size."""

from collections.abc import Iterable, Mapping

from ...images.files import recognize
from ...images.source import Source
from ...images.task_images import TaskImage, open_source


def describe_files(images: Iterable[TaskImage], locations: Iterable[object] = ()) -> Mapping[str, str]:
    """Return what is known of the first image; of a file also its format. Nothing else of it is read."""
    known: dict[str, str] = {}
    for location in locations:
        if isinstance(location, str | bytes) or hasattr(location, "__fspath__"):
            known["format"] = recognize(location)
        break
    for image in images:
        return {name: text for name, text in {**known, **describe_source(open_source(image))}.items() if text}
    return known


def describe_source(source: Source) -> Mapping[str, str]:
    """Return the dimensions, the size and the voxel size of an image.

    >>> import numpy as np
    >>> describe_source(Source.of(np.zeros((20, 30), np.uint8), spacing=(0.5, 0.5)))
    {'dimensions': '2D', 'size': '30 x 20 pixels', 'voxel size': '0.5 x 0.5 mm'}
    """
    volume = source.volume
    if volume is None:
        size, spacing, dimensions = list(source.size), source.spacing, "2D"
    elif not volume.planes:
        size, spacing, dimensions = list(source.size), source.spacing, "2D+t"
    else:
        z, y, x = volume.voxels.shape[:3]
        size, dimensions = [x, y, z], "3D" if volume.times is None else "3D+t"
        spacing = volume.spacing[::-1] if volume.spacing else None  # type: ignore[assignment]
    frames = 0 if volume is None else volume.voxels.shape[0] if not volume.planes else volume.count_times()
    shape = f"{' x '.join(map(str, size))} pixels" + (f", {frames} frames" if dimensions.endswith("+t") else "")
    known = {"dimensions": dimensions, "size": shape}
    if spacing and all(side > 0 for side in spacing):
        known["voxel size"] = f"{' x '.join(f'{side:.2g}' for side in spacing)} mm"
    return known
