"""A server of tokens as a generator, with a plain model in this process as the server."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from viewbox.engines.generator import Conversation, ReplyError
from viewbox.engines.vllm import Settings
from viewbox.engines.vllm.generator import SampledTokens, TokenServerGenerator, check_sampled
from viewbox.errors import ModelError
from viewbox.rollouts.play import play_one

TOLERANCE = 1e-5  # fp32
LIMITS = Settings(max_reply_tokens=12, max_completion_tokens=200)


class PlainServer:
    """Samples token by token with whole forwards, as no engine of ours does."""

    def __init__(self, model, kit, tokens):
        self.model, self.processor, self.tokens, self.requests = model, kit.processor, tokens, []

    @torch.no_grad()
    async def ask(self, request):
        self.requests.append(request)
        draw, out, logprobs = torch.Generator().manual_seed(request.seed), [], []
        vision = {}
        if request.images:
            vision = self.processor.image_processor(
                images=[image.open().convert("RGB") for image in request.images], return_tensors="pt"
            )
        while len(out) < request.max_tokens and not (out and out[-1] in self.tokens.stop_ids):
            ids = torch.tensor([[*request.ids, *out]])
            types = {"mm_token_type_ids": (ids == self.tokens.image_id).int()} if vision else {}
            logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids), **vision, **types).logits[0, -1]
            logprob = logits.float().log_softmax(-1)
            allowed = logprob.exp()
            allowed[list(self.tokens.never_sampled)] = 0
            out.append(int(torch.multinomial(allowed, 1, generator=draw)))
            logprobs.append(logprob[out[-1]].item())
        return SampledTokens(out, logprobs)


@pytest.fixture(scope="module")
def served(qwen3):
    model = qwen3.model()
    tokens = qwen3.generator(model).tokens
    server = PlainServer(model, qwen3, tokens)
    return model, server, TokenServerGenerator(tokens, server.ask, LIMITS)


@pytest.fixture(scope="module")
def episodes(served, play_mixed):
    return play_mixed(served[2], tasks=2)


def test_recorded_ids_and_log_probs_are_those_of_a_plain_forward_of_the_episode(
    served, episodes, qwen3, measure_mismatch
):
    model, _, generator = served
    sampled = [episode for episode in episodes if any(episode.tokens.logprobs)]
    assert measure_mismatch(model, qwen3, sampled) <= TOLERANCE
    assert {len(episode.tokens.images) for episode in episodes} >= {1, 2}
    assert generator.get_load().busy == 0


def test_each_request_holds_all_tokens_so_far_and_a_seed_of_its_own(served, episodes):
    by_episode = {}
    for request in served[1].requests:
        by_episode.setdefault(id(request.conversation), []).append(request)
    several = [requests for requests in by_episode.values() if len(requests) > 1]
    assert several
    for requests in several:
        for earlier, later in pairwise(requests):
            assert later.ids[: len(earlier.ids)] == earlier.ids
            assert later.seed != earlier.seed


def test_a_run_can_be_repeated(served, strips):
    def run(seed):
        return asyncio.run(play_one(strips, strips.tasks[0], served[2], seed=seed)).tokens

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_an_episode_without_room_for_a_reply_ends_at_its_budget(served, strips):
    _, server, generator = served
    small = TokenServerGenerator(generator.tokens, server.ask, Settings(max_reply_tokens=4, max_completion_tokens=6))
    episode = asyncio.run(play_one(strips, strips.tasks[0], small))
    assert episode.end_reason == "max_tokens"
    assert len(episode.tokens.completion_ids) <= 6


def test_a_reply_that_a_stop_string_ends_is_whole(served, strips):
    tokens = served[2].tokens
    ids = tokens.encode_reply("stop here")[:-1]

    async def ask(request):
        return SampledTokens(ids, [-1.0] * len(ids))

    def reply(stop):
        generator = TokenServerGenerator(tokens, ask, Settings(max_reply_tokens=99, stop=stop))
        state = strips.reset(strips.tasks[0], seed=0)
        conversation = Conversation(state.messages, state.tool_schemas, seed=0, index=0)
        return asyncio.run(generator.reply(conversation))

    assert reply(["here"]).finish_reason == "stop"
    assert reply([]).finish_reason == "length"


def describe_refusal(served, **changes):
    tokens = served[2].tokens
    request = replace(served[1].requests[0], max_tokens=4)
    given = {"ids": [7, tokens.end_id], "logprobs": [-0.5, -0.1]} | changes
    with pytest.raises((ReplyError, ModelError)) as caught:
        check_sampled(SampledTokens(**given), request, tokens)
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"ids": []}, ReplyError, "no token"),
        ({"ids": [7, 10**9]}, ReplyError, "the token '1000000000'"),
        ({"ids": [7, -1]}, ReplyError, "the token '-1'"),
        ({"ids": [7, True]}, ReplyError, "the token 'True'"),
        ({"ids": [7, "8"]}, ReplyError, "the token '8'"),
        ({"ids": [7] * 5}, ReplyError, "at most 4"),
        ({"logprobs": None}, ModelError, "no log-probs"),
        ({"logprobs": [-1.0]}, ReplyError, "1 log-probs for 2"),
        ({"logprobs": [-1.0, float("nan")]}, ReplyError, "nan"),
        ({"logprobs": [-1.0, float("-inf")]}, ReplyError, "-inf"),
        ({"logprobs": [-1.0, 2.0]}, ReplyError, "2.0"),
        ({"logprobs": [-1.0, "x"]}, ReplyError, "x"),
    ],
)
def test_what_would_be_trained_on_silently_is_refused(served, episodes, changes, kind, says):
    found, message = describe_refusal(served, **changes)
    assert found is kind
    assert says in message


def test_tokens_after_an_end_and_sampled_placeholders_are_refused(served, episodes):
    tokens = served[2].tokens
    assert "after an end token" in describe_refusal(served, ids=[tokens.end_id, 7])[1]
    assert "placeholder" in describe_refusal(served, ids=[tokens.image_id, 7])[1]
