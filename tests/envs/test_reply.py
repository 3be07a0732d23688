"""What a reply can say, one behaviour a test."""

import doctest
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewbox.envs import reply
from viewbox.envs.reply import MAX_BYTES, MAX_ITEMS, Answer, Malformed, ToolCalls, parse


def call(name="zoom", **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def test_the_examples_in_the_docstrings_run():
    assert doctest.testmod(reply).failed == 0


# ---- answers


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        'I see it. {"a": 1} That is all.',
        '```json\n{"a": 1}\n```',
        '\n\n{\n"a"\n:\n1}',
        'set {x} of [1]: {"a": 1}',
    ],
)
def test_an_object_is_found_wherever_it_stands(text):
    assert parse(text) == Answer({"a": 1})


@pytest.mark.parametrize(
    ("said", "meant"),
    [("null", False), ("0", False), ("1", True), ("true", True), ('"TRUE"', True), ('"yes"', True), ('"No"', False)],
)
def test_continue_is_coerced_and_taken_out_of_the_value(said, meant):
    assert parse(f'{{"a": 1, "continue": {said}}}') == Answer({"a": 1}, wants_more=meant)


@pytest.mark.parametrize("said", ["2", "1.0", '"maybe"', "[]", "{}", '""'])
def test_any_other_continue_is_malformed(said):
    assert parse(f'{{"a": 1, "continue": {said}}}').kind == "bad_continue"


def test_the_last_of_several_objects_is_the_answer():
    assert parse('First {"a": 1}, no: {"a": 2}.') == Answer({"a": 2})


def test_an_empty_object_after_the_answer_does_not_replace_it():
    assert parse('{"a": 1} and {}') == Answer({"a": 1})


def test_an_object_inside_a_broken_object_is_not_the_answer():
    outcome = parse('{"boxes": [{"x": 1}], "label": oops, "box": {"x": 2}}')
    assert outcome.kind == "invalid"
    assert "Expecting value at character 31" in outcome.reason


def test_an_object_inside_a_list_is_not_the_answer():
    assert parse('[{"a": 1}, {"a": 2}]').kind == "not_an_object"


def test_a_tag_inside_a_string_is_only_text():
    assert parse('{"a": "<tool_call> </think> {"}') == Answer({"a": "<tool_call> </think> {"})


def test_a_whole_object_before_a_broken_one_is_salvaged():
    assert parse('{"a": 1} or rather {"a": oops}') == Answer({"a": 1}, flags=frozenset({"salvaged"}))


def test_a_whole_object_in_a_reply_that_was_cut_off_is_salvaged():
    assert parse('{"a": 1} becau', finish_reason="length").flags == {"salvaged"}


def test_an_answer_cannot_be_changed():
    with pytest.raises(TypeError):
        parse('{"a": 1}').value["a"] = 2


# ---- thinking


@pytest.mark.parametrize(
    "text", ['<think>{"a": 1}</think>{"b": 2}', '{"a": 1} hm</think>{"b": 2}', '<think>{"a": </think>{"b": 2}']
)
def test_an_object_in_the_thinking_is_not_the_answer(text):
    assert parse(text) == Answer({"b": 2})


def test_a_call_in_the_thinking_is_not_made():
    assert parse(f'<think>{call()}</think>{{"b": 2}}') == Answer({"b": 2})


def test_thinking_that_never_ends_is_named():
    outcome = parse('<think>it is {"a": 1}')
    assert outcome.kind == "no_json"
    assert "</think>" in outcome.reason


# ---- malformed


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("It is on the left.", "no_json"),
        ("[1, 2]", "not_an_object"),
        ('"left"', "not_an_object"),
        ("```json\n42\n```", "not_an_object"),
        ("{'a': 1}", "invalid"),
        ('{"a": 1', "invalid"),
        ('{"a": NaN}', "invalid"),
        ('{"a": -Infinity}', "invalid"),
        ('{"a": 1e999}', "invalid"),
        ('{"a": ' + "9" * 5000 + "}", "invalid"),
        ('{"a": ' + "[" * 65 + "]" * 65 + "}", "invalid"),
        ('{"a": ' + "[" * 30000 + "]" * 30000 + "}", "invalid"),
        ('{"a": [' + "1," * 20000 + "1]}", "invalid"),
        ('{"a": 1}' * (MAX_ITEMS + 1), "invalid"),
    ],
)
def test_a_malformed_reply_has_its_kind(text, kind):
    assert parse(text).kind == kind


def test_a_key_given_twice_is_named():
    outcome = parse('{"a": {"left": 1, "left": 2}}')
    assert (outcome.kind, outcome.reason) == ("invalid", "the key 'left' is given twice")


def test_a_reply_cut_off_without_a_whole_object_is_truncated():
    assert parse('{"a": {"b": 1}, "c', finish_reason="length").kind == "truncated"


def test_the_size_is_counted_in_bytes_before_anything_is_read():
    fits = '{"a": "' + "x" * (MAX_BYTES - 9) + '"}'
    assert isinstance(parse(fits), Answer)
    assert parse(fits + " ").kind == "too_long"
    assert parse('{"a": "' + "é" * (MAX_BYTES // 2) + '"}').kind == "too_long"


# ---- schema

SCHEMA = {
    "type": "object",
    "properties": {"box": {"type": "array", "items": {"type": "number"}}, "label": {"enum": ["left", "right"]}},
    "required": ["label"],
}


def test_an_answer_that_fits_the_schema_passes():
    assert parse('{"label": "left", "box": [0.1], "continue": true}', schema=SCHEMA).wants_more


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"box": []}', "'label' is a required property"),
        ('{"label": "up"}', "label: 'up' is not one of ['left', 'right']"),
        ('{"label": "left", "box": [0.1, "b"]}', "box[1]: 'b' is not of type 'number'"),
    ],
)
def test_a_violation_names_the_field_and_what_is_wrong(text, words):
    assert parse(text, schema=SCHEMA) == Malformed(words, "invalid")


# ---- tool calls


def test_every_call_of_a_reply_is_read_in_order():
    outcome = parse(f"Let me look. {call(factor=2)} and {call('reset')}")
    assert [(c.call.id, c.call.name, c.call.arguments, c.error) for c in outcome.calls] == [
        ("call_0", "zoom", {"factor": 2}, None),
        ("call_1", "reset", {}, None),
    ]


def test_a_call_without_arguments_has_none():
    assert parse('<tool_call>{"name": "reset"}</tool_call>').calls[0].call.arguments == {}


@pytest.mark.parametrize(
    ("block", "name", "words"),
    [
        ("zoom(2)", "", "not valid JSON"),
        ("", "", "not valid JSON"),
        ("[1]", "", "one JSON object"),
        ('{"arguments": {}}', "", 'no "name"'),
        ('{"name": 3, "arguments": {}}', "", 'no "name"'),
        ('{"name": "zoom", "arguments": [2]}', "zoom", "must be a JSON object"),
        ('{"name": "zoom", "arguments": {"a": NaN}}', "zoom", "NaN"),
        ('{"name": "zoom", "arguments": {"a": 1, "a": 2}}', "zoom", "'a' is given twice"),
        ('{"name": "zoom"} {"name": "crop"}', "zoom", "nothing after it"),
    ],
)
def test_a_broken_call_is_kept_with_its_raw_text_and_the_reason(block, name, words):
    outcome = parse(f"<tool_call>{block}</tool_call>{call()}")
    broken, whole = outcome.calls
    assert (broken.call.id, broken.call.name, broken.call.arguments) == ("call_0", name, block)
    assert words in broken.error
    assert outcome.errors == (broken.error,)
    assert (whole.call.id, whole.error) == ("call_1", None)


def test_an_unclosed_call_that_is_whole_counts():
    outcome = parse('<tool_call>{"name": "zoom", "arguments": {"factor": 2}}')
    assert outcome.calls[0].call.arguments == {"factor": 2}
    assert outcome.errors == ()


def test_an_unclosed_call_that_is_not_whole_was_cut_off():
    assert "cut off" in parse('<tool_call>{"name": "zoom", "argu', finish_reason="length").errors[0]


def test_an_unclosed_call_does_not_swallow_the_next():
    outcome = parse(f'<tool_call>{{"name": "zoom", {call()}')
    assert [c.error is None for c in outcome.calls] == [False, True]


def test_a_broken_object_does_not_swallow_a_call():
    assert len(parse(f'{{"a": oops {call()}').calls) == 1


def test_a_closing_tag_inside_an_argument_is_only_text():
    assert parse(call("search", query="</tool_call>")).calls[0].call.arguments == {"query": "</tool_call>"}


def test_an_answer_beside_the_calls_is_kept():
    assert parse(call() + '{"a": 1, "continue": true}').answer == {"a": 1}


def test_an_invalid_answer_beside_the_calls_is_not_kept():
    assert parse(call() + '{"label": "up"}', schema=SCHEMA).answer is None


# ---- any text at all

SCRAPS = st.sampled_from(
    [*'{}[]",:\\ \n', "<tool_call>", "</tool_call>", "<think>", "</think>", '{"name": "zoom", "arguments": {', '{"a":',
     '"continue"', "```json\n", "NaN", "-1e999", "true", "null", "\ud800", "\\ud800", "\x00", "é"]
)  # fmt: skip
ANYTHING = st.text() | st.text(st.characters()) | st.lists(SCRAPS, max_size=60).map("".join)


@settings(max_examples=300, deadline=None)
@given(ANYTHING, st.sampled_from(["stop", "length"]))
def test_any_text_has_one_of_three_outcomes(text, finish_reason):
    outcome = parse(text, finish_reason=finish_reason, schema=SCHEMA)
    assert isinstance(outcome, ToolCalls | Answer | Malformed)
    if isinstance(outcome, ToolCalls):
        assert [c.call.id for c in outcome.calls] == [f"call_{n}" for n in range(len(outcome.calls))]
    if isinstance(outcome, Malformed):
        assert outcome.reason


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text().filter(lambda key: key != "continue"),
        st.recursive(st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(), st.lists, max_leaves=8),
        min_size=1,
    ),
    st.text("abc .,\n]'"),
)
def test_any_object_inside_prose_comes_back_whole(value, prose):
    assert parse(prose + json.dumps(value) + prose) == Answer(value)


@pytest.mark.parametrize(
    "scrap",
    [
        "{",
        '{"',
        '{"\\',
        '{"":',
        '{"":x',
        "{}",
        "[{",
        "[{}[",
        "<tool_call>",
        "<tool_call>{",
        "<think>",
        '"\\',
        "```\n",
        "\ud800",
    ],
)
def test_text_that_would_make_a_careless_parser_quadratic_is_read(scrap):
    # A quadratic scan of these takes minutes, so no clock is needed to tell.
    text = scrap * (MAX_BYTES // len(scrap.encode("utf-8", "surrogatepass")))
    assert isinstance(parse(text), ToolCalls | Answer | Malformed)
    assert isinstance(parse('{"a": ' + text[:-6]), ToolCalls | Answer | Malformed)
