"""Searches figures of open-access articles with Open-i of the National Library of Medicine.

`GET https://openi.nlm.nih.gov/api/search` takes `query`, `it` (the kind of picture), `m` and `n` (the first and the
last result, from 1); see https://openi.nlm.nih.gov/services and https://openi.nlm.nih.gov/v2/api-docs. Kinds of `it`:
c CT, g graphics, m MRI, mc microscopy, p PET, ph photographs, u ultrasound, x X-ray (and xg, xm: without graphics,
without several panels). There is none for a part of the body, which joins the words, as do other modalities. Open-i
publishes no rate; it is asked as seldom as NCBI's services are without a key.

Fields of a figure that are read: uid, image.id, image.caption, title, journal_title, journal_date.year, pmid, pmcid,
imgLarge. Captions hold HTML. Without results `list` may be missing; a refused query has "Query-Error" (description of
the API: https://openi.nlm.nih.gov/services and https://openi.nlm.nih.gov/v2/api-docs).
"""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any, Final
from urllib.parse import urljoin

from ...network.errors import RequestError, UnusableReplyError
from ..specialists.remote import JPEG, PNG
from .eutils import Service, build_url, read_object, read_pmid, read_text, read_year
from .records import FoundImage, ImageQuery

HOST = "openi.nlm.nih.gov"
RATE = 3  # requests a second
MAX_RESULTS = 30  # of a search; Open-i gives no more at once
KINDS: Final[Mapping[str, str]] = {
    "c": "ct, cat scan, computed tomography, ct scan",
    "m": "mri, mr, magnetic resonance, magnetic resonance imaging",
    "p": "pet, positron emission tomography, pet scan",
    "u": "ultrasound, us, sonography, ultrasonography, echocardiography",
    "x": "x-ray, xray, x ray, radiograph, radiography, plain film, cr, dx, mammography",
    "mc": "microscopy, histology, pathology, histopathology",
    "ph": "photograph, photo, photography, endoscopy, dermoscopy",
    "g": "graphics, graphic, diagram, chart, drawing",
}
_KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split(", ")}
_NARROWER = frozenset({"echocardiography", "mammography", "endoscopy", "dermoscopy", "histopathology"})


def find_kind(modality: str) -> str | None:
    """Return the value of `it` for a modality as a model writes it; None if there is none.

    >>> find_kind("X-Ray"), find_kind("CT scan"), find_kind("fluoroscopy")
    ('x', 'c', None)
    """
    return _KIND_OF.get(" ".join(modality.casefold().replace("_", " ").split()))


def build_parameters(query: ImageQuery, limit: int) -> dict[str, str]:
    """Return what Open-i is asked for.

    >>> build_parameters(ImageQuery("nodule", "ct", "chest"), 4)
    {'query': 'nodule chest', 'm': '1', 'n': '4', 'it': 'c'}
    """
    kind, modality = find_kind(query.modality), query.modality.casefold().strip()
    added = modality if kind is None or modality in _NARROWER else ""
    words = " ".join(" ".join((query.words, query.body_part, added)).split())
    return {"query": words, "m": "1", "n": str(limit)} | ({"it": kind} if kind else {})


class OpenI(Service):
    """Searches figures and loads their pictures."""

    def __init__(self) -> None:
        super().__init__(HOST, "Open-i", RATE)

    async def search(self, query: ImageQuery) -> list[FoundImage]:
        """Return the figures, the best first."""
        limit = max(0, min(query.limit, MAX_RESULTS))
        parameters = build_parameters(query, limit)
        if not limit or not parameters["query"]:
            return []
        modality = query.modality.strip() if "it" in parameters else ""
        base = f"https://{self.host}"
        return await self.ask("/api/search", parameters, lambda body: read_figures(body, base, limit, modality))

    async def load_picture(self, url: str) -> bytes:
        """Return the file of a picture, PNG or JPEG; raise `ToolError`."""
        return await self.load(url, _check_format)


def _check_format(content: bytes) -> bytes:
    """Return the file of a picture by its first bytes; whether it is one says the decoder."""
    if not content.startswith((PNG, JPEG)):
        raise RequestError("the picture is neither PNG nor JPEG")
    return content


MAX_CAPTION = 20_000  # characters
# A tag ends before the next begins, so the time grows with the text; that of `html.parser` grows with its square.
_TAG = re.compile(r"</?[A-Za-z!][^<>]{0,500}>")
_BREAK = re.compile(r"</?(?:p|br|li|div)\b[^<>]{0,500}>", re.IGNORECASE)
_PMCID = re.compile(r"PMC[0-9]{1,12}")
_IMAGE_FIELDS = ("imgLarge", "imgGrid150", "imgThumbLarge", "imgThumb")  # the largest first


def read_figures(content: bytes, base: str, limit: int, modality: str = "") -> list[FoundImage]:
    """Return the figures of an answer, the best first; one without an id or a picture is left out.
    The addresses of pictures begin with `base`. All figures have the `modality` that was asked for.

    >>> one = b'{"uid": "PMC1", "image": {"id": "F1", "caption": "A <b>film</b>"}, "imgLarge": "/imgs/1.png"}'
    >>> found = read_figures(b'{"total": 1, "list": [' + one + b']}', "https://openi.nlm.nih.gov", 5)[0]
    >>> found.uid, found.caption, found.image_url
    ('PMC1_F1', 'A film', 'https://openi.nlm.nih.gov/imgs/1.png')
    """
    value = read_object(content, "Open-i")
    if value.get("Query-Error"):
        raise UnusableReplyError(f"Open-i refused the query: {str(value['Query-Error'])[:200]}")
    entries = value.get("list", [] if str(value.get("total", "")).strip() == "0" else None)
    if not isinstance(entries, list):
        raise UnusableReplyError("the answer of Open-i has no list")
    figures = (_read_figure(entry, base, modality) for entry in entries if isinstance(entry, Mapping))
    unique = {figure.uid: figure for figure in reversed([entry for entry in figures if entry is not None])}
    return list(reversed(unique.values()))[:limit]


def _read_figure(value: Mapping[str, Any], base: str, modality: str) -> FoundImage | None:
    image = value.get("image") if isinstance(value.get("image"), Mapping) else {}
    date = value.get("journal_date") if isinstance(value.get("journal_date"), Mapping) else {}
    assert image is not None
    assert date is not None
    name, number = _read_id(value.get("uid")), _read_id(image.get("id"))
    path = next((text for field in _IMAGE_FIELDS if (text := read_text(value.get(field)))), "")
    if not name or not path:
        return None
    title, journal = read_html(value.get("title")), read_html(value.get("journal_title"))
    about = ", ".join(filter(None, (journal, str(read_year(str(date.get("year") or "")) or ""))))
    pmid, pmcid = read_pmid(value.get("pmid")), read_text(value.get("pmcid"))
    url = build_url(pmid) if pmid else ""
    if _PMCID.fullmatch(pmcid):
        url = f"https://pmc.ncbi.nlm.nih.gov/articles/{pmcid}/"
    return FoundImage(
        f"{name}_{number}" if number else name,
        caption=read_html(image.get("caption")),
        source=". ".join(filter(None, (title.rstrip("."), about))),
        url=url,
        image_url=_join(base, path),
        pmid=pmid,
        modality=modality,
    )


def read_html(value: object) -> str:
    """Return the text of a fragment of HTML in one line; empty if the value is no text.

    >>> read_html("<p>CT &amp; MRI:<br/>a<sub>1</sub> (p < 0.05)"), read_html(None)
    ('CT & MRI: a1 (p < 0.05)', '')
    """
    if not isinstance(value, str):
        return ""
    return read_text(unescape(_TAG.sub("", _BREAK.sub(" ", value[:MAX_CAPTION]))))


def _read_id(value: object) -> str:
    return read_text(str(value))[:100] if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _join(base: str, path: str) -> str:
    """Return the address of a picture; it is judged where it is fetched."""
    try:
        return urljoin(base, path[:2000])
    except ValueError:
        return ""
