"""A server of tokens as a generator; `test_vllm.py` compares one with a plain forward."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from viewbox.engines.generator import Conversation, ReplyError
from viewbox.engines.vllm import Settings
from viewbox.engines.vllm.generator import SampledTokens, TokenServerGenerator, check_sampled
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ModelError
from viewbox.rollouts.play import play_one

ENV = Digits(max_turns=3)
LOOK = viewer.write_zoom(ENV, 2, 0.4, 0.6)


class Server:
    """Looks once and then says the same again and again."""

    def __init__(self, tokens):
        self.tokens, self.requests = tokens, []

    async def ask(self, request):
        first = not any(one.conversation is request.conversation for one in self.requests)
        self.requests.append(request)
        ids = self.tokens.encode_reply(LOOK if first else "Hm.")[: request.max_tokens]
        return SampledTokens(ids, [-0.5] * len(ids))


@pytest.fixture
def server(qwen3):
    return Server(qwen3.tokens)


def play(server, **limits):
    generator = TokenServerGenerator(server.tokens, server.ask, Settings(**{"max_completion_tokens": 900} | limits))
    episode = asyncio.run(play_one(ENV, ENV.tasks[0], generator, seed=3))
    assert generator.get_load().busy == 0
    assert generator.get_load().tokens == sum(episode.tokens.mask)
    return episode


def test_each_request_holds_all_tokens_so_far_and_a_seed_of_its_own_and_no_room_ends_an_episode(server):
    episode = play(server)
    assert (len(server.requests), len(episode.tokens.images)) == (3, 2)
    for earlier, later in pairwise(server.requests):
        assert later.ids[: len(earlier.ids)] == earlier.ids
        assert later.seed != earlier.seed
    last, whole = server.requests[-1], (*episode.tokens.prompt_ids, *episode.tokens.completion_ids)
    assert (*last.ids, *server.tokens.encode_reply("Hm.")) == whole
    assert last.images == episode.tokens.images
    again = Server(server.tokens)
    play(again)
    assert [one.seed for one in server.requests] == [one.seed for one in again.requests]
    episode = play(server, max_reply_tokens=4, max_completion_tokens=6)
    assert episode.end_reason == "max_tokens"
    assert len(episode.tokens.completion_ids) <= 6


def test_a_reply_that_a_stop_string_ends_is_whole(qwen3):
    ids = qwen3.tokens.encode_reply("stop here")[:-1]

    async def ask(request):
        return SampledTokens(ids, [-1.0] * len(ids))

    def reply(stop):
        generator = TokenServerGenerator(qwen3.tokens, ask, Settings(max_reply_tokens=99, stop=stop))
        state = ENV.reset(ENV.tasks[0], seed=0)
        conversation = Conversation(state.messages, state.tool_schemas, seed=0, index=0)
        return asyncio.run(generator.reply(conversation))

    assert reply(["here"]).finish_reason == "stop"
    assert reply([]).finish_reason == "length"


SILENT = [  # what would be trained on without an error
    ({"ids": []}, ReplyError, "no token"), ({"ids": [7, 10**9]}, ReplyError, "the token '1000000000'"),
    *(({"ids": [7, one]}, ReplyError, f"the token '{one}'") for one in (-1, True, 7.5, "8")),
    ({"ids": [7] * 5}, ReplyError, "at most 4"), ({"ids": ["end", 7]}, ReplyError, "after an end token"),
    ({"ids": ["image", 7]}, ReplyError, "placeholder"), ({"logprobs": None}, ModelError, "no log-probs"),
    ({"logprobs": [-1.0]}, ReplyError, "1 log-probs for 2"), ({"logprobs": [-1.0, 2.0]}, ReplyError, "2.0"),
    *(({"logprobs": [-1.0, value]}, ReplyError, str(value)) for value in (float("nan"), float("-inf"), "x")),
]  # fmt: skip


def test_what_would_be_trained_on_silently_is_refused(server):
    play(server)
    named = {"end": server.tokens.end_id, "image": server.tokens.image_id}
    request = replace(server.requests[0], max_tokens=4)
    for changes, kind, says in SILENT:
        given = {"ids": [7, "end"], "logprobs": [-0.5, -0.1]} | changes
        given["ids"] = [named.get(one, one) for one in given["ids"]]
        with pytest.raises(kind, match=says):
            check_sampled(SampledTokens(**given), request, server.tokens)
