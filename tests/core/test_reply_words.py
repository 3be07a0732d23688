"""Nothing that a reply says vanishes without a word, and what the model is told can be done to the letter."""

import json
import re
from decimal import Decimal
from enum import Enum
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from tests.support.tables import each
from viewbox.core.answers import check_answer
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.records import ImageRef, Reply, Task, ToolCall
from viewbox.rewards import ExactMatchReward
from viewbox.rewards.episode import FormatReward

BOX = [0.1, 0.2, 0.3, 0.4]
RIGHT = json.dumps({"label": "nodule", "bbox": BOX})
OTHER = "{'label': 'mass', 'bbox': [0.1, 0.2, 0.3, 0.4]}"
CODE = f"```python\nprint({OTHER})\n```"
ZOOM = '<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>'
TASK = Task("t", images=(ImageRef.of(np.zeros((64, 64), np.uint8)),), reference={"label": "nodule"})


class Part(BaseModel):
    kind: str
    size: float | None = None


class Found(BaseModel):
    label: str
    bbox: tuple[float, float, float, float]
    size_mm: float | None = None
    parts: list[Part] = []


class Look(BaseMultiTurnEnv):
    name = "look"
    answer: ClassVar[Any] = Found
    boxes = ("bbox",)
    max_turns = 4
    tools = ("zoom", "crop", "reset")
    reward = ExactMatchReward("label")

    def system_prompt(self, task):
        return "look"


def declare(form, **more):
    return type("Own", (Look,), {"answer": form, "boxes": (), **more})()


def play(reply, env=None, right=RIGHT):
    return (env or Look()).play(TASK, ScriptedPolicy([reply, right, right, right]))


def list_results(episode):
    return [result for turn in episode.turns for result in turn.tool_results]


def list_calls(episode):
    return [result.arguments and dict(result.arguments).get("factor") for result in list_results(episode)]


def get_words(reply, env=None, right=RIGHT):
    """What the model is told after a reply: of a call, its error; of an answer, the reason of the nudge."""
    episode = play(reply, env, right)
    results = list_results(episode)
    if results:
        return results[0].error
    return episode.turns[2].content.removeprefix("Your reply could not be used: ").partition(". Reply with")[0]


# ---- keys that are not declared
SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"type": "string"},
        "size_mm": {"type": "number"},
        "parts": {"type": "array", "items": Part.model_json_schema()},
    },
}


@each("form, said, place, hint", [(form, *row) for form in (Found, SCHEMA) for row in (
    *(({key: 3}, "", "size_mm") for key in ("size mm", "SizeMM", "size-mm", "sise_mm")),
    ({"parts": [{"kind": "a"}, {"kind": "b", "Size": 3}]}, "parts[1]: ", "size"),
    ({"parts": [{"knid": "a"}]}, "parts[0]: ", "kind"))])  # fmt: skip
def test_a_key_near_a_missing_one_is_refused_with_the_right_one(form, said, place, hint):
    words = get_words(json.dumps({"label": "a", "bbox": BOX, **said}), declare(form))
    assert words.startswith(f"{place}unknown key ")
    assert f'(did you mean "{hint}"?)' in words


@each("form, said", [(form, said) for form in (Found, SCHEMA) for said in (
    {"thought": "hm"}, {"size_mm": 3, "size mm": 4}, {"parts": [{"kind": "a", "colour": "red"}]})])  # fmt: skip
def test_any_other_key_is_allowed_and_flagged_and_costs_what_a_repair_costs(form, said):
    episode = play(json.dumps({"label": "a", **({"bbox": BOX} if form is Found else {}), **said}), declare(form))
    assert (episode.end_reason, episode.flags) == ("answered", {"ignored"})
    assert FormatReward().of_episode(episode) == 0.5


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    label: str
    size_mm: float | None = None


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    label: str
    size_mm: Annotated[float | None, Field(alias="sizeInMillimetres")] = None


class ByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    label: str
    size_mm: Annotated[float | None, Field(alias="sizeInMillimetres")] = None


@each("form, key, outcome", [
    (Open, "size_mn", set()), (Open, "Size mm", 'did you mean "size_mm"'),
    (Closed, "other", 'unknown key "other"; allowed: label, sizeInMillimetres'),
    (Closed, "SizeInMillimeters", 'did you mean "sizeInMillimetres"'), (ByName, "size_mm", set()),
    (ByName, "SizeInMillimeters", 'did you mean "sizeInMillimetres"'),
    ({"properties": {"label": {}, "size_mm": {}}, "additionalProperties": True}, "size_mn", set()),
])  # fmt: skip
def test_a_model_that_takes_further_names_is_asked_for_its_own(form, key, outcome):
    reply = json.dumps({"label": "a", key: 3})
    if isinstance(outcome, str):
        assert outcome in get_words(reply, declare(form))
    else:
        assert play(reply, declare(form)).flags == outcome


def test_a_confidence_that_the_episode_keeps_is_read():
    episode = play('{"label": "a", "confidence": 0.5}', declare(SCHEMA))
    assert (episode.confidence, episode.flags) == (0.5, set())


# ---- objects that lost
@each("reply, label, flags", [
    (f"```json\n{RIGHT}\n```\nCode:\n{CODE}", "nodule", {"ignored"}),
    (f"{CODE}\n```json\n{RIGHT}\n```", "nodule", {"ignored"}),
    (f"```JSON\n{RIGHT}\n```\n{OTHER}", "nodule", {"ignored"}),
    (f"~~~json5\n{RIGHT}\n~~~\n~~~js\nx = {OTHER}\n~~~", "nodule", {"ignored"}),
    (f"```json\n{RIGHT}\n```\n```json\n{RIGHT.replace('nodule', 'mass')}\n```", "mass", {"ignored"}),
    (f"```json\n{RIGHT}\n```\nSorry: {RIGHT.replace('nodule', 'mass')}", "mass", {"ignored"}),
    (f"```json\n{OTHER}\n```\n{RIGHT}", "nodule", {"ignored"}),
    (f"{RIGHT} Rather: {OTHER}", "mass", {"ignored", "repaired"}), (CODE, "mass", {"repaired"}),
    (f"{RIGHT} So again: {RIGHT}", "nodule", set()), (f'{{"label": oops!}} {RIGHT}', "nodule", {"ignored"}),
])  # fmt: skip
def test_strict_json_goes_before_code_and_what_was_not_taken_is_flagged(reply, label, flags):
    episode = play(reply)
    assert (episode.answer["label"], episode.flags) == (label, flags)


# ---- calls
def write(**call):
    return f"<tool_call>{json.dumps(call)}</tool_call>"


@each("second, factor", [(second, factor) for second in ("parameters", "args", "Arguments") for factor in (2, 3)])
def test_a_second_set_of_arguments_is_refused(second, factor):
    words = get_words(write(name="zoom", arguments={"factor": 2}, **{second: {"factor": factor}}))
    said = f'the call of "zoom" has two sets of arguments, "arguments" and "{second}": write one, as "arguments"'
    assert words == said
    episode = play(write(name="zoom", arguments={"factor": 2}, factor=3))  # a key beside them is flagged
    assert (list_calls(episode), episode.flags) == ([2.0], {"ignored"})


def native(*factors):
    return tuple(ToolCall(f"c{number}", "zoom", {"factor": factor}) for number, factor in enumerate(factors))


@each("text, calls, run", [
    (ZOOM, native(2), [2.0]), ('```json\n{"tool": "zoom", "arguments": {"factor": 2.0}}\n```', native(2), [2.0]),
    ('{"name": "zoom", "parameters": {"center": null, "factor": 2}}', native(2.0), [2.0]),
    (ZOOM, native(3, 2), [3.0, 2.0]), (ZOOM, native(2, 2), [2.0, 2.0]), (ZOOM + ZOOM, native(2), [2.0, 2.0]),
    ("<function=zoom>\n<parameter=factor>\n2\n</parameter>\n</function>", native(2), [2.0]),
    (ZOOM + ZOOM, (), [2.0, 2.0]),
])  # fmt: skip
def test_a_call_that_the_text_echoes_is_one_call(text, calls, run):
    assert list_calls(play(Reply(text, calls, "tool_calls"))) == run


@each("arguments, error", [
    (None, None), ("null", None), (b'{"factor": 2}', None), ({"factor": np.float32(2)}, None),
    ([2], "must be a JSON object"), (2, "must be a JSON object"), ({(1, 2): 3}, "must be a JSON object"),
    ({1: 2}, 'unknown argument of zoom "1"'), ({"factor": np.True_}, "factor = true: allowed: a number"),
])  # fmt: skip
def test_a_policy_may_hand_on_any_arguments(arguments, error):
    (result,) = list_results(play(Reply("", (ToolCall("c", "zoom", arguments),), "tool_calls")))
    assert (result.error is None) if error is None else (error in result.error)


@each("reply, words", [
    (None, "the policy returned NoneType; allowed: Reply or str"),
    (Reply("", ({"id": "a"},)), "a call of a reply is dict; allowed: ToolCall"),
    (Reply("", (ToolCall("a", None),)), "the name of a call of a reply is NoneType; allowed: str"),
    (Reply(None), "the text of a reply is NoneType; allowed: str"),
])  # fmt: skip
def test_what_no_reply_may_be_is_named(reply, words):
    with pytest.raises(TypeError, match=re.escape(words)):
        Look().play(TASK, lambda messages: reply)


# ---- thinking
@each("reply, words", [
    (f"<think>look {ZOOM}</think>", "after the thinking, which is not read: write the call or the answer there"),
    (f"<think>{RIGHT}", "the thinking, which is not read, is not closed"),
    (Reply("<think> so", (), "length"), "the reply was cut off while thinking"),
    (Reply("", reasoning="It is six."), "no text, only 10 characters in a field for thinking, which is not read"),
    (Reply(" ", (), "length", reasoning="ab" * 600), "cut off while thinking, after 1,200 characters"),
])  # fmt: skip
def test_thinking_that_holds_the_reply_is_said_not_to_be_read(reply, words):
    assert words in get_words(reply)


def test_thinking_beside_a_reply_and_its_end_are_kept_with_the_turn():
    turn = play(Reply(RIGHT, (), "length", reasoning="hm \ud800")).turns[1]
    assert (turn.reasoning, turn.finish_reason) == ("hm \ufffd", "length")


@each("reason", ["content_filter", "error", "abort"])
def test_a_reply_that_a_filter_ended_is_an_error_without_a_score(reason):
    episode = play(Reply(RIGHT, (), reason))
    assert (episode.end_reason, episode.scores.total, len(episode.turns)) == ("error", None, 2)
    assert reason in episode.explain_missing_score()


# ---- words that can be followed
class Limits(BaseModel):
    label: Literal["nodule", "mass"]
    grade: Annotated[int, Field(ge=1, le=9)] = 1
    names: Annotated[list[str], Field(max_length=2)] = []
    code: Annotated[str, Field(pattern="^[A-Z]+$", max_length=4)] = "A"
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    either: int | str | None = None
    sure: bool = False
    exact: Decimal | None = None

    @field_validator("code")
    @classmethod
    def check_code(cls, code):
        if code == "BAD":
            raise ValueError("BAD is taken; allowed: another")
        return code


@each("reply, said", {
    '{"label": "nodul"}': 'label = "nodul": allowed: "nodule", "mass" (did you mean "nodule"?)',
    '{"label": true}': 'label = true: allowed: "nodule", "mass"', "{}": '"label" is missing',
    '{"label": "mass", "grade": 10}': "grade = 10: out of range; allowed: 1 to 9",
    '{"label": "mass", "grade": true}': "grade = true: allowed: an integer; 1 to 9",
    '{"label": "mass", "names": ["a", "b", "c"]}':
        'names = ["a", "b", "c"]: 3 items; allowed: a list; at most 2 items',
    '{"label": "mass", "names": ["a", null]}': "names[1] = null: allowed: a string",
    '{"label": "mass", "code": "ABCDE"}':
        'code = "ABCDE": 5 characters; allowed: a string; at most 4 characters; text that matches "^[A-Z]+$"',
    '{"label": "mass", "share": 1}': "share = 1: out of range; allowed: above 0; below 1",
    '{"label": "mass", "either": [1]}': "either = [1]: allowed: an integer or a string or null",
    '{"label": "mass", "sure": "yes"}': 'sure = "yes": allowed: true or false',
}.items())  # fmt: skip
def test_both_forms_say_in_json_what_was_given_and_what_is_allowed(reply, said):
    schema = Limits.model_json_schema()
    del schema["properties"]["exact"]  # a pattern that pydantic writes for Decimal looks ahead
    for form in (Limits, schema):
        assert check_answer(declare(form), json.loads(reply), TASK)[1] == said


@each("said, words", [
    ({"code": "BAD"}, "code: BAD is taken; allowed: another"), ({"exact": "x"}, 'exact = "x": must be a valid decimal'),
])  # fmt: skip
def test_what_no_schema_says_is_said_in_the_author_s_words_or_pydantic_s(said, words):
    assert words in check_answer(declare(Limits), {"label": "mass", **said}, TASK)[1]


THOUSANDTHS = json.dumps({"label": "nodule", "bbox": [100, 200, 300, 400]})


@each("call, words", [
    (write(name="crop", arguments={"box": BOX}), "crop: box = [0.1, 0.2, 0.3, 0.4]: x and y are fractions; write"),
    (write(name="zoom", arguments={"factor": 2, "center": [0.5, 1]}), "center = [0.5, 1]: x and y are fractions"),
    (write(name="zoom", arguments={"factor": 2, "center": [0, 1]}), None),
])  # fmt: skip
def test_arguments_in_fractions_are_refused_where_thousandths_are_asked(call, words):
    said = get_words(call, Look(coordinates="per_mille"), THOUSANDTHS)
    assert said is None if words is None else words in said


def edit_call(call, words):
    """Do what a hint says, to the letter."""
    if found := re.search(r'put (.+) in "arguments": \{…\}', words):
        call["arguments"] = {key: call.pop(key) for key in json.loads(f"[{found[1]}]")}
    elif found := re.search(r'unknown argument of \w+ "(\w+)".*did you mean "(\w+)"', words):
        call["arguments"][found[2]] = call["arguments"].pop(found[1])
    elif found := re.search(r'unknown tool ".*did you mean "(\w+)"', words):
        call["name"] = found[1]
    elif found := re.search(r"factor = .*allowed: .*?([\d.]+) to", words):
        call["arguments"]["factor"] = float(found[1])
    else:
        raise AssertionError(words)


@each("call", [
    {"name": "zoom", "factor": 2, "center": [0.1, 0.2]}, {"name": "zoom", "arguments": {"Factor": 2}},
    {"name": "zom", "arguments": {"factor": 2}}, {"name": "zoom", "arguments": {"factor": 40}},
    {"name": "zoom", "arguments": {"factor": True}},
])  # fmt: skip
def test_a_hint_about_a_call_can_be_followed_to_the_letter(call):
    edit_call(call, get_words(write(**call)))
    assert get_words(write(**call)) is None


@each("said", [
    {"label": "nodul"}, {"lable": "nodule"}, {"label": "mass", "Grade": 3}, {"label": "mass", "grade": 40},
    {"label": "mass", "sure": 1}, {"label": "mass", "names": [True]}, {"label": "mass", "either": True},
])  # fmt: skip
def test_a_hint_about_an_answer_can_be_followed_to_the_letter(said):
    words = check_answer(declare(Limits), said, TASK)[1]
    place, _, allowed = words.partition(": ")
    field = re.split(r"\W", place)[0]
    if found := re.search(r'unknown key "(\w+)".*did you mean "(\w+)"', words):
        said[found[2]] = said.pop(found[1])
    elif found := re.search(r'did you mean ("\w+")', words):
        said[field] = json.loads(found[1])
    elif found := re.search(r"allowed: .*?(\d+) to", allowed):
        said[field] = int(found[1])
    elif "true or false" in allowed:
        said[field] = True
    else:
        said[field] = ["a"] if "[" in place else "a"
    assert check_answer(declare(Limits), said, TASK)[1] is None


# ---- a value is taken or refused, and read alike, whether the answer is a pydantic model or a JSON Schema
REFUSED = object()
Side, Rank = Enum("Side", {"LEFT": "left"}), Enum("Rank", {"FIRST": 1, "SECOND": 2})


def refuse(*values):
    return [(value, REFUSED) for value in values]


@each("hint, schema, said", [  # the same type in both forms, and what is read of each value
    (float, {"type": "number"}, [("3.5", 3.5), ("95", 95), ("-0.25", -0.25), (3, 3),
     *refuse("3.50", "95%", "1e400", "nan", "07", "\u0663")]),
    (int, {"type": "integer"}, [("3", 3), (3.0, 3), ("3.0", 3), *refuse(3.5)]),
    (bool, {"type": "boolean"}, [("true", True), ("false", False), *refuse("Yes", "True", 1, 0)]),
    (str, {"type": "string"}, [("3", "3"), ("true", "true"), *refuse(3, None)]),
    (float | None, {"type": ["number", "null"]}, [("2.5", 2.5), (None, None), ("null", None), *refuse("None")]),
    (float | str, {"anyOf": [{"type": "number"}, {"type": "string"}]}, [("3", "3"), (3, 3)]),
    (Literal["a", "b"] | None, {"enum": ["a", "b", None]}, [("a", "a"), ("A", "a"), (None, None), ("null", None),
     *refuse("c")]),
    (Literal[1, 2], {"enum": [1, 2]}, [(2, 2), (2.0, 2), ("2", 2), ("1", 1), *refuse("3", True, "true")]),
    (Literal[1, 2] | None, {"enum": [1, 2, None]}, [("null", None), *refuse(True)]),
    (list[Literal[0, 1]], {"items": {"enum": [0, 1]}}, [(["0", 1.0], [0, 1]), *refuse([False, 1])]),
    (Literal[True], {"const": True}, [("true", True), *refuse(1, 1.0)]),
    (Rank, {"$ref": "#/$defs/Rank", "$defs": {"Rank": {"enum": [1, 2]}}}, [("2", 2), *refuse(True)]),
    (Side, {"$ref": "#/$defs/Side", "$defs": {"Side": {"enum": ["left"]}}},
     [("left", "left"), ("LEFT", "left"), *refuse("lef")]),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [(["1", 2.0, 3], [1, 2, 3]), *refuse(["a"], "[1]")]),
    (tuple[int, str], {"prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
     [(["1", "2"], [1, "2"]), *refuse([1, 2])]),
    (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}},
     [({"a": "0.5"}, {"a": 0.5}), *refuse({"a": "x"})]), (None, {"type": "null"}, [("null", None)]),
])  # fmt: skip
def test_both_forms_read_a_value_alike(hint, schema, said):
    model = type("Model", (BaseModel,), {"__annotations__": {"v": hint}})
    whole = {"type": "object", "properties": {"v": schema}, "required": ["v"], "$defs": schema.get("$defs", {})}
    for form, (given, read) in product((model, whole), said):
        answer, problem = check_answer(declare(form), {"v": given}, TASK)
        assert (problem is not None) == (read is REFUSED), given
        if read is not REFUSED:
            assert (answer["v"], type(answer["v"]) is bool) == (read, type(read) is bool)
