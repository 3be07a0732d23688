"""Calibration: cases computed by hand."""

import numpy as np
import pytest

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards.metrics import CalibrationError


def pair(confidence, right):
    return {"label": "a", "confidence": confidence}, {"label": "a" if right else "b"}


def test_one_bin_is_the_distance_of_accuracy_and_mean_confidence():
    pairs = [pair(0.8, True), pair(0.6, False), pair(1.0, False)]
    assert CalibrationError(bins=1)(pairs)["ece"] == pytest.approx(abs(1 / 3 - 0.8))


def test_bins_are_weighted_by_their_size():
    pairs = [pair(0.95, True), pair(0.92, True), pair(0.93, False), pair(0.15, False)]
    # (0.9, 1]: accuracy 2/3, confidence 2.8/3, weight 3/4; (0.1, 0.2]: accuracy 0, confidence 0.15, weight 1/4
    assert CalibrationError()(pairs)["ece"] == pytest.approx(0.8 / 3 * 3 / 4 + 0.15 / 4)


def test_within_a_bin_errors_cancel_and_between_bins_they_do_not():
    inside, across = [pair(0.55, True), pair(0.59, False)], [pair(0.45, True), pair(0.55, False)]
    assert CalibrationError()(inside)["ece"] == pytest.approx(0.07)
    assert CalibrationError()(across)["ece"] == pytest.approx(0.55)


@each("edge", [0.1, 0.3, 0.7, 1.0])
def test_an_edge_belongs_to_the_bin_below(edge):
    low = edge - 0.05
    cancels = [pair(edge, True), pair(low, False)]  # in one bin
    assert CalibrationError()(cancels)["ece"] == pytest.approx(abs(1 - edge - low) / 2)


def test_confidence_zero_is_in_the_first_bin():
    assert CalibrationError()([pair(0.0, True), pair(0.1, False)])["ece"] == pytest.approx(0.45)


def test_perfect_confidence_has_no_error():
    found = CalibrationError()([pair(1.0, True), pair(0.0, False)])
    assert found == {"ece": 0.0, "brier": 0.0, "stated": 1.0}


def test_brier_is_the_mean_squared_distance():
    assert CalibrationError()([pair(0.9, True), pair(0.6, False)])["brier"] == pytest.approx((0.01 + 0.36) / 2)


@each("confidence", [None, "high", float("nan"), 1.5, -0.1, True, 85])
def test_what_is_no_confidence_is_left_out_and_counted(confidence):
    found = CalibrationError()([pair(confidence, False), pair(1.0, True)])
    assert found == {"ece": 0.0, "brier": 0.0, "stated": 0.5}


def test_no_answer_states_none_and_no_gold_asks_for_none():
    assert CalibrationError()([(None, {"label": "a"}), pair(1.0, True)])["stated"] == 0.5
    assert CalibrationError()([({"label": "a", "confidence": 0.1}, {}), pair(1.0, True)])["ece"] == 0.0
    assert all(map(np.isnan, CalibrationError()([]).values()))


def test_drawing_a_group_twice_is_having_its_pairs_twice():
    rng = np.random.default_rng(0)
    pairs = [pair(rng.random(), rng.random() < 0.5) for _ in range(40)]
    times, metric = rng.integers(0, 4, 40), CalibrationError()
    prepared = metric.prepare([metric.extract_stats(*one) for one in pairs], np.arange(40))
    repeated = metric([one for one, n in zip(pairs, times, strict=True) for _ in range(n)])
    assert prepared.compute_figures(times[None].astype(float))[0] == pytest.approx(list(repeated.values()))


@each("bins", [0, 2.5, True])
def test_bins_must_be_a_whole_number(bins):
    with pytest.raises(ConfigError, match="bins is"):
        CalibrationError(bins=bins)
