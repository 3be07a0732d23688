"""Hostile replies of a server of tokens, after a good first one: each costs its episode, never the run."""

import asyncio
import json
import re

import pytest

from tests.support.model_fixtures import *  # noqa: F403
from tests.support.servers import make_response, serve
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


REPLIES = {
    "a log-prob of 400 digits": (edit_logprobs(HUGE), "allowed: finite numbers up to 0"),
    "a log-prob that is a list": (edit_logprobs([]), "allowed: finite numbers up to 0"),
    "a log-prob that is missing": (edit_logprobs(None), "the log-prob None"),
    "a token id nested 900 deep": (put_deep, ""),
    "a token id of 400 digits": (
        edit_choice(token_ids=[HUGE], logprobs={"content": [{"token_id": HUGE, "logprob": -1}]}),
        "the token '1000",
    ),
    "weights that act on the terminal": (edit_choice(finish_reason="\x1b]52;c;cm0=\x07"), "cut off"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_one_wrong_reply_never_ends_the_run(model, qwen3, tokens, strips, name):
    change, says = REPLIES[name]
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


PROBES = {
    "a log-prob that is text": edit_logprobs("0"),
    "a log-prob that is a list": edit_logprobs([0]),
    "a log-prob of 400 digits": edit_logprobs(HUGE),
    "no log-probs": edit_choice(logprobs=None),
    "no token": edit_choice(token_ids=[], logprobs={"content": []}),
    "a prompt that is not named": lambda reply: {**reply, "prompt_token_ids": None},
    "a token id nested 900 deep": put_deep,
}


@pytest.mark.parametrize("name", PROBES)
def test_a_wrong_first_reply_refuses_the_server_in_words(model, qwen3, tokens, name):
    with PlainVLLM(model, qwen3.processor, change=lambda reply, body: PROBES[name](reply)).serve() as server:
        generator = VLLMGenerator(Served(server.url), tokens, LIMITS, **HASTE)
        with pytest.raises(EndpointError) as caught:
            asyncio.run(generator.check())
    assert server.url.removesuffix("/v1") in str(caught.value) or "server" in str(caught.value)
    assert len(str(caught.value)) < 1000


LISTS = {
    "an object": {"data": {"0": {"id": "m"}}},
    "names that are lists": {"data": [{"id": ["m"]}]},
    "a list of names": ["m"],
    "deep": make_response(200, DEEP),
    "nothing": make_response(200, ""),
    "a number of 5,000 digits": make_response(200, '{"data": ' + "9" * 5000 + "}"),
}


def ask_for_models(tokens, listed, model=None):
    """What is said of a server with this list."""
    with serve(lambda body, number: {}, by_path={"/v1/models": lambda body: listed}) as server:
        generator = VLLMGenerator(Served(server.url, model), tokens, LIMITS, **HASTE)
        with pytest.raises(EndpointError) as caught:
            asyncio.run(generator.check())
    return str(caught.value)


def test_a_list_of_models_that_is_none_refuses_the_server_in_words(tokens):
    for name, listed in LISTS.items():
        assert "list of models" in ask_for_models(tokens, listed), name


def test_names_of_models_do_not_act_on_the_terminal(tokens):
    for served in ("\x1b[2J\x1b]52;c;cm0=\x07", "x" * 10_000, "\u202egnp", "\ud800"):
        said = ask_for_models(tokens, {"data": [{"id": served}] * 50}, "m")
        assert "is not served" in said
        assert re.fullmatch(r"[ -~]+", said)
        assert len(said) < 1000
