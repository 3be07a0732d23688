"""Searches figures of open-access articles with Open-i of the National Library of Medicine.

`GET https://openi.nlm.nih.gov/api/search` takes `query`, `it` (the kind of picture), `m` and `n` (the first and the
last result, from 1); see https://openi.nlm.nih.gov/services and https://openi.nlm.nih.gov/v2/api-docs. Kinds of `it`:
c CT, g graphics, m MRI, mc microscopy, p PET, ph photographs, u ultrasound, x X-ray (and xg, xm: without graphics,
without several panels). There is none for a part of the body, which joins the words, as do other modalities. Open-i
publishes no rate; it is asked as seldom as NCBI's services are without a key.
"""

from collections.abc import Mapping
from typing import Final

from viewbox.envs.tools.search.parse_openi import read_figures
from viewbox.envs.tools.search.records import FoundImage, ImageQuery
from viewbox.envs.tools.search.service import Service
from viewbox.network.fetching import PICTURES

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
    """The value of `it` for a modality as a model writes it; None if there is none.

    >>> find_kind("X-Ray"), find_kind("CT scan"), find_kind("fluoroscopy")
    ('x', 'c', None)
    """
    return _KIND_OF.get(" ".join(modality.casefold().replace("_", " ").split()))


def build_parameters(query: ImageQuery, limit: int) -> dict[str, str]:
    """What Open-i is asked for.

    >>> build_parameters(ImageQuery("nodule", "ct", "chest"), 4)
    {'query': 'nodule chest', 'm': '1', 'n': '4', 'it': 'c'}
    """
    kind, modality = find_kind(query.modality), query.modality.casefold().strip()
    added = modality if kind is None or modality in _NARROWER else ""
    words = " ".join(" ".join((query.words, query.body_part, added)).split())
    return {"query": words, "m": "1", "n": str(limit)} | ({"it": kind} if kind else {})


class OpeniClient:
    """Searches figures and loads their pictures.

    Args:
        service: Open-i's host.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def search(self, query: ImageQuery) -> list[FoundImage]:
        """The figures, the best first.

        Raises:
            ToolError: Open-i gives no answer.
        """
        limit = max(0, min(query.limit, MAX_RESULTS))
        parameters = build_parameters(query, limit)
        if not limit or not parameters["query"]:
            return []
        modality = query.modality.strip() if "it" in parameters else ""
        base = f"https://{self.service.host}"
        return await self.service.ask("/api/search", parameters, lambda body: read_figures(body, base, limit, modality))

    async def load(self, url: str) -> bytes:
        """The file of a picture, PNG or JPEG; raises `ToolError`."""
        return await self.service.load(url, PICTURES, bytes)
