"""Episodes scored by a judge, saved or in play: many at once, in order, counted, and kept here where they must."""

import asyncio
import json
import threading

import pytest
import yaml

from tests.support.saved_episodes import written
from tests.support.servers import make_completion, make_response, make_script, serve
from viewbox import ConfigError, Episode, Task, load, play_many
from viewbox.envs.digits import Digits, viewer
from viewbox.rewards import build, to_combined
from viewbox.rollouts.scoring.metrics import compute_episode_metrics
from viewbox.rollouts.scoring.rescore import score_run

COUNT = 24


def by_its_number(body, number):
    """The judge: an answer `answer 7` scores 0.07."""
    said = body["messages"][1]["content"].rpartition("answer ")[2].split()[0]
    return make_completion(json.dumps({"score": int(said) / 100}))


def made(number, environment=""):
    task = Task(f"t{number}", reference={"report": "gold"})
    return Episode(task, (), {"report": f"answer {number}"}, environment=environment)


@pytest.fixture
def store(tmp_path):
    return written(tmp_path / "store", *map(made, range(COUNT)))


def judge_at(url, **settings):
    spec = {"type": "judge", "field": "report", "endpoint": url, "model": "m", "concurrency": 4, "attempts": 1}
    return build({**spec, **settings})


def totals(folder, name):
    return [episode.scores.total for episode in load(folder, scores=name)]


def test_every_episode_gets_its_own_score_in_its_own_line_and_scoring_again_asks_nothing(store, tmp_path):
    with serve(by_its_number) as server:
        report = score_run(store, reward=judge_at(server.url, cache=tmp_path / "kept"), name="first", resamples=0)
        again = judge_at(server.url, cache=tmp_path / "kept")
        second = score_run(store, reward=again, name="second", resamples=0)
        assert len(server.requests) == COUNT
    assert report.total.new.count == COUNT
    assert totals(store, "first") == totals(store, "second") == [number / 100 for number in range(COUNT)]
    assert second.counts["judge/cached"] == COUNT


def test_as_many_episodes_are_judged_at_once_as_the_judge_allows(store):
    together = threading.Barrier(4, timeout=20)  # a request is answered when four are there

    def waiting(handler):
        together.wait()
        make_response(200, make_completion('{"score": 1}'))(handler)

    with serve(make_script(waiting)) as server:
        report = score_run(store, reward=judge_at(server.url, concurrency=4), resamples=0)
    assert report.total.new.mean == 1.0
    assert report.counts["judge/unreachable"] == 0


def test_the_report_counts_what_the_judge_did_since_it_was_last_asked_for(store):
    def third_fails(body, number):
        return make_response(400, "no") if number % 3 == 0 else by_its_number(body, number)

    with serve(third_fails) as server:
        judge = judge_at(server.url)
        judge(made(0).answer, made(0).task.reference)  # of an earlier scoring
        report = score_run(store, reward=judge, resamples=0)
    counted = {"calls": 24.0, "cached": 0.0, "unreachable": 0.0, "unreadable": 0.0, "refused": 8.0}
    assert report.counts == {f"judge/{name}": count for name, count in counted.items()}
    with serve(by_its_number) as server:
        judge = to_combined(judge_at(server.url))
        judge.score(made(1).answer, made(1).task.reference)
        assert [compute_episode_metrics([made(1)], judge)["judge/calls"] for _ in range(2)] == [1.0, 0.0]


def test_the_command_judges_by_a_yaml_and_prints_the_counts(store, tmp_path, viewbox):
    with serve(by_its_number) as server:
        spec = {"type": "judge", "field": "report", "endpoint": server.url, "model": "m"}
        (tmp_path / "reward.yaml").write_text(yaml.safe_dump(spec))
        status, out, _ = viewbox("score", store, "--reward", tmp_path / "reward.yaml")
    said = "judge/calls: 24, judge/cached: 0, judge/unreachable: 0, judge/unreadable: 0, judge/refused: 0"
    assert (status, said in out) == (0, True)


def test_a_reward_that_raises_in_a_thread_is_reported_with_its_line(store):
    class Breaks:
        name, blocking = "breaks", True

        def __call__(self, answer, reference):
            if answer["report"] == "answer 5":
                raise ValueError("broken")
            return 1.0

    report = score_run(store, reward=Breaks(), resamples=0)
    assert (report.failures, report.first_failure.line, report.first_failure.task) == (1, 6, "t5")


SCANS = """
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError


class Scans(Digits):
    name = "scans"
    restricted = True

    def default_reward(self):
        raise ConfigError("it has none")
"""
REMOTE = "http://judge.invalid/v1"


def test_episodes_of_a_restricted_environment_or_of_none_that_is_found_stay_on_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scans.py").write_text(SCANS)
    folder = written(tmp_path / "run" / "episodes", made(0, environment="scans")).parent
    (folder / "config.yaml").write_text("env: {name: 'scans:Scans'}")
    with pytest.raises(ConfigError, match="its data is restricted to this machine"):
        score_run(folder, env="scans:Scans", reward=judge_at(REMOTE))
    with serve(by_its_number) as server:
        assert score_run(folder, reward=judge_at(server.url), resamples=0).counts["judge/calls"] == 1
    (folder / "config.yaml").write_text("env: {name: 'gone:Scans'}")
    with pytest.raises(ConfigError, match="its environment gone:Scans is none of viewbox"):
        score_run(folder, reward=judge_at(REMOTE))
    store = written(tmp_path / "store", made(0, environment="nobody_knows"))  # which decides without a config
    with pytest.raises(ConfigError, match="its environment nobody_knows is none of viewbox"):
        score_run(store, reward=judge_at(REMOTE))


class Waits:
    """Scores 1 once four episodes are scored at the same moment."""

    name, blocking = "waits", True

    def __init__(self):
        self.together = threading.Barrier(4, timeout=20)

    def __call__(self, answer, reference):
        self.together.wait()
        return 1.0


def test_a_blocking_reward_is_asked_beside_the_event_loop_also_in_single_plays():
    env = Digits(reward=Waits(), max_turns=1)
    answer = viewer.write_answer(env, env.tasks[0])

    async def played():
        return [episode async for episode in play_many(env, env.tasks[:4], lambda messages: answer, concurrency=4)]

    async def four():
        return await asyncio.gather(*(env.play_async(env.tasks[n], lambda messages: answer) for n in range(4)))

    for play in (played, four):
        assert [episode.scores.total for episode in asyncio.run(play())] == [1.0] * 4
