"""Coordinate conventions are declared; no number is guessed to be of another one."""

import pytest

from viewbox import make
from viewbox.errors import ConfigError, ToolError
from viewbox.images.coordinates import from_unit, to_unit

SIZE = (200, 100)


def test_each_convention_is_read_and_written():
    for coordinates, written in [
        ("unit", (0.25, 0.5, 1.0, 1.0)),
        ("per_mille", (250, 500, 1000, 1000)),
        ("pixel", (50, 50, 200, 100)),
    ]:
        assert to_unit(written, coordinates, SIZE, "box") == (0.25, 0.5, 1.0, 1.0)
        assert from_unit((0.25, 0.5, 1.0, 1.0), coordinates, SIZE) == written


def test_a_number_outside_the_image_is_refused_and_not_read_in_another_convention():
    for coordinates, written in [("unit", (50, 20)), ("pixel", (201, 20)), ("per_mille", (0, -1))]:
        with pytest.raises(ToolError, match="out of range"):
            to_unit(written, coordinates, SIZE, "point")


def test_an_unknown_convention_is_refused_with_those_that_exist():
    with pytest.raises(ConfigError, match="'unit', 'per_mille' or 'pixel'"):
        make("digits", coordinates="guessed")


def test_an_answer_in_pixels_is_read_in_the_frame_of_the_overview():
    env = make("digits", coordinates="pixel")
    task = env.tasks[0]
    episode = env.play(task, lambda messages: '{"label": "one", "bbox": [12.0, 12.0, 24.0, 48.0]}')
    assert episode.answer["bbox"] == (0.25, 0.25, 0.5, 1.0)
