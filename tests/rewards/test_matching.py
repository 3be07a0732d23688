"""The assignment: never worse than trying every one."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewbox.rewards.iou import match_pairs

SCORES = st.integers(1, 5).flatmap(
    lambda columns: st.lists(st.lists(st.floats(0, 1), min_size=columns, max_size=columns), min_size=1, max_size=5)
)


def every_matching(scores):
    """The scores of the pairs of every one-to-one matching that leaves as few out as it can."""
    rows, columns = len(scores), len(scores[0])
    if rows > columns:
        scores, rows, columns = [list(line) for line in zip(*scores, strict=True)], columns, rows
    for chosen in permutations(range(columns), rows):
        yield [scores[row][column] for row, column in enumerate(chosen)]


@given(SCORES)
def test_no_matching_has_a_greater_sum(scores):
    best = max(sum(found) for found in every_matching(scores))
    assert sum(score for _, _, score in match_pairs(scores)) == pytest.approx(best)


def test_nothing_is_matched_with_nothing():
    assert match_pairs([]) == match_pairs([[]]) == match_pairs([[0.0]]) == []
