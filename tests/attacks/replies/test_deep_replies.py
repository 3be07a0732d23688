"""A reply nested beyond the limit is refused in words, wherever the nesting stands: a call, a list, an answer."""

import itertools

import pytest

from tests.support import loop_kit
from viewbox.core.parsing.objects import AnswerFields
from viewbox.core.parsing.reply import Malformed, parse_reply

FIELDS = {
    "arguments": '{"name": "zoom", "arguments": {"x": @}}',
    "arguments that are it": '{"name": "zoom", "arguments": @}',
    "parameters": '{"tool": "zoom", "parameters": {"x": @}}',
    "beside the name": '{"name": "zoom", "x": @}',
    "the name": '{"name": @, "arguments": {}}',
    "a function": '{"function": {"name": "zoom", "arguments": {"x": @}}}',
    "an answer": '{"label": @}',
    "an answer beside a right one": '{"label": "left", "more": @}',
    "continue": '{"label": "left", "continue": @}',
    "Python": "{'label': @}",
}
FRAMES = (
    "@", "<tool_call>@</tool_call>", "```json\n@\n```", "[@]", '{"tool_calls": [@]}', "so @ it is",
    "<think>@</think>@",
)  # fmt: skip
KINDS = {"lists": ("[", "]"), "objects": ('{"a": ', "}")}


def nest(kind, depth):
    opening, closing = KINDS[kind]
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize("frame", FRAMES)
def test_a_deep_reply_ends_no_episode_with_an_exception(frame):
    env = loop_kit.Find()
    for field, (kind, depth) in itertools.product(FIELDS, (("lists", 70), ("objects", 350), ("lists", 960))):
        text = frame.replace("@", FIELDS[field].replace("@", nest(kind, depth)))
        episode = env.play(loop_kit.TASK, lambda messages, text=text: text)
        assert episode.end_reason != "answered"
        assert episode.scores.total == 0


@pytest.mark.parametrize("depth", [70, 960])
def test_a_deep_call_keeps_its_name_and_is_refused(depth):
    parsed = parse_reply('{"name": "zoom", "arguments": {"x": ' + nest("lists", depth) + "}}")
    assert [(call.call.name, call.call.arguments[:8]) for call in parsed.calls] == [("zoom", '{"name":')]
    assert "nested more than 64 deep" in parsed.calls[0].error


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ('{"label": "a", "label": "b"}', "given twice"),
        ('{"label": NaN}', "NaN"),
        ('{"label": 1e999}', "too large"),
        ('{"label": ' + "9" * 400 + "}", "too large"),
        ('{"label": ' + nest("lists", 70) + "}", "nested more than 64"),
    ],
)
def test_what_is_refused_alone_is_refused_in_a_list(inner, said):
    fields = AnswerFields.from_schema({"properties": {"label": {}}, "required": ["label"]})
    for text in (inner, f"[{inner}]", f"so [{inner}]"):
        parsed = parse_reply(text, answer_fields=fields)
        assert isinstance(parsed, Malformed), text[:40]
        assert said in parsed.reason
