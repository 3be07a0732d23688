"""The whole search: BM25 and vectors, fused by reciprocal rank, then reranked by the facts that a query names.

The scorings are joined by reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009). The vectors are those of
LSA (Deerwester et al., "Indexing by latent semantic analysis", 1990): texts become counts of words, weighted by how
rare each word is, and a truncated SVD of these puts words that stand beside the same words near to each other.
Embedding models and cross-encoders take the place of LSA and of the facts if a config names one.
"""

import math
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field

from ...configs.sections import Section
from ...tools.search.snapshot.schema import TOKENIZER
from ...tools.search.snapshot.words import Synonyms, is_telling, quote, read_query, split_words, stem_all
from ...tools.specialists.models.text_models import ModelEncoder, ModelPairScorer
from .catalogue import SoftwareTool
from .wishes import get_synonyms, has_fact, read_table, read_wishes

LSA, FACTS, NONE = "lsa", "facts", "none"
K: Final = 60  # of the paper
CANDIDATES: Final = 100  # of BM25 and of the vectors each, which are reranked
DIGITS: Final = 5  # of a score that count: the last ones differ between machines
EXTRA_DIRECTIONS: Final = 10  # of the SVD, beyond those that are wanted
POWER_ITERATIONS: Final = 5
# How much a column of the index counts, and how much a kind of fact if a query has a wish of it. SPEC: task 40, format
# 30, features (what is left) 30.
COLUMNS: Final = {"name": 3.0, "tasks": 2.0, "modalities": 2.0, "dimensions": 1.0, "formats": 1.0, "features": 1.0}
WEIGHTS: Final = {"tasks": 4.0, "formats": 3.0, "modalities": 3.0, "dimensions": 1.0, "interfaces": 0.5, "gpu": 0.5,
                  "demo": 0.5, "license": 0.5}  # fmt: skip
SEARCHED: Final = 0.5  # weight of the place in the fused ranking, between 0 and 1, beside the share of met wishes


class RetrievalSettings(Section):
    """How a catalogue is searched."""

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


class Retriever:
    """Searches a catalogue. The same query has the same hits, in every thread and process. Nothing is fitted or loaded
    before `prepare` or the first search; a forked or unpickled copy prepares itself again."""

    def __init__(self, tools: Sequence[SoftwareTool], settings: RetrievalSettings | None = None) -> None:
        self.tools, self.settings = tuple(tools), settings or RetrievalSettings()
        self.by_name: Mapping[str, SoftwareTool] = {tool.name: tool for tool in self.tools}
        self._parts: _Parts | None = None
        self._lock, self._process = Lock(), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return Retriever, (self.tools, self.settings)

    def prepare(self) -> None:
        self._get_parts()

    def search(
        self, words: str, *, top_k: int, exclude: Collection[str] = (), formats: Sequence[str] = ()
    ) -> list[str]:
        """Return the names of the best tools, the best first; those to exclude may be in any case. Raise
        `ToolError`."""
        parts = self._get_parts()
        left_out = [parts.places[name] for name in map(str.casefold, exclude) if name in parts.places]
        found = parts.score(words)
        for scores in found:
            scores[left_out] = 0
        places, fused = fuse([find_best(scores, CANDIDATES) for scores in found])
        if not len(places):
            return []
        scores = fused
        if self.settings.reranker == FACTS:
            scores = parts.score_facts(words, formats, places, fused)
        elif parts.pairs is not None:
            query = f"{words} ({', '.join(formats)})" if formats else words
            scores = parts.pairs.score(query, [parts.texts[place] for place in places])
        scores = np.round(scores, DIGITS)
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [self.tools[places[number]].name for number in best]

    def _get_parts(self) -> "_Parts":
        if self._process != os.getpid():  # a child must not wait for a lock that a thread of its parent held
            self._parts, self._lock, self._process = None, Lock(), os.getpid()
        with self._lock:
            if self._parts is None:
                self._parts = _Parts(self.tools, self.settings)
            return self._parts


class _Parts:
    def __init__(self, tools: Sequence[SoftwareTool], settings: RetrievalSettings) -> None:
        records = [write_record(tool) for tool in tools]
        self.places = {tool.name.casefold(): place for place, tool in enumerate(tools)}
        self.texts = [write_text(record) for record in records]
        self.bm25 = Bm25Index(records, COLUMNS, get_synonyms())
        self.encoder: LsaEncoder | ModelEncoder | None = None
        if settings.embedding != NONE and tools:
            is_lsa = settings.embedding == LSA
            fitted = LsaEncoder(self.texts, settings.dimensions, get_synonyms()) if is_lsa else None
            self.encoder = fitted or ModelEncoder(settings.embedding)
            self.vectors = self.encoder.encode(self.texts)
        self.pairs = None if settings.reranker in (FACTS, NONE) else ModelPairScorer(settings.reranker)
        self.has = {fact: np.array([has_fact(tool, *fact) for tool in tools], bool) for fact, _ in read_table()}

    def score(self, words: str) -> list[np.ndarray]:
        """Return the scores of all tools by BM25, and by the cosine with the query if there are vectors, (N,) each."""
        scores = [self.bm25.score(words)]
        return scores if self.encoder is None else [*scores, self.vectors @ self.encoder.encode_query(words)]

    def score_facts(self, words: str, formats: Sequence[str], places: np.ndarray, fused: np.ndarray) -> np.ndarray:
        """Return the scores of the candidates at these `places`, (C,), by the wishes that they meet; `fused` are those
        of the search."""
        searched = fused / max(float(fused.max(initial=0.0)), 1e-9)
        wishes = read_wishes(words, formats)
        if not wishes:
            return searched
        total, met = 0.0, np.zeros(len(places))
        for kind in dict.fromkeys(kind for kind, _ in wishes):
            same = [self._meet(kind, facts, places) for other, facts in wishes if other == kind]
            met += WEIGHTS[kind] * np.mean(same, axis=0)
            total += WEIGHTS[kind]
        scores: np.ndarray = met / total + SEARCHED * searched
        return scores

    def _meet(self, kind: str, words: Sequence[str], places: np.ndarray) -> np.ndarray:
        known = [self.has[kind, word][places] for word in words if (kind, word) in self.has]
        return np.any(known, axis=0) if known else np.zeros(len(places), bool)


def write_record(tool: SoftwareTool) -> dict[str, str]:
    lists = {name: ", ".join(getattr(tool, name)) for name in ("tasks", "modalities", "dimensions", "formats")}
    return {"name": tool.name, **lists, "features": f"{tool.features} {', '.join(tool.interfaces)}"}


def write_text(record: Mapping[str, str]) -> str:
    """Return the same as one text, for vectors and cross-encoders.

    >>> write_text({"name": "A", "tasks": "denoising", "modalities": "CT", "dimensions": "3D", "formats": "DICOM",
    ...             "features": "Removes noise. CLI"})
    'A: Removes noise. CLI Tasks: denoising. Modalities: CT. Dimensions: 3D. Formats: DICOM.'
    """
    facts = " ".join(
        f"{name.capitalize()}: {text}." for name, text in record.items() if name not in ("name", "features")
    )
    return f"{record['name']}: {record['features']} {facts}"


def find_best(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the places of the highest scores above 0, at most `count`, the best first; of equal ones the first
    place."""
    places = np.flatnonzero(scores > 0)
    best: np.ndarray = places[np.argsort(-np.round(scores[places], DIGITS), kind="stable")][:count]
    return best


def fuse(rankings: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of several rankings with their fused scores, sum of 1 / (60 + rank), the best first.

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


class Bm25Index:
    """An FTS5 index in memory of records with the columns of `weights`.

    Any thread may use it; a forked child needs its own.

    >>> records = [{"words": "segments cells"}, {"words": "registers brains"}, {"words": "denoises"}]
    >>> Bm25Index(records, {"words": 1.0}, Synonyms()).score("cell segmentation").round(2).tolist()
    [0.94, 0.0, 0.0]
    """

    def __init__(self, records: Sequence[Mapping[str, str]], weights: Mapping[str, float], synonyms: Synonyms) -> None:
        self.size, self.synonyms, self._lock = len(records), synonyms, Lock()
        columns, marks = ", ".join(weights), ", ".join("?" * len(weights))
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        self._connection.execute(
            f"CREATE VIRTUAL TABLE records USING fts5({columns}, content='', tokenize='{TOKENIZER}')"
        )
        rows = ((number, *(record[column] for column in weights)) for number, record in enumerate(records))
        self._connection.executemany(f"INSERT INTO records(rowid, {columns}) VALUES (?, {marks})", rows)
        shares = ", ".join(map(str, weights.values()))
        self._statement = f"SELECT rowid, -bm25(records, {shares}) FROM records WHERE records MATCH ?"

    def score(self, words: str) -> np.ndarray:
        """Return the scores of all records for the words of a query, (N,) float64; 0 for records without any."""
        scores = np.zeros(self.size)
        phrases = [quote(phrase) for group in read_query(words, self.synonyms) for phrase in group.phrases]
        if phrases:
            with self._lock:
                found = self._connection.execute(self._statement, (" OR ".join(phrases),)).fetchall()
            for row, value in found:
                scores[row] = value
        return scores


def find_directions(cells: Any, count: int) -> np.ndarray:
    """Return the first right singular vectors of a sparse matrix (R, C), (C, D): a randomized SVD with a fixed seed
    (Halko, Martinsson and Tropp, "Finding structure with randomness", SIAM Review 2011, algorithm 4.4)."""
    count = min(count, *cells.shape)
    basis = np.random.RandomState(0).normal(size=(cells.shape[0], count + EXTRA_DIRECTIONS))
    for _ in range(POWER_ITERATIONS):
        basis, _ = np.linalg.qr(cells.T @ basis)
        basis, _ = np.linalg.qr(cells @ basis)
    basis, _ = np.linalg.qr(cells.T @ basis)
    left, _, _ = np.linalg.svd((cells @ basis).T, full_matrices=False)
    directions: np.ndarray = basis @ left[:, :count]
    return directions


class LsaEncoder:
    """Fitted on texts: vectors of at most so many dimensions; each class of synonyms counts as a word.

    >>> encoder = LsaEncoder(["segments cells", "segments nuclei", "registers brains"], 2, Synonyms())
    >>> cells, nuclei, brains = encoder.encode(["cells", "nuclei", "brains"])
    >>> bool(cells @ nuclei > 0.9), bool(abs(cells @ brains) < 0.1)
    (True, True)
    """

    def __init__(self, texts: Sequence[str], dimensions: int, synonyms: Synonyms) -> None:
        self.synonyms = synonyms
        self._words: dict[str, int] = {}
        self._weights = np.zeros((0, 1), np.float32)  # (words, dimensions)
        self._fit(texts, dimensions)

    def _fit(self, texts: Sequence[str], dimensions: int) -> None:
        from scipy.sparse import csr_array

        counts = [self._count(text) for text in texts]
        vocabulary = sorted(set().union(*counts))
        if not vocabulary:
            return
        self._words = {word: column for column, word in enumerate(vocabulary)}
        rows = np.repeat(np.arange(len(texts)), [len(one) for one in counts])
        columns = np.array([self._words[word] for one in counts for word in one])
        rarity = np.log((1 + len(texts)) / (1 + np.bincount(columns))) + 1
        values = (1 + np.log([count for one in counts for count in one.values()])) * rarity[columns]
        values /= np.sqrt(np.bincount(rows, values**2))[rows]
        cells = csr_array((values, (rows, columns)), shape=(len(texts), len(vocabulary)))
        directions = find_directions(cells, dimensions)
        self._weights = np.ascontiguousarray(directions * rarity[:, None], np.float32)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, (len(texts), D) float32; zeros for a text without a known word."""
        vectors = np.stack([self._encode(text) for text in texts])
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), np.float32)

    def encode_query(self, words: str) -> np.ndarray:
        vector: np.ndarray = self.encode([words])[0]
        return vector

    def _encode(self, text: str) -> np.ndarray:
        known = [(self._words[word], count) for word, count in self._count(text).items() if word in self._words]
        if not known:
            return np.zeros(self._weights.shape[1], np.float32)
        columns, counts = zip(*known, strict=True)
        values = np.array([1 + math.log(count) for count in counts], np.float32)
        vector: np.ndarray = values @ self._weights[list(columns)]
        return vector

    def _count(self, text: str) -> Counter[str]:
        """Count the stems of a text's words, without stop words, and a token for each phrase that has synonyms."""
        words = split_words(text)
        tokens = list(stem_all([word for word in words if is_telling(word)]))
        for group in self.synonyms.group(words):
            if len(group.phrases) > 1:
                tokens.append(_name_class(group.phrases))
        return Counter(tokens)


@lru_cache(maxsize=2**14)
def _name_class(phrases: tuple[tuple[str, ...], ...]) -> str:
    return "=" + min(" ".join(stem_all(phrase)) for phrase in phrases)
