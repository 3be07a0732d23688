"""Metrics of boxes: COCO's figures to 1e-6, and what COCO leaves open."""

import numpy as np
import pytest

from tests.support.coco import coco
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards.metrics import BoxRates, MeanAveragePrecision

WHOLE, LEFT, FAR = (0.0, 0.0, 10.0, 10.0), (0.0, 0.0, 10.0, 4.0), (50.0, 50.0, 60.0, 60.0)


def random_set(seed):
    """Pairs whose detections are shaken gold boxes, gold boxes twice, and boxes anywhere, some of one confidence."""
    rng = np.random.default_rng(seed)
    coarse, classes, pairs = rng.random() < 0.3, rng.integers(1, 4), []

    def item(corner, size, said):
        found = {"bbox": [*corner, *(corner + size)], "label": f"c{rng.integers(classes)}"}
        if said:
            score = rng.random()
            found["confidence"] = round(score, 1) if coarse else score
        return found

    for _ in range(rng.integers(1, 15)):
        gold = [item(rng.uniform(0, 80, 2), rng.uniform(2, 40, 2), False) for _ in range(rng.integers(0, 5))]
        said = [item(rng.uniform(0, 80, 2), rng.uniform(2, 40, 2), True) for _ in range(rng.integers(0, 3))]
        for one in gold:
            for _ in range(rng.integers(0, 3)):
                corner, end = np.array(one["bbox"][:2]), np.array(one["bbox"][2:])
                shaken = item(corner + rng.normal(0, 2, 2), (end - corner) * rng.uniform(0.8, 1.2, 2), True)
                said.append({**shaken, "label": one["label"] if rng.random() < 0.8 else shaken["label"]})
        rng.shuffle(said)
        pairs.append(({"found": said} if said or rng.random() < 0.5 else None, {"found": gold}))
    return pairs


@each("seed", range(40))
def test_average_precision_is_that_of_pycocotools(seed):
    pairs = random_set(seed)
    assert MeanAveragePrecision("found", box_key="bbox", label_key="label", ties="coco")(pairs) == pytest.approx(
        coco(pairs), abs=1e-6, nan_ok=True
    )


def test_more_than_a_hundred_detections_are_cut_as_in_pycocotools():
    rng = np.random.default_rng(0)
    gold = [{"bbox": [x, 0.0, x + 5.0, 5.0], "label": "a"} for x in range(0, 100, 10)]
    said = [{**gold[rng.integers(10)], "confidence": rng.random()} for _ in range(300)]
    pairs = [({"found": said}, {"found": gold})]
    assert MeanAveragePrecision("found", box_key="bbox", label_key="label")(pairs) == pytest.approx(
        coco(pairs), abs=1e-6
    )


def test_with_ties_as_in_coco_the_order_of_the_pairs_is_the_ranking_as_in_pycocotools():
    pairs = [({"found": [{"bbox": box, "label": "a"}]}, {"found": [{"bbox": WHOLE, "label": "a"}]})
             for box in (FAR, WHOLE, LEFT, WHOLE)]  # fmt: skip
    metric = MeanAveragePrecision("found", box_key="bbox", label_key="label", ties="coco")
    assert metric(pairs) == pytest.approx(coco(pairs), abs=1e-6)
    assert metric(pairs) != metric(pairs[::-1])
    usual = MeanAveragePrecision("found", box_key="bbox", label_key="label")
    assert usual(pairs) == usual(pairs[::-1])


@each("seed", range(10))
def test_with_ties_together_the_order_of_the_pairs_does_not_matter(seed):
    pairs = [({"found": said["found"] if said else []}, gold) for said, gold in random_set(seed)]
    for said, _ in pairs:
        said["found"] = [{**one, "confidence": 1.0} for one in said["found"]]
    metric = MeanAveragePrecision("found", box_key="bbox", label_key="label", ties="together")
    assert metric(pairs) == pytest.approx(metric(pairs[::-1]), nan_ok=True)


@each("seed", range(20))
def test_with_ties_together_distinct_confidences_give_the_same_figures(seed):
    pairs = random_set(seed)
    scores = iter(np.random.default_rng(seed).permutation(10_000) / 10_000)
    for said, _ in pairs:
        for one in said["found"] if said else []:
            one["confidence"] = float(next(scores))
    metrics = [
        MeanAveragePrecision("found", box_key="bbox", label_key="label", ties=ties)(pairs)
        for ties in ("coco", "together")
    ]
    assert metrics[0] == pytest.approx(metrics[1], nan_ok=True)


def test_with_ties_together_equal_confidences_are_one_point():
    pairs = [({"bbox": WHOLE}, {"bbox": WHOLE}), ({"bbox": FAR}, {"bbox": WHOLE})]
    assert MeanAveragePrecision(ties="together")(pairs)["map@0.5"] == pytest.approx(0.5 * 51 / 101)


def test_duplicated_boxes_are_false_positives():
    once, twice = ([({"bbox": [WHOLE] * n}, {"bbox": [WHOLE]})] * 2 for n in (1, 2))
    assert BoxRates(thresholds=(0.5,))(twice) == pytest.approx({"precision@0.5": 0.5, "recall@0.5": 1, "f1@0.5": 2 / 3})
    assert MeanAveragePrecision()(twice)["map@0.5"] < MeanAveragePrecision()(once)["map@0.5"]


@each("answer", [None, {}, {"bbox": None}, {"bbox": []}])
def test_no_answer_finds_nothing(answer):
    pairs = [(answer, {"bbox": WHOLE})]
    assert set(MeanAveragePrecision()(pairs).values()) == {0.0}
    assert BoxRates(thresholds=(0.5,))(pairs) == pytest.approx(
        {"precision@0.5": np.nan, "recall@0.5": 0.0, "f1@0.5": 0.0}, nan_ok=True
    )


@each("pairs", [[], [(None, {})], [({"bbox": WHOLE}, {"bbox": []})]])
def test_without_gold_average_precision_is_not_defined(pairs):
    assert all(map(np.isnan, MeanAveragePrecision()(pairs).values()))


@each(
    "said",
    [
        "all",
        7,
        {"bbox": "here"},
        [1, 2],
        [1, 2, 3, float("nan")],
        [10, 10, 0, 0],
        [[10**400] * 4],
        [["a"] * 4],
        [[[[]]]],
        {"bbox": [0, 0, 10, 10]},
    ],
)
def test_what_is_no_box_is_a_false_positive_and_never_an_error(said):
    pairs = [({"bbox": said}, {"bbox": WHOLE})]
    assert BoxRates(thresholds=(0.3,))(pairs) == {"precision@0.3": 0.0, "recall@0.3": 0.0, "f1@0.3": 0.0}
    assert set(MeanAveragePrecision()(pairs).values()) == {0.0}


def test_a_detection_without_gold_lowers_precision():
    pairs = [({"bbox": WHOLE, "confidence": 0.9}, {}), ({"bbox": WHOLE, "confidence": 0.5}, {"bbox": WHOLE})]
    assert MeanAveragePrecision()(pairs)["map@0.5"] == 0.5


def test_a_confidence_that_is_no_number_stands_last_and_a_missing_one_first():
    right, wrong = {"bbox": WHOLE}, {"bbox": FAR}
    for confidence, expected in (("sure", 0.5), (float("nan"), 0.5), (None, 1.0)):
        pairs = [({**right, "confidence": confidence}, {"bbox": WHOLE}), ({**wrong, "confidence": 0.5}, {})]
        assert MeanAveragePrecision()(pairs)["map@0.5"] == expected


def test_a_class_may_stand_beside_the_box():
    metric = MeanAveragePrecision(label_field="label")
    gold = {"bbox": WHOLE, "label": "seven"}
    assert metric([({"bbox": WHOLE, "label": "Seven."}, gold)])["map@0.5"] == 1.0
    assert metric([({"bbox": WHOLE, "label": "one"}, gold)])["map@0.5"] == 0.0


def test_xywh_boxes_are_read():
    pairs = [({"bbox": [5, 5, 10, 10]}, {"bbox": [5, 5, 10, 10]}), ({"bbox": [5, 5, 10, 6]}, {"bbox": [5, 5, 10, 10]})]
    assert BoxRates(format="xywh", thresholds=(0.6,))(pairs)["recall@0.6"] == 1.0


@each("seed", range(20))
def test_drawing_a_group_twice_is_having_its_pairs_twice(seed):
    pairs = random_set(seed)
    metric = MeanAveragePrecision("found", box_key="bbox", label_key="label", ties="together")
    times = np.random.default_rng(seed).integers(0, 4, len(pairs))
    prepared = metric.prepare([metric.extract_stats(*pair) for pair in pairs], np.arange(len(pairs)))
    repeated = metric([pair for pair, n in zip(pairs, times, strict=True) for _ in range(n)])
    assert prepared.compute_figures(times[None].astype(float))[0] == pytest.approx(list(repeated.values()), nan_ok=True)


@each(
    "settings",
    [
        {"format": "yxyx"}, {"thresholds": ()}, {"thresholds": (0.0,)}, {"thresholds": (1.5,)}, {"ties": "no"},
        {"label_key": "l"},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ConfigError, match="allowed"):
        MeanAveragePrecision(**settings)
