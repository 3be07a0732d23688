"""The right answer and demonstrations are written in the coordinates of the model, and boxes of results too."""

import json
from typing import ClassVar

import pytest
from PIL import Image

from viewbox import BaseMultiTurnEnv, Task
from viewbox.errors import ConfigError
from viewbox.images.view import View
from viewbox.tools import Box

BOX = (0.25, 0.5, 0.5, 0.75)
WRITTEN = {"unit": [0.25, 0.5, 0.5, 0.75], "per_mille": [250, 500, 500, 750], "pixel": [100, 100, 200, 150]}


def mark(view: View, box: Box) -> dict:
    "Mark a box."
    return {"marked": box, "twice": [box, box]}


class Film(BaseMultiTurnEnv):
    name = "film"
    tools = (mark,)
    boxes = ("place",)
    answer: ClassVar = {
        "type": "object",
        "properties": {"finding": {"type": "string"}, "place": {"type": "array"}},
        "required": ["finding"],
    }

    @property
    def tasks(self):
        return [Task("t", reference={"finding": "cyst", "place": BOX, "of no answer": 3})]

    def images(self, task):
        return [Image.new("L", (400, 200))]

    def default_reward(self):
        return lambda answer, reference: float(
            answer is not None and (answer["finding"], tuple(answer["place"])) == ("cyst", BOX)
        )


class Poor(Film):
    name = "poor"

    @property
    def tasks(self):
        return [Task("t", reference={"place": BOX})]


@pytest.mark.parametrize("coordinates", WRITTEN)
def test_the_right_answer_is_written_in_the_models_coordinates_and_scores_1(coordinates):
    env = Film(coordinates=coordinates)
    (task,) = env.tasks
    assert json.loads(env.write_answer(task)) == {"finding": "cyst", "place": WRITTEN[coordinates], "continue": False}
    (reply,) = env.demonstration(task, 0)
    episode = env.play(task, lambda messages: reply)
    assert episode.scores.total == 1.0
    assert episode.answer["place"] == BOX


@pytest.mark.parametrize("coordinates", WRITTEN)
def test_a_box_of_a_call_is_read_back_as_it_was_written(coordinates):
    env = Film(coordinates=coordinates)
    call = {"name": "mark", "arguments": {"box": WRITTEN[coordinates]}}
    replies = iter([f"<tool_call>\n{json.dumps(call)}\n</tool_call>", env.write_answer(env.tasks[0])])
    episode = env.play(env.tasks[0], lambda messages: next(replies))
    (result,) = episode.turns[2].tool_results
    assert result.error is None
    assert [float(side) for side in result.facts["marked"]] == WRITTEN[coordinates]
    assert [list(box) for box in result.facts["twice"]] == [WRITTEN[coordinates]] * 2
    assert result.arguments["box"] == BOX


def test_a_reference_that_is_no_answer_is_refused_with_what_it_lacks():
    env = Poor()
    with pytest.raises(ConfigError, match=r"poor: the reference of task t lacks finding.*gold_answer"):
        env.write_answer(env.tasks[0])
    with pytest.raises(ConfigError, match=r"poor: this environment has no demonstrations: poor: the reference"):
        env.demonstration(env.tasks[0], 0)
    with pytest.raises(ConfigError, match=r"no demonstrations: its demonstrations have no habits; given: guess"):
        Film().demonstration(Film().tasks[0], 0, guess=0.5)
