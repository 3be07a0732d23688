"""`--check-tokens`: prompts of a chat server against those of our engine."""

import json

import pytest

from tests.support.families import build_family
from tests.support.servers import make_completion, serve
from tests.support.tables import each
from viewbox.configs.sections import ModelSection
from viewbox.engines.generator import Conversation
from viewbox.engines.hf import loading
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.engines.openai.token_check import TokenCheck
from viewbox.envs.digits import Digits, viewer
from viewbox.rollouts.job import build_job

ENV = Digits(max_turns=3, reply_format="native", coordinates="per_mille")
TASK = ENV.tasks[0]
SAID = [viewer.write_zoom(ENV, 2, 0.5, 0.5), viewer.write_answer(ENV, TASK)]


@pytest.fixture(scope="module")
def tokens():
    config, processor = loading.load_processor(ModelSection(name="package:tiny_viewer"))
    return ChatTokens(processor, config)


@pytest.fixture
def check_against(tokens, play):
    """Plays one episode of a call and an answer; `change(ids, turn)` is what the server says its prompt was."""

    def run(change, tool_images="tool", **more):
        check, expected = TokenCheck(tokens, tool_images), []
        whole = check.expect

        def expect(conversation):
            expected.append(whole(conversation))
            return expected[-1]

        check.expect = expect

        def answer(body, number):
            assert body["return_token_ids"] is True
            text = SAID[number]
            call = text.startswith("<tool_call>") and json.loads(text[len("<tool_call>") : -len("</tool_call>")])
            calls = [("c1", call["name"], json.dumps(call["arguments"]))] if call else []
            completion = make_completion("" if calls else text, *calls)
            completion["choices"][0]["token_ids"] = tokens.encode_reply(text)
            return {**completion, "prompt_token_ids": change(expected[-1], number), **more}

        with serve(answer) as server:
            generator = OpenAIGenerator(server.url, "m", first_pause=0.01, token_check=check)
            (episode,) = play(ENV, [TASK], generator)
        assert episode.end_reason == "answered"
        assert not check._records
        return check

    return run


def split(tokens, ids):
    """The first word of several letters, in single letters."""
    for place, one in enumerate(ids):
        text = tokens.tokenizer.decode([one])
        letters = [tokens.tokenizer(letter, add_special_tokens=False)["input_ids"] for letter in text]
        if len(text) > 2 and text.isalpha() and all(len(letter) == 1 for letter in letters):
            return [*ids[:place], *[letter[0] for letter in letters], *ids[place + 1 :]]
    raise AssertionError


def add_letter(tokens, ids, turn):
    letter = tokens.tokenizer("X", add_special_tokens=False)["input_ids"]
    return [*ids[:-3], *letter, *ids[-3:]] if turn else ids


PROMPTS = [  # what a server says its prompt was: counts, and words of the description
    (lambda tokens, ids, turn: ids, {"equal": 2}, ("tokens: 2 of 2 prompts are id for id those of our engine",)),
    (lambda tokens, ids, turn: split(tokens, ids), {"retokenized": 2}, ()),
    (add_letter, {"equal": 1, "different": 1}, ("1 have another text than our engine's", "before reply 2", "X")),
    (lambda tokens, ids, turn: [*ids, 2**31 - 1], {"different": 2}, ()),  # an id that has no text
]


@each("change, counts, words", PROMPTS)
def test_prompts_are_compared_by_id_and_by_text(check_against, tokens, change, counts, words):
    check = check_against(lambda ids, turn: change(tokens, ids, turn))
    assert {name: count for name, count in check.counts.items() if count} == counts
    assert check.passed == ("different" not in counts)
    shown = check.describe()
    assert all(word in "\n".join(shown) for word in words), shown
    assert len(shown) == 1 + len(counts.keys() - {"equal"})
    assert not words or words[-1] in shown[-1].splitlines()[-1]


@each("tool_images", ["tool", "user"])
def test_a_place_of_pictures_that_the_model_was_not_trained_on_is_named(check_against, tool_images):
    """`tool` is what a Qwen3-VL was trained on: then another setting is to blame."""
    check = check_against(lambda ids, turn: [*ids[:-1], 0], tool_images)
    assert ("endpoint.tool_images=tool" in check.describe()[-1]) is (tool_images == "user")


@each("name, says", [("smolvlm", True), ("qwen3_vl", False)])
def test_a_chat_template_that_lists_no_tools_is_named(name, says):
    """A server that is sent `tools` then has a prompt without them."""
    model, processor = build_family(name)
    check, state = TokenCheck(ChatTokens(processor, model.config), "user"), ENV.reset(TASK, seed=0)
    conversation = Conversation(state.messages, state.tool_schemas, seed=0, index=0, reply_format="native", task=TASK)
    ids = check.expect(conversation)
    check.compare(conversation, ids, {"prompt_token_ids": ids[:-1], "choices": [{"token_ids": [5]}]})
    assert ("endpoint.native_tools=false" in check.first) is says


@each("said", [None, "1 2", [], {"a": 1}, ["1"], [True], [-1], [10**30], [1.5]])
def test_a_server_that_does_not_say_its_prompt_does_not_pass(check_against, said):
    check = check_against(lambda ids, turn: said)
    assert not check.passed
    if said != []:
        assert check.counts["unknown"] == 2
        assert "does not return the ids of its prompts" in check.describe()[-1]


def test_the_command_says_what_it_found_and_ends_with_1(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ("rollout", "--env", "digits", "--model", "m", "--tasks", 1, "--out", "o")
    with serve(lambda body, number: make_completion(SAID[1])) as server:
        at = (*given, "--endpoint", server.url, "--check-tokens")
        code, _, err = viewbox(*at, "endpoint.tokenizer=package:none")
        assert code == 2
        assert "endpoint.tokenizer=FOLDER" in err
        code, out, err = viewbox(*at, "endpoint.tokenizer=package:tiny_viewer")
    assert code == 1, err
    assert "tokens: 0 of" in out
    assert "cannot be compared" in out
    assert viewbox(*given, "--check-tokens")[0] == 2


@each("model, role", [("Qwen/Qwen3-VL-4B-Instruct", "tool"), ("gpt-x", "user")])
def test_pictures_of_tools_are_where_the_model_was_trained_on_them(model, role):
    job = build_job(env="digits", model=model, endpoint="http://127.0.0.1:1/v1", tasks=1)
    assert job.generator.tool_images == job.record["tool_images"] == role
