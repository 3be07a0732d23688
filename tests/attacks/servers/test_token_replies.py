"""Hostile replies of a server of tokens, after a good first one: each costs its episode, never the run."""

import asyncio
import json
import re

import pytest

from tests.support.model_fixtures import *  # noqa: F403
from tests.support.servers import make_response, serve
from tests.support.tables import each
from tests.support.vllm_server import PlainVLLM
from viewbox.engines.openai.client import EndpointError
from viewbox.engines.vllm import Settings
from viewbox.engines.vllm.vllm import Served, VLLMGenerator
from viewbox.rollouts.play import MAX_FAILURES, play_many

LIMITS = Settings(engine="vllm", max_reply_tokens=4, max_completion_tokens=50)
HASTE = {"attempts": 2, "first_pause": 0.01}
HUGE = 10**400
DEEP = "[" * 900 + "]" * 900


@pytest.fixture(scope="module")
def model(qwen3):
    return qwen3.model()


@pytest.fixture(scope="module")
def tokens(qwen3, model):
    return qwen3.generator(model).tokens


def edit_choice(**changes):
    return lambda reply: {**reply, "choices": [{**reply["choices"][0], **changes}]}


def edit_logprobs(value):
    def run(reply):
        content = [{**one, "logprob": value} for one in reply["choices"][0]["logprobs"]["content"]]
        return edit_choice(logprobs={"content": content})(reply)

    return run


def put_deep(reply):
    """A token id that is nested as deep as JSON is read."""
    text = json.dumps(edit_choice(token_ids=["HERE"], logprobs={"content": [{"token_id": 1, "logprob": -1}]})(reply))
    return make_response(200, text.replace('"HERE"', DEEP))


REPLIES = [
    (edit_logprobs(HUGE), "allowed: finite numbers up to 0"), (edit_logprobs([]), "allowed: finite numbers up to 0"),
    (edit_logprobs(None), "the log-prob None"), (put_deep, ""),
    (edit_choice(token_ids=[HUGE], logprobs={"content": [{"token_id": HUGE, "logprob": -1}]}), "the token '1000"),
    (edit_choice(finish_reason="\x1b]52;c;cm0=\x07"), "cut off"),
]  # fmt: skip


@each("change, says", REPLIES)
def test_one_wrong_reply_never_ends_the_run(model, qwen3, tokens, strips, change, says):
    count = 0

    def damage(reply, body):
        nonlocal count
        count += 1
        return reply if count == 1 else change(reply)  # the first one is the probe

    async def play(url):
        generator = VLLMGenerator(Served(url), tokens, LIMITS, **HASTE)
        tasks = strips.tasks[: MAX_FAILURES + 1]
        episodes = [one async for one in play_many(strips, tasks, generator, concurrency=4, timeout=60.0)]
        await generator.close()
        return episodes

    with PlainVLLM(model, qwen3.processor, change=damage).serve() as server:
        episodes = asyncio.run(play(server.url))
    assert len(episodes) > MAX_FAILURES
    assert {episode.end_reason for episode in episodes} == {"error"}
    for episode in episodes:
        assert says in episode.info["error"]
        assert episode.info["error"].isprintable()
        assert not any(episode.tokens.mask if episode.tokens else ())


@each("change", [
    edit_logprobs("0"), edit_logprobs([0]), edit_logprobs(HUGE), edit_choice(logprobs=None), put_deep,
    edit_choice(token_ids=[], logprobs={"content": []}), lambda reply: {**reply, "prompt_token_ids": None},
])  # fmt: skip
def test_a_wrong_first_reply_refuses_the_server_in_words(model, qwen3, tokens, change):
    with PlainVLLM(model, qwen3.processor, change=lambda reply, body: change(reply)).serve() as server:
        generator = VLLMGenerator(Served(server.url), tokens, LIMITS, **HASTE)
        with pytest.raises(EndpointError) as caught:
            asyncio.run(generator.check())
    assert server.url.removesuffix("/v1") in str(caught.value) or "server" in str(caught.value)
    assert len(str(caught.value)) < 1000


def ask_for_models(tokens, listed, model=None):
    """What is said of a server with this list."""
    with serve(lambda body, number: {}, by_path={"/v1/models": lambda body: listed}) as server:
        generator = VLLMGenerator(Served(server.url, model), tokens, LIMITS, **HASTE)
        with pytest.raises(EndpointError) as caught:
            asyncio.run(generator.check())
    return str(caught.value)


@each("listed", [
    {"data": {"0": {"id": "m"}}}, {"data": [{"id": ["m"]}]}, ["m"], make_response(200, DEEP), make_response(200, ""),
    make_response(200, '{"data": ' + "9" * 5000 + "}"),
])  # fmt: skip
def test_a_list_of_models_that_is_none_refuses_the_server_in_words(tokens, listed):
    assert "list of models" in ask_for_models(tokens, listed)


def test_names_of_models_do_not_act_on_the_terminal(tokens):
    for served in ("\x1b[2J\x1b]52;c;cm0=\x07", "x" * 10_000, "\u202egnp", "\ud800"):
        said = ask_for_models(tokens, {"data": [{"id": served}] * 50}, "m")
        assert "is not served" in said
        assert re.fullmatch(r"[ -~]+", said)
        assert len(said) < 1000
