"""Answers in a reply: how they are found, checked and salvaged; thinking, and malformed replies."""

import json

import pytest

from viewbox.core.parsing.objects import AnswerFields, parse_native_call
from viewbox.core.parsing.reply import MAX_BYTES, MAX_ITEMS, Answer, Malformed, ToolCalls, parse_reply
from viewbox.records import ToolCall


def call(name="zoom", **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


# ---- answers


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}', 'I see it. {"a": 1} That is all.', '```json\n{"a": 1}\n```', '\n\n{\n"a"\n:\n1}',
        'set {x} of [1]: {"a": 1}',
    ],
)  # fmt: skip
def test_an_object_is_found_wherever_it_stands(text):
    assert parse_reply(text) == Answer({"a": 1})


def test_the_last_of_several_objects_is_the_answer():
    assert parse_reply('First {"a": 1}, no: {"a": 2}.') == Answer({"a": 2}, flags=frozenset({"ignored"}))


def test_an_empty_object_after_the_answer_does_not_replace_it():
    assert parse_reply('{"a": 1} and {}') == Answer({"a": 1})


def test_an_object_inside_a_broken_object_is_not_the_answer():
    outcome = parse_reply('{"boxes": [{"x": 1}], "label": oops!, "box": {"x": 2}}')
    assert outcome.kind == "invalid"
    assert 'a comma or } is expected, before \'!, "box"' in outcome.reason


def test_an_object_inside_a_list_is_not_the_answer():
    assert parse_reply('[{"a": 1}, {"a": 2}]').kind == "not_an_object"


def test_a_tag_inside_a_string_is_only_text():
    assert parse_reply('{"a": "<tool_call> </think> {"}') == Answer({"a": "<tool_call> </think> {"})


def test_a_whole_object_before_a_broken_one_is_salvaged():
    assert parse_reply('{"a": 1} or rather {"a": oops!}') == Answer({"a": 1}, flags=frozenset({"salvaged"}))


# ---- thinking


@pytest.mark.parametrize(
    "text", ['<think>{"a": 1}</think>{"b": 2}', '{"a": 1} hm</think>{"b": 2}', '<think>{"a": </think>{"b": 2}']
)
def test_an_object_in_the_thinking_is_not_the_answer(text):
    assert parse_reply(text) == Answer({"b": 2})


def test_thinking_that_never_ends_is_named():
    outcome = parse_reply('<think>it is {"a": 1}')
    assert outcome.kind == "no_json"
    assert "</think>" in outcome.reason


# ---- malformed


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"), ("It is on the left.", "no_json"), ("[1, 2]", "not_an_object"), ('"left"', "not_an_object"),
        ("{'a': 'it's'}", "invalid"), ('{"a": NaN}', "invalid"), ('{"a": 1e999}', "invalid"),
        ('{"a": ' + "9" * 5000 + "}", "invalid"), ('{"a": ' + "[" * 65 + "]" * 65 + "}", "invalid"),
        ('{"a": [' + "1," * 20000 + "1]}", "invalid"), ("{'a': [" + "1," * 20000 + "1]}", "invalid"),
        ("{'a': " + "[" * 65 + "]" * 65 + "}", "invalid"), ("{'a': " + "9" * 5000 + "}", "invalid"),
        ('{"a": 1}' * (MAX_ITEMS + 1), "invalid"),
    ],
)  # fmt: skip
def test_a_malformed_reply_has_its_kind(text, kind):
    assert parse_reply(text).kind == kind


def test_a_key_given_twice_is_named():
    outcome = parse_reply('{"a": {"left": 1, "left": 2}}')
    assert (outcome.kind, outcome.reason) == ("invalid", 'the key "left" is given twice')


def test_the_size_is_counted_in_bytes_before_anything_is_read():
    fits = '{"a": "' + "x" * (MAX_BYTES - 9) + '"}'
    assert isinstance(parse_reply(fits), Answer)
    assert parse_reply(fits + " ").kind == "too_long"
    assert parse_reply('{"a": "' + "é" * (MAX_BYTES // 2) + '"}').kind == "too_long"


# ---- the thinking's tags


def test_thinking_tags_are_a_setting():
    pairs = (("◁think▷", "◁/think▷"), ("<a>", "</a>"))
    assert parse_reply('◁think▷{"a": 1}◁/think▷<a>{"a": 2}</a>{"a": 3}<think>', thinking=pairs) == Answer({"a": 3})


def test_a_closing_tag_alone_can_be_given():
    assert parse_reply('{"a": 1}</t>{"a": 2}', thinking=(("", "</t>"),)) == Answer({"a": 2})


def test_without_tags_there_is_no_thinking():
    assert parse_reply('<think>{"a": 1}', thinking=()) == Answer({"a": 1})


# ---- the fields of an answer, which only help to read it

NESTED = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "place": {"$ref": "#/$defs/Place"}},
    "required": ["label"],
    "$defs": {"Place": {"type": "object", "properties": {"side": {"type": "string"}, "lobe": {"type": "string"}}}},
}
FIELDS = AnswerFields.from_schema(NESTED)


def test_continue_beside_a_wrong_key_is_kept():
    assert parse_reply('{"result": {"label": "x"}, "continue": true}', answer_fields=FIELDS).wants_more


def test_an_answer_is_not_unwrapped_where_a_field_stands_beside_it():
    value = {"place": {"side": "left"}, "other": {"label": "x"}}
    assert parse_reply(json.dumps(value), answer_fields=FIELDS) == Answer(value)


def test_an_object_without_what_is_required_is_not_unwrapped():
    assert parse_reply('{"result": {"place": {}}}', answer_fields=FIELDS) == Answer({"result": {"place": {}}})


def test_keys_of_two_inner_objects_are_not_wrapped():
    two = {"properties": {name: {"type": "object", "properties": {"x": {}}} for name in ("a", "b")}}
    assert parse_reply('{"x": 1}', answer_fields=AnswerFields.from_schema(two), last=True) == Answer({"x": 1})


def test_a_reference_to_itself_ends():
    schema = {"$defs": {"A": {"$ref": "#/$defs/A"}}, "properties": {"a": {"$ref": "#/$defs/A"}}}
    assert AnswerFields.from_schema(schema).objects == ()


# ---- the last turn


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "left", "b": "ri', {"a": "left"}),
        ('{"a": "left", "b', {"a": "left"}),
        ('{"a": "left", "b": tru', {"a": "left"}),
        ('{"a": "left", "b": 1e', {"a": "left"}),
        ('{"a": "left", "b": ["x", "y', {"a": "left", "b": ("x",)}),
        ('{"a": "left", "b": [0.1, 0.2', {"a": "left", "b": (0.1,)}),
        ('{"a": "left", "b": [{"c": 1}, {"d": 2', {"a": "left", "b": ({"c": 1},)}),
        ('{"a": "left", "b": {"c": "x"', {"a": "left", "b": {"c": "x"}}),
    ],
)
def test_a_truncated_last_object_is_completed_from_what_was_said_whole(text, value):
    assert parse_reply(text, finish_reason="length", last=True) == Answer(value, flags=frozenset({"salvaged"}))


def test_a_whole_object_is_preferred_to_a_later_part_of_one():
    assert parse_reply('{"a": 1} {"a": 2, "b": "ri', finish_reason="length", last=True).value == {"a": 1}


# ---- no reply is slow


@pytest.mark.parametrize(
    "scrap",
    [
        "{", '{"', '{"\\', '{"":', '{"":x', "{}", "[{", "[{}[", "<tool_call>", "<tool_call>{", "<think>", '"\\',
        "```\n", "\ud800", "{'", "{a:", "{a: “}", "{a: \\'", "{/*}", "{//\n", "'a': 1, ", "```tool\n{", "{“",
    ],
)  # fmt: skip
def test_text_that_would_make_a_careless_parser_quadratic_is_read(scrap):
    # A quadratic scan of these takes minutes, so no clock is needed to tell.
    text = scrap * (MAX_BYTES // len(scrap.encode("utf-8", "surrogatepass")))
    assert isinstance(parse_reply(text), ToolCalls | Answer | Malformed)
    assert isinstance(parse_reply('{"a": ' + text[:-6]), ToolCalls | Answer | Malformed)


# ---- values that the end of the reply cuts off


@pytest.mark.parametrize(
    ("ending", "kept"),
    [*((half, {}) for half in ("tr", "nul", "left", "12", "1.", "-3.5e2")), ("[1, 2, 3", {"b": (1, 2)})],
)
def test_a_number_or_a_word_at_the_very_end_may_be_half_of_one_and_is_dropped(ending, kept):
    text = f'{{"answer": "yes", "b": {ending}'
    refused = parse_reply(text)
    assert isinstance(refused, Malformed)
    assert "it is not finished" in refused.reason
    assert parse_reply(text, last=True) == Answer({"answer": "yes", **kept}, flags=frozenset({"salvaged"}))


@pytest.mark.parametrize(
    ("ending", "value"),
    [("true", True), ("null", None), ('"left"', "left"), ("[1, 2]", [1, 2]), ("12 ", 12), ("left\n", "left")],
)
def test_a_value_that_is_complete_at_the_end_gets_its_closing_brackets(ending, value):
    outcome = parse_reply(f'{{"answer": "yes", "b": {ending}')
    assert outcome == Answer({"answer": "yes", "b": value}, flags=frozenset({"repaired"}))


@pytest.mark.parametrize("ending", ["tr", "12"])
def test_a_call_that_ends_in_half_a_value_is_refused_and_not_run(ending):
    (parsed,) = parse_reply(f'<tool_call>{{"name": "zoom", "arguments": {{"factor": {ending}').calls
    assert "cut off" in parsed.error
    assert parse_native_call(ToolCall("c", "zoom", f'{{"factor": {ending}')).error is not None
    (closed,) = parse_reply('<tool_call>{"name": "zoom", "arguments": {"factor": 2</tool_call>').calls
    assert closed.call.arguments == {"factor": 2}  # the tag ends the number
