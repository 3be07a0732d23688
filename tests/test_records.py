"""The records: frozen to the bottom, equal after a trip through JSON, and strict about what makes no sense."""

import base64
import copy
import io
import json
import pickle

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


@each("images", ("a.png", ("a.png",), [gray()], np.zeros((2, 2)), (b"x",)))
def test_a_picture_that_is_no_reference_is_refused_with_the_way_to_make_one(images):
    with pytest.raises(TypeError, match=r"Task 't': images holds .*viewbox\.ImageRef\.of\(picture\).* images\(task\)"):
        Task("t", images)


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


def test_lists_and_dicts_are_frozen_to_the_bottom():
    task = Task("t", metadata={"boxes": [{"x": [1, 2]}]})
    assert task.metadata["boxes"][0]["x"] == (1, 2)
    with pytest.raises(TypeError):
        task.metadata["boxes"][0]["x"] = 3


def test_a_record_does_not_follow_the_dict_it_was_made_from():
    given_ = {"boxes": [1]}
    task = Task("t", metadata=given_)
    given_["boxes"].append(2)
    assert task.metadata == {"boxes": (1,)}


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(a=2),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.setdefault("b", 1),
        lambda d: d.__delitem__("a"),
        lambda d: d.__ior__({"a": 2}),
    ],
)
def test_no_method_of_a_frozen_dict_changes_it(change):
    frozen = FrozenDict(a=1)
    with pytest.raises(TypeError, match="cannot be changed"):
        change(frozen)
    assert frozen == {"a": 1}


def test_a_record_can_be_hashed_pickled_and_copied():
    episode = whole_episode()
    assert hash(episode) == hash(whole_episode())
    assert pickle.loads(pickle.dumps(episode)) == episode
    assert copy.deepcopy(episode) == episode


def test_thaw_gives_back_what_can_be_changed():
    plain = thaw(FrozenDict({"a": [1, {"b": 2}]}))
    plain["a"][1]["b"] = 3
    assert plain == {"a": [1, {"b": 3}]}


# ---- JSON


def test_an_episode_is_the_same_after_a_trip_through_json():
    episode = whole_episode()
    assert Episode.from_json(episode.to_json()) == episode


def test_a_turn_says_why_it_ended_and_what_was_thought_only_where_there_is_something_to_say():
    assert set(Turn("assistant", "{}").to_dict()) == {"role", "content", "tool_calls", "tool_results", "images"}
    turn = Turn("assistant", "", reasoning="so", finish_reason="length")
    assert {"reasoning": "so", "finish_reason": "length"}.items() <= turn.to_dict().items()


def test_thinking_beside_a_reply_is_not_shown_to_the_policy_again():
    assert Reply("Six.", reasoning="three and three").to_message() == Message("assistant", ("Six.",))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_any_metadata_is_the_same_after_a_trip_through_json(metadata):
    task = Task("t", metadata=metadata)
    assert Task.from_json(task.to_json()) == task


def test_pixels_and_tokens_stay_out_of_the_json_line():
    data = json.loads(whole_episode().to_json())
    assert "tokens" not in data
    assert "pixels" not in data["task"]["images"][0]


def test_nan_is_refused_in_json():
    with pytest.raises(ValueError, match="not JSON compliant"):
        Task("t", metadata={"x": float("nan")}).to_json()


def test_a_wrong_field_is_named_with_its_place():
    data = whole_episode().to_dict()
    data["turns"][1]["role"] = "narrator"
    with pytest.raises(StoreError, match=r"Episode: .*narrator.*\$\.turns\[1\]\.role"):
        Episode.from_dict(data)


def test_a_line_that_is_not_json_is_refused_in_words():
    with pytest.raises(StoreError, match="Task: not JSON"):
        Task.from_json("{")


# ---- images


def test_the_same_pixels_have_one_name_whatever_file_they_came_from(tmp_path):
    gray().save(tmp_path / "a.png")
    gray().save(tmp_path / "a.bmp")
    names = {ImageRef.of(Image.open(tmp_path / name)).hash for name in ("a.png", "a.bmp")}
    assert names == {ImageRef.of(gray()).hash}


@pytest.mark.parametrize("other", [gray(2, 4), gray(value=8), gray().convert("RGB")])
def test_other_pixels_sizes_and_modes_have_other_names(other):
    assert ImageRef.of(other).hash != ImageRef.of(gray()).hash


def test_palettes_are_part_of_the_name():
    pictures = [Image.new("P", (2, 2)) for _ in range(2)]
    pictures[1].putpalette([9, 9, 9] * 256)
    assert ImageRef.of(pictures[0]).hash != ImageRef.of(pictures[1]).hash


def test_a_png_gives_back_every_pixel():
    noise = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert (np.asarray(Image.open(io.BytesIO(ImageRef.of(noise).to_png()))) == noise).all()


def test_a_data_url_holds_the_png():
    ref = ImageRef.of(gray())
    kind, _, body = ref.to_data_url().partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(body) == ref.to_png()


def test_an_image_is_read_from_its_path(tmp_path):
    gray().save(tmp_path / "a.png")
    assert ImageRef("0", 4, 2, "L", str(tmp_path / "a.png")).open().getpixel((0, 0)) == 7


def test_an_image_without_pixels_or_path_is_an_error_in_words():
    with pytest.raises(ImageError, match="neither pixels nor a path"):
        ImageRef("ab" * 32, 4, 2).open()


@pytest.mark.parametrize("content", [None, b"", b"not a picture", b"\x89PNG\r\n\x1a\n\x00\x00\x00\x00"])
def test_a_file_that_is_no_image_is_an_error_that_names_it(tmp_path, content):
    path = tmp_path / "a.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError, match=r"a\.png"):
        ImageRef("0", 4, 2, "L", str(path)).open()


# ---- tool results, scores, episodes


def test_an_image_has_a_mime_type():
    assert ToolResult("zoom", image=ImageRef.of(gray())).mime_type == "image/png"


def test_a_mime_type_without_an_image_is_refused():
    with pytest.raises(ValueError, match="or neither"):
        ToolResult("zoom", mime_type="image/png")


def test_an_error_is_what_the_model_reads():
    result = ToolResult("zoom", "zoomed", error="too close")
    assert (result.success, result.text) == (False, "error: too close")


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2.0"), (1 / 3, "0.3333"), ([1, 0.5], "[1, 0.5]"), (float("nan"), "nan"), (float("inf"), "inf")],
)
def test_facts_reach_the_model_in_short(value, text):
    assert ToolResult("zoom", "zoomed", facts={"x": value}).text == f"zoomed (x: {text})"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_scores_are_finite(bad):
    with pytest.raises(ValueError, match="finite"):
        Scores(bad)
    with pytest.raises(ValueError, match="'box'"):
        Scores(0.0, {"box": bad})


@pytest.mark.parametrize("bad", [float("nan"), -0.1, 1.1])
def test_confidence_is_in_zero_to_one(bad):
    with pytest.raises(ValueError, match="confidence"):
        Episode(Task("t"), confidence=bad)


def test_ids_mask_and_logprobs_have_one_length():
    with pytest.raises(ValueError, match="one length"):
        EpisodeTokens((1,), (1, 2), (1,), (0.0, 0.0))


def test_an_episode_counts_replies_calls_and_the_tools_that_worked():
    episode = whole_episode()
    assert (episode.num_turns, episode.tool_call_count, episode.tools_used()) == (3, 1, {"zoom"})


def test_a_message_gives_its_words_and_its_images_apart():
    ref = ImageRef.of(gray())
    message = Message("user", ("look: ", ref, "there"))
    assert (message.text, message.images) == ("look: there", (ref,))


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_an_array_has_the_hash_of_the_same_picture(shape):
    pixels = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    assert ImageRef.of(pixels) == ImageRef.of(Image.fromarray(pixels))
    assert ImageRef.of(pixels).to_png() == ImageRef.of(Image.fromarray(pixels)).to_png()


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
