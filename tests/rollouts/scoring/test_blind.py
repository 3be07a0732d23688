"""The best answer without the picture: the rule computed by hand, and an author's code that raises."""

import pytest

import viewbox
from viewbox.records import Task
from viewbox.rollouts.scoring.blind import measure_blind

LABELS = ["yes", "yes", "yes", "no"]  # of one question: the others say yes, whoever is left out


class Ward(viewbox.BaseMultiTurnEnv):
    name, reward = "ward", viewbox.ExactMatchReward("label")
    answer = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}  # noqa: RUF012

    @property
    def tasks(self):
        return [Task(f"t{n}", (), {"question": "Is it?"}, {"label": label}) for n, label in enumerate(LABELS)]


class Raises(Ward):
    """Beside the four, a task of which an author's code raises."""

    @property
    def tasks(self):
        return [Task("bad", (), {"question": "Is it?"}, {"label": "no"}), *super().tasks]

    def write_answer(self, task):
        if task.id == "bad":
            raise KeyError("box")
        return super().write_answer(task)


class Exits(Raises):
    def write_answer(self, task):
        if task.id == "bad":
            raise SystemExit(3)
        return super().write_answer(task)


@pytest.mark.parametrize("cls", [Ward, Raises, Exits])
def test_a_task_that_cannot_be_written_costs_itself(cls):
    assert measure_blind(cls(), cls().tasks) == 0.75


def test_of_one_task_nothing_is_known():
    assert measure_blind(Ward(), Ward().tasks[:1]) is None
