"""The closed vocabularies of a catalogue. Only words of these lists can be compared, so no other word is allowed."""

from typing import Final, Literal, get_args

Gpu = Literal["no", "optional", "yes", "unknown"]
GPU: Final[tuple[Gpu, ...]] = get_args(Gpu)

TASKS: Final = (
    "DICOM networking",
    "acquisition",
    "annotation",
    "classification",
    "data management",
    "de-identification",
    "deconvolution",
    "denoising",
    "depth estimation",
    "detection",
    "file reading",
    "format conversion",
    "measurement",
    "pose estimation",
    "quality control",
    "radiomics",
    "reconstruction",
    "registration",
    "segmentation",
    "simulation",
    "stain normalization",
    "stitching",
    "super-resolution",
    "tracking",
    "treatment planning",
    "visualization",
)

ANY: Final = "any"  # a modality: the tool does not depend on how the image was taken
MODALITIES: Final = (
    ANY,
    "CT",
    "MR",
    "OCT",
    "PET",
    "SPECT",
    "X-ray",
    "bright field",
    "electron",
    "endoscopy",
    "fluorescence",
    "fundus",
    "histology",
    "phase contrast",
    "photo",
    "photoacoustic",
    "ultrasound",
)

DIMENSIONS: Final = ("2D", "3D", "2D+t", "3D+t")

FORMATS: Final = (
    "CFL",
    "CZI",
    "DICOM",
    "DZI",
    "E2E",
    "FDA",
    "HDF5",
    "ISMRMRD",
    "Interfile",
    "JPEG",
    "LIF",
    "MATLAB",
    "MGH",
    "MRC",
    "MetaImage",
    "N5",
    "ND2",
    "NDPI",
    "NIfTI",
    "NRRD",
    "NumPy",
    "OME-TIFF",
    "PNG",
    "SVS",
    "TIFF",
    "Zarr",
    "raw",
    "video",
)

INTERFACES: Final = ("CLI", "GUI", "Java plugin", "Python", "web")

# SPDX ids. The text of a license does not say "or later", so the short forms of the GNU licenses are allowed.
_LICENSES = """
    0BSD 3D-Slicer-1.0 AFL-3.0 AGPL-3.0 AGPL-3.0-only AGPL-3.0-or-later Apache-2.0 Artistic-2.0 BSD-1-Clause
    BSD-2-Clause BSD-2-Clause-Patent BSD-3-Clause BSD-3-Clause-Clear BSD-4-Clause BSL-1.0 CC-BY-3.0 CC-BY-4.0
    CC-BY-NC-3.0 CC-BY-NC-4.0 CC-BY-NC-ND-4.0 CC-BY-NC-SA-4.0 CC-BY-ND-4.0 CC-BY-SA-3.0 CC-BY-SA-4.0 CC0-1.0 CDDL-1.0
    CDDL-1.1 CECILL-2.1 CECILL-B CECILL-C ECL-2.0 EPL-1.0 EPL-2.0 EUPL-1.1 EUPL-1.2 GPL-2.0 GPL-2.0-only
    GPL-2.0-or-later GPL-3.0 GPL-3.0-only GPL-3.0-or-later ISC LGPL-2.0-only LGPL-2.0-or-later LGPL-2.1 LGPL-2.1-only
    LGPL-2.1-or-later LGPL-3.0 LGPL-3.0-only LGPL-3.0-or-later MIT MIT-0 MPL-1.1 MPL-2.0 MS-PL MS-RL NCSA OSL-3.0
    PolyForm-Noncommercial-1.0.0 PSF-2.0 Python-2.0 QPL-1.0 Unlicense UPL-1.0 WTFPL X11 Zlib
"""
LICENSES: Final = frozenset(_LICENSES.split())
