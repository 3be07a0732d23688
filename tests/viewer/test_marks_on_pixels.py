"""Outlines and boxes lie on the pixels they are about: a bright mark in an image, seen through any chain of tools."""

import json
from typing import ClassVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.support.tables import each
from viewbox import BaseMultiTurnEnv, Episode, Task
from viewbox.images.source import AXES, Source, Volume
from viewbox.viewer.episode_page import build_episode_page

WIDTH, HEIGHT = 320, 200
DARK, BRIGHT = 20, 220
MARK = (208, 40, 248, 60)  # left, top, right, bottom, off every axis of symmetry
DEEP = (20, 40, 60)  # slices, rows, columns
BODY = (4, 9, 10, 25, 30, 36)  # z1, z2, y1, y2, x1, x2 of the bright voxels
TOOLS = ("zoom", "crop", "rotate", "flip_horizontal", "flip_vertical", "undo", "reset", "adjust_contrast",
    "select_slice", "open_image", "show_beside", "measure", "get_intensity_stats")  # fmt: skip


class Finding(BaseModel):
    bbox: tuple[float, float, float, float] | None = None
    extent: tuple[float, float, float, float, float, float] | None = None
    image: int | None = None
    plane: str | None = None
    slice: int | None = None


def paint():
    pixels = np.full((HEIGHT, WIDTH), DARK, np.uint8)
    left, top, right, bottom = MARK
    pixels[top:bottom, left:right] = BRIGHT
    return pixels


def build_volume():
    voxels = np.full(DEEP, DARK, np.int16)
    z1, z2, y1, y2, x1, x2 = BODY
    voxels[z1:z2, y1:y2, x1:x2] = BRIGHT
    return Volume(voxels, (0.0, 255.0), (2.0, 1.0, 1.0))


PICTURE, VOLUME = Source.of(paint()), build_volume()
EMPTY = Source.of(np.full((HEIGHT, WIDTH), DARK, np.uint8))
BOX = [MARK[0] / WIDTH, MARK[1] / HEIGHT, MARK[2] / WIDTH, MARK[3] / HEIGHT]
EXTENT = [BODY[4] / 60, BODY[2] / 40, BODY[0] / 20, BODY[5] / 60, BODY[3] / 40, BODY[1] / 20]
FLAT = Task("flat", reference={"bbox": BOX}, metadata={"images": "flat"})
STACK = Task("stack", reference={"extent": EXTENT}, metadata={"images": "stack"})


class Look(BaseMultiTurnEnv):
    name = "look"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    boxes_3d = ("extent",)
    place: ClassVar = {"image": "image", "plane": "plane", "slice": "slice"}
    tools = TOOLS
    max_turns = 12
    max_pixels = 256 * 160
    boundary = False

    def images(self, task):
        first = PICTURE if task.metadata["images"] == "flat" else VOLUME.get_slice(6)
        return [first, EMPTY] if task.metadata["images"] == "flat" else [first, PICTURE]

    def default_reward(self):
        return lambda answer, reference: 0.0


ENV = Look()


def play(task, *calls, answer=None, together=False):
    """The episode of these calls, one a reply or all in one, with its page after it was stored as JSON."""
    written = [f"<tool_call>\n{json.dumps({'name': name, 'arguments': given})}\n</tool_call>" for name, given in calls]
    replies = iter([*(["\n".join(written)] if together and written else written), json.dumps(answer or {})])
    episode = ENV.play(task, lambda messages: next(replies))
    return episode, build_episode_page(Episode.from_json(episode.to_json()), line=1)


def get_pixels(episode):
    """The pixels of every picture by hash."""
    refs = [image for turn in episode.turns for image in turn.images]
    return {ref.hash: np.asarray(ref.open().convert("L")) for ref in refs}


def find_bright(pixels):
    """(left, top, right, bottom) of the mark as it is seen, in pixels; None if there is none."""
    rows, columns = np.nonzero(pixels > (DARK + BRIGHT) / 2)
    return None if rows.size == 0 else (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)


def get_drawn(picture, kind):
    return [box for box in picture["boxes"] if box["kind"] == kind]


def to_box(corners, pixels):
    (x1, y1), _, (x2, y2), _ = corners
    height, width = pixels.shape
    return x1 * width, y1 * height, x2 * width, y2 * height


def check_pictures(episode, page, kinds=("gold",)):
    """Every box lies on the bright pixels, within one; where there are none, no box is drawn.

    A box that the edge of a picture cuts may be off by a native pixel: enlarged pixels are blurred, and at the edge no
    neighbor makes up for it.
    """
    pixels = get_pixels(episode)
    assert page["problems"] == []
    for picture in page["pictures"].values():
        shown = pixels[picture["hash"]]
        if picture["index"] != 0:  # the other image of the task, which no box is about
            assert not any(get_drawn(picture, kind) for kind in kinds)
            continue
        bright = find_bright(shown)
        native = 1 + measure_native_pixel(picture, shown)
        for kind in kinds:
            boxes = [(to_box(box["corners"], shown), box["clipped"]) for box in get_drawn(picture, kind)]
            if bright is None or not boxes:
                seen = [*(box for box, _ in boxes), *([bright] if bright is not None else [])]
                assert all(min(x2 - x1, y2 - y1) <= native for x1, y1, x2, y2 in seen)
                continue
            [(box, clipped)] = boxes
            height, width = shown.shape
            clipped |= min(box[0], box[1], width - box[2], height - box[3]) < native
            np.testing.assert_allclose(box, bright, atol=native if clipped else 1.0)
            if not clipped and kind == "gold":
                check_outline(picture, shown, bright)


def measure_native_pixel(picture, shown):
    """The longer side of a pixel of the original in pixels of the picture."""
    size = (WIDTH, HEIGHT)
    if picture["plane"] is not None:
        z, y, x = DEEP
        size = {"axial": (x, y), "coronal": (x, z), "sagittal": (y, z)}[picture["plane"]]
    (x1, y1), _, (x2, y2), _ = picture["outline"]
    return max(shown.shape) / min(abs(x2 - x1) * size[0], abs(y2 - y1) * size[1])


def check_outline(picture, shown, bright):
    """The middle of the bright pixels, moved by the outline, is the middle of the mark in the original."""
    height, width = shown.shape
    u, v = (bright[0] + bright[2]) / 2 / width, (bright[1] + bright[3]) / 2 / height
    first, right, _, below = (np.array(corner) for corner in picture["outline"])
    found = first + u * (right - first) + v * (below - first)
    wide = np.abs(right - first) / width + np.abs(below - first) / height  # of a pixel, in the original
    expected = np.array([(BOX[0] + BOX[2]) / 2, (BOX[1] + BOX[3]) / 2])
    if picture["plane"] is None:
        assert (np.abs(found - expected) <= wide).all()


fractions = st.integers(0, 100).map(lambda value: value / 100)
corner, side = st.integers(0, 60), st.integers(25, 100)
looks = st.fixed_dictionaries(
    {"factor": st.sampled_from([0.5, 1.5, 2, 3, 4]), "center": st.tuples(fractions, fractions)}
)
boxes = st.builds(lambda x, y, w, h: [x, y, min(100, x + w), min(100, y + h)], corner, corner, side, side)
geometry = st.one_of(
    st.tuples(st.just("zoom"), looks),
    st.tuples(st.just("crop"), boxes.map(lambda box: {"box": [value / 100 for value in box]})),
    st.tuples(st.just("rotate"), st.fixed_dictionaries({"clockwise": st.booleans()})),
    st.sampled_from([("flip_horizontal", {}), ("flip_vertical", {}), ("undo", {}), ("reset", {})]),
    st.just(("adjust_contrast", {"factor": 1.1})),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(geometry, max_size=6), st.booleans())
def test_the_gold_box_and_the_answer_lie_on_the_mark_after_any_chain_of_tools(calls, together):
    episode, page = play(FLAT, *calls, answer={"bbox": BOX, "image": 0}, together=together and len(calls) <= 4)
    assert episode.answer is not None
    check_pictures(episode, page, ("gold", "answer"))


places = st.one_of(
    st.fixed_dictionaries({"plane": st.just(plane), "index": st.integers(0, DEEP[AXES[plane]] - 1)})
    for plane in sorted(AXES)
)
slices = st.tuples(st.just("select_slice"), places)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(slices, geometry), max_size=6))
def test_a_box_of_a_volume_lies_on_the_slices_that_it_covers_in_every_plane(calls):
    answer = {"extent": [EXTENT[0], EXTENT[1], BODY[0], EXTENT[3], EXTENT[4], BODY[1] - 1]}
    episode, page = play(STACK, *calls, answer=answer)
    assert episode.answer is not None
    check_pictures(episode, page, ("gold", "answer"))


def test_a_box_is_not_drawn_on_another_slice_plane_or_image():
    reference = {"bbox": [0.5, 0.25, 0.6, 0.625], "slice": [4, 8], "plane": "axial", "image": 0}
    places = [(4, "axial"), (8, "axial"), (9, "axial"), (3, "axial"), (6, "coronal"), (6, "sagittal")]
    calls = [("select_slice", {"index": index, "plane": plane}) for index, plane in places]
    other = {"bbox": [0.1, 0.1, 0.2, 0.2], "image": 1}
    task = Task("stack", reference=reference, metadata={"images": "stack"})
    pictures = play(task, *calls, ("open_image", {"image": "image_2"}), answer=other)[1]["pictures"].values()
    gold, answer = ([len(get_drawn(picture, kind)) for picture in pictures] for kind in ("gold", "answer"))
    # both images are shown at the start: the second picture is image_2
    assert gold == [1, 0, 1, 1, 0, 0, 0, 0, 0]
    assert answer == [0, 1, 0, 0, 0, 0, 0, 0, 1]


@each("turned", [[], [("rotate", {})], [("flip_horizontal", {}), ("zoom", {"factor": 1.5})]])
def test_two_pictures_side_by_side_have_an_outline_each_and_the_box_on_one(turned):
    episode, page = play(FLAT, *turned, ("show_beside", {"image": "image_2"}))
    picture = list(page["pictures"].values())[-1]
    assert (picture["index"], [one["index"] for one in picture["beside"]]) == (0, [1])
    assert picture["beside"][0]["outline"] == picture["outline"]
    shown = get_pixels(episode)[picture["hash"]].copy()
    middle = round(picture["beside"][0]["area"][0] * shown.shape[1])
    shown[:, middle - 2 : middle + 2] = DARK  # the seam is white
    [gold] = get_drawn(picture, "gold")
    np.testing.assert_allclose(to_box(gold["corners"], shown), find_bright(shown), atol=1.0)


def test_a_call_is_drawn_where_it_was_made_and_seen_on_the_original():
    calls = [
        ("rotate", {}), ("crop", {"box": [0.25, 0.5, 0.75, 0.75]}), ("measure", {"point1": [0, 0], "point2": [1, 0.5]})
    ]  # fmt: skip
    _, page = play(FLAT, *calls)
    overview, _, turned, cropped = page["pictures"].values()
    crop, line = get_drawn(overview, "tool")
    assert (crop["label"], crop["on"], crop["turn"], crop["shape"]) == ("crop", "p2", 4, "box")
    np.testing.assert_allclose(crop["corners"], [[0.5, 0.25], [0.75, 0.25], [0.75, 0.75], [0.5, 0.75]])
    assert (line["label"], line["on"], line["shape"]) == ("measure", "p3", "line")
    np.testing.assert_allclose(line["corners"][:2], [[0.5, 0.75], [0.625, 0.25]])  # turned: x runs up in the original
    np.testing.assert_allclose(get_drawn(turned, "tool")[0]["corners"][0], [0.25, 0.5])
    [again] = get_drawn(cropped, "tool")  # what was cropped is the whole picture now
    np.testing.assert_allclose(again["corners"][:2], [[0, 0], [1, 0.5]], atol=1e-5)


def test_a_window_is_named_as_the_tool_named_it():
    env = Look(tools=("window_level", "zoom", "threshold"))
    calls = [("window_level", {"preset": "brain"}), ("zoom", {}), ("window_level", {"center": 100, "width": 60})]
    replies = iter([f"<tool_call>{json.dumps({'name': n, 'arguments': g})}</tool_call>" for n, g in calls] + ["{}"])
    page = build_episode_page(env.play(FLAT, lambda messages: next(replies)), line=1)
    windows = [picture["window"] for picture in page["pictures"].values()]
    assert windows[:2] == [None, None]  # the two images at the start
    assert windows[2] == windows[3]
    assert windows[2].startswith("brain (center ")
    assert windows[4] == "center 100, width 60"
