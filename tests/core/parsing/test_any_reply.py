"""Whatever a policy says is one of three things: 5,000 generated replies, and what must hold for each.

Every generated text is read whole and broken off at five places, as token budgets do: each of these is a reply.
"""

import json
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.core.parsing.objects import AnswerFields
from viewbox.core.parsing.reply import Malformed, ParsedAnswer, ToolCalls, parse_reply
from viewbox.utils.sanitize import replace_surrogates

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "box": {"type": "array"}, "place": {"properties": {"side": {}}}},
    "required": ["a"],
}
SHAPE = AnswerFields.from_schema(SCHEMA)

BREAKS = 6  # of which the last is the whole
many = settings(max_examples=160, deadline=None, suppress_health_check=list(HealthCheck))
SCRAPS = st.sampled_from(
    [*"{}[]()\",:'\\ \n，：“”‘’「」…", "<tool_call>", "</tool_call>", "<think>", "</think>", "```json\n", "```tool\n",
     "```", '{"name": "zoom", "arguments": {', '"arguments": "', '{"tool": "zoom"', '{"a":', "{a:", "{'a': ", "...",
     '"continue"', "// x\n", "/* ", "*/", "NaN", "-1e999", ".5", "007", "True", "None", "yes", "left", "\ud800",
     "\\ud800", "\x00", "é"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-1, 1) | st.text("ab {}[]'\",:\\\n“é", max_size=6)
KEYS = st.sampled_from(["a", "box", "place", "side", "name", "tool", "arguments", "continue", "b c", ""])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=5
)
OBJECTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=3)
OPTIONS = st.fixed_dictionaries(
    {"finish_reason": st.sampled_from(["stop", "length"]), "last": st.booleans()},
    optional={"answer_fields": st.just(SHAPE)},
)


FRAMES = ("{}", "<tool_call>{}</tool_call>", "```json\n{}\n```", "```tool\n{}```", "so {} is it")


@st.composite
def written(draw):
    """An object as a model may write it: as JSON, as Python, with CJK punctuation; whole, or with a part missing."""
    value = draw(OBJECTS)
    dump = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 2])))
    text = draw(st.sampled_from([dump, repr(value), dump.translate(str.maketrans({",": "，", ":": "："}))]))
    begin, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
    kept = draw(st.sampled_from([text, text[:end], text[:begin] + text[end:], text + text]))
    return draw(st.sampled_from(FRAMES)).replace("{}", kept)


@st.composite
def runs(draw):
    """A few long runs of scraps."""
    pieces = draw(st.lists(st.tuples(SCRAPS, st.integers(1, 200)), min_size=1, max_size=5))
    return "".join(scrap * times for scrap, times in pieces)


def strings(value):
    """Every key and every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def check_each(text, options):
    """The text whole, and broken off."""
    for broken_off in {text[: len(text) * part // BREAKS] for part in range(1, BREAKS + 1)}:
        check(broken_off, options)


def check(text, options):
    """What holds for the outcome of any reply."""
    outcome = parse_reply(text, **options)
    assert isinstance(outcome, ToolCalls | ParsedAnswer | Malformed)
    if isinstance(outcome, Malformed):
        assert outcome.reason
        assert outcome.kind
        return
    assert outcome.flags <= {"salvaged", "repaired", "ignored"}
    value = outcome.value if isinstance(outcome, ParsedAnswer) else outcome.answer
    if "\\" not in text:  # nothing is invented: what is in the answer is in the reply (or is a parent's name)
        written = replace_surrogates(text)
        assert all(said in written or said == "place" for said in strings(value))
    if isinstance(outcome, ToolCalls):
        assert [parsed.call.id for parsed in outcome.calls] == [f"call_{n}" for n in range(len(outcome.calls))]
        assert all((parsed.error is None) == (not isinstance(parsed.call.arguments, str)) for parsed in outcome.calls)


REPLIES = {
    "random Unicode": st.text(min_size=8) | st.text(st.characters(), min_size=8),
    "scraps of JSON and tags": st.lists(SCRAPS, min_size=8, max_size=60).map("".join),
    "objects as models write them, whole or not": written(),
    "several things in one reply": st.lists(written() | SCRAPS, min_size=2, max_size=3).map("".join),
    "long runs": runs(),
}


@each("texts", REPLIES.values())
def test_any_reply_has_one_of_three_outcomes(texts):
    many(given(texts, OPTIONS)(check_each))()


@each("scrap", ["{", "[", '{"a":', "{a:", "<tool_call>", "```", '"', "\\"])
def test_megabytes_are_malformed_by_name_before_anything_is_read(scrap):
    assert parse_reply(scrap * 3_000_000).kind == "too_long"


@each("text", [
    '{"a":["</think>","",' * 250 + "[]," * 19_000, "<function=" * 6_500, "[tool(a)\n" * 6_500, "a(b)\n" * 13_000,
])  # fmt: skip
def test_what_strict_decoding_reads_in_vain_is_bounded(text):
    began = time.process_time()
    parse_reply(text[: 64 * 1024], tools=[{"function": {"name": "a"}}])
    assert time.process_time() - began < 0.5  # 0.04 s here; without a bound, 2 s for the first


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.text().filter(lambda key: key not in ("continue", "tool", "name", "tool_calls")),
        st.recursive(LEAVES.filter(lambda leaf: leaf not in ("…", "...")), st.lists, max_leaves=8),
        min_size=1,
    ),
    st.text("abc .,\n]'"),
)
def test_strict_json_inside_prose_comes_back_whole_and_without_a_flag(value, prose):
    assert parse_reply(prose + json.dumps(value) + prose) == ParsedAnswer(value)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.text("abé中", min_size=1, max_size=4),
        st.none() | st.booleans() | st.integers(-99, 99) | st.text("ab 中\"'", max_size=6),
        min_size=1,
    )
)
def test_a_dict_as_python_prints_it_comes_back_whole(value):
    outcome = parse_reply(repr(value))
    assert outcome.value == value
