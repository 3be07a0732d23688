"""A real vLLM by tokens and by chat against our engine; and what vLLM does not refuse."""

import asyncio
import json
from types import SimpleNamespace

import httpx
import pytest

from viewbox.configs.sections import ModelSection, SamplingParams
from viewbox.engines.generator import ReplyError
from viewbox.engines.hf import loading
from viewbox.engines.hf.chat_tokens import describe_mismatch
from viewbox.engines.openai.client import EndpointError
from viewbox.engines.vllm import Settings, wire
from viewbox.engines.vllm.vllm import GENERATE, Served, VLLMGenerator
from viewbox.rollouts.job import build_job
from viewbox.rollouts.play import play_many

TASKS = 50
TOLERANCE = 5e-5
QUICKSTART = {"config": "quickstart", "held_out": True, "tasks": TASKS}


def play(job, tasks=TASKS):
    async def run():
        played = play_many(job.env, job.tasks[:tasks], job.generator, concurrency=16, timeout=300.0)
        episodes = [episode async for episode in played]
        await job.generator.close()
        return sorted(episodes, key=lambda episode: episode.info["index"])

    return asyncio.run(run())


def build(url=None, *overrides):
    served = (f"rollout.url={url}", "rollout.engine=vllm") if url else ()
    return build_job(model="package:tiny_viewer", overrides=(*served, *overrides), **QUICKSTART)


@pytest.fixture(scope="module")
def greedy():
    """The episodes of our engine, always the likeliest token."""
    return play(build(None, "rollout.top_k=1"))


def get_replies(episode):
    return [(turn.content, turn.tool_calls) for turn in episode.turns if turn.role == "assistant"]


# ---------------------------------------------------------------------- the same episodes
def test_by_tokens_a_server_plays_the_same_episodes_id_for_id(server, greedy):
    served = play(build(server.url, "rollout.top_k=1"))
    assert [e.tokens.completion_ids for e in served] == [e.tokens.completion_ids for e in greedy]
    assert [e.tokens.prompt_ids for e in served] == [e.tokens.prompt_ids for e in greedy]
    assert [e.scores for e in served] == [e.scores for e in greedy]
    assert sum(len(episode.tokens.images) > 1 for episode in served) >= 10


def test_by_chat_a_server_gives_the_same_answers_and_rewards(server, greedy):
    overrides = ("endpoint.tool_images=tool", "rollout.top_k=1")
    job = build_job(model="tiny", endpoint=f"{server.url}/v1", overrides=overrides, **QUICKSTART)
    served = play(job)
    assert [e.answer for e in served] == [e.answer for e in greedy]
    assert [e.scores for e in served] == [e.scores for e in greedy]
    assert [len(get_replies(e)) for e in served] == [len(get_replies(e)) for e in greedy]


def test_log_probs_of_samples_are_those_of_a_plain_forward(server, measure_mismatch):
    job = build(server.url)
    episodes = play(job, 24)
    assert {episode.end_reason for episode in episodes} >= {"answered"}
    model = loading.load_model(ModelSection(name="package:tiny_viewer", dtype="float32")).eval()
    tokens = job.generator.tokens
    assert all(describe_mismatch(episode.tokens, tokens) is None for episode in episodes)
    assert sum(sum(episode.tokens.mask) for episode in episodes) > 500
    kit = SimpleNamespace(tokens=tokens, processor=tokens.processor)
    assert measure_mismatch(model, kit, episodes) <= TOLERANCE


def test_a_seed_gives_the_same_episode_again(server):
    first, again = (play(build(server.url), 4) for _ in range(2))
    assert [e.tokens.completion_ids for e in first] == [e.tokens.completion_ids for e in again]


# ---------------------------------------------------------------------- what vLLM does not refuse
@pytest.fixture(scope="module")
def second_turn(server):
    """The request of a reply after a tool's picture: its body, and the ids of its prompt."""
    job, requests = build(server.url, "rollout.top_k=1"), []
    ask = job.generator.ask

    async def keep(request):
        requests.append(request)
        return await ask(request)

    job.generator.ask = keep
    play(job, 6)
    request = next(one for one in requests if len(one.images) == 2)
    return wire.build_request("tiny", request, job.generator.tokens, SamplingParams(top_k=1)), request, job.generator


def send(server, body):
    reply = httpx.post(server.url + GENERATE, json=body, timeout=120.0, trust_env=False)
    assert reply.status_code == 200, "vLLM refuses it by now"
    return reply.content


def test_the_request_as_we_send_it_is_read_as_we_mean_it(server, second_turn):
    body, request, _ = second_turn
    assert wire.parse_generated(send(server, body), request.ids).ids


@pytest.mark.parametrize("trap", ["ids expanded twice", "an image is missing", "a placeholder was sampled"])
def test_a_silent_trap_of_vllm_is_refused_by_name(server, second_turn, trap):
    body, request, generator = second_turn
    pad, damaged, ids = generator.tokens.image_id, json.loads(json.dumps(body)), list(request.ids)
    if trap == "ids expanded twice":
        damaged["token_ids"] = ids
    elif trap == "an image is missing":
        damaged["content_parts"].pop()
    else:  # between the two pictures: it takes the second one
        place = damaged["token_ids"].index(pad) + 2
        damaged["token_ids"].insert(place, pad)
        damaged["sampling_params"]["max_tokens"] = 1
    with pytest.raises(ReplyError, match=r"the server's prompt has .* tokens and ours"):
        wire.parse_generated(send(server, damaged), ids)


def test_ids_with_a_sampled_placeholder_are_never_sent(second_turn):
    _, request, generator = second_turn
    tokens = generator.tokens
    place = request.ids.index(tokens.image_id) - 1
    ids = (*request.ids[:place], tokens.image_id, *request.ids[place:])
    with pytest.raises(ReplyError, match="a placeholder was sampled"):
        wire.fold_ids(ids, request.images, tokens)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--logprobs-mode", "raw_logprobs"), "not those of the distribution it samples from"),
        (("--mm-processor-kwargs", '{"size": {"shortest_edge": 4096, "longest_edge": 65536}}'), "mm-processor-kwargs"),
    ],
    ids=["raw log-probs", "other pixel bounds"],
)
def test_a_server_that_was_started_wrongly_is_refused_before_the_first_reply(start_server, second_turn, flags, says):
    other = start_server(*flags)
    check = VLLMGenerator(Served(other.url), second_turn[2].tokens, Settings(engine="vllm")).check
    with pytest.raises(EndpointError, match=says):
        asyncio.run(check())
    other.kill()


def test_check_tokens_tells_whether_chat_prompts_are_ours(server):
    def check(tool_images):
        overrides = (f"endpoint.tool_images={tool_images}", "endpoint.tokenizer=package:tiny_viewer", "rollout.top_k=1")
        settings = {**QUICKSTART, "tasks": 12}
        at = {"model": "tiny", "endpoint": f"{server.url}/v1", "check_tokens": True}
        job = build_job(overrides=overrides, **at, **settings)
        play(job, 12)
        return job.generator.token_check

    as_trained = check("tool")
    assert as_trained.passed
    assert as_trained.counts["equal"] >= 30
    elsewhere = check("user")
    assert not elsewhere.passed
    assert elsewhere.counts["different"] >= 6
    *_, shown, cause = elsewhere.describe()
    assert "ours:" in shown
    assert "endpoint.tool_images=tool" in cause
