"""Replies as real models write them, each with the outcome a careful engineer wants (and why: in the file itself)."""

import json
from pathlib import Path

import pytest

from viewbox.core.parsing.objects import AnswerFields
from viewbox.core.parsing.reply import Malformed, ParsedAnswer, ToolCalls, parse_reply
from viewbox.utils.frozen import thaw
from viewbox.utils.json_schema import find_violation

RECORDED = [json.loads(line) for line in Path(__file__).with_name("hard_replies.jsonl").read_text("utf-8").splitlines()]
SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {"type": "string"},
        "box": {"anyOf": [{"type": "array", "items": {"type": "number"}, "minItems": 4}, {"type": "null"}]},
        "finding": {"$ref": "#/$defs/Finding"},
    },
    "required": ["answer"],
    "$defs": {"Finding": {"properties": {"size": {"type": "number"}, "place": {"type": "string"}}, "type": "object"}},
}


def outcome(text, options):
    """The parser's outcome in the words of the file."""
    options = dict(options)
    is_validated = options.pop("validate", False)
    if "thinking" in options:
        options["thinking"] = tuple(map(tuple, options["thinking"]))
    said = parse_reply(text, answer_fields=AnswerFields.from_schema(SCHEMA), **options)
    if not is_validated or not isinstance(said, ParsedAnswer):
        return said
    violation = find_violation(thaw(said.value), SCHEMA)
    return said if violation is None else Malformed(str(violation), "invalid")


def test_the_record_holds_enough_and_every_line_says_why():
    assert len(RECORDED) >= 45
    assert len({line["name"] for line in RECORDED}) == len(RECORDED)
    assert all(line["why"] for line in RECORDED)


@pytest.mark.parametrize("line", RECORDED, ids=lambda line: line["name"])
def test_a_hard_reply_has_the_outcome_that_is_wanted(line):
    said, want = outcome(line["text"], line["options"]), line["want"]
    if "answer" in want:
        assert said == ParsedAnswer(want["answer"], want["more"], frozenset(want["flags"]))
    elif "malformed" in want:
        assert isinstance(said, Malformed)
        assert said.kind == want["malformed"]
        assert want["reason"] in said.reason
    else:
        assert isinstance(said, ToolCalls)
        assert [parsed.call.name for parsed in said.calls] == [call["name"] for call in want["calls"]]
        for parsed, call in zip(said.calls, want["calls"], strict=True):
            assert call.get("error", "") in (parsed.error or "")
            assert (parsed.error is None) == ("error" not in call)
            assert "error" in call or thaw(parsed.call.arguments) == call["arguments"]
        assert thaw(said.answer) == want.get("beside")
