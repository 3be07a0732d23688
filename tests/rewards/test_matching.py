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


@given(SCORES, st.floats(0.01, 1))
def test_no_matching_has_more_pairs_that_reach_the_threshold(scores, threshold):
    best = max(sum(score >= threshold for score in found) for found in every_matching(scores))
    assert len(match_pairs(scores, threshold)) == best


@given(SCORES, st.none() | st.floats(0.01, 1))
def test_every_row_and_column_is_matched_once_and_by_its_own_score(scores, threshold):
    pairs = match_pairs(scores, threshold)
    assert len({row for row, _, _ in pairs}) == len({column for _, column, _ in pairs}) == len(pairs)
    assert all(scores[row][column] == score > 0 for row, column, score in pairs)


def test_nothing_is_matched_with_nothing():
    assert match_pairs([]) == match_pairs([[]]) == match_pairs([[0.0]]) == []
