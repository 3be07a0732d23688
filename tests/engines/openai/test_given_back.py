"""What a server sends beside its replies and wants back: reasoning, signatures, long ids."""

import numpy as np
import pytest

import viewbox
from tests.support.servers import make_completion, make_response, serve

LONG = "call_ab12__thought__" + "QUJDREVG" * 40
REFUSED = "message 2 came back without its thought_signature"


def answer_with(beside, is_given_back):
    """Return a server that calls a tool twice and then answers, and refuses a conversation unless all came back."""

    def answer(body, number):
        replies = [message for message in body["messages"] if message["role"] == "assistant"]
        if not all(map(is_given_back, replies)):
            return make_response(400, {"error": {"message": REFUSED}})
        if len(replies) == 2:
            return make_completion('{"answer": "yes"}')
        completion = make_completion("", (f"c{len(replies)}", "zoom", '{"factor": 2}'))
        beside(completion["choices"][0]["message"])
        return completion

    return answer


def get_call(message):
    return message["tool_calls"][0]


# what stands beside a reply, whether it came back, and the requests that a conversation of three turns takes
SERVERS = {
    "reasoning": (lambda m: m.update(reasoning_content="hm"), lambda m: m.get("reasoning_content") == "hm", 4),
    "details": (
        lambda m: m.update(reasoning_details=[{"data": "abc"}]),
        lambda m: m.get("reasoning_details") == [{"data": "abc"}],
        4,
    ),
    "signature of a call": (
        lambda m: get_call(m).update(extra_content={"google": {"thought_signature": "Q"}}),
        lambda m: get_call(m).get("extra_content") == {"google": {"thought_signature": "Q"}},
        4,
    ),
    "signature of a function": (
        lambda m: get_call(m)["function"].update(signature="Q"),
        lambda m: get_call(m)["function"].get("signature") == "Q",
        4,
    ),
    "a long id": (
        lambda m: get_call(m).update(id=LONG + get_call(m)["id"]),
        lambda m: get_call(m)["id"].startswith(LONG),
        3,
    ),
    "one that takes no reasoning": (
        lambda m: m.update(reasoning_content="hm"),
        lambda m: "reasoning_content" not in m,
        3,
    ),
}


def ask(server, **settings):
    return viewbox.ask("vqa", np.zeros((40, 40), np.uint8), "?", viewbox.connect(server.url, model="m", **settings))


@pytest.mark.parametrize("name", SERVERS)
def test_what_a_server_wants_back_is_sent_back_once_it_asks_for_it(name):
    beside, is_given_back, requests = SERVERS[name]
    with serve(answer_with(beside, is_given_back)) as server:
        answer = ask(server)
    assert (str(answer), len(server.bodies)) == ("yes", requests)
    assert "abc" not in answer.episode.to_json()


def test_what_was_switched_off_stays_off():
    beside, is_given_back, _ = SERVERS["reasoning"]
    with serve(answer_with(beside, is_given_back)) as server:
        model = viewbox.connect(server.url, model="m", response_format=False)
        viewbox.ask("vqa", np.zeros((40, 40), np.uint8), "?", model)
        viewbox.ask("vqa", (), "And?", model)
    assert not any("response_format" in body for body in server.bodies)


def test_it_is_a_setting():
    beside, is_given_back, _ = SERVERS["reasoning"]
    with serve(answer_with(beside, is_given_back)) as server:
        assert (str(ask(server, send_back=True)), len(server.bodies)) == ("yes", 3)
        assert REFUSED in str(ask(server, send_back=False))
