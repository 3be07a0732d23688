"""A user's request: what is said, what is known of the file, and what only a question brings to light."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

from ...utils.frozen import FrozenDict
from .catalogue import SoftwareTool
from .phrases import Constraint, HiddenKind, Level, PicturedKind, Split
from .structures import MARKING, SHARES, compare, fits_variant
from .wishes import has_fact, read_wishes

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
    structure: str | None = None  # what it is about; empty if the user does not mind, None: what the words say
    variant: str = ""  # the kind of the modality; empty if that does not matter
    pictured: tuple[PicturedKind, ...] = ()  # what the picture tells, and neither words nor user
    follow_up: "Request | None" = None  # with which the user goes on after an answer; its words are what is said then

    @cached_property
    def wanted(self) -> tuple[str, ...]:
        """The structures that it is about."""
        if self.structure is not None:
            return (self.structure,) if self.structure else ()
        return tuple(name for kind, names in read_wishes(self.words) if kind == "structures" for name in names)

    @property
    def known_formats(self) -> tuple[str, ...]:
        """The format, if the file tells it: what the environment fills in when a tool searches."""
        return (self.format,) if self.format and "format" not in self.hidden else ()

    def write_facts(self) -> str:
        """Return what the user knows, a sentence for each fact: those already said, and then the hidden ones."""
        modality = f"The pictures (modality, kind of image, machine, scan) are: {self.variant or self.modality}."
        structure = "I do not mind which organ, body part, cell or structure the software is made for."
        if "structure" in (*self.hidden, *self.pictured):
            structure = "That is all."  # a question for everything gets three sentences
        elif self.wanted:
            structure = STRUCTURE.format(" and ".join(self.wanted))
        said = (SEEN if "modality" in self.pictured else modality, NO_MORE, structure)
        return "\n".join((*said, *self.hidden.values()))


SEEN = "What kind of image (modality, machine, scan, organ, structure, lesion) it is shows in the picture."
NO_MORE = "I have no other wishes (license, graphics card, GPU, demo, cost, hardware) than those I have told."
STRUCTURE = "The structure (organ, organs, body part, region, anatomy, cell, tissue, lesion, target, object) is: {}."
TASK, FORMAT, SIBLING, FEATURES, PART = 40, 30, 15, 30, 4
SUITABLE = 80
FAMILIES: tuple[frozenset[str], ...] = (
    frozenset(("DICOM", "NIfTI", "NRRD", "MetaImage", "MGH")),  # volumes of scanners
    frozenset(("TIFF", "OME-TIFF", "CZI", "ND2", "LIF")),  # microscopy
    frozenset(("SVS", "NDPI")),  # whole slides
    frozenset(("PNG", "JPEG", "TIFF")),  # flat pictures
    frozenset(("HDF5", "Zarr", "N5")),  # arrays in blocks
)
READY: Constraint = "made for it"
FACTS: Mapping[Constraint, tuple[str, str]] = {
    "no GPU": ("gpu", "no"),
    "demo": ("demo", "yes"),
    "permissive license": ("license", "permissive"),
    "free license": ("license", "free"),
}


def grade(software: SoftwareTool, request: Request) -> int:
    """Return how well a software fits a request, 0 to 100: task 40 + format 30 + features 30.

    Of the 40, software made for what is wanted has all, software for anything 32, software that does not say what it is
    for 24, software for a part of what is wanted 12, and software for something else 4.

    >>> from types import SimpleNamespace as Software
    >>> tool = Software(name="A", tasks=["segmentation"], modalities=["CT"], dimensions=["3D"], formats=["NIfTI"],
    ...                 license="MIT", demo=None, gpu="yes", structures=["tooth"], variants=[])
    >>> def ask(modality="CT", format="NIfTI", **other):
    ...     return grade(tool, Request("", "expert", "segmentation", modality, "3D", format, **other))
    >>> ask(), ask(format="DICOM"), ask("MR"), ask(format="CZI"), ask(constraints=("no GPU",)), ask(exclude=("a",))
    (100, 85, 74, 70, 78, 0)
    >>> ask(structure="tooth"), ask(structure="jaw"), ask(structure="lung")
    (100, 72, 64)
    """
    if software.name.casefold() in {name.casefold() for name in request.exclude}:
        return 0
    marks, named = request.task in MARKING, tuple(software.structures)
    share = min((SHARES[compare(named, wish, marks)] for wish in request.wanted), default=1.0)
    points = round(TASK * share) if request.task in software.tasks else 0
    points += _grade_format(software, request.format)
    kind = has_fact(software, "modalities", request.modality)
    kind = kind and (not request.variant or fits_variant(software.variants, request.variant))
    fits = (kind, request.dimensions in software.dimensions)
    wishes = [share == 1.0 if wish == READY else has_fact(software, *FACTS[wish]) for wish in request.constraints]
    if all(fits) and all(wishes):
        return points + FEATURES
    return points + PART * sum(fits)


def _grade_format(software: SoftwareTool, name: str) -> int:
    if name in software.formats:
        return FORMAT
    near = {member for family in FAMILIES if name in family for member in family}
    return SIBLING if near.intersection(software.formats) else 0
