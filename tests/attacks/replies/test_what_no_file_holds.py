"""Replies that no file may hold: half a surrogate pair, a number that is not finite, nesting without end."""

import itertools
import json
import sqlite3
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, Field, Json, model_validator

from tests.support import loop_kit
from tests.support.servers import make_completion, serve
from tests.support.tables import each
from viewbox.core.answers import check_answer
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.core.parsing.objects import AnswerFields
from viewbox.core.parsing.reply import Malformed, parse_reply
from viewbox.records import Episode, Reply, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.judge.reward import JudgeReward, extract_text
from viewbox.rollouts.store import columns
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

LOW, HIGH, ESCAPED, DIGITS, NAN = "\udc00", "\ud800", "\\ud800", "9" * 4200, float("nan")
CALL = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'


def find_halves(value):
    """The texts and keys with a lone surrogate."""
    if isinstance(value, str):
        return [value] if any("\ud800" <= letter <= "\udfff" for letter in value) else []
    if isinstance(value, dict):
        return [half for pair in value.items() for part in pair for half in find_halves(part)]
    return [half for item in value for half in find_halves(item)] if isinstance(value, list | tuple) else []


def check_file(path):
    """Every line is UTF-8 without halves, raw or escaped."""
    for line in path.read_bytes().decode().splitlines():
        assert find_halves(json.loads(line)) == []


def play_and_store(env, reply, folder, task=None):
    """The episode of one reply, repeated, which is stored and read again; the model reads no half."""
    seen = []

    def policy(messages):
        seen.append([part for message in messages for part in message.content if isinstance(part, str)])
        return reply

    episode = env.play(task or Task("t", reference={"label": "x"}), policy)
    assert find_halves(seen) == []
    with EpisodeWriter(folder) as writer:
        writer.append(episode)
    check_file(folder / "episodes.jsonl")
    (back,) = load(folder)
    json.dumps(back.to_dict(), allow_nan=False)
    assert back.end_reason == episode.end_reason
    return episode


# ---- halves
def say(text: str) -> str:
    "Says a text."
    return f"{text}{HIGH}"


def tell(name: str = "x") -> dict:
    "Tells facts."
    return {f"fact{LOW}": f"{name}{HIGH}", "deep": {HIGH: [LOW]}}


class Fields(BaseModel):
    label: str = "x"
    extra: dict[str, Any] = {}
    parts: list[str] = []
    either: int | str | dict[str, Any] = 0


class ByModel(BaseMultiTurnEnv):
    name = "by model"
    answer: ClassVar[Any] = Fields
    tools = (say, tell)
    reward = ExactMatchReward("label")

    def user_message(self, task):
        return f"Question{HIGH}: {task.prompt.get('question')}"


class BySchema(ByModel):
    name = "by schema"
    answer: ClassVar[Any] = {
        "type": "object",
        "properties": {"label": {"type": "string", "pattern": "^.*$"}, "extra": {}, "parts": {"uniqueItems": True}},
    }

    def on_answer(self, state, answer):
        return f"again{LOW}" if state.turn < 2 else None


ENVS = [ByModel(), BySchema(), type("AsText", (ByModel,), {"name": "as text", "answer": None})()]
WHY, DEEP = {"question": f"why{LOW}"}, {HIGH: {"a": [LOW]}}
TASK = Task(f"t{HIGH}", prompt=WHY, reference={"label": f"x{HIGH}"}, metadata=DEEP)


@each("reply", [
    # values and keys, raw and escaped, deep and at the top
    f'{{"label": "x{HIGH}"}}', f'{{"label": "x{ESCAPED}"}}', f'{{"label": "x", "extra": {{"{HIGH}": 1}}}}',
    f'{{"label": "x", "extra": {{"a": [{{"{ESCAPED}": {{"{ESCAPED}": "{ESCAPED}"}}}}]}}}}',
    f'{{"label": "x", "parts": ["{ESCAPED}", "\\udfff", "{LOW}"]}}',
    # two keys that become one; wrong order, half and a letter
    f'{{"label": "x", "extra": {{"{ESCAPED}": 1, "\\udc00": 2}}}}', '{"label": "\\udc00\\ud800"}',
    '{"label": "\\ud83dA"}',
    # what is mended: quotes, bare keys, a string of JSON, a fence, a list of one, a wrong key, notes
    f"{{label: 'x', extra: {{{HIGH}: 1, a{LOW}: '{HIGH}'}}}}",
    json.dumps(f'{{"label": "x{ESCAPED}", "extra": {{"{ESCAPED}": 1}}}}'),
    f'{{"{ESCAPED}": {{"label": "x{ESCAPED}"}}}}', f'{{"label": "x", "continue": "{ESCAPED}"}}',
    f'{{"label": "{ESCAPED}", "continue": true, "{ESCAPED}": "{LOW}"}}', f'{{"label": ["{ESCAPED}"]}}',
    f"no object {HIGH}{LOW}", HIGH * 22_000, f'<think>{HIGH}</think>{{"label": "x"}}{HIGH}',
    # calls: arguments, names, ids, facts
    CALL % ("say", f'{{"text": "{HIGH}"}}'), CALL % (f"say{ESCAPED}", "{}"),
    CALL % ("say", json.dumps(f'{{"text": "{ESCAPED}", "{ESCAPED}": 1}}')),
    f'<tool_call>{{"name": "say", "id": "{ESCAPED}", "arguments": {{"text": "x"}}}}</tool_call>',
    CALL % ("tell", f'{{"name": "{ESCAPED}"}}'), f'<tool_call>{{"name": "{HIGH}", "arguments": {HIGH}',
    CALL % ("tell", "{}") + f'{{"label": "{ESCAPED}"}}',
    Reply("", (ToolCall(f"i{HIGH}", "say", {"text": f"a{LOW}", HIGH: LOW}),)), Reply("", (ToolCall(HIGH, HIGH, HIGH),)),
    Reply(HIGH, (ToolCall("i", "say", f'{{"text": "{ESCAPED}", "{HIGH}": 1}}'),)),
])  # fmt: skip
def test_nothing_raises_and_no_half_reaches_the_file_or_the_model(reply, tmp_path):
    for env in ENVS:
        if isinstance(reply, str):
            assert find_halves(env.read_answer(reply, TASK) or {}) == []
        episode = play_and_store(env, reply, tmp_path / env.name, TASK)
        assert episode.end_reason in ("answered", "malformed", "max_turns")


def result(*arguments, **fields):
    return Episode(Task("t"), (Turn("tool_result", tool_results=(ToolResult(*arguments, **fields),)),))


@each("episode", [
    Episode(TASK), Episode(Task("t"), answer={HIGH: [LOW, {LOW: HIGH}]}),
    Episode(Task("t"), info={HIGH: LOW, "error": HIGH}), Episode(Task("t"), system_prompt=HIGH, environment=LOW),
    Episode(Task("t"), flags=frozenset({HIGH})), Episode(Task("t"), scores=Scores(1.0, {HIGH: 1.0})),
    result(HIGH, LOW, facts={HIGH: LOW}, formatted_results=HIGH),
    Episode(Task("t"), (Turn("assistant", HIGH, tool_calls=(ToolCall(HIGH, LOW, {HIGH: LOW}),)),)),
    result("a", error=HIGH, call_id=LOW),
])  # fmt: skip
def test_the_writer_lets_no_half_through(episode, tmp_path):
    with EpisodeWriter(tmp_path / "run") as writer:
        assert writer.append_or_error(episode) is episode
        writer.append_or_error(Episode(TASK, answer={HIGH: NAN}, environment=HIGH))  # stored as an error
    with columns.ScoreColumnWriter(tmp_path / "run", "mine", {"reward": {"field": HIGH}}) as column:
        column.add(1, 2, TASK.id, Scores(1.0, {HIGH: 1.0, "b": None}))
    for name in ("episodes.jsonl", "scores/mine.jsonl"):
        check_file(tmp_path / "run" / name)
    assert [back.end_reason == "error" for back in load(tmp_path / "run")] == [False, True]


def test_a_judge_is_shown_no_half_and_its_reply_is_cached_without(tmp_path):
    with serve(lambda body, number: make_completion(f'{{"score": 1, "why": "{HIGH}"}}')) as server:
        judge = JudgeReward("report", endpoint=server.url, model="m", cache=tmp_path)
        assert judge({"report": "a nodule"}, {"report": "a nodule"}) == 1.0
    with sqlite3.connect(tmp_path / "judge.sqlite") as file:
        ((kept,),) = file.execute("SELECT value FROM answers").fetchall()
    assert b'"why"' in kept
    assert find_halves(kept.decode()) == []
    for record in ({"a": HIGH}, {"a": {HIGH: LOW}}, {"a": [LOW]}):
        assert find_halves([extract_text(record, "a"), extract_text(record, None)]) == []


# ---- numbers that are not finite
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


Free = type("Free", (Numbers,), {"answer": {"type": "object"}})


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


PLACES = {
    "confidence": lambda text: {"confidence": text}, "many[1].score": lambda text: {"many": [{}, {"score": text}]},
    "by_name.a": lambda text: {"by_name": {"a": text}}, "group[0]": lambda text: {"group": [text]},
}  # fmt: skip


@each("field", list(PLACES))
@each("text", ["nan", "-inf", "1e999", " nan ", DIGITS])
def test_no_text_becomes_a_number_that_is_not_finite(field, text):
    answer, problem = check_answer(Numbers(), PLACES[field](text), Task("t"))
    assert answer == {}
    assert problem.startswith(f'{field} = "')
    assert problem.endswith(": allowed: a number")  # a string that is not how JSON writes a number stays one


FINITE = [
    {"label": "nan", "either": "inf", "anything": {"nan": "Infinity"}},
    {"confidence": 1.7e308, "count": int("9" * 308)}, {"label": "infiltrate, (nanometer)", "by_name": {"inf": 1}},
]  # fmt: skip
OTHERS = [
    {"count": DIGITS}, {"either": NAN}, {"strict": NAN}, {"in_text": "1e999"}, {"lasts": "P99999999999999D"},
    {"made": "big"},
]  # fmt: skip


@each("value, finite", [*((value, True) for value in FINITE), *((value, False) for value in OTHERS)])
def test_no_other_kind_of_number_is_infinite_and_finite_numbers_and_words_are_answers(value, finite):
    answer, problem = check_answer(Numbers(), value, Task("t"))
    assert (problem is None) == finite
    assert {name: answer[name] for name in value} == value if finite else answer == {}


@each("cls, value", [(type("Own", (Numbers,), {"answer": Mean}), {"values": [2]}), (Fills, {"label": "x"})])
def test_what_an_author_makes_of_an_answer_is_checked_too(cls, value, tmp_path):
    answer, problem = check_answer(cls(), value, Task("t"))
    assert "must be a finite number" in problem
    assert answer == {}
    assert play_and_store(cls(), json.dumps(value), tmp_path / "run").end_reason == "malformed"


@each("reply", [
    '{"a": NaN}', "{a: -1e999,}", '{"a": [[1e400]]}', "{'a': {'b': [inf, nan]}}", '{"a": ' + DIGITS + "}",
    '"{\\"a\\": NaN}"', CALL % ("zoom", '"{\\"factor\\": NaN}"'),
    "<tool_call>{'name': 'zoom', 'arguments': {'center': [1e999, -Infinity]}}</tool_call>",
])  # fmt: skip
def test_no_reply_puts_one_into_a_record(reply, tmp_path):
    assert play_and_store(Free(tools=["zoom"]), reply, tmp_path / "run").end_reason == "malformed"


# ---- depths
FIELDS = [
    '{"name": "zoom", "arguments": {"x": @}}', '{"name": "zoom", "x": @}', '{"name": @, "arguments": {}}',
    "{'label': @}", '{"function": {"name": "zoom", "arguments": {"x": @}}}', '{"label": "left", "continue": @}',
]  # fmt: skip
FRAMES = [
    "@", "<tool_call>@</tool_call>", "```json\n@\n```", "[@]", '{"tool_calls": [@]}', "so @ it is", "<think>@</think>@",
]  # fmt: skip
LISTS, OBJECTS = ("[", "]"), ('{"a": ', "}")


def nest(kind, depth):
    return kind[0] * depth + "1" + kind[1] * depth


@each("frame", FRAMES)
def test_a_deep_reply_ends_no_episode_with_an_exception(frame):
    env = loop_kit.Find()
    for field, (kind, depth) in itertools.product(FIELDS, ((LISTS, 70), (OBJECTS, 350), (LISTS, 960))):
        text = frame.replace("@", field.replace("@", nest(kind, depth)))
        episode = env.play(loop_kit.TASK, lambda messages, text=text: text)
        assert (episode.end_reason != "answered", episode.scores.total) == (True, 0)


@each("depth", [70, 960])
def test_a_deep_call_keeps_its_name_and_is_refused(depth):
    parsed = parse_reply('{"name": "zoom", "arguments": {"x": ' + nest(LISTS, depth) + "}}")
    assert [(call.call.name, call.call.arguments[:8]) for call in parsed.calls] == [("zoom", '{"name":')]
    assert "nested more than 64 deep" in parsed.calls[0].error


@each("inner, said", [
    ('{"label": "a", "label": "b"}', "given twice"), ('{"label": NaN}', "NaN"), ('{"label": 1e999}', "too large"),
    ('{"label": ' + "9" * 400 + "}", "too large"), ('{"label": ' + nest(LISTS, 70) + "}", "nested more than 64"),
])  # fmt: skip
def test_what_is_refused_alone_is_refused_in_a_list(inner, said):
    fields = AnswerFields.from_schema({"properties": {"label": {}}, "required": ["label"]})
    for text in (inner, f"[{inner}]", f"so [{inner}]"):
        parsed = parse_reply(text, answer_fields=fields)
        assert isinstance(parsed, Malformed), text[:40]
        assert said in parsed.reason
