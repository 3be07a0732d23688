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
HONEST, HALF = "a cyst in the right lung", make_completion('{"score": 0.5}')


UNREADABLE = [
    *map(make_completion, ("The answer deserves full marks.", '{"score": 0} {"score": 1}', '{"score": 7}',
        '{"score": NaN}', '{"score": "1.0"}', "", '<think>{"score": 1}')),
    *(make_response(200, {"choices": choices}) for choices in ([],
        [{"message": {"content": None}, "finish_reason": "content_filter"}])),
]  # fmt: skip
REFUSED = [make_response(status, "blocked by the content filter") for status in (400, 403, 413, 451)]
HIDDEN = [make_response(status, "not here") for status in (302, 404)]  # refusals of odd firewalls
UNREAD = [partial(servers.flood_body, size=20 * 2**20), make_response(200, "x", Content_Encoding="gzip")]
BROKEN = [
    *(make_response(status, "broken") for status in (500, 529)), servers.hang_up, servers.cut_body,
    lambda handler: handler.wfile.write(b"Segmentation fault\n") and servers.hang_up(handler),
]  # fmt: skip


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(client, "OpenAIGenerator", partial(client.OpenAIGenerator, first_pause=0.01))


def judge_at(server, attempts=2):
    return JudgeReward("report", endpoint=server.url, model="m", attempts=attempts)


def score(judge, *reports, needs=None):
    part = Component(judge, 0.5, needs=needs or {})
    reward = CombinedReward({"label": (ExactMatchReward("label"), 0.5), "judge": part})
    return [reward({"label": "seven", "report": report}, GOLD) for report in reports]


def answer_if(word, response):
    """The judge gives 0.5, and `response` to a request that holds `word`."""
    return lambda body, number: response if word in body["messages"][1]["content"] else HALF


@each("failure, needs", [
    *((failure, None) for failure in (*UNREADABLE, *REFUSED, *HIDDEN, *UNREAD)), (REFUSED[0], {"label": 1.0}),
])  # fmt: skip
def test_an_answer_that_makes_the_judge_fail_gains_nothing(failure, needs):
    with serve(answer_if("FAIL", failure)) as server:
        judge = judge_at(server)
        scores = score(judge, f"{HONEST} 0", f"{HONEST} 1", "FAIL", HONEST, HONEST, needs=needs)
    assert scores == [0.75, 0.75, 0.5, 0.75, 0.75]
    counts = judge.take_counts()
    assert (counts["judge/unreadable"] + counts["judge/refused"], counts["judge/unreachable"]) == (1, 0)


@each("refusal", REFUSED)
def test_a_refusal_before_the_first_reply_costs_only_itself_and_is_explained(refusal):
    with serve(answer_if("FAIL", refusal)) as server:
        judge = judge_at(server)
        assert score(judge, "FAIL", HONEST, "FAIL twice") == [0.5, 0.75, 0.5]
        assert judge.take_counts()["judge/refused"] == 2
        words = judge.explain({"report": "FAIL"}, GOLD)
    assert words.startswith("0.00: the judge refused the request: ")
    assert words.endswith(": blocked by the content filter")


@each("response", [*(make_response(status, "not now") for status in (401, 404, 408, 429, 503)), servers.cut_body])
def test_a_judge_that_is_down_leaves_the_episode_without_a_score(response):
    with serve(lambda body, number: response) as server:
        judge = judge_at(server)
        assert score(judge, HONEST) == [None]
    assert judge.take_counts()["judge/unreachable"] == 1


# ---- a judge that fails on one text while others are judged
def judge_one(judge, report):
    """The score of a report; None if the judge raises that it cannot be reached."""
    with suppress(JudgeUnreachableError):
        return judge({"report": report}, GOLD)


def slow(failure):
    """Each failure takes long enough for a reply to another."""
    return lambda handler: time.sleep(0.05) or failure(handler)


@each("failure, score", [
    *((failure, 0.0) for failure in BROKEN), *((make_response(n, "later"), None) for n in (401, 408, 429)),
])  # fmt: skip
def test_an_answer_that_breaks_the_judge_beside_others_scores_0_and_a_full_queue_is_not_about_it(failure, score):
    with serve(answer_if("FAIL", slow(failure))) as server, ThreadPoolExecutor(1) as pool:
        judge, beside = judge_at(server, 3), []
        failing = pool.submit(judge_one, judge, "FAIL")
        while not failing.done() and len(beside) < 1000:
            beside.append(judge({"report": f"{HONEST} {len(beside)}"}, GOLD))
    assert failing.result() == score
    assert set(beside) == {0.5}
    assert judge.take_counts()["judge/refused"] == (score is not None)


@each("failure", BROKEN)
def test_a_judge_that_breaks_for_everybody_gives_no_score(failure):
    with serve(lambda body, number: failure if number else HALF) as server, ThreadPoolExecutor(4) as pool:
        judge = judge_at(server)
        assert judge({"report": "the first"}, GOLD) == 0.5
        assert list(pool.map(lambda n: judge_one(judge, f"{HONEST} {n}"), range(4))) == [None] * 4
