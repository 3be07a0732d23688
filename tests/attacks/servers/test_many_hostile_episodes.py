"""200 episodes against a server that does everything wrong: each ends with a result or a named reason, in its time."""

import asyncio
import random
import time

from tests.support import servers
from tests.support.servers import flood_body, hang_up, make_completion, make_response, run_server
from viewbox.engines.openai.client import OpenAIGenerator
from viewbox.envs.digits import Digits, viewer
from viewbox.rollouts.play import play_many

EPISODES, TIMEOUT, SLACK = 200, 6.0, 10.0  # seconds; the slack is that of a busy machine
ENV = Digits(num_tasks=EPISODES, max_turns=3)
RIGHT = viewer.write_answer(ENV, ENV.tasks[0])
LOOK = ENV.oracle(ENV.tasks[0])[0]
BUSY = make_response(429, {"error": {"message": "slow down"}}, Retry_After="1")


def redirect(code, place):
    def send(handler):
        make_response(code, {}, Location=place(handler))(handler)

    return send


def flood_100_mb(handler):
    flood_body(handler, 100 * 2**20)


def in_words(handler):
    handler.wfile.write(b"HTTP/1.1 two hundred\r\n\r\n")
    handler.close_connection = True


WRONG = {
    "a 500": make_response(500, "boom"),
    "a 502 of HTML": make_response(502, "<html>bad gateway</html>"),
    "a 503": make_response(503, "", Retry_After="0"),
    "a body that is cut": servers.cut_body,
    "no response": hang_up,
    "no status": in_words,
    "a slow drip": servers.drip_body,
    "no JSON": make_response(200, "{"),
    "no object": make_response(200, [1, 2]),
    "no choices": make_response(200, {"choices": []}),
    "choices of none": make_response(200, {"choices": [None]}),
    "100 MB": flood_100_mb,
    "a redirect elsewhere": redirect(307, lambda handler: "http://127.0.0.1:9/v1/chat/completions"),
    "a redirect to itself": redirect(308, lambda handler: f"http://127.0.0.1:{handler.server.server_port}/v1"),
    "a redirect to a file": redirect(302, lambda handler: "file:///etc/passwd"),
    "no text": make_completion(None),
    "arguments that are no JSON": make_completion("", ("a", "zoom", "]")),
}


class Storms:
    """Answers right most of the time. In storms of 40 requests, every answer is a 429."""

    def __init__(self):
        self.random, self.given = random.Random(7), []

    def __call__(self, body, number):
        if number % 200 >= 160:
            self.given.append("429")
            return BUSY
        if self.random.random() < 0.5:
            name = self.random.choice(list(WRONG))
            self.given.append(name)
            return WRONG[name]
        looked = any(message["role"] == "assistant" for message in body["messages"])
        return make_completion(RIGHT if looked else LOOK)


class Timed(OpenAIGenerator):
    """Knows how long each episode was in play."""

    def join(self, conversation):
        self.__dict__.setdefault("spans", {})[conversation.index] = [time.monotonic(), None]

    def leave(self, conversation):
        self.spans[conversation.index][1] = time.monotonic()


def test_every_episode_ends_with_a_result_or_a_named_reason_in_its_time():
    answer = Storms()

    async def gather(url):
        generator = Timed(url, "m", first_pause=0.05, attempts=6)
        playing = play_many(ENV, ENV.tasks, generator, concurrency=50, timeout=TIMEOUT)
        episodes = [episode async for episode in playing]
        await generator.close()
        return episodes, generator.spans

    with run_server(servers.Server(answer)) as server:
        episodes, spans = asyncio.run(gather(server.url))
    assert sorted(episode.info["index"] for episode in episodes) == list(range(EPISODES))
    assert set(answer.given) == {"429", *WRONG}
    ends = {episode.end_reason for episode in episodes}
    assert ends <= {"answered", "error", "timeout", "malformed", "max_turns"}
    assert {"answered", "error"} <= ends
    for episode in episodes:
        assert (episode.scores.total is None) == episode.is_fault
        assert not episode.is_fault or episode.explain_missing_score()
        if episode.end_reason == "error":
            assert episode.info["error"]
    assert max(end - began for began, end in spans.values()) < TIMEOUT + SLACK
    assert server.flooded < 100 * 2**20 * answer.given.count("100 MB")  # no such body was read to its end
