"""The registry: what hints and docstrings become, what only the environment gives, listings."""

import json
import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import pytest
from PIL import Image

from viewbox import tools
from viewbox.errors import ImageError
from viewbox.images.view import View
from viewbox.tools import TOOLS, Box, Hidden, Range, ToolOutput, call_stateful, tool
from viewbox.utils.json_schema import check_schema, find_violation

VIEW = View.of(np.zeros((100, 200), np.uint8))


@pytest.fixture(autouse=True)
def scratch():
    """Tools of a test are gone after it."""
    before = dict(TOOLS)
    yield
    TOOLS.clear()
    TOOLS.update(before)


def properties(name, coordinates="unit"):
    return TOOLS[name].build_schema(coordinates)["function"]["parameters"]["properties"]


# ---- what an argument is


def test_a_plain_string_in_a_hint_is_the_note_of_an_argument():
    @tool
    def blur(view: View, sigma: Annotated[float, Range(0.5, 5), "width in pixels"]) -> ToolOutput:
        """Blurs."""

    assert properties("blur")["sigma"] == {
        "type": "number", "minimum": 0.5, "maximum": 5, "description": "width in pixels",
    }  # fmt: skip


def test_a_line_of_the_docstring_is_the_note_of_an_argument_and_not_of_the_tool():
    @tool
    def blur(view: View, sigma: float, mode: str = "fast") -> ToolOutput:
        """Blurs. Note: it is slow.

        sigma: width in pixels
        mode: how, one of: fast, exact
        """

    assert properties("blur")["sigma"]["description"] == "width in pixels"
    assert properties("blur")["mode"]["description"] == 'how, one of: fast, exact; default "fast"'
    assert TOOLS["blur"].description == "Blurs. Note: it is slow."


def test_the_note_of_a_box_stands_behind_how_it_is_written():
    for coordinates, unit in [("unit", "fractions"), ("per_mille", "thousandths"), ("pixel", "pixels")]:

        @tool
        def mark(view: View, box: Annotated[Box, "around the lesion"]) -> ToolOutput:
            """Marks."""

        assert properties("mark", coordinates)["box"]["description"] == (
            f"[x1, y1, x2, y2] in {unit} of the image; around the lesion"
        )


def test_an_open_range_is_open_in_the_schema_and_in_words():
    @tool
    def pick(view: View, index: Annotated[int, Range(0, math.inf)]) -> ToolOutput:
        """Picks."""

    assert properties("pick")["index"] == {"type": "integer", "minimum": 0}
    assert call_stateful("pick", VIEW, {"index": -1})[1].error == "pick: index = -1: out of range; allowed: at least 0"


def test_a_wrong_type_is_told_the_range_too():
    @tool
    def pick(view: View, index: Annotated[int, Range(0, 9)]) -> ToolOutput:
        """Picks."""

    assert call_stateful("pick", VIEW, {"index": "two"})[1].error == (
        'pick: index = "two": allowed: an integer; 0 to 9'
    )


def test_a_hint_that_no_schema_can_say_is_the_authors_error():
    with pytest.raises(TypeError, match="cannot be the type of an argument; allowed: float, int"):

        @tool
        def pick(view: View, index: complex) -> ToolOutput:
            """Picks."""


def test_an_argument_may_be_a_list():
    @tool
    def add(view: View, numbers: Annotated[list[int], "to add"], names: list[str] | None = None) -> ToolOutput:
        """Adds."""
        return ToolOutput(f"{sum(numbers)} {names}")

    assert properties("add")["numbers"] == {"type": "array", "items": {"type": "integer"}, "description": "to add"}
    assert call_stateful("add", VIEW, {"numbers": [1, 2]})[1].text == "3 None"
    assert call_stateful("add", VIEW, {"numbers": (), "names": ["a"]})[1].text == "0 ['a']"
    assert call_stateful("add", VIEW, {"numbers": ["x"]})[1].error.startswith('add: numbers[0] = "x": ')
    assert "numbers = 3: allowed: a list" in call_stateful("add", VIEW, {"numbers": 3})[1].error


def test_a_list_of_what_no_schema_can_say_is_the_authors_error():
    for hint in [list[Box], list[complex], list[list[int]]]:

        def pick(view: View, many: hint) -> ToolOutput:
            """Picks."""

        with pytest.raises(TypeError, match="allowed: a list of float, int, bool or str"):
            tool(pick)


def test_every_tool_has_a_valid_schema_in_every_convention():
    for name in sorted(TOOLS):
        for coordinates in ["unit", "per_mille", "pixel"]:
            schema = json.loads(json.dumps(TOOLS[name].build_schema(coordinates), allow_nan=False))
            check_schema(schema["function"]["parameters"])
            assert schema["function"]["description"].endswith(".")


def test_the_default_of_an_argument_is_one_that_may_be_given():
    for name in sorted(TOOLS):
        given = {argument: value for argument, value in TOOLS[name].defaults.items() if value is not None}
        refused = [
            argument
            for argument, value in given.items()
            if find_violation(json.loads(json.dumps(value)), TOOLS[name].parameters[argument])
        ]
        assert refused == []


# ---- what the model never sees


@pytest.fixture
def secret():
    @tool
    def secret(view: View, where: str, images: Hidden[Sequence[str]], path: Annotated[str, "hidden"]) -> ToolOutput:
        """Looks."""
        return ToolOutput(f"{where} {path}", {"count": len(images)})


def test_a_hidden_argument_that_the_environment_forgot_is_its_own_fault(secret):
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        call_stateful("secret", VIEW, {"where": "in"})


# ---- limits


def test_a_tool_may_bring_its_own_limit_of_calls_and_the_schema_says_it():
    @tool(max_calls=1)
    def costly(view: View) -> ToolOutput:
        """Costs much."""

    assert TOOLS["costly"].max_calls == 1
    assert TOOLS["costly"].build_schema(max_calls=1)["function"]["description"] == "Costs much. At most 1 call."
    assert TOOLS["costly"].build_schema(max_calls=3)["function"]["description"] == "Costs much. At most 3 calls."


# ---- outside an episode


def test_apply_gives_the_picture_and_what_a_model_would_read():
    _, done = tools.apply_tool("zoom", Image.new("RGB", (64, 32)), factor=2)
    assert (done.image.open().size, done.image.open().mode, done.error) == ((128, 64), "RGB", None)
    assert (
        done.text
        == "zoomed (factor: 2.0, original_size: [64, 32], new_size: [128, 64], shows: [0.25, 0.25, 0.75, 0.75])"
    )


def test_apply_tells_what_is_wrong_and_shows_nothing():
    after, done = tools.apply_tool("zoom", VIEW, factor=9)
    assert done.image is None
    assert done.text == f"error: {done.error}"
    assert after is VIEW


def test_apply_reads_coordinates_as_they_are_declared():
    after, done = tools.apply_tool("crop", VIEW, coordinates="pixel", box=[50, 50, 150, 100])
    assert after.window == pytest.approx((0.25, 0.5, 0.75, 1))
    assert done.text.endswith("shows: [50, 50, 150, 100])")


def test_apply_opens_a_file(tmp_path):
    Image.new("L", (40, 20)).save(tmp_path / "a.png")
    assert tools.apply_tool("zoom", tmp_path / "a.png", max_pixels=200)[1].image.open().size == (20, 10)
    assert tools.apply_tool("zoom", str(tmp_path / "a.png"))[1].image.open().size == (80, 40)
    with pytest.raises(ImageError, match=r"b\.png"):
        tools.apply_tool("zoom", tmp_path / "b.png")


def test_a_chain_ends_at_the_first_call_that_fails():
    steps = tools.apply_tools(VIEW, [("crop", {"box": [0.5, 0, 1, 1]}), ("zoom", {"factor": 9}), ("zoom", {})])
    assert [result.success for _, result in steps] == [True, False]
    assert steps[-1][0] is steps[0][0]


# ---- arguments that a model leaves out in its own way


def test_null_as_text_leaves_an_optional_argument_out():
    for name, argument in [
        ("get_intensity_stats", "box"), ("zoom", "center"), ("zoom", "factor"), ("window_level", "width"),
    ]:  # fmt: skip
        for value in [None, "null", "None", " none "]:
            assert TOOLS[name].check_arguments({argument: value}, "unit", (64, 64)) == {}


def test_null_as_text_is_refused_where_a_value_is_needed_and_kept_where_text_is():
    assert "a box is 4 numbers" in call_stateful("crop", VIEW, {"box": "null"})[1].error
    given = {"box": [0, 0, 1, 1], "label": "none"}
    assert TOOLS["annotate_region"].check_arguments(given, "unit", (64, 64))["label"] == "none"
    assert "preset" not in TOOLS["window_level"].check_arguments({"preset": "null"}, "unit", (64, 64))
