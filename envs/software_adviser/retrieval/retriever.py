"""The whole search: BM25 and vectors, fused by reciprocal rank, then reranked.

FTS5's `bm25` is a sum over the phrases of a query. So the scores of each phrase are asked for once and kept, and a
query adds up a few arrays: a query of frequent words, which takes FTS5 10 ms among 10,000 records, takes 0.1 ms. The
scorings are joined by reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009).
"""

import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType
from typing import Annotated, Any, Final

import numpy as np
from cachetools import LRUCache
from pydantic import BaseModel, ConfigDict, Field

from ....tools.search.snapshot.schema import TOKENIZER
from ....tools.search.snapshot.words import Synonyms, quote, read_query
from ....tools.specialists.models.text_models import ModelEncoder, ModelPairScorer
from ....tools.specialists.serving import measure_bytes
from ..software import SoftwareTool
from .vectors import LsaEncoder, VectorIndex
from .wishes import Wish, get_synonyms, get_wish_reader, has_fact, read_table

LSA, FACTS, NONE = "lsa", "facts", "none"
K: Final = 60  # of the paper
DIGITS: Final = 5  # of a score that count: the last ones differ between machines


def find_best(scores: np.ndarray, count: int) -> np.ndarray:
    """The places of the highest scores above 0, at most `count`, the best first; of equal ones the first place first.

    >>> find_best(np.array([0.2, 0.5, 0.0, 0.5]), 3).tolist()
    [1, 3, 0]
    """
    least = 0.0
    if count < len(scores):
        least = float(np.partition(scores, len(scores) - count)[len(scores) - count])
    margin = 10.0**-DIGITS
    places = np.flatnonzero(scores > max(least - margin, 0.0))
    rounded = np.round(scores[places], DIGITS)
    best: np.ndarray = places[np.argsort(-rounded, kind="stable")][:count]
    return best


def fuse(rankings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The places of several rankings with their fused scores, sum of 1 / (60 + rank), the best first.

    Args:
        rankings: places, the best first.

    >>> places, scores = fuse([np.array([7, 3]), np.array([3])])
    >>> places.tolist(), (scores * 61).round(3).tolist()
    ([3, 7], [1.984, 1.0])
    """
    places = np.concatenate(rankings).astype(np.int64)
    shares = np.concatenate([1 / (K + 1 + np.arange(len(ranking))) for ranking in rankings])
    found, where = np.unique(places, return_inverse=True)
    scores = np.round(np.bincount(where, shares, len(found)), 9)
    order = np.argsort(-scores, kind="stable")
    return found[order], scores[order]


COLUMN_WEIGHTS: Final = {
    "name": 3.0,
    "tasks": 2.0,
    "modalities": 2.0,
    "dimensions": 1.0,
    "formats": 1.0,
    "features": 1.0,
}


class RetrievalSettings(BaseModel):
    """How a catalogue is searched."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    embedding: Annotated[
        str | Mapping[str, Any],
        Field(
            description="vectors beside BM25. lsa: fitted on the catalogue; none: BM25 alone; or a "
            "sentence-transformers model by name, or a mapping with `model` and the keys of every model"
        ),
    ] = LSA
    dimensions: Annotated[int, Field(ge=2, le=1024, description="of the vectors of lsa")] = 64
    reranker: Annotated[
        str | Mapping[str, Any],
        Field(
            description="orders the best of both. facts: by the facts that the query names; none: their fused ranks; or"
            " a cross-encoder by name, or a mapping with `model` and the keys of every model"
        ),
    ] = FACTS
    candidates: Annotated[
        int, Field(ge=1, le=1000, description="of BM25 and of the vectors each, which are reranked")
    ] = 100


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
        scores = np.round(scores, DIGITS)
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [Hit(self.tools[places[number]].name, float(scores[number])) for number in best]

    def _find_candidates(self, parts: "_Parts", words: str, left_out: list[int]) -> tuple[np.ndarray, np.ndarray]:
        rankings = []
        for index in (parts.bm25, parts.vectors):
            if index is not None:
                scores = index.score(words)
                scores[left_out] = 0
                rankings.append(find_best(scores, self.settings.candidates))
        return fuse(rankings)

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
                self.vectors = VectorIndex(ModelEncoder(settings.embedding), self.texts)
        self.facts = FactReranker(tools)
        self.pairs = None if settings.reranker in (FACTS, NONE) else ModelPairScorer(settings.reranker)


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


# How much a kind counts if a query has a wish of it. SPEC: task 40, format 30, features (what is left) 30.
WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "tasks": 4.0,
        "formats": 3.0,
        "modalities": 3.0,
        "dimensions": 1.0,
        "interfaces": 0.5,
        "gpu": 0.5,
        "demo": 0.5,
        "license": 0.5,
    }
)
SEARCHED: Final = 0.5  # weight of the place in the fused ranking, between 0 and 1, beside the share of met wishes


class FactReranker:
    """Knows which tools have which facts.

    Args:
        tools: of the catalogue.
    """

    def __init__(self, tools: Sequence[SoftwareTool]) -> None:
        self._has = {fact: np.array([has_fact(tool, *fact) for tool in tools], bool) for fact, _ in read_table()}

    def score(self, words: str, formats: Sequence[str], places: np.ndarray, fused: np.ndarray) -> np.ndarray:
        """The scores of candidates, (C,), higher is better.

        Args:
            words: of the query.
            formats: of the user's files, words of the vocabulary.
            places: of the candidates in the catalogue, (C,).
            fused: their scores of the search, (C,).
        """
        searched = fused / max(float(fused.max(initial=0.0)), 1e-9)
        wishes = get_wish_reader().read(words, formats)
        if not wishes:
            return searched
        total, met = 0.0, np.zeros(len(places))
        for kind in dict.fromkeys(wish.kind for wish in wishes):
            same = [self._meets(wish, places) for wish in wishes if wish.kind == kind]
            met += WEIGHTS[kind] * np.mean(same, axis=0)
            total += WEIGHTS[kind]
        scores: np.ndarray = met / total + SEARCHED * searched
        return scores

    def _meets(self, wish: Wish, places: np.ndarray) -> np.ndarray:
        known = [self._has[wish.kind, word][places] for word in wish.words if (wish.kind, word) in self._has]
        return np.any(known, axis=0) if known else np.zeros(len(places), bool)


KEPT_BYTES: Final = 64 * 2**20  # scores of phrases

Phrase = tuple[str, ...]


class Bm25Index:
    """An FTS5 index in memory. Any thread may use it; a forked child needs its own.

    Args:
        records: texts by column; every record has the columns of `weights`.
        weights: of the columns.
        synonyms: phrases that mean the same.

    >>> records = [{"words": "segments cells"}, {"words": "registers brains"}, {"words": "denoises"}]
    >>> Bm25Index(records, {"words": 1.0}, Synonyms()).score("cell segmentation").round(2).tolist()
    [0.94, 0.0, 0.0]
    """

    def __init__(self, records: Sequence[Mapping[str, str]], weights: Mapping[str, float], synonyms: Synonyms) -> None:
        self.size, self.synonyms = len(records), synonyms
        self._lock = Lock()  # of the connection and of what is kept
        self._kept: LRUCache[tuple[Phrase, ...], Any] = LRUCache(KEPT_BYTES, measure_bytes)
        columns = ", ".join(weights)
        self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._connection.execute(
            f"CREATE VIRTUAL TABLE records USING fts5({columns}, content='', tokenize='{TOKENIZER}')"
        )
        marks = ", ".join("?" * len(weights))
        self._connection.execute("BEGIN")
        self._connection.executemany(
            f"INSERT INTO records(rowid, {columns}) VALUES (?, {marks})",
            ((number, *(record[column] for column in weights)) for number, record in enumerate(records)),
        )
        self._connection.execute("COMMIT")
        shares = ", ".join(map(str, weights.values()))
        self._statement = f"SELECT rowid, -bm25(records, {shares}) FROM records WHERE records MATCH ?"

    def score(self, words: str) -> np.ndarray:
        """The scores of all records for the words of a query, (N,) float64; 0 for records without any of them."""
        scores = np.zeros(self.size)
        for group in read_query(words, self.synonyms):
            for rows, values in self._score_group(group.phrases):
                scores[rows] += values
        return scores

    def _score_group(self, phrases: tuple[Phrase, ...]) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        """The records that hold each phrase, and their scores."""
        with self._lock:
            if phrases in self._kept:
                kept: Sequence[tuple[np.ndarray, np.ndarray]] = self._kept[phrases]
                return kept
            found = [self._connection.execute(self._statement, (quote(phrase),)).fetchall() for phrase in phrases]
            scored = [_split(pairs) for pairs in found if pairs]
            with suppress(ValueError):  # larger than all that is kept
                self._kept[phrases] = scored
        return scored


def _split(pairs: Sequence[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    rows, values = zip(*pairs, strict=True)
    return np.array(rows, np.int64), np.array(values, np.float64)
