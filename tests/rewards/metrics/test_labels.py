"""Accuracy, macro-F1, top-k, calibration: scikit-learn's figures or those by hand, and which pairs each one counts."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from tests.support.scoring import refuse
from tests.support.tables import each
from viewbox.records import Episode, Scores, Task
from viewbox.rewards import IoUReward
from viewbox.rewards.metrics import (
    Accuracy,
    AccuracyBy,
    Among,
    BoxRates,
    CalibrationError,
    MacroF1,
    MeanAveragePrecision,
    MeanScore,
    TopK,
)
from viewbox.rewards.token_f1 import ShortAnswerReward
from viewbox.rollouts.scoring.summary import summarize

ACCURACY, F1, FIRST, FIVE, SURE = Accuracy(), MacroF1(), TopK("label", 1), TopK("label", 5), CalibrationError()
A, NAN = {"label": "a"}, float("nan")


def pairs_of(*labels):
    """Pairs of (said, gold); None is no answer."""
    return [(None if said is None else {"label": said}, {"label": gold}) for said, gold in labels]


def random_pairs(seed):
    """Labels, and labels that are no gold, and no answers."""
    rng = np.random.default_rng(seed)
    names = [f"c{number}" for number in range(rng.integers(1, 8))]
    gold = [str(rng.choice(names)) for _ in range(rng.integers(1, 60))]
    return pairs_of(
        *(([one, str(rng.choice(names)), "other", None][rng.choice(4, p=[0.5, 0.3, 0.1, 0.1])], one) for one in gold)
    )


def sure(*stated):
    """Pairs of (confidence, whether it is right)."""
    return [
        ({"label": "a", "confidence": confidence}, {"label": "a" if right else "b"}) for confidence, right in stated
    ]


@each("seed", range(15))
def test_accuracy_and_macro_f1_are_those_of_scikit_learn(seed):
    pairs = random_pairs(seed)
    gold = [reference["label"] for _, reference in pairs]
    said = ["nothing" if answer is None else answer["label"] for answer, _ in pairs]
    expected = f1_score(gold, said, labels=sorted(set(gold)), average="macro", zero_division=0)
    assert F1(pairs)["macro_f1"] == pytest.approx(expected, abs=1e-12)
    assert ACCURACY(pairs)["accuracy"] == pytest.approx(accuracy_score(gold, said))


COMMON = pairs_of(*[("common", "common")] * 98, *[("common", "rare")] * 2)
TWICE, RANDOM = pairs_of((["one", "one", "seven"], "seven")), np.random.default_rng(0)


@each("metric, pairs, figures", [
    # labels are compared as the rewards compare them; no answer is wrong; what has no gold is left out
    *((metric, pairs_of((' "SEVEN." ', "seven")), 1.0) for metric in (ACCURACY, F1, FIRST)),
    *((metric, [(answer, {"label": "seven"})], 0.0) for metric in (ACCURACY, F1, FIVE) for answer in (None, {},
     {"label": None}, {"label": ""}, {"label": []}, {"label": {"a": 1}})),
    *((metric, [(A, A), (A, {})], 1.0) for metric in (ACCURACY, F1, FIVE)),
    *((metric, pairs, NAN) for metric in (ACCURACY, F1, FIVE, SURE) for pairs in ([(A, {})], [])),
    (F1, pairs_of(("lesion", ["nodule", "lesion"]), ("nodule", "nodule")), 1.0),  # the first gold names the class
    (F1, pairs_of(("a" * 10**6, "a")), 0.0), (ACCURACY, COMMON, 0.98), (F1, COMMON, 0.5 * 196 / 198),
    (MacroF1(aliases={"seven": ["7"]}), pairs_of(("7", "one"), ("seven", "seven")), 1 / 3),
    (F1, pairs_of(("seven", "one"), ("seven", "seven")), 1 / 3), (F1, pairs_of(("7", "one"), ("seven", "seven")), 0.5),
    *((TopK("label", k), TWICE, {f"top{k}": score}) for k, score in ((1, 0.0), (2, 0.0), (3, 1.0), (9, 1.0))),
    # calibration: bins are weighted by their size, errors cancel within one, an edge belongs to the bin below
    (CalibrationError(bins=1), sure((0.8, True), (0.6, False), (1.0, False)), {"ece": abs(1 / 3 - 0.8)}),
    # (0.9, 1]: accuracy 2/3, confidence 2.8/3, weight 3/4; (0.1, 0.2]: accuracy 0, confidence 0.15, weight 1/4
    (SURE, sure((0.95, True), (0.92, True), (0.93, False), (0.15, False)), {"ece": 0.8 / 3 * 3 / 4 + 0.15 / 4}),
    (SURE, sure((0.55, True), (0.59, False)), {"ece": 0.07}), (SURE, sure((0.45, True), (0.55, False)), {"ece": 0.55}),
    *((SURE, sure((edge, True), (edge - 0.05, False)), {"ece": abs(1 - edge - edge + 0.05) / 2}) for edge in (0.1, 0.3,
     0.7, 1.0)), (SURE, sure((0.0, True), (0.1, False)), {"ece": 0.45}),
    (SURE, sure((0.9, True), (0.6, False)), {"brier": (0.01 + 0.36) / 2}),
    (SURE, sure((1.0, True), (0.0, False)), {"ece": 0.0, "brier": 0.0, "stated": 1.0}),
    *((SURE, sure((odd, False), (1.0, True)), {"ece": 0.0, "brier": 0.0, "stated": 0.5}) for odd in (None, "high", NAN,
     1.5, -0.1, True, 85)), (SURE, [(None, A), *sure((1.0, True))], {"stated": 0.5}),
    (SURE, [({**A, "confidence": 0.1}, {}), *sure((1.0, True))], {"ece": 0.0}),
])  # fmt: skip
def test_the_figures_of_pairs(metric, pairs, figures):
    found = metric(pairs)
    wanted = figures if isinstance(figures, dict) else dict.fromkeys(found, figures)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, nan_ok=True)


@each("make, options, words", [
    *((TopK, {"field": "label", "k": bad}, "k is") for bad in (0, -1, 1.5, True)),
    *((CalibrationError, {"bins": bad}, "bins is") for bad in (0, 2.5, True)),
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(make, options, words):
    refuse(words, make, **options)


@each("metric", [ACCURACY, F1, FIRST, SURE])
def test_drawing_a_group_twice_is_having_its_pairs_twice(metric):
    pairs = (
        random_pairs(1) if metric is not SURE else sure(*((RANDOM.random(), RANDOM.random() < 0.5) for _ in range(40)))
    )
    times = np.random.default_rng(1).integers(0, 4, len(pairs))
    prepared = metric.prepare([metric.extract_stats(*pair) for pair in pairs], np.arange(len(pairs)))
    repeated = metric([pair for pair, n in zip(pairs, times, strict=True) for _ in range(n)])
    assert prepared.compute_figures(times[None].astype(float))[0] == pytest.approx(list(repeated.values()))


# ---- in the summary of a run
def play(number, answer, reference, end="answered", scores=None):
    return Episode(Task(f"t{number}", reference=reference), answer=answer, end_reason=end, scores=scores)


BOX, REVERSED = [0.1, 0.1, 0.4, 0.4], [0.4, 0.4, 0.1, 0.1]


@each("metric, figure", [
    (MeanAveragePrecision(), "map@0.5"), (BoxRates(), "recall@0.5"), (MeanScore(IoUReward(), "iou"), "iou"),
])  # fmt: skip
def test_a_gold_that_is_no_box_is_left_out(metric, figure, caplog):
    caplog.clear()
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
    episodes = [
        play(0, A, A, scores=Scores(1.0, {"a": 1.0})), play(1, None, A, "max_turns", Scores(0.0, {"a": 0.0})),
        *(play(n, {"label": "b"}, A, end) for n, end in enumerate(("error", "timeout", "cancelled"), 2)),
        play(5, {"label": "b"}, A, scores=Scores(None, {"judge": None}, {"judge": "is down"})),
    ]  # fmt: skip
    found = summarize(episodes, {"label": Accuracy()}, resamples=0)
    for name in ("reward", "metrics/label/accuracy"):
        assert (found[name].mean, found[name].count) == (0.5, 2)
