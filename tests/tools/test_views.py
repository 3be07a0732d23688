"""Several images and views: what the model is told of them, and which view the boxes of an answer are in."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.support.loop_kit import write_call
from tests.support.tables import each
from tests.support.tool_play import GRAY, TASK, TWO, Find, FindInView, Play
from viewbox.core.base import get_offered_tools, remove_tools
from viewbox.errors import ConfigError, ImageError, ToolFault
from viewbox.images.ref import ImageRef
from viewbox.images.source import Volume
from viewbox.records import Task
from viewbox.tools import ToolOutput


# ---- over which images
def test_every_image_is_shown_at_the_start_and_told_and_a_tool_that_opens_them_is_offered_where_tools_work_on_one():
    env = Find(tools=["zoom", "open_image"])
    assert env.reset(TWO, seed=0).messages[1].text == (
        "There are 2 images: image_1 and image_2. They are shown in this order. Tools that change the view work on "
        "image_1 until you call open_image.\nWhere?"
    )
    assert env.reset(TASK, seed=0).messages[1].text == "Where?"
    state = Find().reset(TWO, seed=0)
    assert [(image.width, image.height) for image in state.messages[1].images] == [(80, 40), (20, 30)]
    assert state.tools == (*Find().tools, "open_image")
    assert [tool["function"]["name"] for tool in state.tool_schemas][-1] == "open_image"
    assert get_offered_tools(Find(), TWO) == state.tools
    assert "open_image" not in Find().reset(TASK, seed=0).tools
    for bare in (remove_tools(Find()), Find(tools=()), Find(max_turns=1)):
        state = bare.reset(TWO, seed=0)
        assert len(state.messages[1].images) == 2
        assert "open_image" not in state.messages[1].text
        assert state.tool_schemas == ()


OPEN = write_call("open_image", image="image_2")
GRAYS = [ImageRef.of(np.full((60, 120), shade, np.uint8)) for shade in range(20)]


@each("count, size", [(1, (60, 30)), (2, (60, 30)), (4, (60, 30)), (8, (42, 21)), (16, (30, 15))])
def test_the_pictures_share_four_times_the_pixels_of_one(count, size):
    play = Play(Find(max_pixels=60 * 30, coordinates="pixel"), Task("t", tuple(GRAYS[:count]), {"question": "Where?"}))
    first = play.state.messages[1]
    assert [(image.width, image.height) for image in first.images] == [size] * count
    assert ("reduced in size" in first.text) == (count > 4)
    assert [view.image for view in play.state.turns[0].views] == list(range(count))
    assert play.say_and_read(write_call("reset")).startswith(f"back to the original (size: {list(size)}")
    play.say(json.dumps({"label": "x", "bbox": [0, 0, size[0], size[1] / 2]}))  # pixels of the picture as it is shown
    assert play.state.answer["bbox"] == pytest.approx((0, 0, 1, 0.5))


def test_of_too_many_images_the_first_are_shown_and_a_tool_opens_the_others():
    task = Task("t", tuple(GRAYS), {"question": "Where?"})
    play = Play(Find(), task)
    first = play.state.messages[1]
    assert len(first.images) == 16
    assert "There are 20 images: image_1 to image_20. The first 16 are shown, in this order" in first.text
    assert "opened (image: image_20, images: 20" in play.say_and_read(write_call("open_image", image="image_20"))
    assert play.state.messages[-1].images[0].open().getpixel((0, 0)) == 19


@each("env", [remove_tools(Find()), remove_tools(Find(), refuse=True), Find(tools=()), Find(max_turns=1),
    Find(max_total_calls=0),
              Find(tools=["zoom", "open_image"], max_calls={"open_image": 0})])  # fmt: skip
def test_more_images_than_can_be_shown_are_refused_where_no_tool_opens_them(env):
    with pytest.raises(ConfigError, match="task t has 17 images, and no tool to open those after the first 16"):
        env.reset(Task("t", tuple(GRAYS[:17])), seed=0)


def test_a_volume_is_one_image_among_others():
    class Mixed(Find):
        def images(self, task):
            return [Image.fromarray(GRAY), Slices.volume.get_slice(2)]

    play = Play(Mixed(tools=["zoom", "select_slice"]))
    assert [view.slice for view in play.state.turns[0].views] == [None, 2]
    assert "Slices are numbered from 0" in play.state.messages[1].text
    assert "error" in play.say_and_read(write_call("select_slice", index=3))
    opened = write_call("open_image", image="image_2")
    assert "index: 3" in play.say_and_read(opened + write_call("select_slice", index=3))


def test_another_image_is_shown_with_the_same_budget_and_told_in_its_own_frame_and_boxes_are_of_the_first():
    play = Play(Find(tools=["zoom", "open_image"], max_pixels=300), TWO)
    assert play.say_and_read(OPEN) == "opened (image: image_2, images: 2, size: [14, 21], shows: [0.0, 0.0, 1.0, 1.0])"
    shown = play.state.messages[-1].images[0]
    assert (shown.width, shown.height, shown.open().getpixel((3, 3))) == (14, 21, 7)
    play = Play(Find(tools=["zoom", "open_image"], coordinates="pixel"), TWO)
    assert play.say_and_read(OPEN, write_call("zoom", factor=2, center=[10, 15])).endswith("shows: [5, 8, 15, 22])")
    play.say_and_read(json.dumps({"bbox": [0, 0, 40, 20]}))
    assert play.state.answer["bbox"] == (0, 0, 0.5, 0.5)


def test_an_image_of_the_start_that_cannot_be_opened_ends_the_episode_and_another_is_opened_when_it_is_asked_for():
    for place in [0, 1]:
        images = [TASK.images[0], TASK.images[0]]
        images[place] = ImageRef("0", 1, 1, uri="nowhere.png")
        with pytest.raises(ImageError, match=r"nowhere\.png"):
            Find().reset(Task("m", tuple(images)), seed=0)
    missing = Task("m", (*GRAYS[:16], ImageRef("0", 1, 1, uri="nowhere.png")), TASK.prompt)
    play = Play(Find(), missing)
    assert "zoomed" in play.say_and_read(write_call())
    with pytest.raises(ToolFault, match="open_image"):
        play.say(write_call("open_image", image="image_17"))


# ---- in which view
def test_every_picture_says_its_view_number_where_there_is_a_view_field_and_what_shows_nothing_takes_none():
    play = Play(FindInView())
    assert play.state.messages[1].text == "view: 0\nWhere?"
    assert play.say_and_read(write_call()).endswith(", view: 1)")
    assert play.say_and_read(write_call("reset")).endswith(", view: 2)")
    assert '"view"' in play.state.messages[0].text
    plain = Play(Find())
    assert "view:" not in "".join(message.text for message in plain.state.messages) + plain.say_and_read(write_call())
    play = Play(FindInView(tools=["zoom", look]))
    assert play.say_and_read(write_call("look")) == "read"
    assert play.say_and_read(write_call(factor=9), write_call()).endswith("view: 1)")


def look(view) -> ToolOutput:
    """Reads."""
    return ToolOutput("read")


def turn(view) -> ToolOutput:
    """Turns and mirrors."""
    return ToolOutput("turned", view=view.rotate().flip_horizontal())


@each("settings, said, answer, box", [
    ({}, [write_call("crop", box=[0.5, 0, 1, 0.5]), write_call("reset")], {"bbox": [0, 0, 0.5, 1], "view": 1},
     (0.5, 0, 0.75, 0.5)),
    ({"coordinates": "pixel"}, [write_call("crop", box=[40, 0, 80, 20])], {"bbox": [0, 0, 40, 10], "view": 1},
     (0.5, 0, 1, 0.25)),
    # upright in the original, and without a view about the overview
    ({"tools": ["zoom", turn]}, [write_call(factor=2), write_call("turn")], {"bbox": [0.1, 0.2, 0.3, 0.8], "view": 2},
     (0.35, 0.3, 0.65, 0.4)), ({}, [write_call()], {"bbox": [0, 0, 0.5, 1]}, (0, 0, 0.5, 1)),
])  # fmt: skip
def test_a_box_is_mapped_back_from_the_view_it_was_seen_in(settings, said, answer, box):
    play = Play(FindInView(**settings))
    play.say_and_read(*said, json.dumps(answer))
    assert play.state.answer["bbox"] == pytest.approx(box)


@each("env, task, said, view, words", [
    *((FindInView(), TASK, write_call(), odd, f"view: unknown view {odd}; allowed: 0 to 1") for odd in (2, -1, 99)),
    (FindInView(tools=["open_image"]), TWO, OPEN, 2, "view: view 2 shows another image; boxes must refer to image_1"),
])  # fmt: skip
def test_a_view_that_is_unknown_or_of_another_image_is_refused_in_words(env, task, said, view, words):
    assert words in Play(env, task).say_and_read(said, json.dumps({"bbox": [0, 0, 1, 1], "view": view}))


def test_an_answer_read_without_its_play_knows_the_overview_only_and_a_view_field_must_be_in_the_answer():
    env = FindInView()
    assert env.read_answer('{"bbox": [0, 0, 1, 1], "view": 0}', TASK)["bbox"] == [0, 0, 1, 1]
    assert env.read_answer('{"bbox": [0, 0, 1, 1], "view": 1}', TASK) is None

    class Wrong(Find):
        view_field = "where"

    with pytest.raises(ConfigError, match="view_field = 'where'; allowed: a field of the answer"):
        Wrong()
    missing = Task("m", (ImageRef("0", 1, 1, uri="nowhere.png"),))
    for env in (Find(), FindInView()):
        assert env.read_answer('{"bbox": [0, 0, 1, 1]}', missing)["bbox"] == [0, 0, 1, 1]


class Slices(FindInView):
    volume = Volume(np.random.default_rng(0).integers(0, 999, (4, 20, 30), dtype=np.int16), (0.0, 999.0))

    def images(self, task):
        return [self.volume.get_slice(2)]


def test_a_box_may_be_in_another_slice_of_the_same_plane_and_has_no_place_in_another_plane():
    play = Play(Slices(tools=["select_slice", "crop"]))
    play.say_and_read(write_call("select_slice", index=3), write_call("crop", box=[0, 0, 0.5, 1]))
    play.say_and_read(json.dumps({"bbox": [0, 0, 1, 0.5], "view": 2}))
    assert play.state.answer["bbox"] == (0, 0, 0.5, 0.5)
    coronal = write_call("select_slice", index=3, plane="coronal")
    said = Play(Slices(tools=["select_slice"])).say_and_read(coronal, json.dumps({"bbox": [0, 0, 1, 1], "view": 1}))
    assert "view 1 shows another image" in said
