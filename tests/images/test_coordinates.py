"""Conventions are declared; "gaze" alone guesses, and only as that system does."""

import pytest
from PIL import Image

from viewbox import make
from viewbox.envs.tools import call_stateful
from viewbox.errors import ToolError
from viewbox.images.coordinates import from_unit, to_unit, unit_name
from viewbox.images.view import View

SIZE = (200, 100)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ((0.25, 0.5, 1.0, 1.0), (0.25, 0.5, 1.0, 1.0)),
        ((0.25, 0.5, 1.4, 1.001), (0.25, 0.5, 1.0, 1.0)),
        ((50, 25, 200, 100), (0.25, 0.25, 1.0, 1.0)),
        ((0, 0, 2, 2), (0.0, 0.0, 0.01, 0.02)),
    ],
    ids=["fractions", "a small overshoot is clamped", "pixels", "two is a pixel"],
)
def test_gaze_reads_a_box_by_its_largest_number(written, meant):
    assert to_unit(written, "gaze", SIZE, "box") == pytest.approx(meant)


@pytest.mark.parametrize("written", [(-0.1, 0.5), (300, 20), (20, 101)])
def test_gaze_too_refuses_what_lies_outside(written):
    with pytest.raises(ToolError, match="out of range"):
        to_unit(written, "gaze", SIZE, "point")


def test_gaze_writes_fractions_and_says_what_it_takes():
    assert from_unit((0.25, 0.5), "gaze", SIZE) == (0.25, 0.5)
    assert "pixels" in unit_name("gaze")


def test_a_tool_takes_both_and_its_schema_sets_no_limit():
    view = View.of(Image.new("L", SIZE))
    windows = {
        call_stateful("crop", view, {"box": box}, coordinates="gaze")[0].window
        for box in ([0.25, 0, 0.5, 1], [50, 0, 100, 100])
    }
    assert windows == {(0.25, 0.0, 0.5, 1.0)}
    env = make("digits", coordinates="gaze", tools=("crop",))
    assert "maximum" not in str(env.tool_schemas[0])


def test_an_answer_in_pixels_is_read_in_the_frame_of_the_overview():
    env = make("digits", coordinates="gaze")
    task = env.tasks[0]
    episode = env.play(task, lambda messages: '{"label": "one", "bbox": [12.0, 12.0, 24.0, 48.0]}')
    assert episode.answer["bbox"] == (0.25, 0.25, 0.5, 1.0)
