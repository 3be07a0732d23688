"""The records: frozen to the bottom, equal after a trip through JSON, and strict about what makes no sense."""

import base64
import copy
import io
import json
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.support.foreign_numbers import HALVES, ONES
from tests.support.tables import each
from viewbox.errors import ImageError, StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens, Message, Reply, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.utils.frozen import FrozenDict, thaw

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def gray(width=4, height=2, value=7):
    return Image.new("L", (width, height), value)


def whole_episode():
    shown = ImageRef.of(gray())
    call = ToolCall("call_0", "zoom", {"center": [0.5, 0.25]})
    result = ToolResult("zoom", "zoomed", image=shown, facts={"new_size": [4, 2]}, call_id="call_0")
    return Episode(
        task=Task("t", (shown,), {"question": "where?"}, {"bbox": [0, 0, 0.5, 1]}, {"seed": 3, "deep": {"a": [[1]]}}),
        turns=(
            Turn("user", "where?", images=(shown,)),
            Turn("assistant", "…", tool_calls=(call,)),
            Turn("tool_result", "zoomed", tool_results=(result, ToolResult("crop", error="no"))),
            Turn("assistant", "", reasoning="It is gray, so", finish_reason="length"),
            Turn("assistant", "{}"),
        ),
        answer={"bbox": [0, 0, 1, 1]},
        terminated=True,
        flags={"salvaged"},
        scores=Scores(0.5, {"box": 0.5, "label": None}),
        run_config=RunConfig(seed=1, max_turns=3),
        info={"malformed": 0},
        tokens=EpisodeTokens((1,), (2,), (1,), (-0.5,)),
    )


# ---- immutability


def test_a_record_is_frozen_to_the_bottom_and_does_not_follow_the_dict_it_was_made_from():
    boxes = {"boxes": [{"x": [1, 2]}]}
    task = Task("t", metadata=boxes)
    with pytest.raises(TypeError):
        task.metadata["boxes"][0]["x"] = 3
    boxes["boxes"].append(2)
    assert task.metadata == {"boxes": ({"x": (1, 2)},)}
    plain = thaw(task.metadata)
    plain["boxes"][0]["x"][1] = 3
    assert (plain, task.metadata["boxes"][0]["x"]) == ({"boxes": [{"x": [1, 3]}]}, (1, 2))


@each("method, values", [
    ("update", [{"a": 2}]), ("pop", ["a"]), ("popitem", []), ("clear", []), ("setdefault", ["b", 1]),
    ("__delitem__", ["a"]), ("__ior__", [{"a": 2}]),
])  # fmt: skip
def test_no_method_of_a_frozen_dict_changes_it(method, values):
    frozen = FrozenDict(a=1)
    with pytest.raises(TypeError, match="cannot be changed"):
        getattr(frozen, method)(*values)
    assert frozen == {"a": 1}


def test_an_episode_can_be_hashed_pickled_copied_and_written_as_json():
    episode = whole_episode()
    assert hash(episode) == hash(whole_episode())
    assert pickle.loads(pickle.dumps(episode)) == copy.deepcopy(episode) == episode
    assert [copy.deepcopy(episode) != episode, episode.task != episode] == [False, True]
    assert Episode.from_json(episode.to_json()) == episode
    data = json.loads(episode.to_json())  # neither pixels nor tokens stand in the line
    assert ("tokens" in data, "pixels" in data["task"]["images"][0]) == (False, False)


# ---- JSON


def test_a_turn_says_why_it_ended_and_what_was_thought_only_where_there_is_something_and_a_policy_sees_no_thought():
    assert set(Turn("assistant", "{}").to_dict()) == {"role", "content", "tool_calls", "tool_results", "images"}
    turn = Turn("assistant", "", reasoning="so", finish_reason="length")
    assert {"reasoning": "so", "finish_reason": "length"}.items() <= turn.to_dict().items()
    assert Reply("Six.", reasoning="three and three").to_message() == Message("assistant", ("Six.",))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_metadata_is_the_same_after_a_trip_through_json(metadata):
    task = Task("t", metadata=metadata)
    assert Task.from_json(task.to_json()) == task


def test_what_is_no_json_or_no_record_is_refused_with_its_place():
    with pytest.raises(ValueError, match="not JSON compliant"):
        Task("t", metadata={"x": math.nan}).to_json()
    with pytest.raises(StoreError, match="Task: not JSON"):
        Task.from_json("{")
    data = whole_episode().to_dict()
    data["turns"][1]["role"] = "narrator"
    with pytest.raises(StoreError, match=r"Episode: .*narrator.*\$\.turns\[1\]\.role"):
        Episode.from_dict(data)


# ---- images


def test_the_same_pixels_have_one_name_whatever_file_they_came_from_and_others_have_others(tmp_path):
    gray().save(tmp_path / "a.png")
    gray().save(tmp_path / "a.bmp")
    names = [ImageRef.of(Image.open(tmp_path / name)).hash for name in ("a.png", "a.bmp")]
    assert names == [ImageRef.of(gray()).hash] * 2
    palettes = [Image.new("P", (2, 2)) for _ in range(2)]
    palettes[1].putpalette([9, 9, 9] * 256)
    others = [gray(), gray(2, 4), gray(value=8), gray().convert("RGB"), *palettes]
    assert len({ImageRef.of(picture).hash for picture in others}) == len(others)


@each("shape", [(5, 7), (5, 7, 3)])
def test_an_array_has_the_hash_and_the_png_of_the_same_picture(shape):
    noise = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    ref = ImageRef.of(noise)
    assert ref == ImageRef.of(Image.fromarray(noise))
    assert (np.asarray(Image.open(io.BytesIO(ref.to_png()))) == noise).all()
    assert ref.to_png() == ImageRef.of(Image.fromarray(noise)).to_png()
    kind, _, body = ref.to_data_url().partition(",")
    assert (kind, base64.b64decode(body)) == ("data:image/png;base64", ref.to_png())


def test_an_image_is_read_from_its_path_or_there_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "a.png"
    gray().save(path)
    assert ImageRef("0", 4, 2, "L", str(path)).open().getpixel((0, 0)) == 7
    with pytest.raises(ImageError, match="neither pixels nor a path"):
        ImageRef("ab" * 32, 4, 2).open()
    for content in (b"", b"not a picture", b"\x89PNG\r\n\x1a\n\x00\x00\x00\x00", None):
        path.unlink() if content is None else path.write_bytes(content)
        with pytest.raises(ImageError, match=r"a\.png"):
            ImageRef("0", 4, 2, "L", str(path)).open()


# ---- tool results, scores, episodes


def test_what_a_result_says_of_its_image_and_its_error_an_episode_of_its_calls_and_a_message_of_its_parts():
    assert ToolResult("zoom", image=ImageRef.of(gray())).mime_type == "image/png"
    result = ToolResult("zoom", "zoomed", error="too close")  # which is what the model reads
    assert (result.success, result.text) == (False, "error: too close")
    episode = whole_episode()
    assert (episode.num_turns, episode.tool_call_count, episode.tools_used()) == (3, 1, {"zoom"})
    ref = ImageRef.of(gray())
    message = Message("user", ("look: ", ref, "there"))
    assert (message.text, message.images) == ("look: there", (ref,))


@each("value, text", [(2.0, "2.0"), (1 / 3, "0.3333"), ([1, 0.5], "[1, 0.5]"), (math.nan, "nan"), (math.inf, "inf")])
def test_facts_reach_the_model_in_short(value, text):
    assert ToolResult("zoom", "zoomed", facts={"x": value}).text == f"zoomed (x: {text})"


@each("make, words", [
    *((partial(Scores, bad), "finite") for bad in (math.nan, math.inf)),
    *((partial(Scores, 0.0, {"box": bad}), "'box'") for bad in (math.nan, math.inf)),
    *((partial(Episode, Task("t"), confidence=bad), "confidence") for bad in (math.nan, -0.1, 1.1)),
    (partial(EpisodeTokens, (1,), (1, 2), (1,), (0.0, 0.0)), "one length"),
    (partial(ToolResult, "zoom", mime_type="image/png"), "or neither"),
])  # fmt: skip
def test_a_record_that_makes_no_sense_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@each("value, plain", [*((half, 0.5) for half in HALVES.values()), *((one, 1) for one in ONES.values())])
def test_a_number_of_another_library_is_the_number_it_is(value, plain):
    task = Task("t", prompt={"n": [value]}, reference={"n": value}, metadata={"inner": {"n": value}})
    episode = Episode(task, answer={"n": value}, info={"n": (value,)})
    held = [task.prompt["n"][0], task.reference["n"], task.metadata["inner"]["n"], episode.answer["n"]]
    for one in [*held, episode.info["n"][0]]:
        assert one == plain
        assert type(one) in (bool, int, float)
    assert Episode.from_json(episode.to_json()) == episode


@each("array", [np.array, torch.tensor, np.float32, lambda values: [np.array(value) for value in values]])
def test_arrays_of_a_reference_are_tuples_and_others_stay_until_they_are_written(array):
    boxes = [[0.0, 0.25, 0.5, 1.0], [0.5, 0.5, 0.75, 0.75]]
    task = Task(
        "t", reference={"boxes": array(boxes), "one": {"box": array(boxes[0])}}, metadata={"boxes": array(boxes)}
    )
    assert task.reference == {"boxes": tuple(map(tuple, boxes)), "one": {"box": tuple(boxes[0])}}
    assert not isinstance(task.metadata["boxes"], tuple) or not isinstance(task.metadata["boxes"][0], tuple)
    assert json.loads(task.to_json())["metadata"] == {"boxes": boxes}
