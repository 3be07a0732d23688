"""What a reply is: an answer, tool calls (in text, native, fenced or as an action), or malformed with a reason."""

import json
from pathlib import Path

from tests.support.tables import each
from viewbox.core.parsing.objects import AnswerFields, ParsedCall, parse_native_call
from viewbox.core.parsing.reply import MAX_BYTES, MAX_ITEMS, Malformed, ParsedAnswer, ToolCalls, parse_reply
from viewbox.records import ToolCall
from viewbox.utils.frozen import thaw
from viewbox.utils.json_schema import find_violation

NESTED = {
    "type": "object",
    "properties": {"label": {"type": "string"}, "place": {"$ref": "#/$defs/Place"}},
    "required": ["label"],
    "$defs": {"Place": {"type": "object", "properties": {"side": {"type": "string"}, "lobe": {"type": "string"}}}},
}  # fmt: skip
TWO = {"properties": {name: {"type": "object", "properties": {"x": {}}} for name in ("a", "b")}}
ACTION = {"properties": {"tool": {"type": "string"}, "arguments": {"type": "object"}}}
BESIDE, IN_VAIN = {"place": {"side": "left"}, "other": {"label": "x"}}, {"tool": "zoom", "arguments": {"factor": 2}}
TAGS = (("◁think▷", "◁/think▷"), ("<a>", "</a>"))
CUT = {"finish_reason": "length", "last": True}


def call(name="zoom", **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


ANSWERS = [  # the text, how it is read, the answer, its flags
    ('\n\n{\n"a"\n:\n1}', {}, {"a": 1}), ('First {"a": 1}, no: {"a": 2}.', {}, {"a": 2}, "ignored"),
    ('{"a": 1} and {}', {}, {"a": 1}), ('{"a": "<tool_call> </think> {"}', {}, {"a": "<tool_call> </think> {"}),
    ('{"a": 1} or rather {"a": oops!}', {}, {"a": 1}, "salvaged"), ('{"name": "zoom"}', {}, {"name": "zoom"}),
    # thinking, whose tags are a setting
    ('{"a": 1} hm</think>{"b": 2}', {}, {"b": 2}), ('<think>{"a": </think>{"b": 2}', {}, {"b": 2}),
    ('◁think▷{"a": 1}◁/think▷<a>{"a": 2}</a>{"a": 3}<think>', {"thinking": TAGS}, {"a": 3}),
    ('{"a": 1}</t>{"a": 2}', {"thinking": (("", "</t>"),)}, {"a": 2}), ('<think>{"a": 1}', {"thinking": ()}, {"a": 1}),
    # the fields of an answer, which only help to read it
    (json.dumps(BESIDE), {"schema": NESTED}, BESIDE),
    ('{"result": {"place": {}}}', {"schema": NESTED}, {"result": {"place": {}}}),
    ('{"x": 1}', {"schema": TWO, "last": True}, {"x": 1}), (json.dumps(IN_VAIN), {"schema": ACTION}, IN_VAIN),
    # cut off on the last turn: what was said whole
    ('{"a": "left", "b', CUT, {"a": "left"}, "salvaged"), ('{"a": "left", "b": 1e', CUT, {"a": "left"}, "salvaged"),
    ('{"a": "left", "b": ["x", "y', CUT, {"a": "left", "b": ("x",)}, "salvaged"),
    ('{"a": "left", "b": [0.1, 0.2', CUT, {"a": "left", "b": (0.1,)}, "salvaged"),
    ('{"a": "left", "b": {"c": "x"', CUT, {"a": "left", "b": {"c": "x"}}, "salvaged"),
    ('{"a": 1} {"a": 2, "b": "ri', CUT, {"a": 1}, "salvaged"),
    # only closing brackets are missing
    *((f'{{"a": 1, "b": {said}', {}, {"a": 1, "b": value}, "repaired")
      for said, value in (("true", True), ("null", None), ('"left"', "left"), ("[1, 2]", [1, 2]), ("12 ", 12),
     ("left\n", "left"))),
]  # fmt: skip
NOT_FINISHED = [*((half, {}) for half in ("tr", "nul", "left", "12", "1.", "-3.5e2")), ("[1, 2, 3", {"b": (1, 2)})]
MALFORMED = [  # the text, its kind, and words of the reason
    ("", "empty", ""), ("It is on the left.", "no_json", ""), ("[1, 2]", "not_an_object", ""),
    ('"left"', "not_an_object", ""), ('[{"a": 1}, {"a": 2}]', "not_an_object", ""), ("{'a': 'it's'}", "invalid", ""),
    ('{"a": NaN}', "invalid", ""), ('{"a": 1e999}', "invalid", ""),
    ('{"boxes": [{"x": 1}], "label": oops!, "box": {"x": 2}}', "invalid",
     "a comma or } is expected, before '!, \"box\""),
    ('{"a": ' + "9" * 5000 + "}", "invalid", ""), ('{"a": ' + "[" * 65 + "]" * 65 + "}", "invalid", ""),
    ('{"a": [' + "1," * 20000 + "1]}", "invalid", ""), ("{'a': [" + "1," * 20000 + "1]}", "invalid", ""),
    ("{'a': " + "[" * 65 + "]" * 65 + "}", "invalid", ""), ("{'a': " + "9" * 5000 + "}", "invalid", ""),
    ('{"a": 1}' * (MAX_ITEMS + 1), "invalid", ""),
    ('{"a": {"left": 1, "left": 2}}', "invalid", 'the key "left" is given twice'),
    ('<think>it is {"a": 1}', "no_json", "</think>"), ('{"a": "' + "x" * (MAX_BYTES - 9) + '"} ', "too_long", ""),
    ('{"a": "' + "é" * (MAX_BYTES // 2) + '"}', "too_long", ""),
]  # fmt: skip


@each("text, options, value, flag", [row if len(row) > 3 else (*row, "") for row in ANSWERS])
def test_an_answer_is_found_wherever_it_stands_with_what_was_done_to_it(text, options, value, flag):
    schema = options.get("schema")
    fields = None if schema is None else AnswerFields.from_schema(schema)
    given = {name: option for name, option in options.items() if name != "schema"}
    assert parse_reply(text, answer_fields=fields, **given) == ParsedAnswer(value, flags=frozenset({flag} - {""}))


@each("ending, kept", NOT_FINISHED)
def test_a_number_or_a_word_at_the_very_end_may_be_half_of_one_and_is_dropped(ending, kept):
    text = f'{{"answer": "yes", "b": {ending}'
    assert "it is not finished" in parse_reply(text).reason
    assert parse_reply(text, last=True) == ParsedAnswer({"answer": "yes", **kept}, flags=frozenset({"salvaged"}))


@each("text, kind, words", MALFORMED)
def test_a_malformed_reply_has_its_kind_and_its_reason(text, kind, words):
    outcome = parse_reply(text)
    assert outcome.kind == kind
    assert words in outcome.reason


def test_what_just_fits_is_read_and_what_is_beside_an_answer_is_kept():
    assert isinstance(parse_reply('{"a": "' + "x" * (MAX_BYTES - 9) + '"}'), ParsedAnswer)
    assert parse_reply(
        '{"result": {"label": "x"}, "continue": true}', answer_fields=AnswerFields.from_schema(NESTED)
    ).wants_more
    schema = {"$defs": {"A": {"$ref": "#/$defs/A"}}, "properties": {"a": {"$ref": "#/$defs/A"}}}
    assert AnswerFields.from_schema(schema).objects == ()  # a reference to itself


@each("scrap", [
    "{", '{"', '{"\\', '{"":', '{"":x', "{}", "[{", "[{}[", "<tool_call>", "<tool_call>{", "<think>", '"\\', "```\n",
    "\ud800", "{'", "{a:", "{a: “}", "{a: \\'", "{/*}", "{//\n", "'a': 1, ", "```tool\n{", "{“", "a-", "a/",
    "/functions.a", '"args":{},',
])  # fmt: skip
def test_text_that_would_make_a_careless_parser_quadratic_is_read(scrap):
    # A quadratic scan of these takes minutes, so no clock is needed to tell.
    text = scrap * (MAX_BYTES // len(scrap.encode("utf-8", "surrogatepass")))
    assert isinstance(parse_reply(text), ToolCalls | ParsedAnswer | Malformed)
    assert isinstance(parse_reply('{"a": ' + text[:-6]), ToolCalls | ParsedAnswer | Malformed)


# ---- calls
FENCED = '```{}\n{{"tool": "zoom", "arguments": {{"a": "```"}}}}\n```\n{{"b": 1}}'
CALLS = [  # the text, its calls by name and arguments, and the answer beside them
    (f"Let me look. {call(factor=2)} and {call('reset')}", [("zoom", {"factor": 2}), ("reset", {})], None),
    ('<tool_call>{"name": "reset"}</tool_call>', [("reset", {})], None),
    (f'{{"a": oops {call()}', [("zoom", {})], {"a": "oops"}),
    (call("search", query="</tool_call>"), [("search", {"query": "</tool_call>"})], None),
    (call() + '{"a": 1, "continue": true}', [("zoom", {})], {"a": 1}),
    *((FENCED.format(label), [("zoom", {"a": "```"})], {"b": 1}) for label in ("tool", "tool_call", "tool_code")),
    *((f'<tool_call>{{"name": "zoom", "arguments": {said}}}</tool_call>', [("zoom", {"factor": 2})], None) for said in (
        '{"factor": 2}', '"{\\"factor\\": 2}"', "\"{'factor': 2,}\"", '" { \\"factor\\" : 2 } "', "{'factor': 2}")),
    *((f'<tool_call>{{"name": "reset", "arguments": {said}}}</tool_call>', [("reset", {})], None)
      for said in ("null", '""', '" "')),
    ('<tool_call>{"name": "zoom", "arguments": {"factor": 2</tool_call>', [("zoom", {"factor": 2})], None),
]  # fmt: skip
BROKEN = [  # inside the marks
    ("zoom(2)", "zoom", "a value has no name"), ("zoom 2", "", "not valid JSON"), ("", "", "not valid JSON"),
    ("[1]", "", "one JSON object"), ('{"arguments": {}}', "", 'no "name"'),
    ('{"name": 3, "arguments": {}}', "", 'no "name"'),
    ('{"tool": "zoom", "name": "crop", "arguments": {}}', "", "of the call differ"),
    ('{"name": "zoom", "arguments": [2]}', "zoom", "must be a JSON object"),
    ('{"name": "zoom", "arguments": {"a": NaN}}', "zoom", "NaN"),
    ('{"name": "zoom", "arguments": {"a": 1, "a": 2}}', "zoom", '"a" is given twice'),
    ('{"name": "zoom"} {"name": "crop"}', "zoom", "nothing after it"),
]  # fmt: skip


@each("text, calls, beside", CALLS)
def test_every_call_of_a_reply_is_read_in_order(text, calls, beside):
    outcome = parse_reply(text)
    wanted = [ParsedCall(ToolCall(f"call_{number}", *one)) for number, one in enumerate(calls)]
    assert [*outcome.calls] == wanted
    assert outcome.answer == beside


@each("block, name, words", BROKEN)
def test_a_broken_call_is_kept_with_its_raw_text_and_the_reason(block, name, words):
    outcome = parse_reply(f"<tool_call>{block}</tool_call>{call()}")
    broken, whole = outcome.calls
    assert (broken.call.id, broken.call.name, broken.call.arguments) == ("call_0", name, block)
    assert words in broken.error
    assert (whole.call.id, whole.error) == ("call_1", None)


@each("text, options", [
    ('<tool_call>{"name": "zoom", "argu', {"finish_reason": "length"}),
    *((f'<tool_call>{{"name": "zoom", "arguments": {{"factor": {ending}', {}) for ending in ("tr", "12")),
])  # fmt: skip
def test_a_call_that_is_not_whole_was_cut_off_and_is_not_run(text, options):
    assert "cut off" in parse_reply(text, **options).calls[0].error


def test_an_unclosed_call_does_not_swallow_the_next():
    outcome = parse_reply(f'<tool_call>{{"name": "zoom", {call()}')
    assert [one.error is None for one in outcome.calls] == [False, True]


@each("arguments, words", [
    ("{factor 2}", 'the key "factor" is not followed by a colon'),
    ('{"factor": tr', "must be a JSON object"), ('{"factor": 12', "must be a JSON object"),
])  # fmt: skip
def test_a_native_call_whose_string_cannot_be_read_keeps_it_with_the_reason(arguments, words):
    parsed = parse_native_call(ToolCall("x", "zoom", arguments))
    assert parsed.call.arguments == arguments
    assert words in parsed.error


# ---- replies as real models wrote them, each with the outcome a careful engineer wants (and why: in the file itself)
RECORDED = [json.loads(line) for line in Path(__file__).with_name("hard_replies.jsonl").read_text("utf-8").splitlines()]
RECORDED_SCHEMA = {
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
    said = parse_reply(text, answer_fields=AnswerFields.from_schema(RECORDED_SCHEMA), **options)
    if not is_validated or not isinstance(said, ParsedAnswer):
        return said
    violation = find_violation(thaw(said.value), RECORDED_SCHEMA)
    return said if violation is None else Malformed(str(violation), "invalid")


@each("line", RECORDED)
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
