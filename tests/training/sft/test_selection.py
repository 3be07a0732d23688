"""Which saved episodes are learned from: conditions, the best of each task, and never one that a fault ended."""

import pytest

from viewbox.configs.train_sections import TrainSection
from viewbox.errors import ConfigError, StoreError
from viewbox.records import Episode, Scores, Task
from viewbox.training.sft.selection import check_rounds, require_episodes, select_episodes


def episode(task, total, end="answered"):
    return Episode(Task(task), end_reason=end, scores=Scores(total))


EPISODES = [
    episode("a", 0.2),
    episode("a", 0.9),
    episode("b", None, "error"),
    episode("a", 0.9, "max_turns"),
    episode("b", 0.0),
    episode("c", None),
]


def select(**settings):
    return select_episodes(EPISODES, TrainSection(method="sft", **settings))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [0, 1, 3, 4, 5]),  # a fault is never learned from
        ({"where": "scores.total>=0.9"}, [1, 3]),
        ({"where": ["scores.total>=0.9", "end_reason=answered"]}, [1]),
        ({"where": "end_reason=max_turns", "best_of_group": True}, [3]),  # conditions come before the best
    ],
)
def test_what_is_kept_meets_every_condition(settings, kept):
    assert list(select(**settings).kept) == [EPISODES[k] for k in kept]


def test_the_best_of_a_task_is_the_first_of_its_highest_scores():
    selection = select(best_of_group=True)
    assert list(selection.kept) == [EPISODES[1], EPISODES[4]]
    assert dict(selection.left_out) == {
        "a fault ended them": 1,
        "without a score": 1,
        "not the best of their task": 2,
    }


def test_a_condition_that_cannot_be_read_names_its_key():
    with pytest.raises(ConfigError, match=r"train\.where 'scores\.totl>1': unknown field of scores 'totl'"):
        select(where="scores.totl>1")


def test_if_nothing_is_left_the_counts_say_why():
    with pytest.raises(
        StoreError, match=r"x: 0 of 6 episodes are kept; left out: .*5 \(train\.where scores\.total>2\)"
    ):
        require_episodes(select(where="scores.total>2"), "x")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_steps": 4}, r"every episode would be kept; allowed: train\.where"),
        ({"best_of_group": True}, r"train\.max_steps = -1: are divided among 1 round of"),
        ({"best_of_group": True, "max_steps": 2, "rejection_sampling": {"rounds": 3}}, r"among 3 rounds.*at least 3"),
    ],
)
def test_rounds_that_reject_nothing_or_have_no_step_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        check_rounds(TrainSection(method="rejection_sampling", **settings))
