"""Stateless tools: what they are told of, how they are called, what they may return."""

import asyncio
import threading
from typing import Annotated, Literal

import numpy as np
import pytest
from PIL import Image

from viewbox import tools
from viewbox.cli import tools as trial
from viewbox.errors import ConfigError, ImageError, ToolError
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.tools import TOOLS, Box, Picture, Point, Range, Tool, ToolOutput, ViewFractions, call_stateless

GRAY = View.of(np.full((50, 100), 7, np.uint8))
DEEP = View.of(np.linspace(-1000, 1000, 64 * 32, dtype=np.int16).reshape(32, 64), max_pixels=16 * 8)


def pictures(name):
    """Two pictures and the words for any other."""
    known = {"image_1": GRAY, "view_0": GRAY, "view_1": DEEP}
    if name not in known:
        raise ToolError(f"there is no picture {name!r}; allowed: {', '.join(known)}")
    return known[name]


def said(function, arguments=None, **how):
    """The result of one call of a function as a tool."""
    made = function if isinstance(function, Tool) else Tool.from_function(function)
    return asyncio.run(call_stateless(made, {} if arguments is None else arguments, find_picture=pictures, **how))


def properties(made, coordinates="unit"):
    return made.build_schema(coordinates)["function"]["parameters"]["properties"]


def mean(image: Picture) -> dict:
    """The mean gray value of a picture."""
    return {"mean": image.get_values().mean()}


async def find(image: Picture, box: Box | None = None, what: Literal["nodule", "tube"] = "nodule") -> ToolOutput:
    """Finds things in a picture."""
    return ToolOutput(f"a {what}", {"box": ViewFractions(box or (0, 0, 0.5, 1))}, image.render())


# ---- what is a stateless tool


def test_a_tool_whose_first_argument_is_the_view_is_stateful():
    def look(view: View, closer: bool = True) -> ToolOutput:
        """Looks."""

    def ask(words: str, view: int) -> str:
        """Asks."""

    def now() -> str:
        """Tells the time."""

    assert [Tool.from_function(function).stateful for function in (look, ask, now)] == [True, False, False]


def test_a_stateless_tool_is_registered_like_any_other():
    try:

        @tools.tool(max_calls=2)
        async def search(words: str) -> str:
            """Searches."""

        assert (TOOLS["search"].stateful, TOOLS["search"].is_async, TOOLS["search"].max_calls) == (False, True, 2)
    finally:
        del TOOLS["search"]


# ---- made without the decorator


def test_a_tool_can_be_made_without_the_registry_and_named():
    made = Tool.from_function(mean, "brightness", "How bright a picture is.", max_calls=3)
    assert (made.name, made.description, made.max_calls) == ("brightness", "How bright a picture is.", 3)
    assert "brightness" not in TOOLS
    assert "mean" not in TOOLS


class Specialist:
    """A model that is loaded once."""

    def __init__(self, weights):
        self.weights = weights

    def __call__(self, image: Picture, at_least: Annotated[float, Range(0, 1)] = 0.5) -> str:
        """Classifies a picture."""
        return f"{self.weights} at {at_least}"

    async def explain(self, image: Picture) -> str:
        """Explains a picture."""
        return f"{self.weights} explains"


def test_one_class_is_offered_twice_under_two_names():
    first, second = (
        Tool.from_function(Specialist("chexpert"), "chexpert"),
        Tool.from_function(Specialist("mimic"), "mimic"),
    )
    assert first.build_schema()["function"]["description"] == "Classifies a picture."
    assert list(properties(second)) == ["image", "at_least"]
    assert said(first, {"image": "image_1"}).text == "chexpert at 0.5"
    assert said(second, {"image": "image_1", "at_least": 1}).text == "mimic at 1.0"


def test_a_method_is_a_tool():
    assert said(Specialist("padchest").explain, {"image": "image_1"}).text == "padchest explains"


def test_an_object_without_a_usable_name_is_the_authors_error():
    for name in [None, "two words", "", "1st", "x" * 65]:
        with pytest.raises(TypeError, match="is not a tool name"):
            Tool.from_function(Specialist("a"), name)


def test_declarations_that_could_not_be_called_are_the_authors_error():
    async def awaited(view: View) -> ToolOutput: ...
    def both(view: View, other: Picture) -> ToolOutput: ...
    def boxless(box: Box) -> str: ...
    def pointless(where: Point | None = None) -> str: ...
    def defaulted(image: Picture = "image_1") -> str: ...
    def unhinted(words) -> str: ...

    for function, words in {
        awaited: "a stateful tool is a plain function",
        both: "'other' is a Picture, but a stateful tool works on the view",
        boxless: "needs a Picture to refer to",
        pointless: "needs a Picture to refer to",
        defaulted: "a Picture can only have the default None",
        unhinted: "argument 'words' has no type hint",
    }.items():
        with pytest.raises(TypeError, match=words):
            Tool.from_function(function)


# ---- what the model is told


def test_a_picture_is_a_string_that_says_how_pictures_are_named():
    spec = properties(Tool.from_function(mean))["image"]
    assert spec["type"] == "string"
    assert "image_1" in spec["description"]
    assert "view_3" in spec["description"]
    assert set(spec) == {"type", "description"}


def test_the_note_of_a_picture_stands_before_how_it_is_written():
    def compare(image: Picture, prior: Annotated[Picture | None, "an older study"] = None) -> str:
        """Compares."""

    made = Tool.from_function(compare)
    assert properties(made)["prior"]["description"].startswith("an older study: a picture by name")
    assert made.required == ("image",)


# ---- arguments


def test_the_function_is_given_the_view_that_the_model_named():
    assert said(mean, {"image": "view_0"}).facts == {"mean": 7.0}


def test_the_native_pixels_come_with_the_view():
    def darkest(image: Picture) -> str:
        """The darkest."""
        return f"{image.source.pixels.min()} of {image.source.size}, seen at {image.size}"

    assert said(darkest, {"image": "view_1"}).text == "-1000 of (64, 32), seen at (16, 8)"


def test_a_picture_that_is_not_there_is_an_error_with_those_that_are():
    assert said(mean, {"image": "view_9"}).error == (
        "mean: image: there is no picture 'view_9'; allowed: image_1, view_0, view_1"
    )


def test_a_picture_is_named_by_a_string():
    assert said(mean, {"image": 1}).error == "mean: image = 1: allowed: a string"


def test_a_box_is_of_the_picture_that_is_named_beside_it():
    def corner(box: Box, image: Picture) -> str:
        """The corner."""
        return str(box)

    given = {"box": [0, 0, 8, 4], "image": "view_1"}  # 16 x 8 pixels
    assert said(corner, given, coordinates="pixel").text == "(0.0, 0.0, 0.5, 0.5)"
    assert "out of range; allowed: 0 to 16" in said(corner, {**given, "box": [0, 0, 99, 4]}, coordinates="pixel").error


# ---- what it returns


def test_facts_alone_are_read_as_facts():
    assert said(mean, {"image": "image_1"}).text == "found (mean: 7.0)"


def test_a_box_among_the_facts_is_told_in_the_environments_coordinates():
    for coordinates, box in [("unit", (0, 0, 0.5, 1)), ("per_mille", (0, 0, 500, 1000)), ("pixel", (0, 0, 50, 50))]:
        assert said(find, {"image": "view_0"}, coordinates=coordinates).facts["box"] == box


def test_words_facts_and_a_picture_come_together():
    result = said(find, {"image": "view_0", "what": "tube"})
    assert result.text == "a tube (box: [0.0, 0.0, 0.5, 1.0])"
    assert (result.image.width, result.image.height, result.mime_type) == (100, 50, "image/png")


def test_a_picture_of_any_kind_is_shown_in_eight_bits():
    for picture in [
        np.zeros((6, 8), bool),
        np.linspace(0, 1, 48).reshape(6, 8),
        Image.new("P", (8, 6)),
        Image.new("RGBA", (8, 6)),
        Source.of(np.zeros((6, 8), np.uint16)),
        View.of(np.zeros((6, 8), np.int16)),
    ]:

        def draw() -> ToolOutput:
            """Draws."""
            return ToolOutput(image=picture)  # noqa: B023

        shown = said(draw).image
        assert (shown.width, shown.height) == (8, 6)
        assert shown.mode in ("L", "RGB")


def test_a_picture_is_no_larger_than_the_budget_and_on_the_models_grid():
    def draw() -> ToolOutput:
        """Draws."""
        return ToolOutput(image=np.zeros((3000, 2000, 3), np.uint8))

    shown = said(draw, max_pixels=100 * 100, multiple=28).image
    assert shown.width * shown.height <= 100 * 100
    assert (shown.width % 28, shown.height % 28) == (0, 0)


def test_a_view_of_another_budget_is_no_larger_than_this_one():
    def draw() -> ToolOutput:
        """Draws."""
        return ToolOutput(image=View.of(np.zeros((300, 200), np.uint8)))

    shown = said(draw, max_pixels=100 * 100).image
    assert shown.width * shown.height <= 100 * 100


# ---- beside each other


def test_pictures_are_looked_up_away_from_the_event_loop():
    for function in [mean, find]:
        where = []

        def found(name):
            where.append(threading.get_ident())  # noqa: B023
            return GRAY

        asyncio.run(call_stateless(Tool.from_function(function), {"image": "image_1"}, find_picture=found))
        assert where
        assert threading.get_ident() not in where


def test_an_image_that_cannot_be_opened_is_no_error_of_the_model():
    def missing(name):
        raise ImageError("/data/patient_17/scan.dcm: no such file")

    with pytest.raises(ImageError, match="no such file"):
        asyncio.run(call_stateless(Tool.from_function(mean), {"image": "image_1"}, find_picture=missing))


# ---- the two kinds are kept apart


def test_a_stateless_tool_is_refused_on_a_view_in_words():
    view, result = tools.call_stateful(Tool.from_function(mean), GRAY, {"image": "image_1"})
    assert view is GRAY
    assert result.error == "mean is a stateless tool: it does not work on a view and can only be called in an episode"


def test_a_stateful_tool_is_refused_beside_the_view_in_words():
    assert (
        said(TOOLS["zoom"], {"factor": 2}).error
        == "zoom is a stateful tool: it works on the view and never runs beside other calls"
    )


def test_the_command_line_refuses_a_stateless_tool_in_words():
    TOOLS["mean"] = Tool.from_function(mean)
    try:
        with pytest.raises(ConfigError, match="mean is a stateless tool: it can only be called in an episode"):
            trial.parse_calls(["zoom", "mean", "image=image_1"])
        assert "mean is a stateless tool" in tools.apply_tool("mean", GRAY, image="image_1")[1].error
    finally:
        del TOOLS["mean"]
