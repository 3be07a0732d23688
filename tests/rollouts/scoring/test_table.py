"""Intervals: as wide as independent tasks make them, paired for changes, the same for the same seed."""

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp

from tests.support.saved_episodes import made, written
from tests.support.tables import each
from viewbox.records import Scores
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.scoring.summary import summarize
from viewbox.rollouts.scoring.table import Table


def interval_of(values, tasks=None, before=None):
    """The interval of a column, or of its change from `before`; a task a row, or as `tasks` says."""
    samples, tasks = Table(), range(len(values)) if tasks is None else tasks
    for number, (task, value) in enumerate(zip(tasks, values, strict=True)):
        samples.add(str(task), {"new/": value} | ({} if before is None else {"old/": before[number]}))
    found = samples.compute_intervals(change=("old", "new"))
    return found["new/" if before is None else "change/"]


def test_an_interval_of_independent_episodes_is_that_of_the_normal_approximation():
    values = np.random.default_rng(0).normal(size=2000)
    found, right = interval_of(values), ttest_1samp(values, 0).confidence_interval()
    assert found.mean == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(right), abs=1e-3)


@each("right, tasks", [(1, 2), (10, 10), (20, 20), (0, 20), (19, 20), (1, 30), (50, 100), (400, 400)])
def test_the_interval_of_right_and_wrong_is_nearly_wilsons_and_never_narrower(right, tasks):
    found = interval_of([1.0] * right + [0.0] * (tasks - right))
    wilson = binomtest(right, tasks).proportion_ci(method="wilson")  # of the normal distribution: narrow for few
    assert found.low <= wilson.low + 1e-9 < wilson.high - 1e-9 <= found.high
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=1 / tasks)


@each("values, before", [([0.5] * 30, None), ([1.0] * 3, None), ([1.0] * 30, [1.0] * 30), ([0.75] * 30, [0.5] * 30)])
def test_no_interval_has_width_0(values, before):
    found = interval_of(values, before=before)
    assert found.low < found.mean <= found.high
    assert found.high - found.low > 0.01


def test_values_beyond_1_that_are_all_equal_say_nothing_of_their_spread():
    assert (interval_of([3.0] * 30).low, interval_of([1.0]).low) == (None, None)


def test_a_figure_that_is_no_mean_has_no_width_0_either():
    episodes = [made(n) for n in range(20)]
    found = summarize(episodes, {"own": lambda pairs: {"f1": 1.0, "part": 0.5, "mm": 7.0}}, resamples=200)
    ends = {name: found[f"metrics/own/{name}"] for name in ("f1", "part", "mm")}
    assert ends["f1"].low < 0.9 < ends["f1"].high
    assert ends["part"].low < 0.5 < ends["part"].high
    assert ends["mm"].low is None


@each("old, new, tasks", [(None, 0.95, 10), (None, 0.98, 20), (None, 0.8, 10), (0.95, 0.95, 10), (0.98, 0.9, 20)])
def test_at_least_92_of_100_intervals_hold_the_true_mean_at_the_ends_and_of_few_tasks(old, new, tasks):
    rng, inside = np.random.default_rng(0), 0
    for _ in range(400):
        before = None if old is None else rng.binomial(1, old, tasks).astype(float)
        found = interval_of(rng.binomial(1, new, tasks).astype(float), before=before)
        inside += found.low <= new - (old or 0.0) <= found.high
    assert inside / 400 >= 0.92


def test_the_interval_holds_the_true_mean_about_95_times_in_100():
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(300):
        found = interval_of(rng.uniform(size=80))
        inside += found.low <= 0.5 <= found.high
    assert 0.90 <= inside / 300 <= 0.985


def test_a_change_is_paired(tmp_path):
    rng = np.random.default_rng(3)
    folder = written(tmp_path, *(made(n, scores=Scores(float(rng.uniform(0, 0.9)))) for n in range(80)))
    (tmp_path / "more.py").write_text("def more(episode):\n    return episode.scores.total + 0.1\n")
    total = score_run(folder, reward=f"{tmp_path}/more.py:more").total
    assert total.change.mean == pytest.approx(0.1)
    assert total.change.high - total.change.low < 0.06
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
