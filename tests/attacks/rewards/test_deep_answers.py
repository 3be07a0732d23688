"""Answers and references nested to any depth: no reward and no explanation raises."""

from tests.support.tables import each
from tests.support.unmeasurable import measure
from viewbox.rewards import (
    BrierReward,
    CombinedReward,
    Component,
    ExactMatchReward,
    IoUReward,
    LabelSetF1Reward,
    RankingReward,
    TokenF1Reward,
    explain_reward,
)

EXACT = ExactMatchReward("value")
REWARDS = {
    "exact_match": EXACT,
    "tolerance": ExactMatchReward("value", tolerance=0.5),
    "token_f1": TokenF1Reward("value"),
    "label_set_f1": LabelSetF1Reward("value"),
    "ranking": RankingReward("value"),
    "iou": IoUReward("value"),
    "boxes with labels": IoUReward("value", box_key="box", label_key="label"),
    "brier": BrierReward(EXACT),
    "brier of a function": BrierReward(lambda answer, reference: 1.0),
    "brier of parts": BrierReward(CombinedReward({"a": Component(EXACT, 1.0)})),
    "combined": CombinedReward({"a": Component(EXACT, 0.5), "b": Component(IoUReward("value"), 0.5, needs={"a": 0.5})}),
}
KINDS = {
    "lists": lambda value: [value],
    "objects": lambda value: {"value": value},
    "tuples": lambda value: (value,),
    "boxes": lambda value: {"box": [value], "label": value},
}


def nest(wrap, depth, inner):
    for _ in range(depth):
        inner = wrap(inner)
    return inner


@each("inner", [None, "", "seven", [0, 0, 1, 1]])
@each("kind", list(KINDS))
@each("reward", REWARDS.values())
def test_a_deep_value_scores_and_is_explained(reward, kind, inner):
    for depth in (50, 400, 5000):
        if kind == "boxes" and depth > 50:
            continue  # twice the value at each level
        deep = nest(KINDS[kind], min(depth, 12) if kind == "boxes" else depth, inner)
        for answer, reference in (
            ({"value": deep, "confidence": 0.5}, {"value": "seven"}),
            ({"value": "seven", "confidence": 0.5}, {"value": deep}),
            ({"other": deep, "confidence": 0.5}, {"value": "seven"}),
        ):
            score = measure(reward, answer, reference)
            assert score is None or 0 <= score <= 1
            assert isinstance(explain_reward(reward, answer, reference), str)
