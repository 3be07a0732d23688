"""Search by vectors: the cosine between a query and each text, and vectors that need no model.

LSA (Deerwester et al., "Indexing by latent semantic analysis", 1990): texts become counts of words, weighted by how
rare each word is, and a truncated SVD of these puts words that stand beside the same words near to each other.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import numpy as np

from ....tools.search.snapshot.words import Synonyms, is_telling, split_words, stem_all


class Encoder(Protocol):
    """Turns texts into vectors. The same text has the same vector, whatever stands beside it."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of unit length, (len(texts), D) float32. Raises `ToolError` if it cannot."""
        ...

    def encode_query(self, words: str) -> np.ndarray:
        """The vector of a query, (D,) float32. Raises `ToolError` if it cannot."""
        ...

    def rest(self) -> None:
        """Give back what the next query can take again."""
        ...


class VectorIndex:
    """The vectors of texts.

    Args:
        encoder: of texts and queries.
        texts: to find.
    """

    def __init__(self, encoder: Encoder, texts: Sequence[str]) -> None:
        self.encoder = encoder
        self.vectors = encoder.encode(texts)

    def score(self, words: str) -> np.ndarray:
        """The cosine of each text with the query, (N,) float32."""
        scores: np.ndarray = self.vectors @ self.encoder.encode_query(words)
        return scores


def normalize(vectors: np.ndarray) -> np.ndarray:
    """The vectors with length 1, (N, D) float32; a vector of zeros stays.

    >>> normalize(np.array([[0.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    normalized: np.ndarray = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return normalized


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
