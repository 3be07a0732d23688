"""Phrases of radiologists and models: which of them deny a finding, and that no rewording of either is paid twice."""

from pathlib import Path

import pytest

from viewbox.rewards import TokenF1Reward
from viewbox.rewards.negation import MARK, split_words

REWARD = TokenF1Reward("report", stop_words=True)


def read_phrases():
    groups, name = {}, ""
    for line in (Path(__file__).parent / "phrases.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            name = line[2:]
        elif line:
            groups.setdefault(name, []).append(line)
    return groups


PHRASES = read_phrases()


def find_marks(text):
    """Whether each mention of a nodule is read as denied."""
    return {word.startswith(MARK) for word in split_words(text)[0] if "nodule" in word}


@pytest.mark.parametrize("text", PHRASES["denied"])
def test_a_phrase_that_denies_the_finding(text):
    assert False not in find_marks(text)
    assert REWARD({"report": text}, {"report": "nodule"}) == 0.0


@pytest.mark.parametrize("text", PHRASES["affirmed"])
def test_a_phrase_that_leaves_the_finding(text):
    assert find_marks(text) == {False}
    assert REWARD({"report": text}, {"report": "no nodule"}) == 0.0


def test_the_known_errors_are_still_errors():
    """A phrase that is read right by now belongs to the others."""
    assert all(find_marks(text) == {False} for text in PHRASES["denied, but read as affirmed"])
    assert all(find_marks(text) == {True} for text in PHRASES["affirmed, but read as denied"])


def test_the_table_is_as_large_as_promised():
    assert len(PHRASES["denied"]) >= 200
    assert len(PHRASES["affirmed"]) >= 200
    assert sum(len(group) for name, group in PHRASES.items() if "but" in name) <= 16
