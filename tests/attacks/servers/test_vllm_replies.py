"""Hostile replies of a server of tokens, which cost their episodes and never the run, and of one that takes weights:
the run waits or ends in words, and reads little of any of them.
"""

import asyncio
import gzip
import json
import re
import resource
from functools import partial

import pytest

from tests.support.model_fixtures import *  # noqa: F403
from tests.support.servers import flood_body, make_response, send_bytes, serve
from tests.support.tables import each
from tests.support.vllm_server import PlainVLLM, TrainedVLLM
from viewbox.engines.generator import GeneratorError
from viewbox.engines.openai.client import EndpointError
from viewbox.engines.vllm import Settings
from viewbox.engines.vllm.vllm import Served, VLLMGenerator
from viewbox.engines.vllm.weights import MAX_BODY, WeightSender
from viewbox.errors import ConfigError
from viewbox.rollouts.play import MAX_FAILURES, play_many

LIMITS = Settings(engine="vllm", max_reply_tokens=1, max_completion_tokens=50)
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


@each("change, says", [
    (edit_logprobs(HUGE), "allowed: finite numbers up to 0"), (edit_logprobs(None), "the log-prob None"),
    (put_deep, ""),
    (edit_choice(token_ids=[HUGE], logprobs={"content": [{"token_id": HUGE, "logprob": -1}]}), "the token '1000"),
    (edit_choice(finish_reason="\x1b]52;c;cm0=\x07"), "cut off"),
])  # fmt: skip
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
    edit_logprobs("0"), edit_logprobs(HUGE), edit_choice(logprobs=None), put_deep,
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
])  # fmt: skip
def test_a_list_of_models_that_is_none_refuses_the_server_in_words(tokens, listed):
    assert "list of models" in ask_for_models(tokens, listed)


@each("served", ["\x1b[2J\x1b]52;c;cm0=\x07", "x" * 10_000, "\u202egnp", "\ud800"])
def test_names_of_models_do_not_act_on_the_terminal(tokens, served):
    said = ask_for_models(tokens, {"data": [{"id": served}] * 50}, "m")
    assert "is not served" in said
    assert re.fullmatch(r"[ -~]{,999}", said)


# ---------------------------------------------------------------------- weights
VERSION, INFO = "/weight_info", "/server_info?config_format=json"
OSC52 = "\x1b]52;c;cm0=\x07\u202e"


def tell(backend):
    return {"vllm_config": {"weight_transfer_config": {"backend": backend}}}


BOMB = gzip.compress(bytes(400 * 2**20), 6)
WAITED = [  # the server may be well again later
    (VERSION, send_bytes(200, BOMB, Content_Encoding="gzip"), "after those of"),
    (VERSION, send_bytes(200, b"junk", Content_Encoding="gzip"), "after those of"),
    (VERSION, send_bytes(500, BOMB[:MAX_BODY], Content_Encoding="gzip"), "HTTP 500"),
    (VERSION, partial(flood_body, size=125 * 2**20, with_length=False), "does not end"),
    (VERSION, make_response(200, "[" * 100_000), "the weights None"), (VERSION, {"weight_version": OSC52}, "\\x1b]52"),
    (VERSION, {"weight_version": "x" * 900_000}, "the weights x"),
    (INFO, make_response(500, {"error": {"message": OSC52}}), "\\x1b]52"),
    (INFO, make_response(500, "x" * 900_000), "HTTP 500"),
]  # fmt: skip
REFUSED = [  # the server was started in another way, or is another one
    (VERSION, make_response(307, "", Location="http://127.0.0.1:1/"), "HTTP 307"),
    (VERSION, make_response(401, "Unauthorized"), "HTTP 401"), (INFO, tell(OSC52 + "x" * 9999), "\\x1b]52"),
    (INFO, tell(["file"]), "['file']"), (INFO, make_response(200, "[" * 5000 + "]" * 5000), "its backend is None"),
]  # fmt: skip


@pytest.fixture(scope="module")
def policy(qwen3):
    return qwen3.model(seed=1)


def send(qwen3, policy, folder, path, answer):
    async def check():
        return "policy"

    served = TrainedVLLM(qwen3.model(seed=0), qwen3.processor)
    with served.serve() as server:
        server.by_path[path] = lambda body: answer
        try:
            WeightSender(server.url, folder / "weights", check, wait=0.0, pause=0.01).send(policy)
        finally:
            assert not server.drained
            left = [*(folder / "weights").glob("*")] if (folder / "weights").exists() else []
            assert left == []


@each("path, answer, says", WAITED)
def test_a_reply_that_cannot_be_used_is_trouble_that_may_pass(qwen3, policy, tmp_path, caplog, path, answer, says):
    caplog.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GeneratorError, match="no weights could be sent") as caught:
        send(qwen3, policy, tmp_path, path, answer)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KB
    logged = [record.message for record in caplog.records if record.name.startswith("viewbox")]
    for said in (str(caught.value), *logged):
        assert (says in said, said.isprintable(), len(said) < 2000) == (True, True, True)


@each("path, answer, says", REFUSED)
def test_a_server_of_another_kind_is_refused_in_words(qwen3, policy, tmp_path, path, answer, says):
    with pytest.raises(ConfigError, match="docs/scaling") as caught:
        send(qwen3, policy, tmp_path, path, answer)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
