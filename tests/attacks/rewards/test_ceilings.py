"""Hedges, units, ranges, foreign digits, containers and echoes: each answer with the most that it may earn."""

import math
from types import SimpleNamespace

from tests.support.tables import each
from tests.support.unmeasurable import measure
from viewbox.rewards import (
    BrierReward,
    CombinedReward,
    Component,
    ExactMatchReward,
    FormatReward,
    IoUReward,
    LabelSetF1Reward,
    RankingReward,
    TokenF1Reward,
    ToolUseReward,
)
from viewbox.rewards.explain import explain_reward

EXACT = ExactMatchReward("value")
NEAR = ExactMatchReward("value", tolerance=0.5)
F1 = TokenF1Reward("value", stop_words=True)
SET = LabelSetF1Reward("value")
ITEMS = LabelSetF1Reward("value", item_key="name")
IOU = IoUReward("value")
HIT = IoUReward("value", threshold=0.5)
OBJECTS = IoUReward("value", box_key="box", label_key="label")
MRR = RankingReward("value")
NDCG = RankingReward("value", metric="ndcg")
NAMED = RankingReward("value", metric="ndcg", item_key="name")
BOX, OTHER = [0.25, 0.25, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9]
SCHEMA = {"type": "string", "enum": ["cyst", "nodule"]}

# (reward, answer, gold, the most it may earn)
NUMBERS = [
    (EXACT, "3-5", 4, 0), (NEAR, "3-5", 4, 0), (NEAR, "3–5", 4, 0), (NEAR, "3 to 5", 4, 0), (NEAR, "4 ± 1", 4, 0),
    (NEAR, "4±0", 4, 0), (NEAR, "~4", 4, 0), (NEAR, "<5", 4, 0), (NEAR, ">3", 4, 0), (NEAR, "≤4", 4, 0),
    (NEAR, "about 4", 4, 0), (NEAR, "4 or 5", 4, 0), (EXACT, "7 or 8", 7, 0), (EXACT, "7/8", 7, 0), (NEAR, "7/8", 7, 0),
    (EXACT, "7,8", 7, 0), (NEAR, "7;8", 7, 0), (NEAR, "7 8", 78, 0), (NEAR, "1,200", 1200, 1), (NEAR, "1.200", 1200, 0),
    (NEAR, "1 200", 1200, 0), (NEAR, "1_200", 1200, 0), (NEAR, "1'200", 1200, 0), (NEAR, "4 mm", 4, 0),
    (NEAR, "4mm", 4, 0), (EXACT, "0.4 cm", "4 mm", 0), (EXACT, "4 cm", "4 mm", 0), (EXACT, "4", "4 mm", 0),
    (NEAR, "50%", 0.5, 0), (NEAR, "50%", 50, 0), (NEAR, "50 %", 0.5, 0), (EXACT, "5‰", "5%", 0), (NEAR, "+4", -4, 0),
    (NEAR, "--4", 4, 0), (NEAR, "- +4", 4, 0), (NEAR, "-+4", 4, 0), (NEAR, "-4", 4, 0), (NEAR, "4-", 4, 0),
    (NEAR, "(4)", -4, 0), (NEAR, "−4", 4, 0), (NEAR, "4e", 4, 0), (NEAR, "4e0e0", 4, 0), (NEAR, "4e-999", 1, 0),
    (EXACT, "10³", 103, 0), (NEAR, "1e5", 100, 0), (NEAR, "0x4", 4, 0), (NEAR, "0b100", 4, 0), (NEAR, "4j", 4, 0),
    (NEAR, "4L", 4, 0),
    (NEAR, "2+2", 4, 0), (NEAR, "2*2", 4, 0), (NEAR, "4=4", 4, 0), (NEAR, "four", 4, 0), (NEAR, "IV", 4, 0),
    (NEAR, "nan", 4, 0), (NEAR, "NaN", math.nan, 0), (EXACT, "nan", math.nan, 0), (NEAR, "inf", math.inf, 0),
    (NEAR, "-inf", -1e308, 0), (EXACT, "null", None, 0), (EXACT, "None", None, 0), (EXACT, "undefined", None, 0),
    (NEAR, "4²", 42, 0), (NEAR, "4²", 4, 0), (NEAR, "½", 0.5, 0), (NEAR, "1½", 11, 0), (NEAR, "④⑤", 4, 0),
    (NEAR, "٤٥", 4, 0), (NEAR, "४५", 4, 0), (NEAR, True, 1, 0), (NEAR, "true", 1, 0), (NEAR, False, 0, 0),
    (NEAR, "False", 0, 0), (EXACT, 1, True, 0), (EXACT, "1", True, 0), (EXACT, 0, False, 0), (EXACT, "yes", True, 1),
    (NEAR, [4], 4, 0), (NEAR, {"value": 4}, 4, 0), (NEAR, [[4]], 4, 0), (NEAR, {4}, 4, 0), (NEAR, b"4", 4, 0),
    (NEAR, 4.6, 4, 0), (NEAR, "4.51", 4, 0), (NEAR, 4 + 0.5j, 4, 0), (NEAR, "9" * 65, 10**65, 0),
]  # fmt: skip
SAME_NUMBER = [
    (EXACT, "４", 4), (NEAR, "４．２", 4), (EXACT, "7.0", 7), (EXACT, "+7", 7), (EXACT, "7e0", 7), (EXACT, "⁷", 7),
    (NEAR, "4.5", 4), (NEAR, "**4**", 4), (NEAR, "4.", 4), (NEAR, ".5", 0.5), (EXACT, "true", True),
    (EXACT, "TRUE", True),
]  # fmt: skip
LABELS = [
    (EXACT, "cyst|nodule", "nodule", 0), (EXACT, "cyst, nodule", "nodule", 0), (EXACT, "cyst/nodule", "nodule", 0),
    (EXACT, "nodule?", "no nodule", 0), (EXACT, "nodule (maybe)", "nodule", 0), (EXACT, "nodule or cyst", "nodule", 0),
    (EXACT, "nodule > cyst", "nodule", 0), (EXACT, "either nodule", "nodule", 0), (EXACT, SCHEMA, "nodule", 0),
    (EXACT, str(SCHEMA), "nodule", 0), (EXACT, SCHEMA["enum"], "nodule", 0), (EXACT, "string", "nodule", 0),
    (EXACT, "<label>", "nodule", 0), (EXACT, "What is shown: nodule or cyst?", "nodule", 0),
    (EXACT, ["nodule"], "nodule", 0),
    (EXACT, {"label": "nodule"}, "nodule", 0), (EXACT, "label: nodule", "nodule", 0),
    (EXACT, "nodule\x00cyst", "nodule", 0),
    (EXACT, "nodule\ncyst", "nodule", 0), (EXACT, "nodule # cyst", "nodule", 0), (EXACT, "non-nodule", "nodule", 0),
    (EXACT, "¬nodule", "nodule", 0), (EXACT, "nodule ❌", "nodule", 0), (EXACT, "n̶o̶d̶u̶l̶e̶", "nodule", 0),
    (EXACT, "no", "no nodule", 0), (EXACT, "nodule", "nodule x2", 0), (EXACT, "", ["", "nodule"], 0),
    (EXACT, " ", [" ", None], 0), (EXACT, "?", "", 0), (EXACT, "nodule*", "nodule", 1), (EXACT, "NODULE", "nodule", 1),
    (SET, ["nodule", "cyst", "mass", "effusion"], ["nodule"], 0.4), (SET, "nodule, cyst", ["nodule", "cyst"], 0),
    (SET, [["nodule", "cyst"]], ["nodule", "cyst"], 0), (SET, {"nodule": 1, "cyst": 1}, ["nodule", "cyst"], 0),
    (SET, ["nodule", None, "", {}], ["nodule"], 2 / 3), (SET, [None], [None], 0), (SET, [""], ["\u200b"], 0),
    (SET, ["x" * 2000], ["y" * 2000], 0), (SET, [{}], [[]], 0), (SET, ["nodule", "nodule absent"], ["nodule"], 0),
    (SET, ["nodule", "nodule x0"], ["nodule"], 0), (SET, ["nodule", "nodule (neg)"], ["nodule"], 0),
    (SET, ["nodule", "nodulefree"], ["nodule"], 0), (SET, ["nodule", "0 nodule"], ["nodule"], 0),
    (SET, ["nodule", "∅ nodule"], ["nodule"], 0), (SET, ["nodule", "noo nodule"], ["nodule"], 0), (SET, [], None, 0),
    (SET, None, [], 0), (SET, False, [], 0), (SET, 0, [0], 1), (SET, "[]", [], 0), (SET, ["none"], [], 0),
    (ITEMS, [{"label": "nodule"}], [{"name": "nodule"}], 0), (ITEMS, ["nodule"], [{"name": "nodule"}], 0),
    (ITEMS, [{"name": ["nodule", "cyst"]}], [{"name": "nodule"}], 0), (ITEMS, [{}], [{}], 0),
]  # fmt: skip
TEXTS = [
    (F1, "Is there a nodule in the left lung?", "No nodule.", 0), (F1, "nodule or no nodule", "nodule", 0.5),
    (F1, "nodule / no nodule", "no nodule", 0.5), (F1, "yes nodule no nodule", "nodule", 0.5), (F1, "", "", 0),
    (F1, {"report": "nodule"}, "nodule", 0), (F1, str(SCHEMA), "nodule", 0.4),
    (F1, "4 cm nodule", "4 mm nodule", 2 / 3),
    (F1, "-4", "4", 0), (F1, "3-5", "4", 0), (F1, "40", "4", 0), (F1, "4.0.0", "4.0", 0),
    (F1, "nodulecyst", "nodule", 0),
    (F1, "left right lung nodule", "left lung nodule", 0.9), (F1, "nodule x0", "nodule", 0),
    (F1, "nodule", "nodule x0", 0),
    (F1, "nodule. No. nodule", "nodule", 0.5), (F1, "no. nodule. no nodule", "nodule", 0.5), (F1, "¬", "no", 1),
    (F1, "¬nodule", "nodule", 0), (F1, "¬ ¬nodule", "no nodule", 1), (F1, "nodule (no)", "nodule", 0),
    (F1, "noduleno", "nodule", 0), (F1, "nodule nodule nodule no nodule", "nodule", 0.5), (F1, "no", "no nodule", 0),
    (F1, "not", "not seen", 0.7), (F1, "nan", math.nan, 0), (F1, True, "true", 1), (F1, ["nodule"], "nodule", 0),
]  # fmt: skip
BOXES = [
    (IOU, [BOX, OTHER], BOX, 0.5), (IOU, [BOX, [0, 0, 1, 1]], BOX, 0.5), (HIT, [BOX, OTHER], BOX, 2 / 3),
    (IOU, {"x1": 0.25, "y1": 0.25, "x2": 0.5, "y2": 0.5}, BOX, 0), (IOU, "[0.25, 0.25, 0.5, 0.5]", BOX, 0),
    (IOU, [[BOX]], BOX, 0), (IOU, [*BOX, *BOX], BOX, 0), (IOU, [25, 25, 50, 50], BOX, 0), (IOU, {"box": BOX}, BOX, 0),
    (IOU, [0.25, 0.25, 0.5, "0.5"], BOX, 0), (IOU, [0.25, 0.25, 0.5, True], BOX, 0),
    (IOU, [0.25, 0.25, 0.5, None], BOX, 0),
    (IOU, ["nan"] * 4, ["nan"] * 4, 0), (IOU, [1e-320, 0, 2e-320, 1], BOX, 0), (IOU, [0, 0, 1e200, 1e200], BOX, 0),
    (IOU, [None], [None], 0), (IOU, [[]], [[]], 0), (IOU, "none", [], 0), (IOU, None, [], 0), (IOU, {}, [], 0),
    (OBJECTS, [{"box": BOX, "label": ["cyst"]}], [{"box": BOX, "label": "cyst"}], 0),
    (OBJECTS, [{"box": BOX, "label": ""}], [{"box": BOX, "label": ""}], 0),
    (OBJECTS, [{"box": BOX, "label": "cyst"}, {"box": BOX, "label": "nodule"}], [{"box": BOX, "label": "cyst"}], 0.5),
    (OBJECTS, {"box": [BOX, OTHER], "label": "cyst"}, [{"box": BOX, "label": "cyst"}], 0),
]  # fmt: skip
RANKS = [
    (MRR, "a", ["b"], 0), (MRR, ["x", "a"], ["a"], 0.5), (MRR, [["a", "b"]], ["a"], 0), (MRR, ["a, b"], ["a"], 0),
    (MRR, {"a": 1}, ["a"], 0), (MRR, [""], [""], 0), (MRR, [None, None], [None], 0),
    (NDCG, ["b", "a"], {"a": 3, "b": 0}, 0.64),
    (NDCG, ["a"], {"a": -1}, 0), (NDCG, ["a"], {"a": math.nan}, 0), (NDCG, ["a"], {"a": "3"}, 0),
    (NDCG, ["a"], {"a": True}, 0),
    (NDCG, ["a", "A", "a."], {"a": 1, "b": 1, "c": 1}, 0.47), (NDCG, [""], {"": 3}, 0), (NDCG, [{}], {"a": 1}, 0),
    (NAMED, [{"name": "a"}], {"b": 1}, 0), (NAMED, [{"title": "a"}], {"a": 1}, 0),
    (NAMED, [{"name": {"name": "a"}}], {"a": 1}, 0),
]  # fmt: skip
ROWS = NUMBERS + LABELS + TEXTS + BOXES + RANKS


def name_row(row):
    return f"{row[0].name}-{row[1]!r:.30}-{row[2]!r:.20}".encode("ascii", "backslashreplace").decode()


@each(("reward", "answer", "gold", "most"), ROWS)
def test_an_answer_earns_at_most_its_ceiling(reward, answer, gold, most):
    assert 0.0 <= (measure(reward, {"value": answer}, {"value": gold}) or 0.0) <= most + 1e-9
    assert "failed" not in explain_reward(reward, {"value": answer}, {"value": gold})


@each(("reward", "answer", "gold"), SAME_NUMBER)
def test_another_spelling_of_the_number_is_right(reward, answer, gold):
    assert reward({"value": answer}, {"value": gold}) == 1.0


BRIER = BrierReward(ExactMatchReward("label"))
CONFIDENCES = [
    ("1", 0), ("100%", 0), (100, 0), (1.0000001, 0), (-0.1, 0), (math.inf, 0), (math.nan, 0), ("nan", 0), (True, 0),
    (None, 0), ([1], 0), ({"confidence": 1}, 0), ("high", 0), ("1", 0), (10**400, 0), (1 + 0j, 0), (0.5, 0.375),
    (0, 0.5),
]  # fmt: skip


@each(("confidence", "most"), CONFIDENCES)
def test_a_wrong_label_earns_at_most_what_its_doubt_is_worth(confidence, most):
    assert BRIER({"label": "cyst", "confidence": confidence}, {"label": "nodule"}) <= most
    right = BRIER({"label": "nodule", "confidence": confidence}, {"label": "nodule"})
    assert right >= most if most else right == 0.0


def play(*calls, answer=None):
    """An episode whose calls are (name, arguments, success)."""
    turns = []
    for number, (name, arguments, success) in enumerate(calls):
        call = SimpleNamespace(id=f"c{number}", name=name, arguments=arguments)
        result = SimpleNamespace(tool_name=name, call_id=call.id, success=success)
        turns.append(SimpleNamespace(tool_calls=[call], tool_results=[]))
        turns.append(SimpleNamespace(tool_calls=[], tool_results=[result]))
    return SimpleNamespace(turns=turns, answer={"label": "x"} if answer is None else answer or None)


ZOOM = ("zoom", {"factor": 2}, True)
TOOL_ROWS = [
    (ToolUseReward(at_least=2), play(), 0), (ToolUseReward(at_least=2), play(ZOOM, ZOOM, ZOOM), 0.5),
    (ToolUseReward(at_least=2), play(ZOOM, ("zoom", {"factor": 3}, False)), 0.5),
    (ToolUseReward(at_least=2), play(ZOOM, ("zoom", {"factor": 2.0, "x": None}, True)), 0.5),
    (ToolUseReward(at_least=1, tools=["crop"]), play(ZOOM, ZOOM), 0),
    (ToolUseReward(at_most=1), play(*[ZOOM] * 4), 0.25),
    (ToolUseReward(at_least=1), play(ZOOM, answer=False), 0), (ToolUseReward(at_most=0), play(ZOOM), 0),
    (FormatReward(), play(answer=False), 0),
]  # fmt: skip


@each(("reward", "episode", "most"), TOOL_ROWS)
def test_calls_earn_at_most_their_ceiling(reward, episode, most):
    assert reward.of_episode(episode) <= most


GATED = CombinedReward({
    "label": (ExactMatchReward("label"), 0.4),
    "report": Component(TokenF1Reward("report"), 0.3, needs={"label": 1.0}),
    "tools": Component(ToolUseReward(at_least=1), 0.3, needs={"report": 0.5}),
})  # fmt: skip
GOLD = {"label": "nodule", "report": "nodule in the left lung"}
GATED_ROWS = [
    ({"label": "cyst", "report": GOLD["report"]}, 0), ({"label": "nodule or cyst", "report": GOLD["report"]}, 0),
    ({"report": GOLD["report"]}, 0), ({"label": ["nodule"], "report": GOLD["report"]}, 0), (None, 0), ({}, 0),
    ({"label": "nodule"}, 0.4), ({"label": "nodule", "report": "no nodule in the left lung"}, 0.4),
    ({"label": "nodule", "report": "x " * 9000}, 0.4), ({"label": "nodule", "report": "x nodule x y z left"}, 0.55),
    ({"label": math.nan, "report": GOLD["report"]}, 0), ({"label": "Nodule.", "report": "Nodule"}, 0.52),
]  # fmt: skip


@each(("answer", "most"), GATED_ROWS)
def test_no_gate_opens_for_a_part_that_is_wrong(answer, most):
    total, scores = GATED.score(answer, GOLD, play(ZOOM, answer=answer or False))
    assert total <= most + 1e-9
    assert scores["tools"] == (1.0 if scores["report"] >= 0.5 else 0.0)


def test_a_gate_of_a_part_that_does_not_apply_stays_shut():
    reward = CombinedReward({
        "tools": (ToolUseReward(at_least=1), 0.5),
        "label": Component(ExactMatchReward("label"), 0.5, needs={"tools": 1.0}),
    })  # fmt: skip
    assert reward(GOLD, GOLD) is None
    assert reward.score(GOLD, GOLD, play())[0] == 0.0


@each("returned", [math.nan, math.inf, -1, 2, "1", [1], 10**400, 1 + 1e-6, b"1", print])
def test_a_component_that_returns_no_score_pays_nothing(returned):
    reward = CombinedReward({"a": (lambda answer, reference: returned, 0.5), "b": (EXACT, 0.5)})
    assert reward({"value": "x"}, {"value": "x"}) is None


def test_the_table_is_as_large_as_promised():
    assert len(ROWS) + len(SAME_NUMBER) + len(CONFIDENCES) + len(TOOL_ROWS) + len(GATED_ROWS) >= 230
