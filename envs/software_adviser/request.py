"""A user's request: what is said, what is known of the file, and what only a question brings to light."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from ...utils.frozen import FrozenDict
from .catalogue import SoftwareTool
from .phrases import Constraint, HiddenKind, Level, Split
from .wishes import has_fact

Status = Literal["answerable", "ambiguous", "unanswerable"]
Reason = Literal["no_suitable_tool", "no_modality_match", "no_task_match", "no_dimension_match", "invalid_files"]
STATUSES: tuple[Status, ...] = get_args(Status)
REASONS: tuple[Reason, ...] = get_args(Reason)
UNKNOWN = "not known"


@dataclass(frozen=True)
class Request:
    """A request and the facts behind it: the user's words, and the task, the modality and so on in the catalogue's
    words, if it has them."""

    words: str
    level: Level  # whose words they are
    task: str
    modality: str
    dimensions: str
    format: str  # of the file; empty if it is no image that can be read
    constraints: tuple[Constraint, ...] = ()  # what else the software must fulfill
    exclude: tuple[str, ...] = ()  # names of software that the user does not want
    hidden: Mapping[HiddenKind, str] = field(default_factory=FrozenDict)  # what neither words nor metadata say
    status: Status = "answerable"
    reason: Reason | None = None  # why there is no answer
    metadata: Mapping[str, str] = field(default_factory=FrozenDict)  # of the file: format, dimensions, size, voxel size
    seed: int = 0
    split: Split = "train"
    withheld: tuple[str, ...] = ()  # suitable software of the other split, which searches of this task leave out

    @property
    def known_formats(self) -> tuple[str, ...]:
        """The format, if the file tells it: what the environment fills in when a tool searches."""
        return (self.format,) if self.format and "format" not in self.hidden else ()

    def write_facts(self) -> str:
        """Return what the user knows, a sentence for each fact: those already said, and then the hidden ones."""
        said = (
            f"The pictures (modality, kind of image, machine, scan) are: {self.modality}.",
            "I have no other wishes (license, graphics card, GPU, demo, cost, hardware) than those I have told.",
            "I do not mind which organ, body part, cell or structure the software is made for.",
        )
        return "\n".join((*said, *self.hidden.values()))


TASK, FORMAT, SIBLING, FEATURES, PART = 40, 30, 15, 30, 4
SUITABLE = 80
FAMILIES: tuple[frozenset[str], ...] = (
    frozenset(("DICOM", "NIfTI", "NRRD", "MetaImage", "MGH")),  # volumes of scanners
    frozenset(("TIFF", "OME-TIFF", "CZI", "ND2", "LIF")),  # microscopy
    frozenset(("SVS", "NDPI")),  # whole slides
    frozenset(("PNG", "JPEG", "TIFF")),  # flat pictures
    frozenset(("HDF5", "Zarr", "N5")),  # arrays in blocks
)
FACTS: Mapping[Constraint, str] = {"no GPU": "gpu", "demo": "demo", "permissive license": "license"}


def grade(software: SoftwareTool, request: Request) -> int:
    """Return how well a software fits a request, 0 to 100: task 40 + format 30 + features 30.

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
    fits = (has_fact(software, "modalities", request.modality), request.dimensions in software.dimensions)
    if all(fits) and all(has_fact(software, FACTS[constraint]) for constraint in request.constraints):
        return points + FEATURES
    return points + PART * sum(fits)


def _grade_format(software: SoftwareTool, name: str) -> int:
    if name in software.formats:
        return FORMAT
    near = {one for family in FAMILIES if name in family for one in family}
    return SIBLING if near.intersection(software.formats) else 0
