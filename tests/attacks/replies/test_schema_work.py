"""No answer holds up the event loop: JSON Schema is checked in bounded work, and an author's code in a thread."""

import asyncio
import json
import re
import time
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, Union

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field, create_model, field_validator, model_validator

from tests.support.tables import each
from viewbox.core.answers import check_answer
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.utils.json_schema import find_violation

pytestmark = pytest.mark.timeout(60)  # each of these ran for minutes, or for ever


def nest(depth, key="a", end=None):
    value = {} if end is None else end
    for _ in range(depth):
        value = {key: value}
    return value


def of_a(**schema):
    return {"properties": {"a": schema}}


def recursive(**schema):
    return {"$defs": {"n": schema}, "$ref": "#/$defs/n"}


NODE = {"$ref": "#/$defs/n"}
WITH_NODE = {"properties": {"a": NODE}, "minProperties": 1}
OBJECTS = [{"x": number, "y": [number]} for number in range(1400)]
MANY = [f"code {number}" for number in range(10_000)]
EVIL = {
    "words, long": (r"^(\w+\s?)*$", "a" * 60_000 + "!"), "nested stars": (r"^(a*)*$", "a" * 5000 + "b"),
    "a large count": (r"x.{5000}y", "x" * 60_000), "a middling count": (r"x.{300}y", "x" * 60_000),
    "no anchor": (r"\s+$", " " * 60_000 + "x"),
}  # fmt: skip
SLOW = {
    "1,400 objects that differ": ({"a": OBJECTS}, of_a(uniqueItems=True)),
    "10,000 choices, all right": ({"a": MANY[:2900]}, of_a(items={"enum": MANY})),
    "anyOf, twice itself": (nest(60), recursive(anyOf=[WITH_NODE, WITH_NODE])),
    "oneOf, twice itself": (nest(60), recursive(oneOf=[WITH_NODE, WITH_NODE])),
    "not, twice itself": (nest(60), recursive(properties={"a": {"not": NODE}}, anyOf=[{"not": WITH_NODE}, WITH_NODE])),
    "if and then": (nest(60), recursive(**{"if": WITH_NODE, "then": WITH_NODE, "properties": {"a": NODE}})),
    "dependentSchemas": (nest(60), recursive(properties={"a": NODE},
        dependentSchemas={"a": {"properties": {"a": NODE}}})),
    "$dynamicRef": (nest(60), {"$dynamicAnchor": "n", "minProperties": 1, **of_a(anyOf=[{"$dynamicRef": "#n"}] * 2)}),
    "1,000 properties": ({"a": [{}] * 2900}, of_a(items={"properties": {f"k{n}": {} for n in range(1000)}})),
    "$ref to itself": ({"a": 1}, {"$ref": "#"}),
    "$ref in a circle": ({"a": 1}, {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        "$ref": "#/$defs/a"}),
    "additionalProperties": (nest(60), recursive(anyOf=[{"additionalProperties": NODE, "minProperties": 1}] * 2)),
    "propertyNames": ({f"k{n}": 1 for n in range(2900)}, {"propertyNames": {"anyOf": [{"maxLength": 1}] * 50}}),
    "contains": ({"a": reduce(lambda inner, _: [inner], range(60), [])},
        recursive(anyOf=[{"contains": NODE, "properties": {"a": NODE}, "maxItems": 0}] * 2)),
    "unevaluatedProperties": (nest(60), recursive(properties={"a": {"allOf": [NODE], "unevaluatedProperties": False}})),
    "1,000 choices of a long list": ({"a": ["x" * 20] * 2900}, of_a(anyOf=[{"type": "object"}] * 1000)),
    "another draft inside": (nest(60), {"$schema": "http://json-schema.org/draft-07/schema#", "minProperties": 1,
        **of_a(anyOf=[{"$ref": "#"}] * 2)}),
    **{f"pattern: {name}": ({"a": text}, of_a(pattern=pattern)) for name, (pattern, text) in EVIL.items()},
    **{f"words, long: {number}": ({EVIL["words, long"][1]: 1}, schema) for number, schema in enumerate([
        {"patternProperties": {EVIL["words, long"][0]: {"type": "null"}}},
            {"propertyNames": {"pattern": EVIL["words, long"][0]}},
        {"patternProperties": {EVIL["words, long"][0]: {}}, "additionalProperties": False}])},
}  # fmt: skip
TOO_LARGE = {"pattern: a large count"}
HOLDS = {"1,400 objects that differ", "10,000 choices, all right", "1,000 properties", "not, twice itself"}
FAILS = {"anyOf, twice itself", "oneOf, twice itself", "$dynamicRef", "pattern: no anchor"}


@each("name", sorted(SLOW.keys() - TOO_LARGE))
def test_a_check_ends_soon_with_a_verdict(name):
    began = time.process_time()
    problem = find_violation(*SLOW[name])
    assert time.process_time() - began < 10  # 0.5 s here; without bounds, minutes
    assert problem is None or len(str(problem)) < 400
    assert (name in HOLDS) <= (problem is None) <= (name not in FAILS)


@each("name", sorted(TOO_LARGE))
def test_a_pattern_with_large_counts_is_refused_before_any_value(name):
    with pytest.raises(ConfigError, match="large counts"):
        find_violation(*SLOW[name])


NULLABLE_LIST = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]}


@each(("value", "schema", "words"), [
    ({"a": 3}, of_a(type="string"), "a = 3: allowed: a string"),
    ({"a": "x"}, of_a(pattern="^y"), 'a = "x": allowed: text that matches "^y"'),
    ({"a": [{"b": 1}, {"b": 1.0}]}, of_a(uniqueItems=True),
        'a = [{"b": 1}, {"b": 1.0}]: allowed: items that all differ'),
    ({"a": "x"}, of_a(enum=["y", 1]), 'a = "x": allowed: "y", 1'), ({}, {"required": ["a"]}, '"a" is missing'),
    ({"b": 1, "a": 2}, {"additionalProperties": False}, 'unknown key "b"; allowed: none'),
    ({"a": [1, ["x"]]}, of_a(items={"items": {"type": "number"}}), 'a[1][0] = "x": allowed: a number'),
    (nest(3, end=1), recursive(type="object", properties={"a": NODE}), "a.a.a = 1: allowed: an object"),
    ({"a": [1, "x"]}, of_a(**NULLABLE_LIST), 'a[1] = "x": allowed: a number'),
    ({"a": "x"}, of_a(**NULLABLE_LIST), 'a = "x": allowed: a list or null'),
    ({"a": 1}, {"if": {}, "then": of_a(type="null")}, "a = 1: allowed: null"),
    (nest(300), {"enum": [1]}, "it is nested too deep"),
    ({"a": 1}, of_a(**{"not": {"type": "integer"}}), 'a = 1: does not fit "not": {"type": "integer"}'),
    ({"a": "\ud800"}, of_a(pattern="x"), "it holds half of a surrogate pair, which is no character"),
])  # fmt: skip
def test_a_violation_names_its_place_and_what_is_wanted(value, schema, words):
    assert str(find_violation(value, schema)) == words


@each(("items", "unique"), [
    ([1, True], True), ([0, False], True), ([1, 1.0], False), (["1", 1], True), ([[], {}], True), ([None, None], False),
    ([{"a": [1]}, {"a": [True]}], True), ([["array"], ("array",)], False),
    ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
])  # fmt: skip
def test_values_are_equal_as_json_schema_says(items, unique):
    items = json.loads(json.dumps(items))
    assert (find_violation({"a": items}, of_a(uniqueItems=True)) is None) == unique
    assert (find_violation({"a": items[0]}, of_a(enum=[items[1]])) is None) != unique


# ---------------------------------------------------------------------- refused when the environment is made
def make_env(answer):
    return type("Made", (BaseMultiTurnEnv,), {"answer": answer, "tools": (), "reward": ExactMatchReward("a")})()


@each(("schema", "words"), [
    (of_a(pattern="^(?=a)b"), "look-around"), (of_a(pattern=r"(a)\1"), "back-references"),
    (of_a(pattern=r"(\w{1000}){1000}"), "large counts"), (of_a(pattern="("), "pattern"),
    ({"patternProperties": {"(?!x)y": {}}}, "look-around"), ({"$ref": "#/$defs/none"}, "/$defs/none"),
    *(({key: where}, "inside the schema") for key, where in [("$ref", "http://127.0.0.1:1/schema"),
        ("$ref", "file:///etc/hostname"), ("$dynamicRef", "http://127.0.0.1:1/#n")]),
    ({"type": "strin"}, "strin"), ({"not": nest(600, "not")}, "nested"),
])  # fmt: skip
def test_a_schema_that_cannot_be_bounded_is_refused_by_name(schema, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        make_env({"type": "object", **schema})


def model(name, config=None, **fields):
    return create_model(name, __config__=config, __module__=__name__, **fields)


BACKTRACKS = r"^(\w+\s?)*$"
Left = model("Left", x=(int, ...), a=(Union["Left", "Right", None], None))
Right = model("Right", y=(int, ...), a=(Union["Left", "Right", None], None))
Lists = model("Lists", a=("list[Lists] | list[Wrapped] | None", None))
Wrapped = model("Wrapped", b=("Lists | None", None))
IN_ORDER = Annotated[Union["LeftToRight", "dict[str, LeftToRight]", None], Field(union_mode="left_to_right")]
LeftToRight = model("LeftToRight", x=(int, ...), a=(IN_ORDER, None))
Backtracks = model("Backtracks", ConfigDict(regex_engine="python-re"), a=(str, Field(pattern=BACKTRACKS)))
Compiled = model("Compiled", a=(str, Field(pattern=re.compile(BACKTRACKS))))
Holds = model("Holds", inner=(list[dict[str, Backtracks]], ...))
Counts = model("Counts", a=(str, Field(pattern=r"^(.{0,100}x){0,60}y$")))
Matches = model("Matches", a=(str, Field(pattern=BACKTRACKS)))
BRANCH = ("Tree | None", None)
Tree = model("Tree", a=(str, ""), left=BRANCH, right=BRANCH, rest=("list[Tree] | Tree | None", None))
SIGNED = ("Annotated[Plus | Minus, Field(discriminator='kind')] | None", None)
Plus = model("Plus", kind=(Literal["plus"], ...), of=SIGNED)
Minus = model("Minus", kind=(Literal["minus"], ...), of=SIGNED)
for recursive_model in (Left, Right, Lists, Wrapped, LeftToRight, Tree, Plus, Minus):
    recursive_model.model_rebuild()


@each("model", [Left, Right, Lists, LeftToRight, Backtracks, Compiled, Holds, Counts])
def test_a_model_that_cannot_be_bounded_is_refused_by_name(model):
    with pytest.raises(ConfigError, match=r"allowed:"):
        make_env(model)


@each("model, value", [
    (Tree, nest(50, "left")), (Tree, nest(50, "rest")), (Plus, nest(50, "of")), (Matches, {"a": "a" * 60_000 + "!"}),
])  # fmt: skip
def test_a_model_that_is_bounded_answers_soon(model, value):
    began = time.process_time()
    check_answer(make_env(model), value, Task("t"))
    assert time.process_time() - began < 10


# ---------------------------------------------------------------------- an author's code
def wait():
    time.sleep(30)


class ByField(BaseModel):
    a: str

    @field_validator("a")
    @classmethod
    def check(cls, value):
        wait() if value == "slow" else None
        return value


class ByModel(BaseModel):
    a: str

    @model_validator(mode="before")
    @classmethod
    def check(cls, value):
        wait() if value.get("a") == "slow" else None
        return value


class ByInit(BaseModel):
    a: str

    def model_post_init(self, context):
        wait() if self.a == "slow" else None


class Computes(BaseModel):
    a: str

    @computed_field
    def b(self) -> int:
        wait() if self.a == "slow" else None
        return 1


class Outer(BaseModel):
    a: str
    inner: list[ByField] = []


class Slow(BaseMultiTurnEnv):
    answer: ClassVar[Any] = {"type": "object"}
    tools = ()
    reward = ExactMatchReward("a")
    tool_timeout = 0.2

    def validate_answer(self, answer, task):
        wait() if answer.get("a") == "slow" else None


@each("model", [None, ByField, ByModel, ByInit, Computes, Outer])
def test_code_that_hangs_costs_its_reply_and_stops_nobody(model):
    fields = {"validate_answer": BaseMultiTurnEnv.validate_answer, "answer": model} if model else {}
    env = type("SlowEnv", (Slow,), fields)()
    slow = {"a": "slow"} if model is not Outer else {"a": "x", "inner": [{"a": "slow"}]}

    async def run():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        state = env.reset(Task("t"), seed=0)
        result = await env.step(state, json.dumps(slow))
        ticking.cancel()
        assert state.end_reason is None
        await env.step(state, '{"a": "x"}')
        return ticks, result.messages[0].text, state.end_reason

    ticks, text, end = asyncio.run(run())
    assert ticks >= 3
    assert "took longer than 0.2 seconds" in text
    assert end == "answered"


def test_plain_schemas_and_models_are_checked_on_the_loop_and_an_author_gets_his_error_as_before():
    answers = ({"type": "object"}, Tree, Outer)
    assert [make_env(answer)._checks_in_thread for answer in answers] == [False, False, True]

    class Wrong(Slow):
        def validate_answer(self, answer, task):
            raise ZeroDivisionError("an author's bug")

    with pytest.raises(ZeroDivisionError, match="an author's bug"):
        Wrong().play(Task("t"), lambda _: '{"a": "x"}')
