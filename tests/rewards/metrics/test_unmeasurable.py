"""Pairs that say nothing about the answer are left out, and each figure says how many pairs it counts."""

import pytest

from viewbox.records import Episode, Scores, Task
from viewbox.rewards import IoUReward
from viewbox.rewards.metrics import (
    Accuracy,
    AccuracyBy,
    Among,
    BoxRates,
    CalibrationError,
    MeanAveragePrecision,
    MeanScore,
)
from viewbox.rewards.metrics.detection import match_boxes
from viewbox.rewards.token_f1 import ShortAnswerReward
from viewbox.rollouts.scoring.summary import summarize

BOX, REVERSED = [0.1, 0.1, 0.4, 0.4], [0.4, 0.4, 0.1, 0.1]


def play(number, answer, reference, end="answered", scores=None):
    return Episode(Task(f"t{number}", reference=reference), answer=answer, end_reason=end, scores=scores)


@pytest.mark.parametrize(
    ("metric", "figure"),
    [(MeanAveragePrecision(), "map@0.5"), (BoxRates(), "recall@0.5"), (MeanScore(IoUReward(), "iou"), "iou")],
)
def test_a_gold_that_is_no_box_is_left_out(metric, figure, caplog):
    pairs = [({"bbox": BOX}, {"bbox": BOX}), ({"bbox": BOX}, {"bbox": REVERSED})]
    assert metric(pairs)[figure] == 1.0
    assert "left out" in caplog.text
    found = summarize([play(number, *pair) for number, pair in enumerate(pairs)], {"m": metric}, resamples=0)
    assert (found[f"metrics/m/{figure}"].mean, found[f"metrics/m/{figure}"].count) == (1.0, 1)
    assert "1 episodes are left out" in found.problems[0]


def test_every_figure_has_its_own_count():
    gold = [{"a": "x", "kind": kind} for kind in ("open", "open", "closed")]
    episodes = [play(n, {"a": "x", "confidence": 90 if n else "?"}, one) for n, one in enumerate(gold)]
    episodes.append(play(3, {"a": "x"}, {"kind": "open"}))  # no gold
    metrics = {
        "by": AccuracyBy(ShortAnswerReward("a"), "kind"),
        "sure": CalibrationError("a", scale=100),
        "open": Among(Accuracy("a"), "kind", ("open",)),
    }
    counts = summarize(episodes, metrics, resamples=0).get_counts()
    wanted = {"by/all": 3, "by/open": 2, "by/closed": 1, "sure/ece": 2, "sure/stated": 3, "open/accuracy": 2}
    assert {name: counts[f"metrics/{name}"] for name in wanted} == wanted


def test_metrics_take_the_episodes_that_the_mean_reward_takes():
    right, gold = Scores(1.0, {"a": 1.0}), {"label": "a"}
    episodes = [
        play(0, {"label": "a"}, gold, scores=right),
        play(1, None, gold, "max_turns", Scores(0.0, {"a": 0.0})),
        *(play(n, {"label": "b"}, gold, end) for n, end in enumerate(("error", "timeout", "cancelled"), 2)),
        play(5, {"label": "b"}, gold, scores=Scores(None, {"judge": None}, {"judge": "is down"})),
    ]
    found = summarize(episodes, {"label": Accuracy()}, resamples=0)
    assert (found["reward"].mean, found["reward"].count) == (0.5, 2)
    assert (found["metrics/label/accuracy"].mean, found["metrics/label/accuracy"].count) == (0.5, 2)


def test_a_threshold_is_reached_by_boxes_of_whole_pixels():
    gold = (0.1, 0.1, 0.4, 0.4)
    assert match_boxes([(0.1, 0.1, 0.4, 0.25)], [gold], [0.5]) == [1]  # 450 of 900 pixels
    assert IoUReward(threshold=0.5)({"bbox": [0.1, 0.1, 0.4, 0.25]}, {"bbox": gold}) == 1.0
    missed = 0
    for width in range(4, 100, 4):  # of 100 x 100 pixels, three quarters of each box
        for left in range(100 - width):
            box = [left / 100, 0.07, (left + width) / 100, 0.5]
            part = [left / 100, 0.07, (left + width * 3 // 4) / 100, 0.5]
            missed += not IoUReward(threshold=0.75)({"bbox": part}, {"bbox": box})
    assert missed == 0
