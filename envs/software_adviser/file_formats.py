"""Which format a file has, by the ending of its name."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

ENDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ending: name
        for name, endings in {
            "CFL": "cfl",
            "CZI": "czi",
            "DICOM": "dcm dicom ima",
            "DZI": "dzi",
            "E2E": "e2e",
            "FDA": "fda",
            "HDF5": "h5 hdf5 hdf ims",
            "ISMRMRD": "mrd",
            "Interfile": "hv hs",
            "JPEG": "jpg jpeg",
            "LIF": "lif",
            "MATLAB": "mat",
            "MGH": "mgh mgz",
            "MRC": "mrc map rec st",
            "MetaImage": "mha mhd",
            "N5": "n5",
            "ND2": "nd2",
            "NDPI": "ndpi",
            "NIfTI": "nii nii.gz",
            "NRRD": "nrrd nhdr",
            "NumPy": "npy npz",
            "OME-TIFF": "ome.tif ome.tiff",
            "PNG": "png",
            "SVS": "svs",
            "TIFF": "tif tiff",
            "Zarr": "zarr zarr.zip",
            "raw": "raw",
            "video": "avi mkv mov mp4 mpeg mpg webm",
        }.items()
        for ending in endings.split()
    }
)


def find_format(path: str) -> str | None:
    """The format of a file, a word of the vocabulary; None if its name does not say.

    >>> find_format("study/brain.NII.GZ"), find_format("cells.ome.tif"), find_format("tif"), find_format("notes.txt")
    ('NIfTI', 'OME-TIFF', None, None)
    """
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2].lower()
    _, *parts = name.split(".")
    for count in (2, 1):
        ending = ".".join(parts[-count:])
        if len(parts) >= count and ending in ENDINGS:
            return ENDINGS[ending]
    return None


def list_formats(paths: Iterable[str]) -> list[str]:
    """The formats of files, each once.

    >>> list_formats(["a.dcm", "b.dcm", "c.nii"])
    ['DICOM', 'NIfTI']
    """
    return list(dict.fromkeys(name for name in map(find_format, paths) if name is not None))
