"""One tool of a catalogue: its facts, and where each fact was looked up."""

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ...errors import describe_unknown
from ...utils.sanitize import clean

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


FROM_MEMORY: Final = "from memory"  # the source of a fact that was not looked up
MAX_NAME = 80
MAX_FEATURES = 600
MAX_URL = 500
MAX_SOURCES = 100
LISTS: Final = ("tasks", "modalities", "dimensions", "formats", "interfaces")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_URL = re.compile(r"https://[\w.-]+\.[A-Za-z]{2,}(:\d+)?([/?#]\S*)?", re.ASCII)
_OPERATOR = re.compile(r" (?:AND|OR|WITH) ")
_OWN_LICENSE = re.compile(r"LicenseRef-[A-Za-z0-9.-]{1,60}")


def check_plain(text: str) -> str:
    """The text, if it is one line that holds no invisible character and no mark of a chat template.

    Raises:
        ValueError: it holds one, or is blank.
    """
    if "\n" in text or "\t" in text or text != text.strip() or not text or clean(text, len(text) + 1) != text:
        raise ValueError("one line of text without control characters, invisible characters, <marks> and [MARKS]")
    return text


def check_https(url: str) -> str:
    """The URL, if it is one of https.

    >>> check_https("https://github.com/owner/name")
    'https://github.com/owner/name'

    Raises:
        ValueError: another scheme, or characters that no URL holds.
    """
    if not _URL.fullmatch(url):
        raise ValueError("https://host/path")
    return url


def check_license(text: str) -> str:
    """The license, if each part is a known SPDX id, or `LicenseRef-NAME` for a license that SPDX does not list.

    >>> check_license("Apache-2.0 OR LicenseRef-own")
    'Apache-2.0 OR LicenseRef-own'

    Raises:
        ValueError: a part is neither.
    """
    for part in _OPERATOR.split(text):
        if part not in LICENSES and not _OWN_LICENSE.fullmatch(part):
            raise ValueError(
                f"SPDX ids joined by AND, OR, or LicenseRef-NAME; {describe_unknown('id', part, LICENSES)}"
            )
    return text


def _check_words(allowed: tuple[str, ...]) -> AfterValidator:
    def check(words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if word not in allowed:
                raise ValueError(describe_unknown("word", word[:MAX_NAME], allowed))
        return words

    return AfterValidator(check)


def _check_distinct(words: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(words)) != len(words):
        raise ValueError("each word once")
    return words


def _read_date(value: object) -> object:
    if isinstance(value, str) and _DATE.fullmatch(value):
        return date.fromisoformat(value)  # strict models take no text for a date
    return value


Plain = AfterValidator(check_plain)
Words = Annotated[tuple[str, ...], Field(max_length=64, strict=False), AfterValidator(_check_distinct)]
Url = Annotated[str, Field(max_length=MAX_URL), AfterValidator(check_https)]


class FactSource(BaseModel):
    """Where facts were looked up, and when.

    source: an https URL, or "from memory" for what was not looked up.
    looked_up: the day; None if and only if it is from memory.
    facts: names of facts, as `SoftwareTool.list_facts` gives them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    source: Annotated[str, Field(max_length=MAX_URL)]
    looked_up: Annotated[date | None, BeforeValidator(_read_date)] = None
    facts: Annotated[
        tuple[Annotated[str, Field(max_length=100), Plain], ...], Field(min_length=1, max_length=100, strict=False)
    ]

    @model_validator(mode="after")
    def _check_source(self) -> "FactSource":
        if self.source != FROM_MEMORY:
            check_https(self.source)
        if (self.looked_up is None) != (self.source == FROM_MEMORY):
            raise ValueError(f"looked_up: a day (YYYY-MM-DD) for a URL, none for {FROM_MEMORY!r}")
        return self


class SoftwareTool(BaseModel):
    """A tool of the catalogue; it cannot be changed.

    name: unique in its catalogue.
    repository: https URL of its source; of its home page if the source is elsewhere or closed.
    tasks, modalities, dimensions, formats, interfaces: words of the lists above. The modality "any" stands for all.
    license: SPDX ids, or `LicenseRef-NAME`; None if unknown.
    demo: a page that shows the tool at work without installing it; None if none is known.
    gpu: whether a graphics card is needed.
    features: what it does, in a sentence.
    sources: where the facts come from.

    Example:
        >>> tool = SoftwareTool(
        ...     name="Cellpose", repository="https://github.com/MouseLand/cellpose", tasks=("segmentation",),
        ...     modalities=("fluorescence",), dimensions=("2D", "3D"), formats=("TIFF",), interfaces=("Python",),
        ...     features="Outlines cells.")
        >>> tool.gpu, tool.list_unsourced()[:3]
        ('unknown', ('name', 'repository', 'tasks.segmentation'))
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(max_length=MAX_NAME), Plain]
    repository: Url
    tasks: Annotated[Words, Field(min_length=1), _check_words(TASKS)]
    modalities: Annotated[Words, Field(min_length=1), _check_words(MODALITIES)]
    dimensions: Annotated[Words, Field(min_length=1), _check_words(DIMENSIONS)]
    formats: Annotated[Words, _check_words(FORMATS)] = ()
    license: Annotated[str, Field(max_length=200), AfterValidator(check_license)] | None = None
    demo: Url | None = None
    gpu: Gpu = "unknown"
    interfaces: Annotated[Words, _check_words(INTERFACES)] = ()
    features: Annotated[str, Field(max_length=MAX_FEATURES), Plain]
    sources: Annotated[tuple[FactSource, ...], Field(max_length=MAX_SOURCES, strict=False)] = ()

    def list_facts(self) -> tuple[str, ...]:
        """The names of its facts, such as "license" and "formats.DICOM"; what is unknown is not a fact."""
        return tuple(self._iterate_facts())

    def _iterate_facts(self) -> Iterator[str]:
        for name in type(self).model_fields:
            if name in LISTS:
                yield from (f"{name}.{word}" for word in getattr(self, name))
            elif name != "sources" and getattr(self, name) not in (None, "unknown"):
                yield name

    def list_unsourced(self) -> tuple[str, ...]:
        """The facts that no source names."""
        sourced = {fact for source in self.sources for fact in source.facts}
        return tuple(fact for fact in self.list_facts() if fact not in sourced)

    @model_validator(mode="after")
    def _check_sources(self) -> "SoftwareTool":
        facts = set(self.list_facts())
        for source in self.sources:
            for fact in source.facts:
                if fact not in facts:
                    raise ValueError(f"sources: {describe_unknown('fact', fact, facts)}")
        return self
