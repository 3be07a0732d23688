"""The whole search: BM25 and vectors, fused by reciprocal rank, then reranked."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import numpy as np

from viewbox.envs.software_adviser.retrieval import fusion
from viewbox.envs.software_adviser.retrieval.bm25 import Bm25Index
from viewbox.envs.software_adviser.retrieval.fact_reranker import FactReranker
from viewbox.envs.software_adviser.retrieval.lsa import LsaEncoder
from viewbox.envs.software_adviser.retrieval.settings import FACTS, LSA, NONE, RetrievalSettings
from viewbox.envs.software_adviser.retrieval.text_models import build_encoder, build_pair_scorer
from viewbox.envs.software_adviser.retrieval.vectors import VectorIndex
from viewbox.envs.software_adviser.retrieval.wishes import get_synonyms
from viewbox.envs.software_adviser.software import SoftwareTool

COLUMN_WEIGHTS: Final = {
    "name": 3.0,
    "tasks": 2.0,
    "modalities": 2.0,
    "dimensions": 1.0,
    "formats": 1.0,
    "features": 1.0,
}


@dataclass(frozen=True)
class Hit:
    """A tool that was found, and its score."""

    name: str
    score: float


class Retriever:
    """Searches a catalogue. The same query has the same hits, in every thread and process.

    Nothing is fitted or loaded before `prepare` or the first search. A forked or unpickled copy prepares itself again.

    Args:
        tools: of the catalogue; their names differ.
        settings: how it is searched.
    """

    def __init__(self, tools: Sequence[SoftwareTool], settings: RetrievalSettings | None = None) -> None:
        self.tools, self.settings = tuple(tools), settings or RetrievalSettings()
        self.by_name: Mapping[str, SoftwareTool] = {tool.name: tool for tool in self.tools}
        self._parts: _Parts | None = None
        self._lock, self._process = Lock(), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return Retriever, (self.tools, self.settings)

    def prepare(self) -> None:
        """Build the index and the vectors. Raises `ConfigError` if a model cannot be loaded."""
        self._get_parts()

    def rest(self) -> None:
        """Give back what models hold and the next search can take again, such as memory on the GPU."""
        if self._parts is not None and self._process == os.getpid():
            if self._parts.vectors is not None:
                self._parts.vectors.encoder.rest()
            if self._parts.pairs is not None:
                self._parts.pairs.rest()

    def search(
        self, words: str, *, top_k: int, exclude: Collection[str] = (), formats: Sequence[str] = ()
    ) -> list[Hit]:
        """The best tools, the best first.

        Args:
            words: of the query, as a model wrote them.
            top_k: tools at most.
            exclude: names of tools that are left out, in any case.
            formats: of the user's files, words of the vocabulary.

        Raises:
            ToolError: a model failed on this query.
        """
        parts = self._get_parts()
        left_out = [parts.places[name] for name in map(str.casefold, exclude) if name in parts.places]
        places, fused = self._find_candidates(parts, words, left_out)
        if not len(places):
            return []
        scores = fused
        if self.settings.reranker == FACTS:
            scores = parts.facts.score(words, formats, places, fused)
        elif parts.pairs is not None:
            scores = parts.pairs.score(_add_formats(words, formats), [parts.texts[place] for place in places])
        scores = np.round(scores, fusion.DIGITS)
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [Hit(self.tools[places[number]].name, float(scores[number])) for number in best]

    def _find_candidates(self, parts: "_Parts", words: str, left_out: list[int]) -> tuple[np.ndarray, np.ndarray]:
        rankings = []
        for index in (parts.bm25, parts.vectors):
            if index is not None:
                scores = index.score(words)
                scores[left_out] = 0
                rankings.append(fusion.find_best(scores, self.settings.candidates))
        return fusion.fuse(rankings)

    def _get_parts(self) -> "_Parts":
        if self._process != os.getpid():  # a child must not wait for a lock that a thread of its parent held
            self._parts, self._lock, self._process = None, Lock(), os.getpid()
        with self._lock:
            if self._parts is None:
                self._parts = _Parts(self.tools, self.settings)
            return self._parts


class _Parts:
    """What is built once for each process."""

    def __init__(self, tools: Sequence[SoftwareTool], settings: RetrievalSettings) -> None:
        records = [write_record(tool) for tool in tools]
        self.places = {tool.name.casefold(): place for place, tool in enumerate(tools)}
        self.texts = [write_text(record) for record in records]
        self.bm25 = Bm25Index(records, COLUMN_WEIGHTS, get_synonyms())
        self.vectors = None
        if settings.embedding != NONE and tools:
            if settings.embedding == LSA:
                self.vectors = VectorIndex(LsaEncoder(self.texts, settings.dimensions, get_synonyms()), self.texts)
            else:
                self.vectors = VectorIndex(build_encoder(settings.embedding), self.texts)
        self.facts = FactReranker(tools)
        self.pairs = None if settings.reranker in (FACTS, NONE) else build_pair_scorer(settings.reranker)


def write_record(tool: SoftwareTool) -> dict[str, str]:
    """The texts of a tool by column of the index."""
    lists = {name: ", ".join(getattr(tool, name)) for name in ("tasks", "modalities", "dimensions", "formats")}
    return {"name": tool.name, **lists, "features": f"{tool.features} {', '.join(tool.interfaces)}"}


def write_text(record: Mapping[str, str]) -> str:
    """The same as one text, for vectors and cross-encoders.

    >>> write_text({"name": "A", "tasks": "denoising", "modalities": "CT", "dimensions": "3D", "formats": "DICOM",
    ...             "features": "Removes noise. CLI"})
    'A: Removes noise. CLI Tasks: denoising. Modalities: CT. Dimensions: 3D. Formats: DICOM.'
    """
    facts = " ".join(
        f"{name.capitalize()}: {text}." for name, text in record.items() if name not in ("name", "features")
    )
    return f"{record['name']}: {record['features']} {facts}"


def _add_formats(words: str, formats: Sequence[str]) -> str:
    return f"{words} ({', '.join(formats)})" if formats else words
