"""Latent semantic analysis: vectors of texts without a model to download.

Texts become counts of words, weighted by how rare each word is, and a truncated SVD of these puts words that stand
beside the same words near to each other (Deerwester et al., "Indexing by latent semantic analysis", 1990). It is fitted
on the catalogue itself with scikit-learn. A query is encoded here: scikit-learn takes a millisecond for one short text.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from viewbox.envs.software_adviser.retrieval.vectors import normalize
from viewbox.envs.tools.search.snapshot.words import Synonyms, is_telling, split_words, stem_all


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
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        if not any(map(self.list_tokens, texts)):
            return
        counts = TfidfVectorizer(analyzer=self.list_tokens, sublinear_tf=True)
        table = counts.fit_transform(texts)
        with np.errstate(invalid="ignore"):  # texts that are all equal have no variance to explain
            svd = TruncatedSVD(min(dimensions, *table.shape), random_state=0).fit(table)
        self._words = {str(word): int(column) for word, column in counts.vocabulary_.items()}
        self._weights = np.ascontiguousarray(svd.components_.T * counts.idf_[:, None], np.float32)

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
