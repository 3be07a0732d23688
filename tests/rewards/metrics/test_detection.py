"""Metrics of boxes: COCO's figures to 1e-6, and what COCO leaves open."""

import numpy as np
import pytest

from tests.support.coco import coco
from tests.support.scoring import refuse
from tests.support.tables import each
from viewbox.rewards.metrics import BoxRates, MeanAveragePrecision

WHOLE, LEFT, FAR = (0.0, 0.0, 10.0, 10.0), (0.0, 0.0, 10.0, 4.0), (50.0, 50.0, 60.0, 60.0)
MAP, FOUND = MeanAveragePrecision(), {"field": "found", "box_key": "bbox", "label_key": "label"}
COCO, TOGETHER, USUAL = (MeanAveragePrecision(**FOUND, **ties) for ties in ({"ties": "coco"}, {"ties": "together"}, {}))


def random_set(seed):
    """Pairs whose detections are shaken gold boxes, gold boxes twice, and boxes anywhere, some of one confidence."""
    rng = np.random.default_rng(seed)
    coarse, classes, pairs = rng.random() < 0.3, rng.integers(1, 4), []

    def item(corner, size, said):
        found = {"bbox": [*corner, *(corner + size)], "label": f"c{rng.integers(classes)}"}
        return found | ({"confidence": round(rng.random(), 1) if coarse else rng.random()} if said else {})

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


def many():
    """More than a hundred detections, which are cut as in pycocotools."""
    rng = np.random.default_rng(0)
    gold = [{"bbox": [x, 0.0, x + 5.0, 5.0], "label": "a"} for x in range(0, 100, 10)]
    return [({"found": [{**gold[rng.integers(10)], "confidence": rng.random()} for _ in range(300)]}, {"found": gold})]


TIED = [({"found": [{"bbox": box, "label": "a"}]}, {"found": [{"bbox": WHOLE, "label": "a"}]})
        for box in (FAR, WHOLE, LEFT, WHOLE)]  # fmt: skip


@each("pairs", [*map(random_set, range(40)), many(), TIED])
def test_average_precision_is_that_of_pycocotools(pairs):
    assert COCO(pairs) == pytest.approx(coco(pairs), abs=1e-6, nan_ok=True)


@each("seed", range(20))
def test_with_ties_together_the_order_does_not_matter_and_a_group_drawn_twice_has_its_pairs_twice(seed):
    pairs, rng = random_set(seed), np.random.default_rng(seed)
    equal = [
        ({"found": [{**one, "confidence": 1.0} for one in (said or {"found": []})["found"]]}, gold)
        for said, gold in pairs
    ]
    assert TOGETHER(equal) == pytest.approx(TOGETHER(equal[::-1]), nan_ok=True)
    times = rng.integers(0, 4, len(pairs))
    prepared = TOGETHER.prepare([TOGETHER.extract_stats(*pair) for pair in pairs], np.arange(len(pairs)))
    repeated = TOGETHER([pair for pair, n in zip(pairs, times, strict=True) for _ in range(n)])
    assert prepared.compute_figures(times[None].astype(float))[0] == pytest.approx(list(repeated.values()), nan_ok=True)
    scores = iter(rng.permutation(10_000) / 10_000)
    for said, _ in pairs:
        for one in said["found"] if said else []:
            one["confidence"] = float(next(scores))
    assert COCO(pairs) == pytest.approx(TOGETHER(pairs), nan_ok=True)  # where no confidence is another


def test_with_ties_as_in_coco_the_order_of_the_pairs_is_the_ranking():
    assert COCO(TIED) != COCO(TIED[::-1])
    assert USUAL(TIED) == USUAL(TIED[::-1])


def box(said, gold=WHOLE, **more):
    return {"bbox": said, **more}, {"bbox": gold} if gold else {}


NAN, SEVEN, LABELED = float("nan"), {"bbox": WHOLE, "label": "seven"}, MeanAveragePrecision(label_field="label")
NOTHING = {"precision@0.5": NAN, "recall@0.5": 0.0, "f1@0.5": 0.0}
ODD = ["all", 7, {"bbox": "here"}, [1, 2], [1, 2, 3, NAN], [10, 10, 0, 0], [[10**400] * 4], [["a"] * 4], [[[[]]]],
       {"bbox": [0, 0, 10, 10]}]  # fmt: skip


@each("metric, pairs, figures", [
    (MeanAveragePrecision(ties="together"), [box(WHOLE), box(FAR)], {"map@0.5": 0.5 * 51 / 101}),  # one point
    # duplicated boxes and what is no box are false positives; no answer finds nothing
    (BoxRates(thresholds=(0.5,)), [box([WHOLE] * 2, [WHOLE])] * 2,
     {"precision@0.5": 0.5, "recall@0.5": 1, "f1@0.5": 2 / 3}),
    *((BoxRates(thresholds=(0.3,)), [box(odd)], {"precision@0.3": 0.0, "recall@0.3": 0.0,
     "f1@0.3": 0.0}) for odd in ODD), *((MAP, [box(odd)], 0.0) for odd in ODD),
    *((MAP, [(answer, {"bbox": WHOLE})], 0.0) for answer in (None, {}, {"bbox": None}, {"bbox": []})),
    *((BoxRates(thresholds=(0.5,)), [(answer, {"bbox": WHOLE})], NOTHING) for answer in (None, {}, {"bbox": []})),
    *((MAP, pairs, NAN) for pairs in ([], [(None, {})], [({"bbox": WHOLE}, {"bbox": []})])),
    (MAP, [box(WHOLE, None, confidence=0.9), box(WHOLE, confidence=0.5)], {"map@0.5": 0.5}),  # without gold
    # a confidence that is no number stands last and a missing one first
    *((MAP, [box(WHOLE, confidence=odd), box(FAR, None, confidence=0.5)], {"map@0.5": score})
      for odd, score in (("sure", 0.5), (NAN, 0.5), (None, 1.0))),
    (LABELED, [(SEVEN | {"label": "Seven."}, SEVEN)], {"map@0.5": 1.0}),
    (LABELED, [(SEVEN | {"label": "one"}, SEVEN)], {"map@0.5": 0.0}),
    (BoxRates(format="xywh", thresholds=(0.6,)), [box([5, 5, 10, 10], [5, 5, 10, 10]),
     box([5, 5, 10, 6], [5, 5, 10, 10])], {"recall@0.6": 1.0}),
    # a threshold is reached by boxes of whole pixels: 450 of 900, and three quarters of any
    (BoxRates(thresholds=(0.5,)), [box((0.1, 0.1, 0.4, 0.25), (0.1, 0.1, 0.4, 0.4))], {"recall@0.5": 1.0}),
    (BoxRates(thresholds=(0.75,)), [box([left / 100, 0.07, (left + width * 3 // 4) / 100, 0.5],
     [left / 100, 0.07, (left + width) / 100, 0.5]) for width in range(4, 100, 4) for left in range(100 - width)],
     {"recall@0.75": 1.0}),
])  # fmt: skip
def test_the_figures_of_pairs(metric, pairs, figures):
    found = metric(pairs)
    wanted = figures if isinstance(figures, dict) else dict.fromkeys(found, figures)
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, nan_ok=True)


@each("settings", [
    {"format": "yxyx"}, {"thresholds": ()}, {"thresholds": (0.0,)}, {"thresholds": (1.5,)}, {"ties": "no"},
    {"label_key": "l"},
])  # fmt: skip
def test_settings_that_cannot_be_are_refused(settings):
    refuse("allowed", MeanAveragePrecision, **settings)
