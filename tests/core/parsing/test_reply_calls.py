"""Tool calls in a reply: in text, native, fenced or as an action, whole or broken."""

import json

import pytest

from viewbox.core.parsing.objects import AnswerFields, ParsedCall, parse_native_call
from viewbox.core.parsing.reply import Answer, parse_reply
from viewbox.records import ToolCall


def call(name="zoom", **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_every_call_of_a_reply_is_read_in_order():
    outcome = parse_reply(f"Let me look. {call(factor=2)} and {call('reset')}")
    assert [(c.call.id, c.call.name, c.call.arguments, c.error) for c in outcome.calls] == [
        ("call_0", "zoom", {"factor": 2}, None),
        ("call_1", "reset", {}, None),
    ]


def test_a_call_without_arguments_has_none():
    assert parse_reply('<tool_call>{"name": "reset"}</tool_call>').calls[0].call.arguments == {}


@pytest.mark.parametrize(
    ("block", "name", "words"),
    [
        ("zoom(2)", "zoom", "a value has no name"),
        ("zoom 2", "", "not valid JSON"),
        ("", "", "not valid JSON"),
        ("[1]", "", "one JSON object"),
        ('{"arguments": {}}', "", 'no "name"'),
        ('{"name": 3, "arguments": {}}', "", 'no "name"'),
        ('{"name": "zoom", "arguments": [2]}', "zoom", "must be a JSON object"),
        ('{"name": "zoom", "arguments": {"a": NaN}}', "zoom", "NaN"),
        ('{"name": "zoom", "arguments": {"a": 1, "a": 2}}', "zoom", '"a" is given twice'),
        ('{"name": "zoom"} {"name": "crop"}', "zoom", "nothing after it"),
    ],
)
def test_a_broken_call_is_kept_with_its_raw_text_and_the_reason(block, name, words):
    outcome = parse_reply(f"<tool_call>{block}</tool_call>{call()}")
    broken, whole = outcome.calls
    assert (broken.call.id, broken.call.name, broken.call.arguments) == ("call_0", name, block)
    assert words in broken.error
    assert outcome.errors == (broken.error,)
    assert (whole.call.id, whole.error) == ("call_1", None)


def test_an_unclosed_call_that_is_not_whole_was_cut_off():
    assert "cut off" in parse_reply('<tool_call>{"name": "zoom", "argu', finish_reason="length").errors[0]


def test_an_unclosed_call_does_not_swallow_the_next():
    outcome = parse_reply(f'<tool_call>{{"name": "zoom", {call()}')
    assert [c.error is None for c in outcome.calls] == [False, True]


def test_a_broken_object_does_not_swallow_a_call():
    assert len(parse_reply(f'{{"a": oops {call()}').calls) == 1


def test_a_closing_tag_inside_an_argument_is_only_text():
    assert parse_reply(call("search", query="</tool_call>")).calls[0].call.arguments == {"query": "</tool_call>"}


def test_an_answer_beside_the_calls_is_kept():
    assert parse_reply(call() + '{"a": 1, "continue": true}').answer == {"a": 1}


@pytest.mark.parametrize(
    "arguments",
    ['{"factor": 2}', '"{\\"factor\\": 2}"', "\"{'factor': 2,}\"", '" { \\"factor\\" : 2 } "', "{'factor': 2}"],
)
def test_arguments_are_read_as_an_object_or_as_a_string_that_holds_one(arguments):
    outcome = parse_reply(f'<tool_call>{{"name": "zoom", "arguments": {arguments}}}</tool_call>')
    assert outcome.errors == ()
    assert outcome.calls[0].call.arguments == {"factor": 2}


@pytest.mark.parametrize("arguments", ["null", '""', '" "'])
def test_arguments_that_are_nothing_are_no_arguments(arguments):
    assert parse_reply(f'<tool_call>{{"name": "reset", "arguments": {arguments}}}</tool_call>').calls[0] == ParsedCall(
        ToolCall("call_0", "reset", {})
    )


def test_a_native_call_whose_string_cannot_be_read_keeps_it_with_the_reason():
    parsed = parse_native_call(ToolCall("x", "zoom", "{factor 2}"))
    assert parsed.call.arguments == "{factor 2}"
    assert 'the key "factor" is not followed by a colon' in parsed.error


@pytest.mark.parametrize("label", ["tool", "tool_call", "tool_code"])
def test_a_fenced_block_is_a_call(label):
    outcome = parse_reply(f'```{label}\n{{"tool": "zoom", "arguments": {{"a": "```"}}}}\n```\n{{"b": 1}}')
    assert outcome.calls[0].call == ToolCall("call_0", "zoom", {"a": "```"})
    assert outcome.answer == {"b": 1}


def test_an_action_is_a_call():
    assert parse_reply('{"tool": "zoom", "arguments": {"factor": 2}}').calls[0].call.name == "zoom"


def test_an_action_is_the_answer_where_the_answer_has_those_fields():
    fields = AnswerFields.from_schema({"properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}}})
    value = {"tool": "zoom", "arguments": {"factor": 2}}
    assert parse_reply(json.dumps(value), answer_fields=fields) == Answer(value)


def test_a_name_alone_is_no_call():
    assert parse_reply('{"name": "zoom"}') == Answer({"name": "zoom"})


def test_two_names_that_differ_are_no_name():
    assert "name" in parse_reply('{"tool": "zoom", "name": "crop", "arguments": {}}').errors[0]
