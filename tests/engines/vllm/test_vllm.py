"""The client of a vLLM server: a server that works, and servers that are wrong in every way that vLLM hides."""

import asyncio
import json
from copy import deepcopy
from dataclasses import replace

import pytest

from tests.support import servers
from tests.support.servers import make_response
from tests.support.tables import each
from tests.support.vllm_server import PlainVLLM
from viewbox.configs.sections import SamplingParams
from viewbox.engines.generator import ReplyError
from viewbox.engines.openai.client import EndpointError
from viewbox.engines.vllm import Settings, wire
from viewbox.engines.vllm.generator import SampledTokens
from viewbox.engines.vllm.vllm import FLAGS, GENERATE, Served, VLLMGenerator, build_probe, clean_url
from viewbox.errors import ConfigError
from viewbox.rollouts.play import play_many

TOLERANCE = 1e-5  # fp32
LIMITS = {"engine": "vllm", "max_reply_tokens": 12, "max_completion_tokens": 200}


@pytest.fixture(scope="module")
def model(qwen3):
    return qwen3.model()


@pytest.fixture(scope="module")
def tokens(qwen3, model):
    return qwen3.generator(model).tokens


@pytest.fixture
def play_against(model, qwen3, tokens, strips):
    """Plays tasks against a server; returns the episodes and the server with its requests."""

    def run(change=None, tasks=2, attempts=2, timeout=60.0, answer=None, **settings):
        served = PlainVLLM(settings.pop("model", model), qwen3.processor, change=change, **settings)

        async def play(url):
            given = Settings(**LIMITS, **SamplingParams().model_dump())
            generator = VLLMGenerator(Served(url), tokens, given, attempts=attempts, first_pause=0.01)
            played = play_many(strips, strips.tasks[:tasks], generator, concurrency=4, timeout=timeout)
            episodes = [episode async for episode in played]
            await generator.close()
            return episodes

        with served.serve() as server:
            if answer:
                server.answer = answer
            return asyncio.run(play(server.url)), server

    return run


def list_sent(server):
    """The parameters of all requests for tokens, that of the probe first."""
    return [one["body"]["sampling_params"] for one in server.requests if one["path"] == GENERATE]


def get_sampled(episode):
    return [token for token, own in zip(episode.tokens.completion_ids, episode.tokens.mask, strict=True) if own]


# ---------------------------------------------------------------------- a server that works
def test_log_probs_are_right_and_requests_whole(play_against, measure_mismatch, model, qwen3, tokens):
    episodes, server = play_against(tasks=3)
    assert not [episode.end_reason for episode in episodes if episode.end_reason == "error"]
    assert any(any(episode.tokens.logprobs) for episode in episodes)
    assert measure_mismatch(model, qwen3, episodes) <= TOLERANCE
    assert [one["path"] for one in server.requests].count("/v1/models") == 1
    sent = [one["body"] for one in server.requests if one["path"] == GENERATE][1:]  # after the probe
    assert sent
    for body in sent:
        asked = body["sampling_params"]
        assert body["token_ids"].count(tokens.image_id) == len(body["content_parts"])
        assert asked["stop_token_ids"] == sorted(tokens.stop_ids)
        assert (asked["n"], asked["logprobs"], asked["temperature"], body["model"]) == (1, 0, 1.0, "policy")


def test_a_placeholder_is_drawn_again_and_then_banned(play_against, tokens, qwen3, measure_mismatch):
    eager = qwen3.model(bias=dict.fromkeys(tokens.never_sampled, 4.0))
    episodes, server = play_against(model=eager, tasks=3)
    assert "error" not in {episode.end_reason for episode in episodes}
    assert all(set(tokens.never_sampled).isdisjoint(get_sampled(episode)) for episode in episodes)
    sent, banned = list_sent(server), {str(token): wire.NEVER for token in tokens.never_sampled}
    assert {frozenset(asked.get("logit_bias", {})) for asked in sent} == {frozenset(), frozenset(banned)}
    assert len({asked["seed"] for asked in sent[1:]}) == len(sent) - 1
    some = qwen3.model(bias=dict.fromkeys(tokens.never_sampled, 1.2))
    episodes, server = play_against(model=some, tasks=3)
    sent = list_sent(server)
    assert len(sent) - 1 > sum(episode.tokens.mask.count(1) > 0 for episode in episodes)
    assert not any("logit_bias" in asked for asked in sent)
    assert measure_mismatch(some, qwen3, episodes) <= TOLERANCE


# ---------------------------------------------------------------------- what it was not started with
def test_what_a_server_was_not_started_with_is_found_out_before_the_first_reply(play_against, qwen3, model, tokens):
    with pytest.raises(EndpointError, match="not those of the distribution") as caught:
        play_against(processed=False)  # log-probs from before the temperature
    assert FLAGS in str(caught.value)
    for status in (403, 404):
        with pytest.raises(EndpointError, match="--enable-scale-out"):
            play_against(answer=lambda body, number, status=status: make_response(status, {"detail": "Not Found"}))
    other = deepcopy(qwen3.processor)
    size = other.image_processor.size
    other.image_processor.size = {"shortest_edge": size["shortest_edge"], "longest_edge": size["longest_edge"] // 4}
    for processor, name, words in (
        (other, None, "mm-processor-kwargs"), (qwen3.processor, "other", r"'other' is not served; served: \[.policy"),
    ):  # fmt: skip
        with PlainVLLM(model, processor).serve() as server, pytest.raises(EndpointError, match=words):
            asyncio.run(VLLMGenerator(Served(server.url, name), tokens, Settings(**LIMITS)).check())


# ---------------------------------------------------------------------- what it says
def after_probe(change):
    """The change, from the second reply on: the server is whole when it is first asked."""
    count = 0

    def run(reply, body):
        nonlocal count
        count += 1
        return reply if count == 1 else change(reply, body)

    return run


ONE = {"token_ids": [7], "finish_reason": "stop", "logprobs": {"content": [{"token_id": 7, "logprob": -1}]}}
GOOD = {"prompt_token_ids": [1, 9, 9, 2], "choices": [ONE]}


def change_choice(**changes):
    return {**GOOD, "choices": [ONE | changes]}


WRONG = [
    (GOOD | {"prompt_token_ids": [9, 9, 1, 2]}, "they differ first at token 0"),
    (GOOD | {"prompt_token_ids": [1, 9, 9, 2, 9]}, "5 tokens and ours 4; they differ first at token 4"),
    (GOOD | {"prompt_token_ids": []}, "has 0 tokens"), (GOOD | {"prompt_token_ids": None}, "prompt_token_ids"),
    (GOOD | {"prompt_token_ids": "1 2"}, "malformed"),
    (change_choice(logprobs={"content": [{"token_id": 3, "logprob": -1}]}), "of other tokens"),
    (change_choice(logprobs={"content": ["x"]}), "malformed"), (change_choice(finish_reason="abort"), "cut off"),
    (GOOD | {"choices": [ONE] * 2}, "malformed"), (GOOD | {"choices": None}, "malformed"), ([GOOD], "malformed"),
    ("<html>", "not JSON"), ("[" * 100_000, "not JSON"), ("", "not JSON"),
]  # fmt: skip


def test_a_reply_that_is_wrong_or_of_other_weights_is_refused_by_name():
    for form in ({"token_id": 7}, {"token": "token_id:7"}):  # of vLLM 0.32, and of 0.31
        whole = json.dumps(change_choice(logprobs={"content": [{**form, "logprob": -1}]})).encode()
        assert wire.parse_generated(whole, [1, 9, 9, 2]) == SampledTokens([7], [-1])
    for body, says in WRONG:
        sent = body if isinstance(body, str) else json.dumps(body)
        with pytest.raises((ReplyError, wire.UnusableReplyError), match=says):
            wire.parse_generated(sent.encode(), [1, 9, 9, 2])
    for spans in (None, [], "4", [{"version": "4"}, {"version": "3"}], [{"start": 0}], [{"version": 4}], [4]):
        with pytest.raises(wire.UnusableReplyError, match="weight"):
            wire.parse_generated(json.dumps(change_choice(weight_versions=spans)).encode(), [1, 9, 9, 2], "4")


TROUBLE = [  # a reply of the server, and what is said of it
    (lambda reply, body: make_response(500, {"error": {"message": "engine died"}}), "engine died"),
    (lambda reply, body: make_response(400, {"error": {"message": "too long"}}), "too long"),
    (lambda reply, body: servers.cut_body, "disconnected"),
    (lambda reply, body: make_response(307, "", Location="http://127.0.0.1:1"), "redirects"),
]


@each("change, says", TROUBLE)
def test_a_wrong_reply_costs_its_episode_by_name_and_never_the_run(play_against, change, says):
    episodes, _ = play_against(after_probe(change))
    assert [episode.end_reason for episode in episodes] == ["error"] * 2
    assert all(says in episode.info["error"] for episode in episodes), episodes[0].info
    assert all(not any(episode.tokens.mask) for episode in episodes if episode.tokens)


def test_a_short_trouble_is_tried_again_with_the_same_seed_and_gives_the_same_episode(play_against):
    seen = set()

    def fail_once(reply, body):
        seed = body["sampling_params"]["seed"]
        return reply if seed in seen or seen.add(seed) else make_response(503, {"error": "later"})

    (troubled, _), (plain, _) = play_against(after_probe(fail_once)), play_against()
    found = [{episode.task.id: episode.tokens for episode in episodes} for episodes in (troubled, plain)]
    assert found[0] == found[1]


def test_weights_that_are_not_the_expected_ones_are_refused(model, qwen3, tokens, strips):
    async def play(version):
        generator = VLLMGenerator(Served(server.url), tokens, Settings(**LIMITS), attempts=2)
        generator.version = version
        return [e async for e in play_many(strips, strips.tasks[:1], generator)]

    with PlainVLLM(model, qwen3.processor, version="3").serve() as server:
        (fresh,) = asyncio.run(play("3"))
        assert fresh.end_reason != "error"
        with pytest.raises(EndpointError, match="sampled by weights of 3; wanted: 4"):
            asyncio.run(play("4"))


def test_the_probe_has_the_smallest_and_the_largest_picture(tokens):
    probe = build_probe(tokens)
    counts = [tokens.count_image_tokens(image) for image in probe.images]
    assert counts[0] == 1 < counts[1]
    assert wire.fold_ids(probe.ids, probe.images, tokens).count(tokens.image_id) == 2
    assert replace(probe, max_tokens=1) == probe


# ---------------------------------------------------------------------- the command
def test_wrong_addresses_and_other_machines_for_restricted_images_are_refused(viewbox, tmp_path, monkeypatch):
    for url in ("http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"):
        assert clean_url(url) == "http://127.0.0.1:8000"
    with pytest.raises(ConfigError, match=r"rollout\.url = 'server:8000'"):
        clean_url("server:8000")
    monkeypatch.chdir(tmp_path)
    ward = "from viewbox.envs.digits import Digits\n\n\nclass Ward(Digits):\n    restricted = True\n"
    (tmp_path / "ward.py").write_text(ward)
    here, there = "http://127.0.0.1:1", "https://gpu.example.org"
    for given, words in (
        (("digits", "--model", "m", "--endpoint", f"{here}/v1", f"rollout.url={here}"), "give one of the two"),
        (("ward:Ward", "--model", "package:tiny_viewer", f"rollout.url={there}"),
         f"restricted to this machine, but rollout.url sends its images to {there}"),
    ):  # fmt: skip
        code, _, err = viewbox("rollout", "--env", *given, "rollout.engine=vllm")
        assert code != 0
        assert words in err
