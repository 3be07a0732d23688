"""Scoring in several processes gives what scoring in one gives, and copies no process that it must not copy."""

import gc
import os
import threading

import pytest
from msgspec.structs import replace

from tests.support.saved_episodes import made, written
from tests.support.tables import each
from viewbox.errors import ConfigError, ViewboxError
from viewbox.records import Scores
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.rollouts.scoring import score_lines
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store import lines
from viewbox.rollouts.store.layout import LINES

REWARD = CombinedReward({"label": (ExactMatchReward(), 0.5), "again": (ExactMatchReward(tolerance=1.0), 0.5)})
processes_of = score_lines.count_processes


@pytest.fixture
def run(tmp_path):
    """Four hundred episodes of many kinds, and some lines that cannot be read."""
    kinds = [
        {},
        {"answer": None, "end_reason": "max_turns"},
        {"end_reason": "error", "info": {"error": "lost"}},
        {"scores": None},
        {"scores": Scores(0.5, {"other": 0.5})},
        {"environment": "nowhere"},
        {"answer": {"label": ["a"]}, "info": {"sample": 3, "malformed": 1}},
    ]
    folder = written(tmp_path / "run", *(made(n, **kinds[n % len(kinds)]) for n in range(400)))
    lines = (folder / LINES).read_bytes().splitlines(keepends=True)
    for number in (0, 150, 399):
        lines[number] = b"{bad\n"
    (folder / LINES).write_bytes(b"".join([*lines, b'{"task":']))
    return folder


def score(run, monkeypatch, processes, **options):
    monkeypatch.setattr(score_lines, "MIN_PART", 10_000)
    monkeypatch.setattr(lines, "_BLOCK", 3000)
    monkeypatch.setattr(score_lines, "count_processes", lambda job: processes)
    report = score_run(run, name=f"in{processes}", replace=True, **options).to_dict()
    return {key: value for key, value in report.items() if key not in ("name", "column")}


@each(
    "options",
    [
        {"reward": REWARD},
        {"reward": REWARD, "where": ["task.metadata.number>=37", "end_reason=answered"]},
        {"reward": REWARD, "group_by": "end_reason", "resamples": 50},
        {"resamples": 0},
    ],
)
def test_several_processes_find_what_one_finds(run, monkeypatch, tmp_path, options):
    rewards = [tmp_path / "one", tmp_path / "three"]
    one = score(run, monkeypatch, 1, task_rewards=rewards[0], **options)
    three = score(run, monkeypatch, 3, task_rewards=rewards[1], **options)
    assert one == three
    assert one["skipped"] >= 3
    columns = [(run / "scores" / f"in{number}.jsonl").read_bytes().splitlines()[1:] for number in (1, 3)]
    assert columns[0] == columns[1]
    assert len(columns[0]) == one["episodes"]
    assert rewards[0].read_bytes() == rewards[1].read_bytes()


def test_parts_are_scored_in_other_processes(run, monkeypatch):
    seen, parent = [], os.getpid()
    monkeypatch.setattr(
        score_lines.ScoredLines, "extend", lambda self, other, group_by: seen.append(other.tally.table.rows)
    )
    with pytest.raises(ViewboxError):  # nothing was added up
        score(run, monkeypatch, 2, reward=REWARD)
    assert len(seen) > 3
    assert sum(seen) == 397
    assert os.getpid() == parent


def test_too_many_groups_are_refused_in_every_process(run, monkeypatch):
    for processes in (1, 3):
        with pytest.raises(ConfigError, match="more than 100 values"):
            score(run, monkeypatch, processes, reward=REWARD, group_by="task.metadata.number")


def test_a_killed_process_is_an_error_in_words(run, monkeypatch):
    parent = os.getpid()

    def die(self, episode):
        if os.getpid() != parent and episode.task.metadata["number"] == 300:
            os._exit(9)
        return Scores(1.0)

    monkeypatch.setattr(CombinedReward, "score_episode", die)
    with pytest.raises(ViewboxError, match="was killed"):
        score(run, monkeypatch, 2, reward=REWARD)
    assert not (run / "scores" / "in2.jsonl").exists()


def test_only_built_in_code_is_copied(run, monkeypatch):
    found = []
    monkeypatch.setattr(score_lines, "count_processes", lambda job: found.append(processes_of(job)) or 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
    score_run(run, reward=REWARD)
    score_run(run, reward=lambda answer, reference: 1.0)
    score_run(run, reward=CombinedReward({"own": (lambda answer, reference: 1.0, 1.0)}))
    score_run(run, reward=REWARD, trust=True)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    score_run(run, reward=REWARD)
    stop.set()
    thread.join()
    assert found == [3 if threading.active_count() == 1 else 1, 1, 1, 1, 1]


def test_the_settings_of_garbage_collection_come_back(run):
    before = gc.get_threshold()
    score_run(run, reward=REWARD)
    assert gc.get_threshold() == before


def test_a_failure_of_a_metric_is_told_from_every_process(tmp_path, monkeypatch):
    odd = [made(n, answer={"label": "a"}) for n in range(200)]
    odd[150] = replace(odd[150], answer={"label": "a", "bbox": [[[1]]]})
    run = written(tmp_path / "odd", *odd)
    assert score(run, monkeypatch, 1, reward=REWARD) == score(run, monkeypatch, 3, reward=REWARD)
