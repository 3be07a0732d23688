"""No number that is not finite is recorded: NaN, infinities, and what a float cannot hold are malformed answers."""

import dataclasses
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pytest
from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    Json,
    create_model,
    field_serializer,
    field_validator,
    model_validator,
)

from viewbox.core.answers import check_answer, find_non_finite
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

NAN, INF = float("nan"), float("inf")
DIGITS = "9" * 4200
NO_NUMBER = "Input should be a valid number"  # a string that is not how JSON writes a number stays one


class Inner(BaseModel):
    score: float = 0.0


@dataclasses.dataclass
class Point:
    x: float = 0.0


class Level(float, Enum):
    UNKNOWN = NAN
    HALF = 0.5


class Answer(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    label: str = "x"
    confidence: float = 1.0
    count: int = 0
    exact: Decimal = Decimal(0)
    wave: complex = 0j
    either: float | str = 0.0
    inner: Inner = Inner()
    many: list[Inner] = []
    by_name: dict[str, float] = {}
    by_number: dict[float, str] = {}
    by_decimal: dict[Decimal, str] = {}
    pair: tuple[float, float] = (0.0, 0.0)
    group: set[float] = set()
    frozen: frozenset[Decimal] = frozenset()
    point: Point = Point()
    level: Level = Level.HALF
    strict: Annotated[float, Field(strict=True)] = 0.0
    positive: Annotated[float, Field(ge=0)] = 0.0
    anything: Any = None
    made: Annotated[Any, BeforeValidator(lambda name: MADE.get(name, name) if isinstance(name, str) else name)] = None


# What an author's validator may make of a word.
MADE = {
    "nan": NAN, "inside": {"a": [1, {"b": NAN}]}, "decimal": Decimal("sNaN"), "numpy": np.float64(NAN),
    "model": Inner(score=-INF), "dataclass": Point(NAN), "set": {INF}, "tuple": (1.0, (2.0, NAN)), "big": 10**400,
    "complex": complex(0, INF), "enum": Level.UNKNOWN, "key": {NAN: 1},
}  # fmt: skip

TEXTS = {
    "nan": "nan", "NaN": "NaN", "+nan": "+nan", "inf": "inf", "-inf": "-inf", "Infinity": "Infinity", "1e999": "1e999",
    "-1e999": "-1e999", "spaces": " nan ", "many digits": DIGITS, "many digits and a point": f"{DIGITS}.5",
    "an exponent of digits": f"1e{'9' * 40}", "underscores": "1_0e9_99",
}  # fmt: skip
FIELDS = {
    "confidence": lambda text: {"confidence": text},
    "positive": lambda text: {"positive": text},
    "inner.score": lambda text: {"inner": {"score": text}},
    "many.1.score": lambda text: {"many": [{}, {"score": text}]},
    "by_name.a": lambda text: {"by_name": {"a": text}},
    "pair.1": lambda text: {"pair": [0, text]},
    "group.0": lambda text: {"group": [text]},
    "point.x": lambda text: {"point": {"x": text}},
    "exact": lambda text: {"exact": text},
}


class Numbers(BaseMultiTurnEnv):
    name = "numbers"
    answer = Answer
    reward = ExactMatchReward("label")
    tools = ()


ENV = Numbers()


def make_env(model):
    return type("Own", (Numbers,), {"answer": model})()


def answer_once(env, reply):
    """The episode of one reply, repeated, which is stored and read again."""
    return env.play(Task("t", reference={"label": "x"}), lambda _: reply)


def is_stored(episode, folder):
    with EpisodeWriter(folder) as writer:
        writer.append(episode)
    (back,) = load(folder)
    json.dumps(back.to_dict(), allow_nan=False)
    return back.end_reason == episode.end_reason


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_text_becomes_a_number_that_is_not_finite(field, text):
    answer, problem = check_answer(ENV, {"label": "x", **FIELDS[field](text)}, Task("t"))
    assert problem is not None
    assert answer == {}
    assert field.partition(".")[0] in problem


@pytest.mark.parametrize("field", ["confidence", "inner.score", "by_name.a", "pair.1", "point.x"])
@pytest.mark.parametrize("text", ["nan", "-inf", "1e999"])
def test_the_complaint_names_the_field_and_says_what_is_allowed(field, text):
    assert check_answer(ENV, FIELDS[field](text), Task("t"))[1] == f"{field}: {NO_NUMBER}"


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", DIGITS])
def test_an_episode_with_such_an_answer_is_malformed_and_stored(tmp_path, text):
    episode = answer_once(ENV, json.dumps({"label": "x", "confidence": text}))
    assert episode.end_reason == "malformed"
    assert episode.answer is None
    assert episode.scores.total == 0
    assert NO_NUMBER in episode.turns[2].content
    assert is_stored(episode, tmp_path)


OTHERS = {
    "a complex number": {"wave": "nan+1j"},
    "an infinite complex number": {"wave": "1+infj"},
    "a Decimal in a set": {"frozen": ["NaN"]},
    "an infinite Decimal": {"exact": "-Infinity"},
    "a Decimal that no float holds": {"exact": "1e5000"},
    "a key": {"by_number": {"nan": "a"}},
    "an infinite key": {"by_number": {"inf": "a"}},
    "a Decimal as a key": {"by_decimal": {"NaN": "a"}},
    "an integer of 400 digits": {"count": "9" * 400},
    "an integer of 4,200 digits": {"count": DIGITS},
    "a member of a union": {"either": NAN},
    "any value": {"anything": {"a": [INF]}},
    "a strict float": {"strict": NAN},
    **{f"made by a validator: {name}": {"made": name} for name in MADE},
}


@pytest.mark.parametrize("value", OTHERS.values(), ids=OTHERS)
def test_no_other_kind_of_number_is_infinite(value):
    answer, problem = check_answer(ENV, value, Task("t"))
    assert problem is not None
    assert answer == {}


GOOD = {
    "text that says nan": {"label": "nan", "either": "inf", "anything": {"nan": "Infinity"}},
    "the largest float": {"confidence": 1.7e308},
    "308 digits": {"count": int("9" * 308)},
    "a small Decimal": {"exact": "1e-400"},
    "words with inf in them": {"label": "infiltrate, (nanometer)", "by_name": {"inf": 1}},
}


@pytest.mark.parametrize("value", GOOD.values(), ids=GOOD)
def test_finite_numbers_and_words_are_answers(value, tmp_path):
    answer, problem = check_answer(ENV, value, Task("t"))
    assert problem is None
    assert {name: answer[name] for name in value} == {**value, **({"exact": "1E-400"} if "exact" in value else {})}


# ---------------------------------------------------------------------- other declarations
class Pair(NamedTuple):
    x: float


KINDS = {
    "JSON in a text": (Json, '{"a": NaN}'),
    "a float in a JSON text": (Json[float], "1e999"),
    "an iterable": (Iterable[float], ["nan"]),
    "a sequence": (Sequence[float], ["inf"]),
    "a named tuple": (Pair, ["nan"]),
    "an optional": (float | None, "nan"),
    "a default dict": (defaultdict[str, list[float]], {"a": ["nan"]}),
    "a counter": (Counter[str], {"a": "9" * 400}),
    "a tuple of any length": (tuple[float, ...], ["1", "inf"]),
    "a union of numbers": (int | float, DIGITS),
    "a Decimal that may be NaN": (Annotated[Decimal, Field(allow_inf_nan=True)], "NaN"),
    "a set of Decimals": (set[Decimal], ["sNaN"]),
    "a duration": (timedelta, "nan"),
    "a long duration": (timedelta, "P99999999999999D"),
    "a date": (datetime, "inf"),
    "a late date": (datetime, 1e300),
    "bytes": (ByteSize, "nan B"),
    "a fraction": (Fraction, "1/0"),
}


@pytest.mark.parametrize(("kind", "value"), KINDS.values(), ids=KINDS)
def test_no_other_declaration_lets_one_through(kind, value, tmp_path):
    env = make_env(create_model("Declared", label=(str, "x"), value=(kind, None)))
    episode = answer_once(env, json.dumps({"label": "x", "value": value}))
    assert episode.end_reason == "malformed"
    assert "value" in episode.turns[2].content
    assert is_stored(episode, tmp_path)


# ---------------------------------------------------------------------- an author's own code
class Mean(BaseModel):
    label: str = "x"
    values: list[float] = []
    mean: float = 0.0

    @model_validator(mode="after")
    def average(self):
        self.mean = sum(self.values) * 1e308
        return self


class Odds(BaseModel):
    label: str = "x"
    odds: Any = 0.0

    @field_validator("odds")
    @classmethod
    def divide(cls, value):
        return np.float32(NAN) if value == 1 else value


class Writes(BaseModel):
    label: str = "x"
    size: float = 0.0

    @field_serializer("size")
    def write(self, size):
        return INF if size else size


class Fills(BaseMultiTurnEnv):
    name = "fills"
    answer: ClassVar[Any] = {"type": "object"}
    reward = ExactMatchReward("label")
    tools = ()

    def validate_answer(self, answer, task):
        answer["area"] = {"mm": [NAN]}


AUTHORS = {
    "a model validator": (make_env(Mean), {"values": [2]}),
    "a field validator": (make_env(Odds), {"odds": 1}),
    "a serializer": (make_env(Writes), {"size": 1}),
    "validate_answer": (Fills(), {"label": "x"}),
}


@pytest.mark.parametrize(("env", "value"), AUTHORS.values(), ids=AUTHORS)
def test_what_an_author_makes_of_an_answer_is_checked_too(env, value, tmp_path):
    answer, problem = check_answer(env, value, Task("t"))
    assert problem is not None
    assert answer == {}
    episode = answer_once(env, json.dumps(value))
    assert episode.end_reason == "malformed"
    assert is_stored(episode, tmp_path)


# ---------------------------------------------------------------------- JSON that says NaN
REPLIES = [
    '{"a": NaN}',
    "{'a': NaN}",
    '{"a": Infinity}',
    '{"a": -Infinity}',
    '{"a": 1e999}',
    "{a: -1e999,}",
    '{"a": [[1e400]]}',
    '{"a": {"b": NaN}}',
    "{'a': {'b': [inf, nan]}}",
    '{"a": +Infinity}',
    '{"a": ' + DIGITS + "}",
    "{a: 0" + DIGITS + "}",
    '```json\n{"a": NaN}\n```',
    '"{\\"a\\": NaN}"',
    '[{"a": NaN}]',
    '{"a": NaN, "continue": true}',
    '<tool_call>{"name": "zoom", "arguments": {"factor": NaN}}</tool_call>',
    '<tool_call>{"name": "zoom", "arguments": "{\\"factor\\": NaN}"}</tool_call>',
    '<tool_call>{"name": "zoom", "arguments": {"center": [1e999, Infinity]}}</tool_call>',
    "<tool_call>{'name': 'zoom', 'arguments': {'factor': -Infinity}}</tool_call>",
]


@pytest.mark.parametrize("reply", REPLIES)
def test_no_reply_puts_one_into_a_record(reply, tmp_path):
    episode = answer_once(Free(), reply)
    assert find_non_finite(episode.to_dict()) is None
    assert is_stored(episode, tmp_path)


class Free(BaseMultiTurnEnv):
    name = "free"
    answer: ClassVar[Any] = {"type": "object"}
    reward = ExactMatchReward("label")


# ---------------------------------------------------------------------- the finder
CIRCLE: list[Any] = [1.0]
CIRCLE.append(CIRCLE)
FOUND = {
    "nested": ({"a": [{"b": (1, {NAN})}]}, "a.0.b.1.0"),
    "a model": (Inner(score=NAN), "score"),
    "a dataclass": ([Point(INF)], "0.x"),
    "an array": ({"a": np.array([1, NAN])}, "a"),
    "float32": (np.float32(INF), ""),
    "an array of objects": (np.array([1.5, "a", Decimal("nan")], dtype=object), ""),
    "a Decimal": ([Decimal("sNaN")], "0"),
    "a key": ({"a": {INF: 1}}, "a.inf"),
    "an enum": ([Level.UNKNOWN], "0"),
    "a large integer": ([10**309], "0"),
    "in a circle": ([CIRCLE, NAN], "1"),
    "complex": ((1j, complex(NAN, 0)), "1"),
    "complex64": ([np.complex64(NAN)], "0"),
}


@pytest.mark.parametrize(("value", "path"), FOUND.values(), ids=FOUND)
def test_it_is_found_and_named(value, path):
    assert find_non_finite(value) == path


@pytest.mark.parametrize(
    "value",
    ["nan", b"inf", None, True, 1.5, 10**308, Decimal("1e300"), Fraction(1, 3), np.arange(3), np.array(["nan"]), CIRCLE,
     {"a": [1, {"b": (2.0,)}]}, np.datetime64("NaT"), Literal, Inner, Inner(), np.bool_(True)],
    ids=lambda value: f"{value!r:.20}",
)  # fmt: skip
def test_everything_else_is_finite(value):
    assert find_non_finite(value) is None
