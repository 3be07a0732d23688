"""A policy is not paid for making its judge fail: an answer that does costs its own score, and no other."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

from tests.support import servers
from tests.support.servers import make_completion, make_response, serve
from tests.support.tables import each
from viewbox.rewards import CombinedReward, Component, ExactMatchReward
from viewbox.rollouts.judge import client
from viewbox.rollouts.judge.reward import JudgeReward, JudgeUnreachableError

GOLD = {"label": "seven", "report": "a nodule in the left lung"}
HONEST = "a cyst in the right lung"
HALF = make_completion('{"score": 0.5}')

UNREADABLE = {
    "prose": make_completion("The answer deserves full marks."),
    "essay": make_completion("Let me think step by step. " * 200),
    "two objects": make_completion('{"score": 0} {"score": 1}'),
    "above 1": make_completion('{"score": 7}'),
    "NaN": make_completion('{"score": NaN}'),
    "text": make_completion('{"score": "1.0"}'),
    "no score": make_completion('{"why": "good"}'),
    "empty": make_completion(""),
    "no choices": make_response(200, {"choices": []}),
    "no message": make_response(200, {"choices": [{"finish_reason": "content_filter"}]}),
    "null": make_response(200, {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}),
    "list": make_completion('[{"score": 1}]'),
    "unfinished thought": make_completion('<think>{"score": 1}'),
}
REFUSED = {status: make_response(status, "blocked by the content filter") for status in (400, 403, 406, 413, 422, 451)}
HIDDEN = {status: make_response(status, "not here") for status in (302, 404, 405)}  # refusals of odd firewalls


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(client, "OpenAIGenerator", partial(client.OpenAIGenerator, first_pause=0.01))


def reward_at(url, needs=None):
    judge = JudgeReward("report", endpoint=url, model="m", attempts=2)
    part = Component(judge, 0.5, needs=needs or {})
    return CombinedReward({"label": (ExactMatchReward("label"), 0.5), "judge": part}), judge


def answer_if(word, response):
    """The judge gives 0.5, and `response` to a request that holds `word`."""
    return lambda body, number: response if word in body["messages"][1]["content"] else HALF


@each("needs", [None, {"label": 1.0}])
@each("failure", [*UNREADABLE, *REFUSED, *HIDDEN])
def test_an_answer_that_makes_the_judge_fail_gains_nothing(failure, needs):
    response = {**UNREADABLE, **REFUSED, **HIDDEN}[failure]
    with serve(answer_if("FAIL", response)) as server:
        reward, judge = reward_at(server.url, needs)
        honest = [reward({"label": "seven", "report": f"{HONEST} {number}"}, GOLD) for number in range(2)]
        failed = reward({"label": "seven", "report": "FAIL"}, GOLD)
        after = reward({"label": "seven", "report": HONEST}, GOLD)
    assert honest == [0.75, 0.75]
    assert failed == 0.5  # the label alone, with the weight of all
    assert after == 0.75  # the judge does not rest
    counts = judge.take_counts()
    assert counts["judge/unreadable"] + counts["judge/refused"] == 1
    assert counts["judge/unreachable"] == 0


@each("status", list(REFUSED))
def test_a_refusal_before_the_first_reply_costs_only_itself(status):
    with serve(answer_if("FAIL", REFUSED[status])) as server:
        reward, judge = reward_at(server.url)
        scores = [reward({"label": "seven", "report": text}, GOLD) for text in ("FAIL", HONEST, "FAIL twice")]
    assert scores == [0.5, 0.75, 0.5]
    assert judge.take_counts()["judge/refused"] == 2


@each(
    "response",
    [
        *(make_response(status, "not now") for status in (401, 404, 405, 408, 429, 500, 502, 503)),
        servers.hang_up,
        servers.cut_body,
    ],
)
def test_a_judge_that_is_down_leaves_the_episode_without_a_score(response):
    with serve(lambda body, number: response) as server:
        reward, judge = reward_at(server.url)
        total, parts = reward.score({"label": "seven", "report": HONEST}, GOLD)
    assert total is None
    assert parts == {"label": 1.0, "judge": None}
    assert judge.take_counts()["judge/unreachable"] == 1


def test_a_refused_answer_is_explained():
    with serve(answer_if("FAIL", REFUSED[403])) as server:
        _, judge = reward_at(server.url)
        words = judge.explain({"report": "FAIL"}, GOLD)
    assert words.startswith("0.00: the judge refused the request: ")
    assert words.endswith("HTTP 403: blocked by the content filter")


# ---------------------------------------------------------------------- a judge that fails on one text
FAILURES = {
    **{status: make_response(status, "broken") for status in (500, 502, 503, 504, 529)},
    "hang up": servers.hang_up,
    "cut body": servers.cut_body,
    "not HTTP": lambda handler: handler.wfile.write(b"Segmentation fault\n") and servers.hang_up(handler),
}


def judge_one(judge, report):
    """The score of a report; None if the judge raises that it cannot be reached."""
    try:
        return judge({"report": report}, GOLD)
    except JudgeUnreachableError:
        return None


def judge_beside_others(judge, report, others):
    """The score of a report, while the judge is asked about others again and again."""
    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(judge_one, judge, report)
        beside = []
        while not failing.done() and len(beside) < 1000:
            beside.append(judge({"report": f"{others} {len(beside)}"}, GOLD))
    return failing.result(), beside


def fail_slowly(word, failure):
    """The judge fails on a request that holds `word`; each failure takes long enough for a reply to another."""

    def send(handler):
        time.sleep(0.05)
        return failure(handler)

    return answer_if(word, send)


@each("failure", FAILURES.values())
def test_an_answer_that_breaks_the_judge_while_others_are_judged_scores_0(failure):
    with serve(fail_slowly("FAIL", failure)) as server:
        judge = JudgeReward("report", endpoint=server.url, model="m", attempts=3)
        score, beside = judge_beside_others(judge, "FAIL", HONEST)
    assert score == 0.0
    assert set(beside) == {0.5}
    assert judge.take_counts()["judge/refused"] == 1


@each("failure", FAILURES.values())
def test_a_judge_that_breaks_for_everybody_gives_no_score(failure):
    with serve(lambda body, number: failure if number else HALF) as server:
        judge = JudgeReward("report", endpoint=server.url, model="m", attempts=2)
        assert judge({"report": "the first"}, GOLD) == 0.5
        with ThreadPoolExecutor(4) as pool:
            scores = list(pool.map(lambda number: judge_one(judge, f"{HONEST} {number}"), range(4)))
    assert scores == [None] * 4


@each("status", [401, 408, 429])
def test_a_full_queue_is_never_about_the_answer(status):
    with serve(fail_slowly("FAIL", make_response(status, "later"))) as server:
        judge = JudgeReward("report", endpoint=server.url, model="m", attempts=3)
        assert judge({"report": HONEST}, GOLD) == 0.5
        score, _ = judge_beside_others(judge, "FAIL", HONEST)
    assert score is None


def flood(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", str(20 * 2**20))
    handler.end_headers()
    with suppress(OSError):
        for _ in range(320):
            handler.wfile.write(b"[" * 65536)


UNREAD = {"a body of 20 MB": flood, "compressed": make_response(200, "x", Content_Encoding="gzip")}


@each("response", UNREAD.values())
def test_a_reply_that_is_not_read_gains_nothing(response):
    with serve(answer_if("FAIL", response)) as server:
        reward, judge = reward_at(server.url)
        scores = [reward({"label": "seven", "report": text}, GOLD) for text in (HONEST, "FAIL", HONEST)]
    assert scores == [0.75, 0.5, 0.75]
    assert judge.take_counts()["judge/refused"] == 1
