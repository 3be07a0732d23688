"""The whole search: BM25 and vectors, fused by reciprocal rank, then reranked.

FTS5's `bm25` is a sum over the phrases of a query. So the scores of each phrase are asked for once and kept, and a
query adds up a few arrays: a query of frequent words, which takes FTS5 10 ms among 10,000 records, takes 0.1 ms. The
scorings are joined by reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009).

LSA needs no model to download: texts become counts of words, weighted by how rare each word is, and a truncated SVD of
these puts words that stand beside the same words near to each other (Deerwester et al., "Indexing by latent semantic
analysis", 1990).
"""

import math
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from ....tools.search.snapshot.schema import TOKENIZER
from ....tools.search.snapshot.words import Synonyms, is_telling, quote, read_query, split_words, stem_all
from ....tools.specialists.cache import ResultCache
from ..software import SoftwareTool
from .settings import FACTS, LSA, NONE, RetrievalSettings
from .text_models import build_encoder, build_pair_scorer
from .vectors import VectorIndex, normalize
from .wishes import Wish, get_synonyms, get_wish_reader, has_fact, read_table

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
        self._kept = ResultCache(KEPT_BYTES)
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
                kept: Sequence[tuple[np.ndarray, np.ndarray]] = self._kept.get(phrases)
                return kept
            found = [self._connection.execute(self._statement, (quote(phrase),)).fetchall() for phrase in phrases]
            scored = [_split(pairs) for pairs in found if pairs]
            self._kept.put(phrases, scored)
        return scored


def _split(pairs: Sequence[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    rows, values = zip(*pairs, strict=True)
    return np.array(rows, np.int64), np.array(values, np.float64)


EXTRA_DIRECTIONS: Final = 10  # beyond those that are wanted
POWER_ITERATIONS: Final = 5


class Cells(NamedTuple):
    """A sparse matrix of shape (R, C): its values and where they stand."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]

    def multiply(self, right: np.ndarray) -> np.ndarray:
        """The product with a dense matrix, (C, D) to (R, D)."""
        sums = [np.bincount(self.rows, self.values * column[self.columns], self.shape[0]) for column in right.T]
        return np.stack(sums, axis=1)

    def transpose(self) -> "Cells":
        return Cells(self.columns, self.rows, self.values, self.shape[::-1])


def find_directions(cells: Cells, count: int) -> np.ndarray:
    """The first right singular vectors, (C, D): a randomized SVD with power iterations and a fixed seed.

    Halko, Martinsson and Tropp, "Finding structure with randomness", SIAM Review 2011, algorithm 4.4.
    """
    flipped, count = cells.transpose(), min(count, *cells.shape)
    basis = np.random.RandomState(0).normal(size=(cells.shape[0], count + EXTRA_DIRECTIONS))
    for _ in range(POWER_ITERATIONS):
        basis, _ = np.linalg.qr(flipped.multiply(basis))
        basis, _ = np.linalg.qr(cells.multiply(basis))
    basis, _ = np.linalg.qr(flipped.multiply(basis))
    left, _, _ = np.linalg.svd(cells.multiply(basis).T, full_matrices=False)
    directions: np.ndarray = basis @ left[:, :count]
    return directions


class LsaEncoder:
    """Fitted on texts.

    Args:
        texts: of the catalogue.
        dimensions: of a vector at most; fewer if the texts do not have as many.
        synonyms: phrases that mean the same; each class counts as a word.

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
        directions = find_directions(Cells(rows, columns, values, (len(texts), len(vocabulary))), dimensions)
        self._weights = np.ascontiguousarray(directions * rarity[:, None], np.float32)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, (len(texts), D) float32; zeros for a text without a known word."""
        return normalize(np.stack([self._encode(text) for text in texts]))

    def encode_query(self, words: str) -> np.ndarray:
        """The vector of a query, (D,) float32."""
        vector: np.ndarray = self.encode([words])[0]
        return vector

    def rest(self) -> None:
        """It holds nothing that another could use."""

    def _encode(self, text: str) -> np.ndarray:
        known = [(self._words[word], count) for word, count in self._count(text).items() if word in self._words]
        if not known:
            return np.zeros(self._weights.shape[1], np.float32)
        columns, counts = zip(*known, strict=True)
        values = np.array([1 + math.log(count) for count in counts], np.float32)
        vector: np.ndarray = values @ self._weights[list(columns)]
        return vector

    def _count(self, text: str) -> Counter[str]:
        return Counter(self.list_tokens(text))

    def list_tokens(self, text: str) -> list[str]:
        """The stems of a text's words, without stop words, and a token for each phrase that has synonyms."""
        words = split_words(text)
        tokens = list(stem_all([word for word in words if is_telling(word)]))
        for group in self.synonyms.group(words):
            if len(group.phrases) > 1:
                tokens.append(_name_class(group.phrases))
        return tokens


@lru_cache(maxsize=2**14)
def _name_class(phrases: tuple[tuple[str, ...], ...]) -> str:
    """A token that is the same for every phrase of a class."""
    return "=" + min(" ".join(stem_all(phrase)) for phrase in phrases)
