"""No number that is not finite is recorded: NaN, infinities, and what a float cannot hold are malformed answers."""

import json
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel, BeforeValidator, Field, Json, model_validator

from viewbox.core.answers import check_answer
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

NAN = float("nan")
DIGITS = "9" * 4200
NO_NUMBER = ": allowed: a number"  # a string that is not how JSON writes a number stays one


class Inner(BaseModel):
    score: float = 0.0


class Answer(BaseModel):
    label: str = "x"
    confidence: float = 1.0
    count: int = 0
    exact: Decimal = Decimal(0)
    either: float | str = 0.0
    many: list[Inner] = []
    by_name: dict[str, float] = {}
    group: set[float] = set()
    strict: Annotated[float, Field(strict=True)] = 0.0
    in_text: Json[float] | None = None
    lasts: timedelta | None = None
    anything: Any = None
    made: Annotated[Any, BeforeValidator(lambda name: 10**400 if name == "big" else name)] = None


class Numbers(BaseMultiTurnEnv):
    name = "numbers"
    answer: ClassVar[Any] = Answer
    reward = ExactMatchReward("label")
    tools = ()


class Free(Numbers):
    answer: ClassVar[Any] = {"type": "object"}


ENV = Numbers()


def play_and_store(env, reply, folder):
    """The episode of one reply, repeated, which is stored and read again."""
    episode = env.play(Task("t", reference={"label": "x"}), lambda _: reply)
    with EpisodeWriter(folder) as writer:
        writer.append(episode)
    (back,) = load(folder)
    json.dumps(back.to_dict(), allow_nan=False)
    assert back.end_reason == episode.end_reason
    return episode


PLACES = {
    "confidence": lambda text: {"confidence": text},
    "many[1].score": lambda text: {"many": [{}, {"score": text}]},
    "by_name.a": lambda text: {"by_name": {"a": text}},
    "group[0]": lambda text: {"group": [text]},
}


@pytest.mark.parametrize("field", PLACES)
@pytest.mark.parametrize("text", ["nan", "-inf", "Infinity", "1e999", " nan ", DIGITS, f"1e{'9' * 40}"])
def test_no_text_becomes_a_number_that_is_not_finite(field, text):
    answer, problem = check_answer(ENV, PLACES[field](text), Task("t"))
    assert answer == {}
    assert problem.startswith(f'{field} = "')
    assert problem.endswith(NO_NUMBER)


@pytest.mark.parametrize(
    "value",
    [
        {"count": DIGITS}, {"either": NAN}, {"strict": NAN}, {"in_text": "1e999"}, {"lasts": "P99999999999999D"},
        {"made": "big"},
    ],
    ids=str,
)  # fmt: skip
def test_no_other_kind_of_number_is_infinite(value):
    answer, problem = check_answer(ENV, value, Task("t"))
    assert problem is not None
    assert answer == {}


@pytest.mark.parametrize(
    "value",
    [
        {"label": "nan", "either": "inf", "anything": {"nan": "Infinity"}},
        {"confidence": 1.7e308, "count": int("9" * 308)},
        {"label": "infiltrate, (nanometer)", "by_name": {"inf": 1}},
    ],
    ids=["words", "large numbers", "words with inf in them"],
)
def test_finite_numbers_and_words_are_answers(value):
    answer, problem = check_answer(ENV, value, Task("t"))
    assert problem is None
    assert {name: answer[name] for name in value} == value


# ---------------------------------------------------------------------- an author's own code
class Mean(BaseModel):
    label: str = "x"
    values: list[float] = []
    mean: float = 0.0

    @model_validator(mode="after")
    def average(self):
        self.mean = sum(self.values) * 1e308
        return self


class Fills(Free):
    def validate_answer(self, answer, task):
        answer["area"] = {"mm": [NAN]}


AUTHORS = {
    "a model validator": (type("Own", (Numbers,), {"answer": Mean}), {"values": [2]}),
    "validate_answer": (Fills, {"label": "x"}),
}


@pytest.mark.parametrize(("cls", "value"), AUTHORS.values(), ids=AUTHORS)
def test_what_an_author_makes_of_an_answer_is_checked_too(cls, value, tmp_path):
    answer, problem = check_answer(cls(), value, Task("t"))
    assert "must be a finite number" in problem
    assert answer == {}
    assert play_and_store(cls(), json.dumps(value), tmp_path).end_reason == "malformed"


# ---------------------------------------------------------------------- JSON that says NaN
REPLIES = [
    '{"a": NaN}',
    "{'a': -Infinity}",
    "{a: -1e999,}",
    '{"a": [[1e400]]}',
    "{'a': {'b': [inf, nan]}}",
    '{"a": ' + DIGITS + "}",
    '```json\n{"a": NaN}\n```',
    '"{\\"a\\": NaN}"',
    '[{"a": NaN}]',
    '<tool_call>{"name": "zoom", "arguments": {"factor": NaN}}</tool_call>',
    '<tool_call>{"name": "zoom", "arguments": "{\\"factor\\": NaN}"}</tool_call>',
    "<tool_call>{'name': 'zoom', 'arguments': {'center': [1e999, -Infinity]}}</tool_call>",
]


@pytest.mark.parametrize("reply", REPLIES)
def test_no_reply_puts_one_into_a_record(reply, tmp_path):
    assert play_and_store(Free(tools=["zoom"]), reply, tmp_path).end_reason == "malformed"
