"""An endpoint as a generator: exactly what is sent, what comes back, and what an endpoint cannot do to an episode."""

import asyncio
import json
import time

import numpy as np
import pytest

import viewbox
from tests.support import servers
from tests.support.servers import make_completion, make_response, make_script, serve
from tests.support.tables import each
from viewbox.configs.sections import SamplingParams
from viewbox.core.messages import render_tools
from viewbox.engines.generator import Conversation
from viewbox.engines.openai.client import EndpointError, OpenAIGenerator, parse_completion
from viewbox.envs.digits import Digits, viewer
from viewbox.errors import ConfigError
from viewbox.records import Message
from viewbox.rollouts.play import play_many
from viewbox.utils.frozen import thaw

ENV = Digits(max_turns=3, reply_format="native")
TASK = ENV.tasks[0]
RIGHT = viewer.write_answer(ENV, TASK)
ZOOM = json.dumps({"factor": 2})
BROKEN_CALL = viewer.write_zoom(ENV, 2, 0.5, 0.5)
NOWHERE = "http://127.0.0.1:1"


def refuse(status, message, **more):
    return make_response(status, {"error": {"message": message, **more}})


@pytest.fixture
def ask(play):
    """Plays the first task against a server that gives these answers, the last one for ever: (episodes, server)."""

    def run(*answers, by=None, tasks=1, concurrency=4, timeout=20.0, env=ENV, **settings):
        with serve(by or make_script(*answers)) as server:
            generator = OpenAIGenerator(server.url, "m", **{"first_pause": 0.01} | settings)
            return play(env, [TASK] * tasks, generator, concurrency=concurrency, timeout=timeout), server

    return run


@pytest.fixture
def ask_one(ask):
    """As `ask`, of one episode: (episode, server)."""

    def run(*answers, **settings):
        (episode,), server = ask(*answers, **settings)
        return episode, server

    return run


# ---------------------------------------------------------------------- what is sent
def test_the_first_request_is_the_prompt_and_what_is_given_and_the_rest_is_left_to_the_endpoint(ask_one):
    given = {"max_tokens": 77, "sampling": SamplingParams(temperature=0.5), "extra": {"top_p": 0.9}}
    episode, server = ask_one(make_completion(RIGHT), **given)
    (asked,) = server.requests
    picture = ENV.reset(TASK, seed=0).messages[1].images[0].to_data_url()
    shown = [
        {"type": "image_url", "image_url": {"url": picture}}, {"type": "text", "text": "Which digit is it, and where?"},
    ]  # fmt: skip
    prompt = [{"role": "system", "content": ENV.build_system_prompt(TASK)}, {"role": "user", "content": shown}]
    assert asked["path"] == "/v1/chat/completions"
    assert asked["body"] == {
        "model": "m", "messages": prompt, "temperature": 0.5, "max_tokens": 77, "top_p": 0.9,
        "seed": asked["body"]["seed"], "tools": [thaw(schema) for schema in ENV.tool_schemas],
    }  # fmt: skip
    assert episode.end_reason == "answered"
    assert episode.scores.components["label"] == 1.0
    assert (episode.run_config.model_name, episode.run_config.temperature) == ("m", 0.5)
    given = {"sampling": SamplingParams(top_k=5, stop=["x"]), "extra": {"top_k": 6, "seed": None}}
    _, server = ask_one(make_completion(RIGHT), **given)
    assert server.bodies[0].keys() == {"model", "messages", "tools", "top_k", "stop"}
    assert (server.bodies[0]["top_k"], server.bodies[0]["stop"]) == (6, ["x"])  # `extra` stands over all
    assert "Authorization" not in server.requests[0]["headers"]  # without a key


def test_a_native_call_is_answered_under_its_id_with_the_image_in_the_tool_message(ask_one):
    answers = (make_completion(None, ("a1", "zoom", ZOOM), reasoning_content="hm"), make_completion(RIGHT))
    episode, server = ask_one(*answers, tool_images="tool")
    said, result = server.bodies[1]["messages"][2:]
    call = {"id": "a1", "type": "function", "function": {"name": "zoom", "arguments": ZOOM}}
    assert said == {"role": "assistant", "content": None, "tool_calls": [call]}  # the reasoning stays where it was
    picture = {"type": "image_url", "image_url": {"url": episode.turns[2].images[0].to_data_url()}}
    content = [{"type": "text", "text": episode.turns[2].content}, picture]
    assert result == {"role": "tool", "content": content, "tool_call_id": "a1", "name": "zoom"}
    assert episode.tools_used() == {"zoom"}
    assert episode.end_reason == "answered"


def test_where_tool_messages_carry_no_image_it_follows_in_a_user_message(ask_one):
    two = make_completion("", ("a1", "zoom", ZOOM), ("a2", "zoom", ZOOM))
    episode, server = ask_one(two, make_completion(RIGHT), tool_images="user")
    messages = server.bodies[1]["messages"][3:]
    assert [message["role"] for message in messages] == ["tool", "tool", "user"]
    assert [message["tool_call_id"] for message in messages[:2]] == ["a1", "a2"]
    assert all(message["content"].endswith("(The image follows in the next message.)") for message in messages[:2])
    kinds = [part.get("text") or part["image_url"]["url"] for part in messages[2]["content"]]
    pictures = [image.to_data_url() for image in episode.turns[2].images]
    assert kinds == ["The image of tool call a1:", pictures[0], "The image of tool call a2:", pictures[1]]


def test_the_last_turn_allows_no_call_and_leaves_the_prompt_as_it_was(ask_one):
    calls = (*(make_completion("", (f"a{n}", "zoom", ZOOM)) for n in range(2)), make_completion(RIGHT))
    episode, server = ask_one(*calls)
    assert [body.get("tool_choice") for body in server.bodies] == [None, None, "none"]
    assert server.bodies[0]["tools"] == server.bodies[1]["tools"] == server.bodies[2]["tools"]
    assert episode.end_reason == "answered"


def test_every_call_has_an_id_of_its_own_and_arguments_that_are_no_json_object_go_back_as_one(ask_one):
    nameless = make_completion("", (None, "zoom", ZOOM), (None, "zoom", ZOOM))
    _, server = ask_one(nameless, make_completion("", ("x", "zoom", ZOOM), ("x", "zoom", ZOOM)), make_completion(RIGHT))
    messages = server.bodies[2]["messages"]
    called = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len(set(called)) == 4
    assert called == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    _, server = ask_one(make_completion("", ("a1", "zoom", "closer, please")), make_completion(RIGHT))
    said, result = server.bodies[1]["messages"][2:4]
    assert "must be a JSON object" in result["content"]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == {"malformed": "closer, please"}


def test_a_call_in_the_text_is_answered_in_a_user_message_and_other_formats_are_taught_in_the_system_message(ask_one):
    for taught in ("native", "hermes", "fenced", "json"):
        env = Digits(max_turns=3, reply_format=taught)
        episode, server = ask_one(make_completion(BROKEN_CALL), make_completion(RIGHT), env=env)
        system = ENV.build_system_prompt(TASK) + ("" if taught == "native" else render_tools(ENV.tool_schemas, taught))
        assert [body["messages"][0]["content"] for body in server.bodies] == [system, system]
        assert ["tools" in body for body in server.bodies] == [taught == "native"] * 2
        said, result = server.bodies[1]["messages"][2:]
        assert said == {"role": "assistant", "content": BROKEN_CALL}
        assert result["role"] == "user"
        first, image, last = result["content"]
        assert first["text"] + last["text"] == f"<tool_response>\n{episode.turns[2].content}\n</tool_response>"
        assert image["image_url"]["url"] == episode.turns[2].images[0].to_data_url()
        assert episode.end_reason == "answered"
    own = Digits(max_turns=3, reply_format="json", templates={"tools_json": "Tools: {{ tools | length }}"})
    _, server = ask_one(make_completion(RIGHT), env=own)
    assert server.bodies[0]["messages"][0]["content"].endswith("\n\nTools: 1")


def test_the_listing_and_the_answers_are_what_qwens_template_makes_of_native_ones(qwen3):
    tools = [thaw(schema) for schema in ENV.tool_schemas]
    both = [Message("tool", (f"r{n}",), tool_call_id=f"call_{n}") for n in range(2)]
    talk = [Message("system", ("S",)), Message("user", ("Q",)), Message("assistant", (BROKEN_CALL,)), *both]
    conversation = Conversation(talk, tools, seed=0, index=0, reply_format="hermes")
    listed = OpenAIGenerator(NOWHERE, "m").build_request(conversation)["messages"]
    native = [{"role": m.role, "content": m.text} for m in talk]
    render = qwen3.tokens.template.render
    assert render(listed, prompt=True) == render(native, tools, prompt=True)


def test_requests_under_way_are_counted_until_they_fail_and_the_tokens_of_replies_where_usage_is_told(play):
    seen, told = [], []

    def answer(body, number):
        seen.append(generator.get_load())
        return make_completion(RIGHT, usage={"prompt_tokens": 9, "completion_tokens": 7})

    with serve(answer) as server:
        generator = OpenAIGenerator(server.url, "m")
        told.append(generator.get_load())
        play(ENV, [TASK] * 3, generator, concurrency=1)
        told.append(generator.get_load())
    assert [(load.busy, load.tokens) for load in seen] == [(1, None), (1, 7), (1, 14)]
    assert [(load.busy, load.slots, load.tokens) for load in told] == [(0, None, None), (0, None, 21)]
    with serve(make_script(make_response(400, "no"))) as server:
        generator = OpenAIGenerator(server.url, "m")
        play(ENV, [TASK], generator)
    assert (generator.get_load().busy, generator.get_load().tokens) == (0, None)


# ---------------------------------------------------------------------- what comes back
def test_text_in_parts_is_put_together_no_content_is_malformed_and_tokens_are_summed(ask_one):
    parts = [{"type": "text", "text": RIGHT[:5]}, {"type": "text", "text": RIGHT[5:]}, {"type": "image"}, 3]
    episode, _ = ask_one(make_completion(None), make_completion(parts))
    assert episode.end_reason == "answered"
    assert episode.info["malformed"] == 1
    used = {"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107}
    first = make_completion("", ("a", "zoom", ZOOM), usage=used)
    episode, _ = ask_one(first, make_completion(RIGHT, usage={"prompt_tokens": "many"}))
    assert episode.info["usage"] == {"prompt_tokens": 100, "completion_tokens": 7}


def parse(message, finish="stop"):
    return parse_completion(json.dumps({"choices": [{"message": message, "finish_reason": finish}]}).encode())


def read(message, finish="stop"):
    found = parse(message, finish)
    return found.text, found.reasoning, found.finish_reason


THOUGHT = [  # a message, its text, its reasoning
    ({"content": None, "reasoning_content": "It is six."}, "", "It is six."),
    ({"content": "6", "reasoning": "3 + 3", "reasoning_content": "3 + 3"}, "6", "3 + 3"),
    ({"content": "6", "reasoning": "3 + 3", "reasoning_details": [{"text": "3 +"}, {"text": " 3"}]}, "6", "3 + 3"),
    ({"content": "6", "reasoning": [{"type": "text", "text": "a"}, {"summary": [{"text": "b"}]}]}, "6", "a\nb"),
    ({"content": [{"type": "thinking", "thinking": [{"text": "a"}]}, {"type": "text", "text": "6"}]}, "6", "a"),
    ({"content": [{"type": "reasoning", "text": "a"}, "6"]}, "6", "a"),
    ({"content": "", "thinking": "a", "role": "assistant", "id": "x1", "annotations": [{"text": "b"}]}, "", "a"),
    ({"content": "", "output": "It is six."}, "", "It is six."),
    ({"content": "6", "reasoning": {"deep": [[[["a"]]]]}, "reasoning_content": 3}, "6", ""),
    ({"content": "6", "reasoning": "half \ud800"}, "6", "half \ufffd"),
]


@each("message, text, reasoning", THOUGHT)
def test_thinking_in_any_field_is_kept_apart_from_the_text(message, text, reasoning):
    assert read(message) == (text, reasoning, "stop")


ENDED = [  # a message, the reason that the server gives; text, reasoning and our reason
    ({"content": None, "refusal": "I cannot."}, "stop", ("I cannot.", "", "refusal")),
    ({"content": "", "refusal": "I cannot.", "reasoning": "no"}, "stop", ("I cannot.", "no", "refusal")),
    ({"content": [{"type": "refusal", "refusal": "I cannot."}]}, "stop", ("I cannot.", "", "refusal")),
    ({"content": "So.", "refusal": "I cannot."}, "stop", ("So.", "I cannot.", "refusal")),
    ({"content": "6", "refusal": ""}, "stop", ("6", "", "stop")),
    ({"content": None, "refusal": "no"}, "content_filter", ("no", "", "content_filter")),
    ({"content": "6"}, "content_filter: SAFETY", ("6", "", "content_filter")),
    ({"content": "6"}, "MAX_TOKENS", ("6", "", "length")), ({"content": "6"}, None, ("6", "", "stop")),
    ({"content": "6"}, ["stop"], ("6", "", "stop")), ({"content": "6"}, "eos", ("6", "", "stop")),
    ({"content": "6"}, "paused\nby\x1b[1m us", ("6", "", "paused by\\x1b[1m us")),
    ({"content": "6"}, "z" * 10**6, ("6", "", "z" * 63 + "…")),
]  # fmt: skip


@each("message, finish, expected", ENDED)
def test_a_refusal_is_the_text_and_why_a_reply_ended_is_a_word(message, finish, expected):
    assert read(message, finish) == expected


def test_a_choice_without_a_message_and_a_call_in_the_old_form_are_read_and_many_parts_take_bounded_work():
    with pytest.raises(ValueError, match="no message"):
        read(None, "SAFETY")
    nothing = parse_completion(b'{"choices": [{"finish_reason": "content_filter"}]}')
    assert (nothing.text, nothing.finish_reason) == ("", "content_filter")
    call = {"name": "zoom", "arguments": ZOOM}
    listed = [{"id": "a", "type": "function", "function": call}]
    for message in ({"function_call": call}, {"function_call": call, "tool_calls": listed}):  # the same in both is one
        found = parse(message)
        assert [(one.name, one.arguments) for one in found.calls] == [("zoom", ZOOM)]
        assert found.finish_reason == "tool_calls"
    many = {f"field_{n}": "a" for n in range(200_000)} | {"content": "6", "reasoning": [{"text": "b"}] * 200_000}
    began = time.monotonic()
    assert read(many)[0] == "6"
    assert time.monotonic() - began < 5


def test_an_empty_reply_goes_back_with_a_mark_because_servers_refuse_empty_messages(ask_one):
    for nothing in ("", " \n", None):
        episode, server = ask_one(make_completion(nothing), make_completion(RIGHT))
        assert server.bodies[1]["messages"][2] == {"role": "assistant", "content": "(no reply)"}
        assert episode.turns[1].content == (nothing or "")
    _, server = ask_one(make_completion(" \n", ("a1", "zoom", ZOOM)), make_completion(RIGHT))
    assert server.bodies[1]["messages"][2]["content"] is None


# ---------------------------------------------------------------------- what a server wants back
LONG = "call_ab12__thought__" + "QUJDREVG" * 40
REFUSED = "message 2 came back without its thought_signature"
DETAILS, SIGNATURE = [{"data": "abc"}], {"google": {"thought_signature": "Q"}}


def get_call(message):
    return message["tool_calls"][0]


REASONING = (lambda m: m.update(reasoning_content="hm"), lambda m: m.get("reasoning_content") == "hm", 4)
BESIDE = [  # what stands beside a reply, whether it came back, and the requests that a talk of three turns takes
    REASONING,
    (lambda m: m.update(reasoning_details=DETAILS), lambda m: m.get("reasoning_details") == DETAILS, 4),
    (lambda m: get_call(m).update(extra_content=SIGNATURE), lambda m: get_call(m).get("extra_content") == SIGNATURE, 4),
    (lambda m: get_call(m)["function"].update(signature="Q"),
     lambda m: get_call(m)["function"].get("signature") == "Q", 4),
    (lambda m: get_call(m).update(id=LONG + get_call(m)["id"]), lambda m: get_call(m)["id"].startswith(LONG), 3),
    (REASONING[0], lambda m: "reasoning_content" not in m, 3),  # a server that takes no reasoning
]  # fmt: skip


def want_back(beside, is_given_back, requests):
    """Return a server that calls a tool twice and then answers, and refuses a conversation unless all came back."""

    def answer(body, number):
        replies = [message for message in body["messages"] if message["role"] == "assistant"]
        if not all(map(is_given_back, replies)):
            return refuse(400, REFUSED)
        if len(replies) == 2:
            return make_completion('{"answer": "yes"}')
        completion = make_completion("", (f"c{len(replies)}", "zoom", '{"factor": 2}'))
        beside(completion["choices"][0]["message"])
        return completion

    return serve(answer)


def ask_vqa(server, **settings):
    model = viewbox.connect(server.url, model="m", **settings)
    return viewbox.ask("vqa", np.zeros((40, 40), np.uint8), "?", model)


@each("row", BESIDE)
def test_what_a_server_wants_back_is_sent_back_once_it_asks_for_it(row):
    with want_back(*row) as server:
        answer = ask_vqa(server)
    assert (str(answer), len(server.bodies)) == ("yes", row[2])
    assert "abc" not in answer.episode.to_json()


def test_sending_back_is_a_setting_and_what_was_switched_off_stays_off():
    with want_back(*REASONING) as server:
        model = viewbox.connect(server.url, model="m", response_format=False)
        viewbox.ask("vqa", np.zeros((40, 40), np.uint8), "?", model)
        viewbox.ask("vqa", (), "And?", model)
    assert not any("response_format" in body for body in server.bodies)
    with want_back(*REASONING) as server:
        assert (str(ask_vqa(server, send_back=True)), len(server.bodies)) == ("yes", 3)
        assert REFUSED in str(ask_vqa(server, send_back=False))


# ---------------------------------------------------------------------- what may pass
PASSING = [
    refuse(429, "later"), refuse(529, "later"), make_response(200, "upstream is busy"), refuse(200, "Overloaded"),
    refuse(200, "Service unavailable"), refuse(200, "overloaded", code=502), make_response(204),
    make_response(429, {"error": {"message": "Quota exceeded"}}, Retry_After="0"),
    refuse(429, "Resource has been exhausted (e.g. check quota).", code=429),
    refuse(429, "quota per minute exceeded, retry in 1 s", code="rate_limit"),
    refuse(429, "Rate limit (TPM). Try again in 1s. More: https://x/account/billing"),
    make_completion("", finish="error") | {"choices": [{"message": {"content": ""}, "error": {"code": 502}}]},
    make_completion("", *[("x", "zoom", "{}")] * 300), servers.cut_body, servers.hang_up,
]  # fmt: skip


@each("trouble", PASSING)
def test_what_may_pass_is_tried_again_and_the_episode_answers(ask_one, trouble):
    episode, server = ask_one(trouble, trouble, make_completion(RIGHT))
    assert episode.end_reason == "answered"
    assert episode.info["failed_attempts"] == 2
    assert len({body["seed"] for body in server.bodies}) == 3  # a reply that broke the server would break it again


def test_retry_after_is_waited_for_unless_it_says_nothing_or_is_longer_than_the_time_left(ask_one):
    began = time.monotonic()
    episode, _ = ask_one(make_response(429, Retry_After="1"), make_completion(RIGHT))
    assert episode.end_reason == "answered"
    assert time.monotonic() - began > 0.9
    episode, server = ask_one(make_response(429, Retry_After="3600"), make_completion(RIGHT), timeout=3.0)
    assert episode.end_reason == "answered"
    assert len(server.requests) == 2
    answers = [make_response(503, Retry_After=one) for one in ("soon", "1e999", "Thu, 01 Jan 1970 00:00:00 GMT")]
    assert ask_one(*answers, make_completion(RIGHT))[0].end_reason == "answered"


# ---------------------------------------------------------------------- what does not
LASTING = [
    (refuse(400, "too many images"), "HTTP 400: too many images"),
    (make_response(422, {"detail": "no seed"}), "HTTP 422: no seed"),
    (servers.flood_body, "the body of the reply is larger than 16777216 bytes"),
]


def test_what_does_not_pass_ends_the_episode_with_the_servers_words(ask_one):
    for answer, words in LASTING:
        episode, server = ask_one(answer)
        assert (episode.end_reason, episode.info["error"], len(server.requests)) == ("error", words, 1)
        assert not server.drained
    episode, server = ask_one(make_response(503, {"error": {"message": "no GPU\n left " + "x" * 999}}), attempts=3)
    assert episode.end_reason == "error"
    assert episode.info["error"].startswith("HTTP 503: no GPU left xxx")
    assert episode.info["error"].endswith("… (after 3 attempts)")
    assert len(episode.info["error"]) < 400
    assert len(server.requests) == 3


NEVER = [
    (refuse(401, "no such key"), "HTTP 401: no such key"), (make_response(403, {}), "HTTP 403"),
    (refuse(404, "The model `m` does not exist"), "'m': HTTP 404: The model `m` does not"),
    (make_response(307, Location="https://elsewhere.org/v1"), r"it points to https://elsewhere.org/v1"),
    (make_response(200, "<html>Please sign in"), "Please sign in.* is a sign-in needed"),
    (refuse(200, "no access to m"), "no access to m"), (make_response(200, {"detail": "Not Found"}), "Not Found"),
    (make_response(200, {"object": "error", "message": "no model m", "code": 404}), "no model m"),
    (refuse(402, "Insufficient Balance"), "Insufficient Balance"),
    (refuse(429, "Over.", code="insufficient_quota"), "Over.*no pause helps"),
    (refuse(400, "Your credit balance is too low"), "balance is too low"),
]  # fmt: skip


@each("answer, words", NEVER)
def test_an_endpoint_that_will_never_answer_ends_the_run_at_once(ask, answer, words):
    with pytest.raises(EndpointError, match=words):
        ask(answer, tasks=50, concurrency=2)


@each("status, concurrency", [(status, count) for status in (400, 413, 422) for count in (1, 8)])
def test_the_first_requests_refused_in_the_same_words_end_the_run(play, status, concurrency):
    refuse = lambda body, n: make_response(status, {"error": f"no model m (request req_{n}a{n * 77:x})"})  # noqa: E731
    with serve(refuse) as server, pytest.raises(EndpointError, match=r"no model m.*first 3 requests"):
        play(ENV, [TASK] * 50, OpenAIGenerator(server.url, "m"), concurrency=concurrency)
    assert len(server.requests) <= 2 + concurrency


def test_refusals_end_no_run_while_a_reply_may_still_come_or_words_differ_or_prompts_are_filtered(ask):
    def slow(body, number):
        if number:
            return make_response(413, "too large")
        time.sleep(1)  # a reply takes longer than a refusal
        return make_completion(RIGHT)

    ends = [episode.end_reason for episode in ask(by=slow, tasks=12)[0]]
    assert sorted(ends) == ["answered"] + ["error"] * 11
    words = ("image is gray", "image is blue", "too large")
    episodes, _ = ask(by=lambda body, n: make_response(400, words[n % 3]), tasks=9, concurrency=1)
    assert len(episodes) == 9
    episodes, server = ask(refuse(400, "The prompt was filtered", code="content_filter"), tasks=6)
    assert {episode.info["error"] for episode in episodes} == {"content_filter: HTTP 400: The prompt was filtered"}
    assert (len(server.requests), episodes[0].scores.total) == (6, None)


def test_an_endpoint_where_nobody_is_ends_the_run_and_a_timeout_names_what_it_was_waiting_for(play, ask_one):
    with serve(make_script(make_completion(""))) as server:
        url = server.url
    with pytest.raises(EndpointError, match=r"cannot be reached: no connection: .* \(after 4 attempts\)"):
        play(ENV, [TASK] * 3, OpenAIGenerator(url, "m", first_pause=0.01), timeout=20)
    episode, _ = ask_one(make_response(500, "boom"), timeout=0.5, attempts=10_000)
    assert (episode.end_reason, episode.info["last_failure"]) == ("timeout", "HTTP 500: boom")


def test_an_endpoint_that_dies_midway_costs_the_episodes_that_are_left():
    async def run():
        with serve(make_script(make_completion(RIGHT))) as server:
            generator = OpenAIGenerator(server.url, "m", first_pause=0.01)
            episodes = play_many(ENV, [TASK] * 12, generator, concurrency=1, timeout=20)
            found = [await anext(episodes) for _ in range(5)]
        return found + [episode async for episode in episodes]

    ends = [episode.end_reason for episode in asyncio.run(run())]
    assert (len(ends), ends[:5], ends[-5:]) == (12, ["answered"] * 5, ["error"] * 5)  # one or two were under way


# ---------------------------------------------------------------------- addresses and keys
PROXIES = [
    ("ALL_PROXY", "socks5://127.0.0.1:1080", r"ALL_PROXY.*httpx\[socks\]"),
    ("all_proxy", "socks5h://me:hunter2@127.0.0.1:1080", r"ALL_PROXY.*httpx\[socks\]"),
    ("HTTPS_PROXY", "htp://127.0.0.1:1", "HTTPS_PROXY = 'htp://127.0.0.1:1' cannot be used"),
    ("HTTP_PROXY", "http://h:99999", "HTTP_PROXY = 'http://h:99999' cannot be used .allowed: http://host:port"),
    ("HTTP_PROXY", "http://me:hunter2/x@h:80", "HTTP_PROXY"),
    ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE.*No such file"),
    ("NO_PROXY", "[::1", "NO_PROXY cannot be used"),
]


@each("name, value, words", PROXIES)
def test_a_proxy_or_certificate_that_cannot_be_used_is_named_but_not_for_this_machine(name, value, words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value)
        with pytest.raises(ConfigError, match=words) as caught:
            OpenAIGenerator("https://example.org/v1", "m")
        assert "hunter2" not in str(caught.value)
        OpenAIGenerator(f"{NOWHERE}/v1", "m")
        patch.setenv("NO_PROXY", "*")
        if "PROXY" in name.upper():
            OpenAIGenerator("https://example.org/v1", "m")


def test_a_key_is_sent_and_shown_nowhere_and_one_that_cannot_be_used_is_refused(ask_one):
    answer = lambda h: make_response(400, {"error": {"message": f"bad {h.headers['Authorization']}"}})(h)  # noqa: E731
    episode, server = ask_one(answer, api_key=" sk-secret\n")
    assert server.requests[0]["headers"]["Authorization"] == "Bearer sk-secret"
    assert episode.info["error"] == "HTTP 400: bad Bearer ***"
    for key in ("sk\nX-Evil: 1", "schlüssel", "a b"):
        with pytest.raises(ConfigError, match="API key") as caught:
            OpenAIGenerator(NOWHERE, "m", api_key=key)
        assert key not in str(caught.value)
