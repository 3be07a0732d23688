"""One place turns pydantic's errors into sentences: models, dataclasses, tagged unions, renamed keys."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from viewbox.configs import schema
from viewbox.configs.validation import describe_errors
from viewbox.configs.yaml_reader import parse_key_value, parse_key_values
from viewbox.errors import ConfigError
from viewbox.rewards import build


@dataclass(frozen=True)
class Point:
    x: float
    y: float


class Circle(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["circle"]
    radius: Annotated[float, Field(gt=0)]


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["square"]
    circle: Circle | None = None
    side: float = 1.0


Form = Annotated[Circle | Square, Field(discriminator="type")]


def describe(expected, given):
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(expected).validate_python(given)
    return [str(problem) for problem in describe_errors(caught.value, expected, given)]


EVERY_KIND_OF_ANNOTATION = [
    (Point, {"x": 1, "y": "up"}, "y = 'up'; allowed: a number"),
    (Point, {"x": 1}, "y: is missing; allowed: a number"),
    (dict[str, Point], {"a": {"x": 1, "y": None}}, "a.y = None; allowed: a number"),
    (Form, {"type": "circl"}, "unknown type 'circl'; allowed: circle, square (did you mean 'circle'?)"),
    (Form, {}, "type: is missing; allowed: circle, square"),
    (Form, {"type": "circle", "radius": 0}, "radius = 0; allowed: a number above 0"),
    (Form, {"type": "square", "sides": 2}, "sides: unknown key 'sides'; allowed: circle, side, type"),
    (Form, {"type": "square", "circle": {"type": "circle", "radius": 0}}, "circle.radius = 0; allowed: a number"),
    (list[Form], [{"type": "circle", "radius": -1}], "0.radius = -1; allowed: a number above 0"),
    (int, "x", "= 'x'; allowed: a whole number"),
]


def test_every_kind_of_annotation_is_described_at_its_key():
    for expected, given, said in EVERY_KIND_OF_ANNOTATION:
        (text,) = describe(expected, given)
        assert text.startswith(said)


def test_a_rewards_mistake_is_described_at_the_key_the_user_wrote():
    given = {"type": "combined", "components": {"format": {"type": "iou", "treshold": 1, "weight": 1}}}
    with pytest.raises(ConfigError) as caught:
        build(given)
    assert str(caught.value).startswith("reward.components.format.treshold = 1: unknown key 'treshold'; allowed: area_")
    assert str(caught.value).endswith("(did you mean 'threshold'?)")


def test_a_key_and_a_value_are_read_in_one_way():
    assert parse_key_value("noise=1e-4") == ("noise", 1e-4)
    assert parse_key_value("text=a=b") == ("text", "a=b")
    assert parse_key_value("none=") == ("none", None)
    assert parse_key_values(["a.b=1", "a.c=[x, 2]", "d=5e3"]) == {"a": {"b": 1, "c": ["x", 2]}, "d": 5000.0}


def test_what_is_not_a_key_and_a_value_is_refused_with_the_text():
    for text in ["a", "=1", "a.=1", ".a=1", " =1", "a..b=1"]:
        with pytest.raises(ConfigError, match=r"write key\.path=value") as caught:
            parse_key_values([text], "--set")
        assert repr(text) in str(caught.value)


def test_a_value_that_has_no_keys_is_not_a_section():
    with pytest.raises(ConfigError, match=r"--set 'a\.b=2': 'a' is a value; allowed: a section"):
        parse_key_values(["a=1", "a.b=2"], "--set")


def test_an_error_keeps_its_key_and_its_class_when_its_line_is_added():
    config = schema.load("quickstart")
    with pytest.raises(ConfigError, match=r"quickstart\.yaml, line \d+: wrong") as caught, schema.locate_errors(config):
        raise ConfigError("wrong", key="rollout.slots")
    assert caught.value.key == "rollout.slots"
