"""Intervals: as wide as independent tasks make them, paired for changes, the same for the same seed."""

import numpy as np
import pytest

from tests.support.saved_episodes import made, written
from viewbox.records import Scores
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.table import Table


def interval_of(values, tasks, resamples=2000, **options):
    samples = Table()
    for task, value in zip(tasks, values, strict=True):
        samples.add(str(task), {"x": value})
    return samples.compute_intervals(resamples, seed=0, **options)["x"]


def test_an_interval_of_independent_episodes_is_that_of_the_normal_approximation():
    values = np.random.default_rng(0).normal(size=2000)
    found = interval_of(values, range(2000))
    half = 1.96 * values.std() / np.sqrt(2000)
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)


def test_the_interval_holds_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(300):
        found = interval_of(rng.uniform(size=80), range(80), resamples=400)
        inside += found.low <= 0.5 <= found.high
    assert 0.90 <= inside / 300 <= 0.985


def test_a_change_is_paired(tmp_path):
    rng = np.random.default_rng(3)
    folder = written(tmp_path, *(made(n, scores=Scores(float(rng.uniform(0, 0.9)))) for n in range(80)))
    (tmp_path / "more.py").write_text("def more(episode):\n    return episode.scores.total + 0.1\n")
    total = score_run(folder, reward=f"{tmp_path}/more.py:more").total
    assert total.change.low == pytest.approx(0.1)
    assert total.change.high == pytest.approx(0.1)
    assert total.new.low < total.stored.high


def test_components_are_compared_over_the_episodes_that_have_both(tmp_path):
    parts = [{"a": 0.0, "old": 1.0}, {"a": None}, {"a": 0.5}, {}]
    folder = written(tmp_path, *(made(n, scores=Scores(0.0, part)) for n, part in enumerate(parts)))
    reward = CombinedReward({"a": (lambda answer, reference: 1.0, 1.0)})
    found = score_run(folder, reward=reward).components
    assert (found["a"].change.count, found["a"].change.mean) == (2, 0.75)
    assert (found["a"].new.count, found["a"].stored.count) == (4, 2)
    assert (found["old"].new, found["old"].change, found["old"].stored.count) == (None, None, 1)


def test_episodes_without_stored_scores_have_no_change(tmp_path):
    folder = written(tmp_path, *(made(n, scores=None) for n in range(4)))
    total = score_run(folder, reward=ExactMatchReward()).total
    assert (total.stored, total.change, total.new.mean) == (None, None, 0.5)
