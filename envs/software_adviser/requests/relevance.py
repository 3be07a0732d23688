"""How well a software fits a request: a grade from 0 to 100, computed from facts.

    task      40  it does what is asked for
    format    30  it reads the file's format; 15 if it reads another of the same family, to which one can convert
    features  30  the modality, the dimensions and every constraint fit; otherwise 4 each for modality and dimensions

A software that the user excludes has 0. From 80 on a software is suitable: it does the task, on such images, within
the constraints, and reads the file or a sibling of it.
"""

from collections.abc import Sequence
from typing import Protocol

from .request import Request
from .words import Constraint

TASK, FORMAT, SIBLING, FEATURES, PART = 40, 30, 15, 30, 4
SUITABLE = 80
FAMILIES: tuple[frozenset[str], ...] = (
    frozenset(("DICOM", "NIfTI", "NRRD", "MetaImage", "MGH")),  # volumes of scanners
    frozenset(("TIFF", "OME-TIFF", "CZI", "ND2", "LIF")),  # microscopy
    frozenset(("SVS", "NDPI")),  # whole slides
    frozenset(("PNG", "JPEG", "TIFF")),  # flat pictures
    frozenset(("HDF5", "Zarr", "N5")),  # arrays in blocks
)
PERMISSIVE = frozenset(("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "Unlicense", "CC0-1.0", "Zlib"))


class Facts(Protocol):
    """What is read of a catalogue's software."""

    @property
    def name(self) -> str: ...
    @property
    def tasks(self) -> Sequence[str]: ...
    @property
    def modalities(self) -> Sequence[str]: ...
    @property
    def dimensions(self) -> Sequence[str]: ...
    @property
    def formats(self) -> Sequence[str]: ...
    @property
    def license(self) -> str | None: ...
    @property
    def demo(self) -> str | None: ...
    @property
    def gpu(self) -> str: ...


def grade(software: Facts, request: Request) -> int:
    """How well a software fits a request, 0 to 100: task 40 + format 30 + features 30.

    >>> from types import SimpleNamespace as Software
    >>> tool = Software(name="A", tasks=["segmentation"], modalities=["CT"], dimensions=["3D"], formats=["NIfTI"],
    ...                 license="MIT", demo=None, gpu="yes")
    >>> def ask(modality="CT", format="NIfTI", **other):
    ...     return grade(tool, Request("", "expert", "segmentation", modality, "3D", format, **other))
    >>> ask(), ask(format="DICOM"), ask("MR"), ask(format="CZI"), ask(constraints=("no GPU",)), ask(exclude=("a",))
    (100, 85, 74, 70, 78, 0)
    """
    if software.name.casefold() in {name.casefold() for name in request.exclude}:
        return 0
    points = TASK if request.task in software.tasks else 0
    points += _grade_format(software, request.format)
    fits = (fits_modality(software, request.modality), request.dimensions in software.dimensions)
    if all(fits) and all(fulfills(software, constraint) for constraint in request.constraints):
        return points + FEATURES
    return points + PART * sum(fits)


def fits_modality(software: Facts, modality: str) -> bool:
    """Whether a software is for images of that kind, or for any image."""
    return modality in software.modalities or "any" in software.modalities


def fulfills(software: Facts, constraint: Constraint) -> bool:
    """Whether a software fulfills a constraint; what is unknown is not fulfilled."""
    if constraint == "no GPU":
        return software.gpu in ("no", "optional")
    if constraint == "demo":
        return software.demo is not None
    return any(part.strip() in PERMISSIVE for part in (software.license or "").split(" OR "))


def _grade_format(software: Facts, name: str) -> int:
    if name in software.formats:
        return FORMAT
    near = {one for family in FAMILIES if name in family for one in family}
    return SIBLING if near.intersection(software.formats) else 0
