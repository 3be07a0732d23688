"""The client of a vLLM server: a server that works, and servers that are wrong in every way that vLLM hides."""

import asyncio
import json
from dataclasses import replace

import pytest

from tests.support import servers
from tests.support.servers import make_response
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

    def run(change=None, tasks=2, attempts=2, timeout=60.0, sampling=None, answer=None, **settings):
        served = PlainVLLM(settings.pop("model", model), qwen3.processor, change=change, **settings)

        async def play(url):
            settings = Settings(**LIMITS, **(sampling or SamplingParams()).model_dump())
            generator = VLLMGenerator(Served(url), tokens, settings, attempts=attempts, first_pause=0.01)
            episodes = []
            async for episode in play_many(strips, strips.tasks[:tasks], generator, concurrency=4, timeout=timeout):
                episodes.append(episode)
            await generator.close()
            return episodes

        with served.serve() as server:
            if answer:
                server.answer = answer
            return asyncio.run(play(server.url)), server

    return run


def get_sampled(episode):
    return [token for token, own in zip(episode.tokens.completion_ids, episode.tokens.mask, strict=True) if own]


# ---------------------------------------------------------------------- a server that works
def test_ids_and_log_probs_are_those_of_a_plain_forward_of_the_episode_and_a_request_has_what_vllm_needs(
    play_against, measure_mismatch, model, qwen3, tokens
):
    episodes, server = play_against(tasks=3)
    assert not [episode.end_reason for episode in episodes if episode.end_reason == "error"]
    assert any(any(episode.tokens.logprobs) for episode in episodes)
    assert measure_mismatch(model, qwen3, episodes) <= TOLERANCE
    assert [one["path"] for one in server.requests].count("/v1/models") == 1
    sent = [one["body"] for one in server.requests if one["path"] == "/inference/v1/generate"][1:]  # after the probe
    assert sent
    for body in sent:
        assert body["token_ids"].count(tokens.image_id) == len(body["content_parts"])
        asked = body["sampling_params"]
        assert asked["stop_token_ids"] == sorted(tokens.stop_ids)
        assert (asked["n"], asked["logprobs"], asked["temperature"]) == (1, 0, 1.0)
        assert body["model"] == "policy"


def test_a_reply_with_a_placeholder_is_drawn_again_and_in_the_end_with_a_ban(
    play_against, tokens, qwen3, measure_mismatch
):
    eager = qwen3.model(bias=dict.fromkeys(tokens.never_sampled, 4.0))
    episodes, server = play_against(model=eager, tasks=3)
    assert "error" not in {episode.end_reason for episode in episodes}
    assert all(set(tokens.never_sampled).isdisjoint(get_sampled(episode)) for episode in episodes)
    sent = [one["body"]["sampling_params"] for one in server.requests if one["path"] == GENERATE]
    banned = {str(token): wire.NEVER for token in tokens.never_sampled}
    assert {frozenset(asked.get("logit_bias", {})) for asked in sent} == {frozenset(), frozenset(banned)}
    assert len({asked["seed"] for asked in sent[1:]}) == len(sent) - 1

    some = qwen3.model(bias=dict.fromkeys(tokens.never_sampled, 1.2))
    episodes, server = play_against(model=some, tasks=3)
    sent = [one["body"]["sampling_params"] for one in server.requests if one["path"] == GENERATE]
    assert len(sent) - 1 > sum(episode.tokens.mask.count(1) > 0 for episode in episodes)
    assert not any("logit_bias" in asked for asked in sent)
    assert measure_mismatch(some, qwen3, episodes) <= TOLERANCE


def test_an_address_that_is_none_and_two_servers_for_one_command_are_refused(viewbox):
    for url in ("http://127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"):
        assert clean_url(url) == "http://127.0.0.1:8000"
    with pytest.raises(ConfigError, match=r"rollout\.url = 'server:8000'"):
        clean_url("server:8000")
    given = ("rollout", "--env", "digits", "--model", "m", "--endpoint", "http://127.0.0.1:1/v1")
    code, _, err = viewbox(*given, "rollout.engine=vllm", "rollout.url=http://127.0.0.1:1")
    assert code != 0
    assert "give one of the two" in err


# ---------------------------------------------------------------------- what it was not started with
def test_what_a_server_was_not_started_with_is_found_out_before_the_first_reply(
    play_against, qwen3, model, tokens, strips
):
    with pytest.raises(EndpointError, match="not those of the distribution") as caught:
        play_against(processed=False)
    assert FLAGS in str(caught.value)
    from copy import deepcopy

    other = deepcopy(qwen3.processor)
    size = other.image_processor.size
    other.image_processor.size = {"shortest_edge": size["shortest_edge"], "longest_edge": size["longest_edge"] // 4}
    served = PlainVLLM(model, other)
    with served.serve() as server, pytest.raises(EndpointError, match="mm-processor-kwargs"):
        asyncio.run(VLLMGenerator(Served(server.url), tokens, Settings(**LIMITS)).check())
    with PlainVLLM(model, qwen3.processor).serve() as server:
        generator = VLLMGenerator(Served(server.url, "other"), tokens, Settings(**LIMITS))
        with pytest.raises(EndpointError, match=r"'other' is not served; served: \[\"policy\""):
            asyncio.run(generator.check())


@pytest.mark.parametrize("status", [403, 404])
def test_a_server_without_the_route_of_tokens_ends_the_run_and_names_the_flags(play_against, status):
    with pytest.raises(EndpointError) as caught:
        play_against(answer=lambda body, number: make_response(status, {"detail": "Not Found"}))
    assert "--enable-scale-out" in str(caught.value)


# ---------------------------------------------------------------------- what it says
def after_probe(change):
    """The change, from the second reply on: the server is whole when it is first asked."""
    count = 0

    def run(reply, body):
        nonlocal count
        count += 1
        return reply if count == 1 else change(reply, body)

    return run


GOOD = {
    "prompt_token_ids": [1, 9, 9, 2],
    "choices": [{"token_ids": [7], "finish_reason": "stop", "logprobs": {"content": [{"token_id": 7, "logprob": -1}]}}],
}  # fmt: skip


def change_choice(**changes):
    return {**GOOD, "choices": [GOOD["choices"][0] | changes]}


WRONG = [
    (GOOD | {"prompt_token_ids": [9, 9, 1, 2]}, "they differ first at token 0"), (GOOD | {"prompt_token_ids": [1, 9,
    9, 2, 9]}, "5 tokens and ours 4; they differ first at token 4"), (GOOD | {"prompt_token_ids": []}, "has 0 tokens"),
    (GOOD | {"prompt_token_ids": None}, "prompt_token_ids"), (GOOD | {"prompt_token_ids": "1 2"}, "malformed"),
    (change_choice(logprobs={"content": [{"token_id": 3, "logprob": -1}]}), "of other tokens"),
    (change_choice(logprobs={"content": ["x"]}), "malformed"), (change_choice(finish_reason="abort"), "cut off"),
    (GOOD | {"choices": GOOD["choices"] * 2}, "malformed"), (GOOD | {"choices": None}, "malformed"),
    ([GOOD], "malformed"), ("<html>", "not JSON"), ("[" * 100_000, "not JSON"), ("", "not JSON"),
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


TROUBLE = {
    "another prompt": (lambda reply, body: {**reply, "prompt_token_ids": [7]}, "differ first at token 0"),
    "cut off": (lambda reply, body: {**reply, "choices": [{**reply["choices"][0], "finish_reason": "x"}]}, "cut off"),
    "an error": (lambda reply, body: make_response(500, {"error": {"message": "engine died"}}), "engine died"),
    "too long a prompt": (lambda reply, body: make_response(400, {"error": {"message": "too long"}}), "too long"),
    "half a body": (lambda reply, body: servers.cut_body, "disconnected"),
    "another address": (lambda reply, body: make_response(307, "", Location="http://127.0.0.1:1"), "redirects"),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_a_wrong_reply_costs_its_episode_by_name_and_never_the_run(play_against, name):
    change, says = TROUBLE[name]
    episodes, _ = play_against(after_probe(change))
    assert [episode.end_reason for episode in episodes] == ["error"] * 2
    assert all(says in episode.info["error"] for episode in episodes), episodes[0].info
    assert all(not any(episode.tokens.mask) for episode in episodes if episode.tokens)


def test_a_short_trouble_is_tried_again_with_the_same_seed_and_gives_the_same_episode(play_against):
    def fail_once(reply, body):
        if body["sampling_params"]["seed"] in seen:
            return reply
        seen.add(body["sampling_params"]["seed"])
        return make_response(503, {"error": "later"})

    seen = set()
    troubled, _ = play_against(after_probe(fail_once))
    plain, _ = play_against()
    key = lambda episode: episode.task.id  # noqa: E731
    assert [e.tokens for e in sorted(troubled, key=key)] == [e.tokens for e in sorted(plain, key=key)]


def test_weights_that_are_not_the_expected_ones_are_refused(model, qwen3, tokens, strips):
    served = PlainVLLM(model, qwen3.processor, version="3")
    with served.serve() as server:

        async def play(version):
            generator = VLLMGenerator(Served(server.url), tokens, Settings(**LIMITS), attempts=2)
            generator.version = version
            return [e async for e in play_many(strips, strips.tasks[:1], generator)]

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
def test_images_of_a_restricted_environment_go_to_no_other_machine(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ward.py").write_text(
        "from viewbox.envs.digits import Digits\n\n\nclass Ward(Digits):\n    restricted = True\n"
    )
    given = ("rollout", "--env", "ward:Ward", "--model", "package:tiny_viewer", "rollout.engine=vllm")
    code, _, err = viewbox(*given, "rollout.url=https://gpu.example.org")
    assert code != 0
    assert "restricted to this machine, but rollout.url sends its images to https://gpu.example.org" in err
