"""A user's request: what is said, what is known of the file, and what only a question brings to light."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Literal, get_args

from ...utils.frozen import FrozenDict
from ..drawn import Split
from .catalogue import SoftwareTool
from .phrases import ANSWERS, CONSTRAINTS, KNOWN, Constraint, HiddenKind, Level, PicturedKind
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
    filed: bool = False  # whether the words speak of a file, whose header tells what it can
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
        pictured, seen, named = "modality" in self.pictured, self.variant or self.modality, " and ".join(self.wanted)
        modality = "pictured" if pictured else "filed" if self.filed else "modality"
        said = [ANSWERS[modality].format(seen), ANSWERS["nothing else"]]
        if "structure" in (*self.hidden, *self.pictured):
            said.append("That is all.")  # a question for everything gets three sentences
        else:
            said.append(ANSWERS["structure" if named else "no structure"].format(named))
        return "\n".join((*said, *self.hidden.values()))


TASK, FORMAT, SIBLING, FEATURES, PART = 40, 30, 15, 30, 4
SUITABLE = 80
READY: Constraint = "made for it"
FACTS = {name: (kind, *words) for name in CONSTRAINTS if name != READY for kind, words in read_wishes(name)}


def grade(software: SoftwareTool, request: Request) -> int:
    """Return how well a software fits a request, 0 to 100: task 40 + format 30 + features 30.

    Of the 40, software made for what is wanted has all, software for anything 32, software that does not say what it is
    for 24, software for a part of what is wanted 12, and software for something else 4.

    >>> from types import SimpleNamespace as Software
    >>> tool = Software(name="A", tasks=["segmentation"], modalities=["CT"], dimensions=["3D"], formats=["NIfTI"],
    ...                 license="MIT", demo=None, gpu="yes", structures_for=lambda task: ("tooth",), variants=[])
    >>> def ask(modality="CT", format="NIfTI", **other):
    ...     return grade(tool, Request("", "expert", "segmentation", modality, "3D", format, **other))
    >>> ask(), ask(format="DICOM"), ask("MR"), ask(format="CZI"), ask(constraints=("no GPU",)), ask(exclude=("a",))
    (100, 85, 74, 70, 78, 0)
    >>> ask(structure="tooth"), ask(structure="jaw"), ask(structure="lung")
    (100, 72, 64)
    """
    if software.name.casefold() in {name.casefold() for name in request.exclude}:
        return 0
    marks, named = request.task in MARKING, software.structures_for(request.task)
    share = min((SHARES[compare(named, wish, marks)] for wish in request.wanted), default=1.0)
    points = round(TASK * share) if request.task in software.tasks else 0
    if request.format in software.formats:
        points += FORMAT
    elif list_siblings(request.format).intersection(software.formats):
        points += SIBLING
    kind = has_fact(software, "modalities", request.modality)
    kind = kind and (not request.variant or fits_variant(software.variants, request.variant))
    fits = (kind, request.dimensions in software.dimensions)
    wishes = [share == 1.0 if wish == READY else has_fact(software, *FACTS[wish]) for wish in request.constraints]
    if all(fits) and all(wishes):
        return points + FEATURES
    return points + PART * sum(fits)


@cache
def list_siblings(format: str) -> frozenset[str]:
    """Return the formats that software which reads this one often reads, too."""
    return frozenset(name for family in KNOWN["families"] if format in family for name in family) - {format}
