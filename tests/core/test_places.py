"""Answers that name the image, the plane and the slice of their boxes, and boxes in a volume."""

import itertools
import json
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.loop_kit import write_call
from tests.support.tables import each
from tests.support.tool_play import Play
from viewbox.core.answers import check_answer
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.images.source import Source, Volume
from viewbox.images.view import View
from viewbox.records import Task
from viewbox.rewards import IoUReward

VOXELS = np.random.default_rng(0).integers(0, 255, (10, 30, 20)).astype(np.int16)
PRIOR = Volume(VOXELS[::-1].copy(), (0.0, 255.0), (5.0, 1.0, 1.0))
VOLUME = Volume(VOXELS, (0.0, 255.0), (5.0, 1.0, 1.0))
PICTURE = Source.of(np.full((40, 80), 9, np.uint8))
GOLD = {"bbox": [0.2, 0.4, 0.6, 0.8], "image": 1, "plane": "coronal", "slice": 7}


class Finding(BaseModel):
    bbox: tuple[float, float, float, float] | None = None
    image: int | None = None
    plane: str | None = None
    slice: int | None = None
    view: int | None = None
    extent: tuple[float, float, float, float, float, float] | None = None


class Series(BaseMultiTurnEnv):
    name = "series"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    boxes_3d = ("extent",)
    view_field = "view"
    place: ClassVar = {"image": "image", "plane": "plane", "slice": "slice"}
    tools = ("zoom", "crop", "rotate", "flip_horizontal", "select_slice", "open_image")
    boundary = False

    def images(self, task):
        return [VOLUME.get_middle_slice(), PRIOR.get_middle_slice(), PICTURE]

    def default_reward(self):
        return UNIT_REWARD


TASK = Task("t", reference=GOLD)
UNIT_REWARD = IoUReward("bbox", places=["image", "plane", "slice"])
UNIT = Series()


def check(env=UNIT, **answer):
    return check_answer(env, answer, TASK)


def test_an_answer_names_where_its_box_lies_and_its_image_as_in_the_prompt_which_is_recorded_by_its_number():
    answer, problem = check(**GOLD)
    assert problem is None
    assert {key: answer[key] for key in GOLD} == GOLD
    assert UNIT_REWARD(answer, GOLD) == 1
    assert check(bbox=GOLD["bbox"], image="image_2")[0]["image"] == 1
    assert check(bbox=GOLD["bbox"], image="image_4")[1] == 'image: unknown image "image_4"; allowed: image_1 to image_3'
    assert json.loads(UNIT.write_answer(TASK))["image"] == "image_2"
    assert '"image": "image_1"' in UNIT.answer_format.text


@each("wrong, said", [
    ({"image": 3}, "image = 3; allowed: image_1 to image_3"),
    ({"slice": 10}, "slice = 10; allowed: 0 to 9"), ({"plane": "saggital"}, 'unknown plane "saggital"'),
    ({"plane": "coronal", "slice": 30}, "slice = 30; allowed: 0 to 29"),
    ({"image": 2, "slice": 0}, "slice: image_3 is a single picture; allowed: null"),
    ({"image": 2, "extent": [0, 0, 0, 1, 1, 1]}, "extent: this image is a single picture, not a volume"),
    ({"extent": [0.1, 0.2, 4, 0.2, 0.6, 3]}, "needs x1 < x2, y1 < y2 and z1 <= z2"),
    ({"extent": [0.1, 0.2, 4, 0.2, 0.6, 10]}, "extent: z = 10"),
    ({"extent": [0.1, 0.2, 4.5, 0.2, 0.6, 8]}, "extent: z = 4.5"),
    ({"extent": [0.1, 0.2, 4, 0.2, 1.6, 8]}, "extent: y = 1.6 is out of range"),
])  # fmt: skip
def test_a_place_that_does_not_exist_is_named_with_those_that_do(wrong, said):
    assert said in check(bbox=[0.2, 0.4, 0.6, 0.8], **wrong)[1]


@each("coordinates", ["unit", "per_mille", "pixel"])
def test_the_right_answer_is_written_for_the_place_of_the_reference(coordinates):
    env = Series(coordinates=coordinates)
    task = Task("t", reference=GOLD | {"extent": [0.1, 0.2, 0.3, 0.5, 0.6, 0.8], "slice": [6, 8]})
    answer = env.read_answer(env.write_answer(task), task)
    assert (answer["image"], answer["plane"], answer["slice"]) == (1, "coronal", 7)
    assert answer["bbox"] == pytest.approx(GOLD["bbox"], abs=0.03)
    assert answer["extent"] == pytest.approx(task.reference["extent"], abs=0.03)
    assert UNIT_REWARD(answer, task.reference) > 0.9


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 9), st.data())
def test_a_box_in_a_volume_comes_back_as_it_was_written(first, data):
    last = data.draw(st.integers(first, 9))
    given_box = [0.25, 0.5, first, 0.75, 1.0, last]
    answer, problem = check(extent=given_box, image=1)
    assert (problem, answer["extent"]) == (None, [0.25, 0.5, first / 10, 0.75, 1.0, (last + 1) / 10])
    assert UNIT.write_box(answer["extent"], TASK, {"image": 1}) == given_box


# ---- a view that the model names says its place
def play(*calls):
    """A play in which views 1, 2, … are what the calls show."""
    play = Play(UNIT, TASK)
    for name, arguments in calls:
        play.say(write_call(name, **arguments))
    return play


def answer_in(play, env=UNIT, **answer) -> tuple[dict[str, Any], str | None]:
    return check_answer(env, answer, TASK, play.state.views, play.state.images)


def test_the_place_of_a_view_is_filled_in_and_another_than_the_answer_names_is_said():
    seen = play(("open_image", {"image": "image_2"}), ("select_slice", {"plane": "coronal", "index": 7}))
    answer, problem = answer_in(seen, bbox=GOLD["bbox"], view=4)
    assert problem is None
    assert {key: answer[key] for key in GOLD} == GOLD
    seen = play(("open_image", {"image": "image_2"}), ("select_slice", {"plane": "coronal", "index": 7}))
    assert answer_in(seen, bbox=GOLD["bbox"], view=4, slice=6)[1] == "slice = 6: the view you name shows slice 7"
    said = answer_in(seen, bbox=GOLD["bbox"], view=3, image="image_1")[1]
    assert 'image = "image_1": the view you name shows image_2' in said


STEPS = st.sampled_from([
    ("zoom", {"factor": 2, "center": [0.3, 0.6]}), ("zoom", {"factor": 1.5, "center": [0.8, 0.2]}),
    ("crop", {"box": [0.05, 0, 0.95, 1]}), ("rotate", {}), ("flip_horizontal", {}),
])  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0, 1]), st.sampled_from(["axial", "coronal", "sagittal"]), st.integers(0, 9),
       st.lists(STEPS, max_size=3))  # fmt: skip
def test_a_box_of_any_view_of_any_slice_is_mapped_back_to_that_slice(image, plane, index, steps):
    seen = play(
        ("open_image", {"image": f"image_{image + 1}"}), ("select_slice", {"plane": plane, "index": index}), *steps
    )
    view = seen.state.views[-1]
    box = (0.25, 0.25, 0.75, 0.5)
    answer, problem = answer_in(seen, bbox=box, view=len(seen.state.views) - 1)
    assert problem is None
    assert (answer["image"], answer["plane"], answer["slice"]) == (image, plane, index)
    assert answer["bbox"] == pytest.approx(view.box_to_original(box), abs=1e-9)
    assert view.source.pixels.shape == (VOLUME, PRIOR)[image].get_slice(index, plane).pixels.shape
    whole = View.of(view.source).from_original(tuple(answer["bbox"]))
    assert whole == pytest.approx(answer["bbox"])


class SliceOnly(Series):
    name = "slice_only"
    place: ClassVar = {"slice": "slice"}


def test_parts_of_a_place_that_are_not_declared_are_those_of_the_first_picture():
    seen = play(("select_slice", {"index": 3}), ("select_slice", {"plane": "coronal", "index": 3}))
    assert answer_in(seen, SliceOnly(), bbox=GOLD["bbox"], view=3)[0]["slice"] == 3
    assert "shows another image" in answer_in(seen, SliceOnly(), bbox=GOLD["bbox"], view=4)[1]

    class ImageOnly(Series):
        place: ClassVar = {"image": "image"}

        def images(self, task):
            return [PICTURE, VOLUME.get_middle_slice()]

    env = ImageOnly()
    seen = Play(env, TASK)
    seen.say(write_call("open_image", image="image_2"))
    answer, problem = answer_in(seen, env, bbox=GOLD["bbox"], view=1)
    assert (problem, answer["image"]) == (None, 1)


# ---- what the model reads
PARTS = ("image", "plane", "slice")
SUBSETS = [names for count in range(4) for names in itertools.combinations(PARTS, count)]
SENTENCES = {
    "image": '"image" is the name of the image, such as image_1.',
    "plane": '"plane" is axial, coronal or sagittal.',
    "slice": '"slice" is the number of the slice',
}


@each("names, coordinates, tools, max_turns, view, extent", [(names, *more) for names in SUBSETS for more in (
    ("unit", (), 1, None, ()), ("per_mille", (), 3, "view", ("extent",)),
    ("pixel", ("zoom", "select_slice"), 1, "view", ()), ("unit", ("zoom",), 4, None, ("extent",)))])  # fmt: skip
def test_any_part_of_a_place_works_in_every_text(names, coordinates, tools, max_turns, view, extent):
    class Some(Series):
        name = "some"
        place: ClassVar = {name: name for name in names}
        view_field = view
        boxes_3d = extent

    env = Some(coordinates=coordinates, tools=tools, max_turns=max_turns)
    prompt = env.build_system_prompt(TASK)
    assert {name for name, sentence in SENTENCES.items() if sentence in prompt} == set(names)
    assert ("Say where your box lies" in prompt) == bool(names)
    assert ("in the plane of the first picture, from 0" in prompt) == ("slice" in names and "plane" not in names)
    played = Play(env, TASK)
    while played.state.end_reason is None:
        played.say('{"continue": true}' if played.state.turn == 0 and max_turns > 1 else "nonsense")
    task = Task("t", reference={key: value for key, value in GOLD.items() if key == "bbox" or key in names})
    answer = env.read_answer(env.write_answer(task), task)
    assert {name: answer[name] for name in names if name in GOLD} == {name: GOLD[name] for name in names}


def test_a_place_needs_a_field_of_the_answer_and_an_answer_without_boxes_has_no_frame():
    class Wrong(Series):
        place: ClassVar = {"slice": "layer"}

    with pytest.raises(ConfigError, match="place: slice = 'layer'; allowed"):
        Wrong()

    class Words(Series):
        boxes = boxes_3d = ()
        place: ClassVar = {}
        view_field = None

    assert "Boxes" not in Words().build_system_prompt(TASK)


# ---- the frame of a volume
FRAME = "Slices are numbered from 0: axial ones from the feet up"
NUMBERED = "Slices are numbered from 0. It is not known how"
LYING = replace(VOLUME, affine=np.eye(4))
ODD = Volume(VOXELS, (0, 255), planes=False, affine=np.eye(4))


@each("shown, said", [
    ([LYING.get_slice(3, "coronal")], [FRAME]), ([VOLUME.get_middle_slice()], [f"{NUMBERED} this volume lies in the"]),
    ([ODD.get_slice(0)], [f"{NUMBERED} this volume"]), ([PICTURE], []), ([PICTURE, PICTURE], []),
    ([PICTURE, LYING.get_slice(3)], [f"image_2: {FRAME}"]),
    ([LYING.get_slice(3), LYING.get_slice(2, "sagittal")], [FRAME]),
    ([VOLUME.get_slice(3), VOLUME.get_slice(2)], [f"{NUMBERED} these volumes"]),
    ([LYING.get_slice(3), VOLUME.get_slice(3), PICTURE, LYING.get_slice(1)],
     [f"image_1, image_4: {FRAME}", f"image_2: {NUMBERED} this volume"]),
])  # fmt: skip
def test_the_frame_is_told_of_each_image_that_has_one_and_once_if_they_share_it(shown, said):
    class Several(Series):
        def images(self, task):
            return shown

    text = Several().reset(Task("t"), seed=0).messages[1].text
    lines = [line for line in text.splitlines() if "Slices are numbered" in line]
    assert len(lines) == len(said)
    assert all(line.startswith(words) for line, words in zip(lines, said, strict=True))
    assert "\n\n" not in text


@each("fields, calls, said", [
    (PARTS, [("select_slice", {"index": 2})], None), ((), [], None),
    (PARTS, [("select_slice", {"index": 2}), ("zoom", {})], "Give bbox in coordinates of the whole slice."),
    ((), [("select_slice", {"index": 2})], "Give bbox in coordinates of the slice that was shown first."),
])  # fmt: skip
def test_the_last_turn_says_which_slice_coordinates_are_of(fields, calls, said):
    class Some(Series):
        view_field = None
        place: ClassVar = {name: name for name in fields}

    seen = Play(Some(max_turns=1 + max(1, len(calls))), TASK)
    for name, arguments in calls:
        seen.say(write_call(name, **arguments))
    if not calls:
        seen.say("nonsense")
    text = seen.state.messages[-1].text
    assert "This is your last reply" in text
    assert "original image" not in text
    assert said in text if said else "in coordinates of" not in text


# ---- which picture the boxes of an answer refer to
FIRST = "Boxes in your answer refer to the whole image as it was shown first, even after a tool has changed the view."
NAMED = "Boxes in your answer refer to the whole image or slice that you name, even after a tool has changed the view."
SLICE = "Boxes in your answer refer to the whole slice that you name, even after a tool has changed the view."
SLICES = (
    "Boxes in your answer refer to the whole slice that you name, of image_1, even after a tool has changed the view."
)
OF_FIRST = "Boxes in your answer refer to the whole of image_1, even after a tool has changed the view."
LIES = "Boxes in your answer refer to image_1."


@each("images, fields, settings, said", [
    (1, (), {}, FIRST), (1, (), {"tools": ["zoom"]}, FIRST), (1, (), {"tools": []}, None),
    (1, (), {"max_turns": 1}, None), (1, ("slice",), {}, SLICE), (1, ("plane", "slice"), {}, SLICE),
    (3, (), {}, OF_FIRST), (3, (), {"tools": []}, LIES), (3, ("slice",), {}, SLICES), (3, PARTS, {}, NAMED),
    (3, ("image",), {}, NAMED.replace(" or slice", "")), (3, ("image",), {"tools": []}, None),
    (1, (), {"view": "view"}, None), (3, (), {"view": "view"}, LIES), (3, PARTS, {"view": "view"}, None),
])  # fmt: skip
def test_the_prompt_says_once_which_picture_the_boxes_of_an_answer_refer_to(images, fields, settings, said):
    class Some(Series):
        view_field = settings.get("view")
        boxes_3d = ()
        place: ClassVar = {name: name for name in fields}

        def images(self, task):
            return super().images(task)[:images]

    env = Some(**{key: value for key, value in settings.items() if key != "view"})
    state = env.reset(TASK, seed=0)
    text = "\n".join(message.text for message in state.messages)
    assert [line for line in text.splitlines() if "Boxes in your answer" in line] == ([said] if said else [])
    assert text.count("refer") == bool(said) + bool(settings.get("view"))


# ---- fractions where others are asked
class Flat(Series):
    """One picture of 80 x 40 pixels, shown as it is."""

    boxes = ("bbox",)
    boxes_3d = ("extent",)
    view_field = None
    place: ClassVar = {}

    def images(self, task):
        return [PICTURE]


class Deep(Flat):
    def images(self, task):
        return [VOLUME.get_middle_slice()]


def refuse(env, **answer):
    return check_answer(env, answer, TASK)[1]


@each("box", [[0.3, 0.2, 0.4, 0.4], [0, 0, 1, 0.5], [0.0, 0.5, 1.0, 1.0]])
def test_fractions_where_thousandths_or_pixels_are_asked_are_refused_with_what_to_write(box):
    given = f"bbox = {[float(side) for side in box]}: x and y are fractions; write "
    asked = {"per_mille": "thousandths of the image (x: 0 to 1000, y: 0 to 1000)"}
    asked |= {"pixel": "pixels of the image (x: 0 to 80, y: 0 to 40)"}
    for coordinates, said in asked.items():
        assert refuse(Flat(coordinates=coordinates), bbox=box) == given + said
    assert refuse(Flat(coordinates="unit"), bbox=box) is None


@each("coordinates, box, is_fine", [
    ("pixel", [0, 0, 1, 1], True), ("pixel", [0, 0, 1, 2], True), ("pixel", [0.5, 0, 1.5, 1], True),
    ("pixel", [0.0, 0.0, 1.0, 1.0], True),  # a pydantic model makes floats of it
    ("per_mille", [0, 0, 1, 1], False),  # a thousandth of a picture, or all of it as fractions
    ("per_mille", [0, 0, 1, 2], True), ("per_mille", [999, 999, 1000, 1000], True),
])  # fmt: skip
def test_a_small_box_that_can_be_meant_is_taken(coordinates, box, is_fine):
    problem = refuse(Flat(coordinates=coordinates), bbox=box)
    assert (problem is None) == is_fine


def test_fractions_in_a_volume_are_refused_and_its_slices_and_a_box_without_sides_are_none():
    said = "bbox = [0.0, 0.0, 0.0, 0.0]: needs x1 < x2 and y1 < y2"
    assert refuse(Flat(coordinates="pixel"), bbox=[0, 0, 0, 0]) == said
    said = "extent = [0.1, 0.2, 3.0, 0.5, 0.6, 5.0]: x and y are fractions; write "
    box = [0.1, 0.2, 3, 0.5, 0.6, 5]
    asked = "thousandths of the image (x: 0 to 1000, y: 0 to 1000)"
    assert refuse(Deep(coordinates="per_mille"), extent=box) == said + asked
    assert refuse(Deep(coordinates="pixel"), extent=box).startswith(said + "pixels of the image (x: 0 to ")
    assert refuse(Deep(coordinates="pixel"), extent=[0, 0, 0, 1, 1, 0]) is None
    assert refuse(Deep(coordinates="unit"), extent=box) is None
    assert refuse(Deep(coordinates="per_mille"), extent=[100, 200, 0, 500, 600, 1]) is None
