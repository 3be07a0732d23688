"""The environment as an author and a program meet it: the opening, boxes, settings, scores, playing.

What it says to one reply is in the `test_loop_….py` files beside this one.
"""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import ClassVar

import pytest
from PIL import Image

from tests.support.loop_kit import NOTES, TASK, Find, Plain, Play, play_replies, write_answer, write_call
from tests.support.tables import each
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.core.settings import model_of
from viewbox.core.tasks import to_sequence
from viewbox.errors import ConfigError, ImageError
from viewbox.images.ref import ImageRef
from viewbox.images.view import View
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.job import _select_tasks
from viewbox.tools import Box


# ---- the opening
def test_an_episode_opens_with_the_rules_the_tools_the_picture_and_the_question_and_never_with_the_reference():
    state = Find(max_pixels=800).reset(TASK, seed=0)
    system, user = state.messages
    assert (system.role, user.role) == ("system", "user")
    assert "fractions of the image" in system.text
    assert '"bbox": [x1, y1, x2, y2], "continue": false' in system.text
    assert "You have 6 replies in total" in system.text
    assert user.text == "What is it?"
    assert (user.images[0].width, user.images[0].height) == (40, 20)
    assert "tool" in Find().build_system_prompt(TASK).partition("tools.")[2]
    assert "tool" not in Find(tools=[]).build_system_prompt(TASK).partition("tools.")[2]
    task = Task("t", TASK.images, reference={"label": "sinistral", "bbox": [0.123, 0, 1, 1]})
    said = "".join(message.text for message in Find().reset(task, seed=0).messages)
    assert [words for words in ("sinistral", "0.123") if words in said] == []


def test_a_task_whose_image_is_missing_is_an_error_and_one_without_can_be_answered_but_not_looked_at():
    with pytest.raises(ImageError, match=r"nowhere\.png"):
        Find().reset(Task("t", (ImageRef("0", 1, 1, uri="nowhere.png"),)), seed=0)
    play = Play(Find(), Task("t"))
    assert "This task has no image" in play.say_and_read(write_call())
    assert play.say(write_answer()).terminated


def test_an_author_may_say_it_in_words_of_their_own():
    own = {"system": "{{ system }} {{ max_turns }} replies.", "last_turn": "Now: {{ keys | join('/') }}"}
    play = Play(Find(max_turns=2, templates=own))
    assert play.state.messages[0].text == "You read an image with a viewer's tools. 2 replies."
    assert play.say_and_read("hm").endswith("\nNow: label/bbox/continue")


# ---- boxes
@each("coordinates, box", [
    ("unit", [0.25, 0.5, 0.5, 1]), ("per_mille", [250, 500, 500, 1000]), ("pixel", [10, 10, 20, 20]),
])  # fmt: skip
def test_boxes_are_stored_as_fractions_of_the_original_in_every_convention(coordinates, box):
    env = Find(coordinates=coordinates, max_pixels=800)  # the overview is 40x20 pixels
    for before in ((), (write_call(factor=4),)):
        assert play_replies(env, *before, write_answer(bbox=box)).answer["bbox"] == pytest.approx((0.25, 0.5, 0.5, 1))


@each("coordinates, most", [("unit", 1), ("per_mille", 1000), ("pixel", 40)])
def test_a_box_out_of_range_is_a_nudge_that_states_the_range(coordinates, most):
    play = Play(Find(coordinates=coordinates, max_pixels=800))
    told = play.say_and_read(write_answer(bbox=[0, 0, most + 0.5, 1]))
    assert f"bbox: x = {most + 0.5:g} is out of range; allowed: 0 to {most} (" in told
    assert not play.result.done


# ---- settings
def test_max_turns_above_the_ceiling_is_clamped_with_a_warning():
    with pytest.warns(UserWarning, match="max_turns = 99: clamped to 30") as caught:
        assert Find(max_turns=99).max_turns == 30
    assert caught[0].filename == __file__
    assert [Find(max_turns=turns).max_turns for turns in (1, 30)] == [1, 30]
    assert model_of(BaseMultiTurnEnv).model_fields["max_turns"].default == 10


@each("given, words", [
    ({"max_turn": 3}, r"find: unknown setting 'max_turn'; allowed: .*\(did you mean 'max_turns'\?\)"),
    ({"tools": ["zom"]}, r"unknown tool 'zom'; .*did you mean 'zoom'"),
    ({"max_turns": 0}, "max_turns = 0; allowed: a whole number of at least 1"),
    ({"coordinates": "pixels"}, "coordinates = 'pixels'; .*'unit', 'per_mille' or 'pixel'"),
    ({"max_calls_per_turn": 0}, "max_calls_per_turn = 0; allowed: a whole number of at least 1"),
    ({"max_consecutive_malformed": -1}, "max_consecutive_malformed = -1; allowed: a whole number of at least 0"),
    ({"history": "short"}, "history = 'short'"), ({"history": {"last_images": 0}}, "last_images"),
    ({"reply_format": "xml"}, "reply_format = 'xml'; .*'native', 'hermes', 'fenced' or 'json'"),
    ({"max_calls": {"crop3": 1}}, "unknown tool 'crop3'"),
    ({"templates": {"notes": "{{ tunr }}"}}, "templates.notes: line 1: .*tunr"),
    ({"max_pixels": 1000, "pixel_multiple": 32}, "max_pixels = 1000; allowed .* at least 1024"),
])  # fmt: skip
def test_a_setting_that_cannot_be_is_an_error_in_words(given, words):
    with pytest.raises(ConfigError, match=words):
        Find(**given)


def test_what_an_author_writes_on_the_class_is_checked_too_and_an_environment_cannot_be_changed():
    class Wrong(Find):
        max_turns = 0

    class Listed(Find):
        tools = ["zoom"]  # noqa: RUF012

    with pytest.raises(ConfigError, match="max_turns = 0"):
        Wrong()
    assert Listed().tools == ("zoom",)
    with pytest.raises(ConfigError, match="no default reward"):
        BaseMultiTurnEnv()
    env = Find()
    with pytest.raises(AttributeError, match="cannot be changed"):
        env.max_turns = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del env.max_turns
    assert (env.max_turns, isinstance(env.tools, tuple)) == (6, True)


# ---- reading an answer apart from a play
@each("env, text, label", [
    *((Find, text, "left") for text in (write_answer(), "I see " + write_answer(), write_call() + write_answer(),
     NOTES)), *((Find, text, None) for text in (write_call(), "hm", "", write_answer(bbox=[0, 0, 2, 2]))),
    *((Plain, text, ...) for text in ("left", "", write_call(), write_call() + write_answer())),
])  # fmt: skip
def test_read_answer_gives_what_a_last_reply_would_give(env, text, label):
    read = env().read_answer(text, TASK)
    assert label is ... or (read and read["label"]) == label
    assert read == play_replies(env(max_turns=1), text).answer


# ---- playing


def test_one_environment_plays_many_episodes_at_once():
    env = Find()

    async def one(number):
        async def policy(messages):
            await asyncio.sleep(0)
            return write_call(center=[number / 20, 0]) if len(messages) == 2 else write_answer(str(number))

        return await env.play_async(TASK, policy)

    async def many():
        return await asyncio.gather(*(one(number) for number in range(20)))

    together = asyncio.run(many())
    assert [episode.answer["label"] for episode in together] == [str(number) for number in range(20)]
    assert together == [asyncio.run(one(number)) for number in range(20)]


def test_overviews_are_kept_by_bytes_and_the_oldest_go_first(monkeypatch):
    opened = []

    class Counting(Find):
        """Counts how often an image is opened."""

        def images(self, task):
            opened.append(task.id)
            return super().images(task)

    side = 64  # 4,096 native bytes and an overview of as many pixels: 16 kB each, so two fit
    monkeypatch.setattr("viewbox.core.tasks.OVERVIEW_BYTES", 40_000)
    env = Counting()
    tasks = [Task(f"t{i}", images=(ImageRef.of(Image.new("L", (side, side), i)),)) for i in range(4)]
    for task in (tasks[0], tasks[0], tasks[1], tasks[2], tasks[0], tasks[2]):
        env.reset(task, seed=0)
    assert opened == ["t0", "t1", "t2", "t0"]


def test_episodes_that_start_at_the_same_moment_open_their_task_once():
    opened, all_here = [], Barrier(6)

    class Slow(Find):
        """Takes a while to open an image, so that the others ask meanwhile."""

        def images(self, task):
            opened.append(task.id)
            time.sleep(0.1)
            return super().images(task)

    env, task = Slow(), Task("t", images=(ImageRef.of(Image.new("L", (64, 64))),))

    def start(seed):
        all_here.wait()
        return env.reset(task, seed=seed).overview

    with ThreadPoolExecutor(6) as threads:
        views = list(threads.map(start, range(6)))
    assert opened == ["t"]
    assert all(view is views[0] for view in views)


# ---- the right answer, demonstrations, and boxes of results are written in the coordinates of the model
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


@each("coordinates", list(WRITTEN))
def test_the_right_answer_is_written_in_the_models_coordinates_and_scores_1(coordinates):
    env = Film(coordinates=coordinates)
    (task,) = env.tasks
    assert json.loads(env.write_answer(task)) == {"finding": "cyst", "place": WRITTEN[coordinates], "continue": False}
    (reply,) = env.demonstration(task, 0)
    episode = env.play(task, lambda messages: reply)
    assert episode.scores.total == 1.0
    assert episode.answer["place"] == BOX


@each("coordinates", list(WRITTEN))
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


# ---- which classes may hold tasks
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
    tasks = [Task("a")]
    assert to_sequence(tasks, "library") is tasks
    assert [task.id for task in _select_tasks(Library(), 2)] == ["book-0", "book-1"]
    with pytest.raises(ConfigError, match="library has 3 tasks"):
        _select_tasks(Library(), 4)


@each("tasks", [{"a": Task("a")}, "tasks", iter([Task("a")]), {Task("a")}])
def test_tasks_without_a_length_or_without_numbers_are_refused(tasks):
    with pytest.raises(ConfigError, match=r"library: its tasks are a .*; allowed: a sequence"):
        to_sequence(tasks, "library")
