"""Half of a surrogate pair reaches no file, and what a model says never raises, with a driver and without one."""

import json
import sqlite3
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from tests.support.servers import make_completion, serve
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Episode, Reply, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.judge.reward import JudgeReward, extract_text
from viewbox.rollouts.store import columns
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

LOW, HIGH = "\udc00", "\ud800"
ESCAPED = "\\ud800"
CALL = '<tool_call>{"name": "%s", "arguments": %s}</tool_call>'


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


class AsText(ByModel):
    name = "as text"
    answer: ClassVar[Any] = None


ENVS = [ByModel(), BySchema(), AsText()]
TASK = Task(
    f"t{HIGH}", prompt={"question": f"why{LOW}"}, reference={"label": f"x{HIGH}"}, metadata={HIGH: {"a": [LOW]}}
)
REPLIES = {
    "a value": f'{{"label": "x{HIGH}"}}',
    "an escaped value": f'{{"label": "x{ESCAPED}"}}',
    "an escaped key of a dict": f'{{"label": "x", "extra": {{"{ESCAPED}": 1}}}}',
    "a key of a dict": f'{{"label": "x", "extra": {{"{HIGH}": 1}}}}',
    "a deep key": f'{{"label": "x", "extra": {{"a": [{{"{ESCAPED}": {{"{ESCAPED}": "{ESCAPED}"}}}}]}}}}',
    "a top key": f'{{"label": "x", "{ESCAPED}": 1}}',
    "two keys that become one": f'{{"label": "x", "extra": {{"{ESCAPED}": 1, "\\udc00": 2}}}}',
    "a list": f'{{"label": "x", "parts": ["{ESCAPED}", "\\udfff", "{LOW}"]}}',
    "a union": f'{{"label": "x", "either": {{"{ESCAPED}": "{ESCAPED}"}}}}',
    "the wrong order": '{"label": "\\udc00\\ud800"}',
    "a whole pair": '{"label": "\\ud83d\\ude00"}',
    "half a pair and a letter": '{"label": "\\ud83dA"}',
    "single quotes": f"{{'label': 'x{ESCAPED}', 'extra': {{'{ESCAPED}': 1}}}}",
    "bare keys": f"{{label: 'x', extra: {{{HIGH}: 1, a{LOW}: '{HIGH}'}}}}",
    "a string of JSON": json.dumps(f'{{"label": "x{ESCAPED}", "extra": {{"{ESCAPED}": 1}}}}'),
    "a fence": f'```json\n{{"label": "{ESCAPED}"}}\n```{HIGH}',
    "a list of one": f'[{{"label": "{ESCAPED}"}}]',
    "under a wrong key": f'{{"{ESCAPED}": {{"label": "x{ESCAPED}"}}}}',
    "notes": f'{{"label": "{ESCAPED}", "continue": true, "{ESCAPED}": "{LOW}"}}',
    "continue": f'{{"label": "x", "continue": "{ESCAPED}"}}',
    "prose": f"no object {HIGH}{LOW}",
    "only halves": HIGH * 1000,
    "halves to the limit": HIGH * 22_000,
    "thinking": f'<think>{HIGH}</think>{{"label": "x"}}{HIGH}',
    "a wrong type": f'{{"label": ["{ESCAPED}"]}}',
    "a placeholder": f'{{"label": "…", "{ESCAPED}": "..."}}',
    "arguments": CALL % ("say", f'{{"text": "{ESCAPED}"}}'),
    "raw arguments": CALL % ("say", f'{{"text": "{HIGH}"}}'),
    "a name of an argument": CALL % ("say", f'{{"{ESCAPED}": 1}}'),
    "arguments in a string": CALL % ("say", json.dumps(f'{{"text": "{ESCAPED}", "{ESCAPED}": 1}}')),
    "lenient arguments": f"<tool_call>{{'name': 'say', 'arguments': {{'text': '{ESCAPED}', '{HIGH}': 1}}}}</tool_call>",
    "a name of a tool": CALL % (f"say{ESCAPED}", "{}"),
    "a raw name of a tool": CALL % (HIGH, "{}"),
    "an id": f'<tool_call>{{"name": "say", "id": "{ESCAPED}", "arguments": {{"text": "x"}}}}</tool_call>',
    "facts of a tool": CALL % ("tell", f'{{"name": "{ESCAPED}"}}'),
    "a broken call": f'<tool_call>{{"name": "{HIGH}", "arguments": {HIGH}',
    "a call and an answer": CALL % ("tell", "{}") + f'{{"label": "{ESCAPED}"}}',
    "a native call": Reply("", (ToolCall(f"i{HIGH}", "say", {"text": f"a{LOW}", HIGH: LOW}),)),
    "a native call as text": Reply(HIGH, (ToolCall("i", "say", f'{{"text": "{ESCAPED}", "{HIGH}": 1}}'),)),
    "a native call of a name": Reply("", (ToolCall(HIGH, HIGH, HIGH),)),
}


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


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_nothing_raises_and_no_half_reaches_the_file_or_the_model(reply, tmp_path):
    for env in ENVS:
        play_and_store(env, reply, tmp_path / env.name)


def play_and_store(env, reply, folder):
    seen = []

    def policy(messages):
        seen.append([part for message in messages for part in message.content if isinstance(part, str)])
        return reply

    if isinstance(reply, str):
        assert find_halves(env.read_answer(reply, TASK) or {}) == []
    episode = env.play(TASK, policy)
    assert episode.end_reason in ("answered", "malformed", "max_turns")
    assert find_halves(seen) == []
    with EpisodeWriter(folder) as writer:
        writer.append(episode)
    check_file(folder / "episodes.jsonl")
    (back,) = load(folder)
    assert back.end_reason == episode.end_reason


EPISODES = {
    "everything of the task": Episode(TASK),
    "an answer": Episode(Task("t"), answer={HIGH: [LOW, {LOW: HIGH}]}),
    "info": Episode(Task("t"), info={HIGH: LOW, "error": HIGH}),
    "a prompt": Episode(Task("t"), system_prompt=HIGH, environment=LOW),
    "a flag": Episode(Task("t"), flags=frozenset({HIGH})),
    "scores": Episode(Task("t"), scores=Scores(1.0, {HIGH: 1.0})),
    "a call": Episode(Task("t"), (Turn("assistant", HIGH, tool_calls=(ToolCall(HIGH, LOW, {HIGH: LOW}),)),)),
    "a result": Episode(
        Task("t"),
        (Turn("tool_result", tool_results=(ToolResult(HIGH, LOW, facts={HIGH: LOW}, formatted_results=HIGH),)),),
    ),
    "an error": Episode(Task("t"), (Turn("tool_result", tool_results=(ToolResult("a", error=HIGH, call_id=LOW),)),)),
}


@pytest.mark.parametrize("episode", EPISODES.values(), ids=EPISODES)
def test_the_writer_lets_no_half_through(episode, tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        assert writer.append_or_error(episode) is episode
    check_file(tmp_path / "episodes.jsonl")
    assert len(list(load(tmp_path))) == 1


def test_an_episode_stored_as_an_error_has_no_half_either(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.append_or_error(Episode(TASK, answer={HIGH: float("nan")}, environment=HIGH))
    check_file(tmp_path / "episodes.jsonl")
    (back,) = load(tmp_path)
    assert back.end_reason == "error"


def test_a_column_of_scores_has_no_half(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.append(Episode(TASK))
    with columns.ScoreColumnWriter(tmp_path, "mine", {"reward": {"field": HIGH}}) as column:
        column.add(1, 2, TASK.id, Scores(1.0, {HIGH: 1.0, "b": None}))
    check_file(tmp_path / "scores" / "mine.jsonl")


def test_a_judges_reply_is_cached_without_halves(tmp_path):
    with serve(lambda body, number: make_completion(f'{{"score": 1, "why": "{HIGH}"}}')) as server:
        judge = JudgeReward("report", endpoint=server.url, model="m", cache=tmp_path)
        assert judge({"report": "a nodule"}, {"report": "a nodule"}) == 1.0
    with sqlite3.connect(tmp_path / "judge.sqlite") as file:
        ((kept,),) = file.execute("SELECT value FROM answers").fetchall()
    assert b'"why"' in kept
    assert find_halves(kept.decode()) == []


@pytest.mark.parametrize("record", [{"a": HIGH}, {"a": {HIGH: LOW}}, {"a": [LOW]}])
def test_a_judge_is_shown_no_half(record):
    assert find_halves(extract_text(record, "a")) == []
    assert find_halves(extract_text(record, None)) == []
