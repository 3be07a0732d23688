"""The shape of an answer, from its schema."""

import json
from typing import Literal

from pydantic import BaseModel, Field

from viewbox.core.prompts.answer_format import describe_answer_format


class Finding(BaseModel):
    """One thing that is seen."""

    name: str = Field(description="what it\n is.")
    side: Literal["near", "far"] | None = None
    score: float = Field(ge=0, le=1)
    parts: list["Finding"] = []


class Report(BaseModel):
    findings: list[Finding] = Field(description="each abnormality")
    main: Finding
    grade: Literal[1, 2] | None
    box: list[float]
    tags: list[str] = Field(min_length=2)


def test_nested_objects_and_lists_of_objects_are_shown():
    finding = {"name": "…", "side": "near|far", "score": 0.0, "parts": []}
    line = describe_answer_format(Report.model_json_schema(), turns=False).splitlines()[0]
    expected = {"findings": [finding], "main": finding, "grade": 1, "box": [0.0], "tags": ["…", "…"]}
    assert json.loads(line) == expected


def test_what_a_placeholder_cannot_say_stands_below():
    assert describe_answer_format(Report.model_json_schema(), ["box"]).splitlines()[1:] == [
        "findings: each abnormality", "findings[].name: what it is", "findings[].side: may be left out",
        "findings[].score: 0 to 1", "findings[].parts: may be left out", "main: One thing that is seen",
        "main.name: what it is", "main.side: may be left out", "main.score: 0 to 1", "main.parts: may be left out",
        "grade: 1, 2 or null",
    ]  # fmt: skip


def test_with_one_turn_there_is_no_continue():
    schema = {"properties": {"a": {"type": "string"}}}
    assert describe_answer_format(schema) == '{"a": "…", "continue": false}'
    assert describe_answer_format(schema, turns=False) == '{"a": "…"}'


def test_examples_constants_and_types_of_json_schema():
    fields = {
        "example": {"type": "string", "examples": ["left lung"]},
        "constant": {"const": 3},
        "either": {"type": ["null", "integer"], "exclusiveMinimum": 0},
        "pair": {"prefixItems": [{"type": "number"}, {"type": "boolean"}]},
        "any": True,
    }
    assert describe_answer_format({"properties": fields}, turns=False) == (
        '{"example": "left lung", "constant": 3, "either": 0, "pair": [0.0, false], "any": "…"}\n'
        "either: may be null; above 0"
    )


def test_a_schema_that_holds_itself_is_not_unrolled():
    schema = {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/$defs/b"}, "c": {"$ref": "#/nowhere"}}}
    schema["$defs"] = {"b": {"$ref": "#/$defs/b"}}
    assert describe_answer_format(schema, turns=False) == '{"a": {}, "b": "…", "c": "…"}'


def test_without_a_schema_the_answer_is_plain_text():
    assert describe_answer_format(None) == "plain text"
