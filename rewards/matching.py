"""One-to-one matching of the greatest total score (the assignment problem; Kuhn 1955), by scipy."""

from collections.abc import Sequence

Pair = tuple[int, int, float]  # row, column, score


def assign(scores: Sequence[Sequence[float]], threshold: float | None = None) -> list[Pair]:
    """The pairs of the one-to-one matching with the greatest sum of `scores` (rows x columns, each >= 0).

    With a threshold: the largest matching of pairs whose score reaches it. Pairs of score 0 are left out.

    >>> assign([[0.9, 0.8], [0.8, 0.1]])
    [(0, 1, 0.8), (1, 0, 0.8)]
    >>> assign([[0.9, 0.8], [0.8, 0.1]], 0.85)
    [(0, 0, 0.9)]
    """
    if not scores or not scores[0]:
        return []
    least = 0.0 if threshold is None else threshold
    if len(scores) == 1 or len(scores[0]) == 1:
        flat = [(row, column, score) for row, line in enumerate(scores) for column, score in enumerate(line)]
        best = max(flat, key=lambda pair: pair[2])
        return [best] if best[2] > 0 and best[2] >= least else []
    from scipy.optimize import linear_sum_assignment  # takes a while to import, and most answers hold one box

    worth = scores if threshold is None else [[float(score >= threshold) for score in line] for line in scores]
    rows, columns = linear_sum_assignment(worth, maximize=True)
    pairs = [(int(row), int(column), scores[row][column]) for row, column in zip(rows, columns, strict=True)]
    return [pair for pair in pairs if pair[2] > 0 and pair[2] >= least]
