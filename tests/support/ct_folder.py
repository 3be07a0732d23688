"""A small study: computed tomography of drawn abdomens, as DICOM series and NIfTI volumes, and a spreadsheet of it."""

import csv

import nibabel as nib
import numpy as np

from tests.support.odd_images import AXIAL, HOUNSFIELD, dicom

SHAPE, SPACING = (10, 64, 64), (5.0, 5.0, 5.0)  # z, y, x; millimeters
AIR, FAT, LIVER, KIDNEY, BONE, STONE, LESION = -1000, -100, 60, 35, 700, 900, 10
PATIENTS = 20
QUESTIONS = {"lesion": "Is there a dark lesion in the liver?", "stone": "Is there a stone in the left kidney?"}


def write_study(folder, patients=PATIENTS):
    """Writes `cases.csv` and `ct/`: every fourth patient as a DICOM series, the others as NIfTI files."""
    rows = []
    for number in range(1, patients + 1):
        found = {"lesion": number % 2 == 1, "stone": number % 3 == 0}
        is_series = number % 4 == 1
        name = f"p{number:02d}" if is_series else f"p{number:02d}.nii.gz"
        (write_dicom if is_series else write_nifti)(folder / "ct" / name, draw_abdomen(number, **found))
        for finding, question in QUESTIONS.items():
            answer = "yes" if found[finding] else "no"
            row = (f"{number:02d}-{finding}", f"patient {number}", name, question, answer, finding)
            rows.append(dict(zip(("case", "patient", "scan", "question", "answer", "finding"), row, strict=True)))
    with (folder / "cases.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def draw_abdomen(seed, *, lesion, stone):
    """Voxels (z, y, x) in Hounsfield units; x grows to the patient's left, y to the back."""
    rng = np.random.default_rng(seed)
    z, y, x = np.mgrid[: SHAPE[0], : SHAPE[1], : SHAPE[2]]

    def ball(center, half):
        distances = (((axis - at) / size) ** 2 for axis, at, size in zip((z, y, x), center, half, strict=True))
        return sum(distances) <= 1

    voxels = np.full(SHAPE, AIR, np.float32)
    parts = (
        ((5, 32, 32), (99, 24, 28), FAT), ((5, 32, 32), (99, 21, 25), 40), ((6, 28, 20), (5, 12, 10), LIVER),
        ((4, 40, 20), (3, 5, 4), KIDNEY), ((4, 40, 44), (3, 5, 4), KIDNEY), ((5, 46, 32), (99, 5, 6), BONE),
    )  # fmt: skip
    for center, half, value in parts:
        voxels[ball(center, half)] = value
    if lesion:
        voxels[ball((6, 26, 18), (1.5, 3, 3))] = LESION
    if stone:
        voxels[ball((4, 40, 44), (1, 1.5, 1.5))] = STONE
    return np.round(voxels + rng.normal(0, 5, SHAPE)).astype(np.int16)


def write_nifti(path, voxels):
    path.parent.mkdir(parents=True, exist_ok=True)
    z, y, x = SPACING
    affine = np.diag([-x, -y, z, 1.0])  # NIfTI counts to the right and to the front
    nib.save(nib.Nifti1Image(voxels.transpose(2, 1, 0), affine), path)


def write_dicom(folder, voxels):
    z, y, x = SPACING
    for number, slice_ in enumerate(voxels):
        place = {"ImagePositionPatient": [0, 0, z * number], "ImageOrientationPatient": AXIAL, "PixelSpacing": [y, x]}
        numbers = {"SeriesNumber": 1, "InstanceNumber": number + 1}
        dicom(folder / f"{number + 1:03d}.dcm", (slice_ + 1024).astype(np.int16), **HOUNSFIELD, **place, **numbers)
