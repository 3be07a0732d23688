"""A catalogue of imaging software: its tools, their facts, and where each fact was looked up; shipped, or a user's own.

A row that cannot be used costs itself, and is named with its file, line and key.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ...configs.validation import describe_errors
from ...errors import BadRow, ConfigError, describe_unknown
from ...utils.frozen import FrozenDict, freeze
from ...utils.values import fold_text
from ..data.rows import JsonLines
from .structures import check_term

T = TypeVar("T")
SHIPPED: Final = files(__package__) / "catalogue.jsonl"
SUFFIXES: Final = (".jsonl", ".ndjson")

# ---------------------------------------------------------------------- the words of facts
Task = Literal[
    "DICOM networking", "acquisition", "annotation", "classification", "data management", "de-identification",
    "deconvolution", "denoising", "depth estimation", "detection", "file reading", "format conversion", "measurement",
    "pose estimation", "quality control", "radiomics", "reconstruction", "registration", "segmentation", "simulation",
    "stain normalization", "stitching", "super-resolution", "tracking", "treatment planning", "visualization",
]  # fmt: skip
Modality = Literal[
    "any", "CT", "MR", "OCT", "PET", "SPECT", "X-ray", "bright field", "electron", "endoscopy", "fluorescence",
    "fundus", "histology", "phase contrast", "photo", "photoacoustic", "ultrasound",
]  # fmt: skip
Dimension = Literal["2D", "3D", "2D+t", "3D+t"]
Format = Literal[
    "CFL", "CZI", "DICOM", "DZI", "E2E", "FDA", "HDF5", "ISMRMRD", "Interfile", "JPEG", "LIF", "MATLAB", "MGH", "MRC",
    "MetaImage", "N5", "ND2", "NDPI", "NIfTI", "NRRD", "NumPy", "OME-TIFF", "PNG", "SVS", "TIFF", "Zarr", "raw",
    "video",
]  # fmt: skip
Interface = Literal["CLI", "GUI", "Java plugin", "Python", "web"]
Gpu = Literal["no", "optional", "yes", "unknown"]
TASKS: Final[tuple[str, ...]] = get_args(Task)
MODALITIES: Final[tuple[str, ...]] = get_args(Modality)
DIMENSIONS: Final[tuple[str, ...]] = get_args(Dimension)
FORMATS: Final[tuple[str, ...]] = get_args(Format)
INTERFACES: Final[tuple[str, ...]] = get_args(Interface)
FROM_MEMORY: Final = "from memory"  # the source of a fact that was not looked up
LISTS: Final = ("tasks", "modalities", "dimensions", "formats", "interfaces", "variants")
OTHER_TASKS: Final = "other tasks"  # those without structures of their own


def _check_https(url: str) -> str:
    if not url.startswith("https://") or not urlsplit(url).hostname or " " in url:
        raise ValueError("allowed: https://host/path")
    return url


def _check_distinct(words: tuple[T, ...]) -> tuple[T, ...]:
    if len(set(words)) != len(words):
        raise ValueError("allowed: each word once")
    return words


def _sort_by_task(structures: object) -> Mapping[Any, Any]:
    if isinstance(structures, list | tuple):
        return {OTHER_TASKS: structures}
    if not isinstance(structures, Mapping):
        raise ValueError(f"allowed: a list, or lists by task, with {OTHER_TASKS!r} for those that have none")
    return structures


Text = Annotated[str, Field(min_length=1, max_length=600)]
Url = Annotated[str, Field(max_length=500), AfterValidator(_check_https)]
Words = Annotated[tuple[T, ...], AfterValidator(_check_distinct)]
OneOrMore = Annotated[Words[T], Field(min_length=1)]
Structure = Annotated[str, AfterValidator(partial(check_term, kind="structures"))]
Variant = Annotated[str, AfterValidator(partial(check_term, kind="variants"))]
ByTask = Annotated[Mapping[str, Words[Structure]], BeforeValidator(_sort_by_task), AfterValidator(freeze)]


class FactSource(BaseModel):
    """Where facts were looked up, and when.

    source: an https URL, or "from memory" for what was not looked up.
    looked_up: the day; None if and only if it is from memory.
    facts: names of facts, as `SoftwareTool.list_facts` gives them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Annotated[str, Field(max_length=500)]
    looked_up: date | None = None
    facts: Annotated[tuple[str, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_source(self) -> "FactSource":
        if self.source != FROM_MEMORY:
            _check_https(self.source)
        if (self.looked_up is None) != (self.source == FROM_MEMORY):
            raise ValueError(f"looked_up: a day (YYYY-MM-DD) for a URL, none for {FROM_MEMORY!r}")
        return self


class SoftwareTool(BaseModel):
    """A tool of the catalogue; it cannot be changed. The modality "any" stands for all.

    name: unique in its catalogue. repository: https URL of its source; of its home page if the source is elsewhere or
    closed. structures: what it is made for, words of `structures.txt`, `brain+` with all parts, or `any`; empty if
    unknown; a list, or lists by task, which `structures_for` reads. variants: kinds of its modalities, words of
    `variants.txt`; empty if it takes all. license: SPDX ids, or `LicenseRef-NAME`; None if unknown. demo: a page that
    shows the tool at work without installing it. gpu: whether a graphics card is needed. features: what it does, in a
    sentence. sources: where the facts come from.

    >>> tool = SoftwareTool(
    ...     name="Cellpose", repository="https://github.com/MouseLand/cellpose", tasks=("segmentation",),
    ...     modalities=("fluorescence",), dimensions=("2D", "3D"), formats=("TIFF",), interfaces=("Python",),
    ...     features="Outlines cells.")
    >>> tool.gpu, tool.list_unsourced()[:3]
    ('unknown', ('name', 'repository', 'tasks.segmentation'))
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Text
    repository: Url
    tasks: OneOrMore[Task]
    modalities: OneOrMore[Modality]
    dimensions: OneOrMore[Dimension]
    formats: Words[Format] = ()
    structures: ByTask = FrozenDict({OTHER_TASKS: ()})
    variants: Words[Variant] = ()
    license: Text | None = None
    demo: Url | None = None
    gpu: Gpu = "unknown"
    interfaces: Words[Interface] = ()
    features: Text
    sources: tuple[FactSource, ...] = ()

    def structures_for(self, task: str) -> tuple[str, ...]:
        """Return what it is made for in a task; if none is known (""), what it is made for in any."""
        if task:
            return self.structures.get(task, self.structures.get(OTHER_TASKS, ()))
        return tuple(dict.fromkeys(word for words in self.structures.values() for word in words))

    def list_structures(self) -> tuple[str, ...]:
        """Return what it is made for, as it is told: each word, or "cortex, white matter (segmentation)"."""
        if [*self.structures] == [OTHER_TASKS]:
            return self.structures[OTHER_TASKS]
        return tuple(f"{', '.join(words) or 'unknown'} ({task})" for task, words in self.structures.items())

    def list_facts(self) -> tuple[str, ...]:
        """Return the names of its facts, such as "license" and "formats.DICOM"; what is unknown is not a fact."""
        facts: list[str] = []
        for name in type(self).model_fields:
            value = getattr(self, name)
            if name in LISTS:
                facts += [f"{name}.{word}" for word in value]
            elif name == "structures":
                places = {task: name if task == OTHER_TASKS else f"{name}.{task}" for task in value}
                facts += [f"{places[task]}.{word}" for task, words in value.items() for word in words]
            elif name != "sources" and value not in (None, "unknown"):
                facts.append(name)
        return tuple(facts)

    def list_unsourced(self) -> tuple[str, ...]:
        sourced = {fact for source in self.sources for fact in source.facts}
        return tuple(fact for fact in self.list_facts() if fact not in sourced)

    @model_validator(mode="after")
    def _check_structures(self) -> "SoftwareTool":
        for task in self.structures:
            if task not in (allowed := (*self.tasks, OTHER_TASKS)):
                raise ValueError(f"structures: {describe_unknown('task of this tool', task, allowed)}")
        lacking = [task for task in self.tasks if task not in self.structures]
        if bool(lacking) != (OTHER_TASKS in self.structures):
            problem = f"lacking for {', '.join(lacking)}" if lacking else f"no task is left for {OTHER_TASKS!r}"
            raise ValueError(f"structures: {problem}; allowed: a list for each task, or {OTHER_TASKS!r} for the rest")
        return self

    @model_validator(mode="after")
    def _check_sources(self) -> "SoftwareTool":
        facts = self.list_facts()
        for fact in (fact for source in self.sources for fact in source.facts):
            if fact not in facts:
                raise ValueError(f"sources: {describe_unknown('fact', fact, facts)}")
        return self


# ---------------------------------------------------------------------- the file
@dataclass(frozen=True)
class Catalogue:
    """The tools of a file, in its order, with unique names and repositories; and its problems: rows that cannot be
    used, duplicates, and facts without a source."""

    tools: tuple[SoftwareTool, ...]
    problems: tuple[str, ...]


def read_catalogue(path: str | Path | Traversable = SHIPPED) -> tuple[SoftwareTool, ...]:
    """Read the tools of a catalogue. Raise `ConfigError` if the file cannot be read, or no row of it can be used."""
    checked = check_catalogue(path)
    if not checked.tools:
        first = f"; the first problem: {checked.problems[0]}" if checked.problems else ""
        raise ConfigError(f"{Path(str(path)).name}: holds no tool that can be used{first}", key="catalogue")
    return checked.tools


def check_catalogue(path: str | Path | Traversable = SHIPPED) -> Catalogue:
    """Read a catalogue, a tool a line of a JSONL file, and find what is wrong in it. Raise `ConfigError` if it cannot
    be read."""
    if not isinstance(path, str | Path):  # in a zip file
        with as_file(path) as file:
            return check_catalogue(file)
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        text = f"catalogue = {str(path)!r:.200}: a file of another kind; allowed: {', '.join(SUFFIXES)}"
        raise ConfigError(text, key="catalogue")
    try:
        lines = JsonLines(path)
        rows = [(f"{path.name}: {lines.locate(number)}", row) for number, row in enumerate(lines.scan(()))]
    except OSError as error:
        text = f"catalogue = {str(path)!r:.200}: {error.strerror or error}"
        raise ConfigError(text, key="catalogue") from error
    tools: list[SoftwareTool] = []
    problems: list[str] = []
    seen: dict[str, str] = {}
    for place, row in rows:
        if isinstance(row, BadRow):
            problems.append(str(row))
            continue
        try:
            tool = SoftwareTool.model_validate(dict(row))
        except ValidationError as error:
            problems += [f"{place}: {problem}" for problem in describe_errors(error, SoftwareTool, dict(row))]
            continue
        folded = {"name": fold_text(tool.name), "repository": fold_url(tool.repository)}
        if twice := [key for key, value in folded.items() if value in seen]:
            repeats = [f"{key} = {getattr(tool, key)!r}: has been given by {seen[folded[key]]}" for key in twice]
            problems += [f"{place}: {text}" for text in repeats]
            continue
        seen.update(dict.fromkeys(folded.values(), place))
        tools.append(tool)
        if unsourced := tool.list_unsourced():
            problems.append(f"{place}: sources: lacking for {', '.join(unsourced)}; allowed: a source for every fact")
    return Catalogue(tuple(tools), tuple(problems))


def fold_url(url: str) -> str:
    """Return the URL of a repository as duplicates are compared: case, `.git` and a last slash do not count.

    >>> fold_url("https://GitHub.com/Owner/Name.git/")
    'github.com/owner/name'
    """
    address = urlsplit(url.lower())
    return f"{address.hostname}{address.path}".rstrip("/").removesuffix(".git")
