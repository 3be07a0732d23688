"""Search by vectors: the cosine between a query and each text."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np


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
