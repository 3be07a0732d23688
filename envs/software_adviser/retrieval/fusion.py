"""Takes the best of several scorings: reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""

from collections.abc import Sequence
from typing import Final

import numpy as np

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
