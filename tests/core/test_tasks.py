"""Which classes may hold an environment's tasks."""

import pytest

from viewbox import BaseMultiTurnEnv, ExactMatchReward, Task
from viewbox.core.tasks import to_sequence
from viewbox.errors import ConfigError
from viewbox.rollouts.job import _select_tasks


class Shelf:
    """List-like, but not a `collections.abc.Sequence`."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if not 0 <= index < 3:
            raise IndexError(index)
        return Task(f"book-{index}")


class Library(BaseMultiTurnEnv):
    """Books on a shelf."""

    name = "library"
    max_turns = 1
    reward = ExactMatchReward(field="title")
    tasks = Shelf()


def test_a_class_with_a_length_and_numbers_holds_tasks_though_it_inherits_nothing():
    tasks = to_sequence(Shelf(), "library")
    assert [task.id for task in tasks] == ["book-0", "book-1", "book-2"]
    assert [task.id for task in tasks[1:]] == ["book-1", "book-2"]


def test_a_sequence_stays_the_object_it_is():
    tasks = [Task("a")]
    assert to_sequence(tasks, "library") is tasks


@pytest.mark.parametrize("tasks", [{"a": Task("a")}, "tasks", iter([Task("a")]), {Task("a")}])
def test_tasks_without_a_length_or_without_numbers_are_refused(tasks):
    with pytest.raises(ConfigError, match=r"library: its tasks are a .*; allowed: a sequence"):
        to_sequence(tasks, "library")


def test_the_rollout_command_takes_tasks_from_such_a_class():
    assert [task.id for task in _select_tasks(Library(), 2)] == ["book-0", "book-1"]
    with pytest.raises(ConfigError, match="library has 3 tasks"):
        _select_tasks(Library(), 4)
