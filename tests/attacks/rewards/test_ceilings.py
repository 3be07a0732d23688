"""Hedges, units, signs, foreign digits, containers, depths, lengths and echoes: the most that each answer may earn."""

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.support.scoring import Gives, call, measure, played, spread
from tests.support.tables import each
from viewbox.envs.literature_vqa.env import LiteratureAnswerReward
from viewbox.images.view import View
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
from viewbox.rewards.declare import list_reward_types
from viewbox.rewards.explain import explain_reward, explain_score
from viewbox.rewards.fields import MAX_TEXT, has_content
from viewbox.rewards.token_f1 import ShortAnswerReward
from viewbox.tools import call_stateful
from viewbox.utils.values import fold_text

NAN, INF = math.nan, math.inf
EXACT, NEAR = ExactMatchReward("value"), ExactMatchReward("value", tolerance=0.5)
F1, PLAIN = TokenF1Reward("value", stop_words=True), TokenF1Reward("value")
SET, ITEMS = LabelSetF1Reward("value"), LabelSetF1Reward("value", item_key="name")
IOU, HIT, PENALIZED = IoUReward("value"), IoUReward("value", threshold=0.5), IoUReward("value", area_penalty=1.0)
OBJECTS = IoUReward("value", box_key="box", label_key="label")
MRR, FIVE = RankingReward("value"), RankingReward("value", k=5)
NDCG, NAMED = RankingReward("value", metric="ndcg"), RankingReward("value", metric="ndcg", item_key="name")
BRIER = BrierReward(ExactMatchReward("label"))
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
BOX, OTHER, HALVES = [0.25, 0.25, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9], [[0, 0, 1, 0.5], [0, 0.5, 1, 1]]
SCHEMA = {"type": "string", "enum": ["cyst", "nodule"]}


def nest(wrap, depth, inner):
    for _ in range(depth):
        inner = wrap(inner)
    return inner


def found(*labels):
    return [{"box": BOX, "label": label} for label in labels]


DEEP = [nest(wrap, 900, "seven") for wrap in (lambda value: [value], lambda value: {"label": value})]

AT_MOST = [
    # numbers: ranges, units, other digits and signs name another number or none
    *spread(NEAR, 0, *((said, 4) for said in ("3-5", "3 to 5", "4 ± 1", "4±0", "~4", "<5", "≤4", "4 or 5", "4mm",
        "--4", "-+4", "-4", "4-", "−4", "4e", "0x4", "4j", "2+2", "four", "nan", "4²", "④⑤", "٤٥", [4], {"value": 4},
        {4}, b"4", 4.6, 4 + 0.5j)), ("7/8", 7), ("7;8", 7), ("7 8", 78), ("1.200", 1200), ("1 200", 1200),
        ("1_200", 1200), ("50%", 0.5), ("50%", 50), ("(4)", -4), ("4e-999", 1), ("1e5", 100), ("NaN", NAN),
        ("inf", INF), ("4²", 42), ("-inf", -1e308), ("1½", 11), (True, 1), ("False", 0), ("9" * 65, 10**65), (INF, 12),
        (10**400, 12), ("11 12 13", 12)),
    *spread(EXACT, 0, ("7,8", 7), ("0.4 cm", "4 mm"), ("4", "4 mm"), ("10³", 103), ("nan", NAN), ("None", None),
        (1, True), (0, False), (NAN, NAN)),
    # labels: hedges, denials, copies of the prompt, look-alikes
    *spread(EXACT, 0, *((said, "nodule") for said in ("cyst|nodule", "cyst, nodule", "nodule (maybe)", "either nodule",
        SCHEMA, str(SCHEMA), SCHEMA["enum"], "<label>", ["nodule"], {"label": "nodule"}, "label: nodule",
        "nodule\x00cyst", "nodule\ncyst", "non-nodule", "¬nodule", "nodule ❌", "n̶o̶d̶u̶l̶e̶", "no nodule", "!nodule",
        "no\u200bnodule", "~~nodule~~")), *((said, "seven") for said in (DIGITS, "seven seven", {"enum": DIGITS},
        "The answer is seven", '{"value": "seven"}', "\u200b\ufeff\u2060\u3164\u034f", "ѕеvеn", "\u202eneves",
        "seven" * 200_000, " " * 1_000_000 + "seven", *DEEP, b"seven", None)), ("no", "no nodule"),
        ("nodule", "nodule x2"), ("", ["", "nodule"]), (" ", [" ", None]), ("?", ""), ("\u200b", ""), (None, None),
        ("", "")),
    # sets of labels: precision falls, and both ways is neither
    *spread(SET, 0, ("nodule, cyst", ["nodule", "cyst"]), ([["nodule", "cyst"]], ["nodule", "cyst"]), ("[]", []),
        (["none"], []), ({"nodule": 1, "cyst": 1}, ["nodule", "cyst"]), ([None], [None]), ([""], ["\u200b"]),
        (["x" * 2000], ["y" * 2000]), ([{}], [[]]), ([], None), (None, []), (False, []),
        (["tumour", "no tumour"], ["tumour"]), (["seven"] + [f"l{i}" for i in range(999)], ["seven"]),
        (dict.fromkeys(DIGITS, True), ["seven"]), (["nodule", "nodule x0"], ["nodule"])),
    *spread(ITEMS, 0, ([{"label": "nodule"}], [{"name": "nodule"}]), (["nodule"], [{"name": "nodule"}]), ([{}], [{}]),
        ([{"name": ["nodule", "cyst"]}], [{"name": "nodule"}])),
    (SET, ["nodule", "cyst", "mass", "effusion"], ["nodule"], 0.4), (SET, ["nodule", None, "", {}], ["nodule"], 2 / 3),
    # texts
    *spread(F1, 0, ("Is there a nodule in the left lung?", "No nodule."), ("", ""), ({"report": "nodule"}, "nodule"),
        ("-4", "4"), ("3-5", "4"), ("4.0.0", "4.0"), ("nodule", "nodule x0"), ("¬nodule", "nodule"),
        ("noduleno", "nodule"), ("no", "no nodule"), ("nan", NAN), ("nodule " * 150_000, "nodule"),
        ("the of and a an", "nodule of the lung"), ("a" + "\u0315\u0300" * 500_000, "a"), ("... ---", "..."),
        *((said, "tumour") for said in ("Tumour. No.", "n\u200bo tumour", "!tumour", "~~tumour~~"))),
    *spread(F1, 0.5, ("nodule or no nodule", "nodule"), ("nodule / no nodule", "no nodule"),
        ("nodule. No. nodule", "nodule"), ("nodule nodule nodule no nodule", "nodule")),
    (F1, str(SCHEMA), "nodule", 0.4), (F1, "4 cm nodule", "4 mm nodule", 2 / 3),
    (F1, "left right lung nodule", "left lung nodule", 0.9), (F1, "not", "not seen", 0.7),
    (F1, "Effusion. No nodule.", "No effusion. Nodule.", 1 / 3), (F1, "tumour, no tumour", "tumour", 0.25),
    (F1, "tumour, no tumour", "no tumour", 0.6), (F1, "nodule " * 700, "nodule", 0.003),
    (F1, "no, " * 1200 + "tumour", "tumour", 0.01),
    (F1, " ".join(f"w{i}" for i in range(900)) + " nodule", "nodule", 0.003),
    # boxes
    *spread(IOU, 0, *((said, BOX) for said in ({"x1": 0.25, "y1": 0.25, "x2": 0.5, "y2": 0.5}, "[0.25, 0.25, 0.5, 0.5]",
        [[BOX]], [*BOX, *BOX], [25, 25, 50, 50], {"box": BOX}, *([0.25, 0.25, 0.5, odd] for odd in ("0.5", True, None)),
        [1e-320, 0, 2e-320, 1], [0, 0, 1e200, 1e200], [-INF, -INF, INF, INF], [0.25, 0.25, NAN, 0.5],
        [0, 0, 10**400, 10**400], [0.5, 0.5, 0.25, 0.25], [0.25] * 4, [*BOX, 1], [0] * 1_000_000, [BOX] * 106,
        [BOX] * 1_000_000, DEEP[0])), (["nan"] * 4, ["nan"] * 4), ([None], [None]), ([[]], [[]]), ("none", []),
        ({}, []), ([BOX], []), ([], BOX), ([NAN] * 4, [NAN] * 4), ([False, False, True, True], [0, 0, 1, 1])),
    *spread(IOU, 0.5, ([BOX, OTHER], BOX), ([BOX, [0, 0, 1, 1]], BOX)), (HIT, [BOX, OTHER], BOX, 2 / 3),
    (HIT, [0, 0, 1, 1], BOX, 0), (IOU, [-9, -9, 9, 9], BOX, 0.0002), (PENALIZED, [0, 0, 1, 1], BOX, 0.004),
    *spread(OBJECTS, 0, (found(["cyst"]), found("cyst")), (found(""), found("")), (found("no cyst"), found("cyst")),
        ([{"box": BOX}], [{"box": BOX}]), ({"box": [BOX, OTHER], "label": "cyst"}, found("cyst"))),
    # rankings: a name counts once, at its first place
    *spread(MRR, 0, ("a", ["b"]), ([["a", "b"]], ["a"]), (["a, b"], ["a"]), ({"a": 1}, ["a"]), ([""], [""]),
        ([None, None], [None])),
    *spread(NDCG, 0, (["a"], {"a": -1}), (["a"], {"a": NAN}), (["a"], {"a": "3"}), (["a"], {"a": True}),
        ([""], {"": 3}), ([{}], {"a": 1}), ([None, {}, ""], ["a"]), (["x"] * 1_000_000 + ["a"], ["a"])),
    *spread(NAMED, 0, ([{"name": "a"}], {"b": 1}), ([{"title": "a"}], {"a": 1}), ([{"name": {"name": "a"}}], {"a": 1})),
    (NDCG, ["b", "a"], {"a": 3, "b": 0}, 0.64), (NDCG, ["a", "A", "a."], {"a": 1, "b": 1, "c": 1}, 0.47),
    (NDCG, ["a"] * 10, {"a": 1, "b": 1}, 0.62), (FIVE, [f"t{i}" for i in range(99)] + ["slicer"], ["slicer"], 0),
]  # fmt: skip
EXACTLY = [
    *spread(EXACT, 1, ("４", 4), ("7.0", 7), ("+7", 7), ("7e0", 7), ("⁷", 7), ("true", True), ("TRUE", True),
        ("yes", True), ("NODULE", "nodule"), ("se\u200bv\u2060en", "seven"), ("- cyst", "cyst"),
        ("left-sided", "left-sided"), ("left‑sided", "left-sided"), ("T2*", "T2*"), ("5–10", "5-10")),
    *spread(NEAR, 1, ("４．２", 4), ("4.5", 4), ("**4**", 4), ("4.", 4), (".5", 0.5), ("1,200", 1200)),
    *spread(F1, 1, ("¬", "no"), (True, "true")), (SET, 0, [0], 1), (MRR, ["x", "a"], ["a"], 0.5),
    (SET, DIGITS, ["seven"], 2 / 11), (SET, ["seven"] * 50 + ["one"], ["seven"], 2 / 3),
    (FIVE, ["other"] + ["slicer"] * 4, ["slicer"], 0.5), (IOU, [0, 0, 1, 1], BOX, 0.0625),
    (IOU, [BOX] + [[0, 0, 0.01, 0.01]] * 99, BOX, 0.01), (HIT, [BOX] + [[0, 0, 0.01, 0.01]] * 99, BOX, 2 / 101),
    (IOU, [BOX, BOX], BOX, 0.5), (IOU, [[0, 0, 1, 1]], HALVES, 0.25), (IOU, [BOX, None, "x", {}], BOX, 0.25),
    (OBJECTS, found(*DIGITS), found("seven"), 0.1), (OBJECTS, found("cyst", "nodule"), found("cyst"), 0.5),
    # two findings that share words are no contradiction
    *((SET, labels, labels, 1) for labels in (
        ["no effusion", "effusion on the right", "left nodule", "right nodule"], ["left nodule", "right nodule"])),
]  # fmt: skip


@each("reward, said, gold, most", AT_MOST)
def test_an_answer_earns_at_most_its_ceiling(reward, said, gold, most):
    assert 0.0 <= (measure(reward, {"value": said}, {"value": gold}) or 0.0) <= most + 1e-9
    assert "failed" not in explain_reward(reward, {"value": said}, {"value": gold})


@each("reward, said, gold, score", EXACTLY)
def test_an_honest_answer_earns_what_it_is_worth(reward, said, gold, score):
    assert reward({"value": said}, {"value": gold}) == pytest.approx(score)
    assert "failed" not in explain_reward(reward, {"value": said}, {"value": gold})


# ---- signs and opposites
DASHES = "-–‐‑‒—―−﹣－˗➖⁻"
BOTH = [
    "no tumour", "no_tumour", "absent tumour", "non-tumour", "not a tumour", "w/o tumour", "tumour: no", "tumour (-)",
    "tumour-free", "NO TUMOUR!", "❌ tumour", "tumour has not been seen", "tumour negative",
]  # fmt: skip


@each("dash", DASHES)
def test_a_number_keeps_its_minus_and_a_label_the_sign_at_its_end(dash):
    written_as = ["{}7", "{} 7", "({}7)", "**{}7**", "{}7.0", " {}\u00a07 "]
    for reward, written in itertools.product((EXACT, NEAR), written_as):
        given = {"value": written.format(dash)}
        assert [reward(given, {"value": gold}) for gold in (7, "7", -7)] == [0, 0, 1], written
        assert reward({"value": "7"}, given) == 0.0
    written_as = ["{}{}", "{} {}", "{}({})", "{} ({})", "{} [{}]", "**{}{}**", "{} {}."]
    for name, written in itertools.product(["HER2", "CD20"], written_as):
        label, bare = {"value": written.format(name, dash)}, {"value": name}
        assert [EXACT(bare, label), EXACT(label, bare), EXACT(label, {"value": f"{name}-"})] == [0, 0, 1], written
        assert EXACT(label, {"value": f"{name}+"}) == EXACT({"value": f"{name} (+)"}, label) == 0.0


@each("name", ["tumour", "lung nodule"])
@each("other", BOTH)
def test_saying_a_finding_and_its_opposite_is_no_hedge(name, other):
    opposite = other.replace("tumour", name).replace("TUMOUR", name.upper())
    assert sum(SET({"value": [name, opposite]}, {"value": [gold]}) for gold in (name, opposite)) <= 1.0


# ---- stated confidence
@each(("confidence", "most"), [
    *((odd, 0) for odd in ("1", "100%", 100, 1.0000001, -0.1, -1, INF, NAN, "nan", True, None, [1], {"confidence": 1},
        "high", 10**400, 1 + 0j)),
    (1, 0), (0.5, 0.375), (0, 0.5),
])  # fmt: skip
def test_a_wrong_label_earns_at_most_what_its_doubt_is_worth(confidence, most):
    assert BRIER({"label": "cyst", "confidence": confidence}, {"label": "nodule"}) <= most
    right = BRIER({"label": "nodule", "confidence": confidence}, {"label": "nodule"})
    assert right >= most if most or (confidence == 1 and type(confidence) is int) else right == 0.0


NOTHING = [None, "", " ", "\u200b", "\ufe0f\n", {}, [], [""], [[], {}], {"a": None}, ["\u2060"], "\t\u3164"]
LABEL = ExactMatchReward("label")


@each("nothing", NOTHING)
@each("of", [
    LABEL, CombinedReward({"a": (LABEL, 0.5), "b": (LABEL, 0.5)}), lambda answer, reference: 0.0,
    LabelSetF1Reward("label"),
])  # fmt: skip
def test_brier_pays_nothing_for_no_answer(of, nothing):
    reward, gold = BrierReward(of), {"label": "cyst"}
    for answer in ({"label": nothing}, {}):
        assert [reward({**answer, "confidence": stated}, gold) for stated in (0, 0.5)] == [0.0, 0.0]
    assert reward({"label": "nodule", "confidence": 0}, gold) == 0.5


def test_stating_the_true_chance_pays_best_and_being_right_pays_more():
    def expected(chance, confidence):
        right, wrong = (BRIER({"label": label, "confidence": confidence}, {"label": "x"}) for label in "xy")
        return chance * right + (1 - chance) * wrong

    grid = [i / 20 for i in range(21)]
    assert [max(grid, key=lambda confidence: expected(chance, confidence)) for chance in grid] == grid
    assert [expected(chance, chance) for chance in grid] == sorted(expected(chance, chance) for chance in grid)


# ---- wrong types, depths, megabytes
REWARDS = [EXACT, NEAR, PLAIN, F1, SET, MRR, NDCG, IOU, HIT, OBJECTS, BrierReward(EXACT), BrierReward(Gives(0.0)),
           BrierReward(CombinedReward({"a": Component(EXACT, 1.0)})),
           CombinedReward({"a": Component(EXACT, 0.5), "b": Component(IOU, 0.5, needs={"a": 0.5})})]  # fmt: skip


@each("answer", [
    None, [], "seven", 3, {}, {"value": None}, {"value": DEEP[0]}, {"value": object()}, {1: 2}, NAN, b"{}",
])  # fmt: skip
@each("reward", REWARDS)
def test_an_answer_of_the_wrong_type_scores_zero(reward, answer):
    for gold in ({"value": "seven", "label": "seven"}, {"value": BOX}, {"value": [BOX]}, {}):
        assert not measure(reward, answer, gold)


WRAPS = [lambda value: [value], lambda value: {"value": value}, lambda value: (value,)]


@each("inner", [None, "", "seven", [0, 0, 1, 1]])
@each("wrap, depth", [*itertools.product(WRAPS, (50, 5000)), (lambda value: {"box": [value], "label": value}, 12)])
def test_a_deep_value_scores_and_is_explained(wrap, depth, inner):
    deep = nest(wrap, depth, inner)
    for reward in REWARDS:
        for answer, gold in (({"value": deep}, "seven"), ({"value": "seven"}, deep), ({"other": deep}, "seven")):
            score = measure(reward, {**answer, "confidence": 0.5}, {"value": gold})
            assert score is None or 0 <= score <= 1
            assert isinstance(explain_reward(reward, {**answer, "confidence": 0.5}, {"value": gold}), str)


UNITS = ["a", "no ", "a\u0315\u0300", "\ufdfa", "\u200b", "-", "nо ", "nodule, not seen. ", "(-"]


def is_unmeasurable(reward, gold):
    """No answer can be as long as this gold; a function that reads nothing scores it all the same."""
    reads = getattr(reward, "of", reward)
    return hasattr(reads, "field") and (
        gold != "nodule" if isinstance(gold, str) else isinstance(reads, LabelSetF1Reward | RankingReward)
    )


@each("unit", UNITS)
@pytest.mark.timeout(60)  # without the limits, most of these took from 2 to 25 seconds each
def test_ten_megabytes_are_not_compared(unit):
    text = unit * (10_000_000 // len(unit))
    for reward in (EXACT, NEAR, PLAIN, F1, SET, MRR, BrierReward(EXACT), BrierReward(Gives(0.0))):
        for answer, gold in ((text, "nodule"), ("nodule", text), (text, text), (text, [text, "nodule"])):
            given = {"value": answer, "confidence": 1}
            assert measure(reward, given, {"value": gold}) == (None if is_unmeasurable(reward, gold) else 0.0)
            assert len(explain_score(reward, given, {"value": gold}).components[0].why) < 1000


@each("reward", [EXACT, NEAR, PLAIN, F1])
def test_the_longest_text_that_is_compared(reward):
    text = ("nodule " * MAX_TEXT)[:MAX_TEXT]
    assert reward({"value": text}, {"value": text}) == 1.0
    assert reward({"value": "nodule"}, {"value": [text + "s", "nodule"]}) == 1.0
    assert reward({"value": text + "s"}, {"value": text}) == 0.0
    assert measure(reward, {"value": text}, {"value": text + "s"}) is None


def test_a_text_that_is_too_long_is_said_so_and_letters_do_not_grow_without_end():
    why = explain_reward(EXACT, {"value": "a"}, {"value": "a" * 20_000})
    assert "20,000 characters; at most 16,384 are compared" in why
    assert "20,000 characters" in PLAIN.explain({"value": "a" * 20_000}, {"value": "a"})
    assert fold_text("\ufdfa") == "صلى الله عليه وسلم"
    assert len(fold_text("\ufdfa" * MAX_TEXT)) <= 4 * MAX_TEXT
    assert (has_content("\u200b" * MAX_TEXT * 2), has_content("\u200b" * 5000 + "a")) == (False, True)


# ---- calls and gates
ZOOM, FAILED = call(factor=2), call(success=False, factor=3)
GOLD = {"label": "nodule", "report": "nodule in the left lung"}
AGAIN = [({"n": 2}, {"n": 2.0}), ({"n": 1, "m": None}, {"n": 1}), ('{"b": 1, "a": 2}', {"a": 2, "b": 1}),
         ({"box": [0, 1]}, {"box": (0.0, 1.0)}), ({"n": 0.1 + 0.2}, {"n": 0.3})]  # fmt: skip


@each(("reward", "episode", "most"), [
    (ToolUseReward(at_least=2), played(), 0), (ToolUseReward(at_least=2), played(ZOOM, ZOOM, ZOOM), 0.5),
    (ToolUseReward(at_least=2), played(ZOOM, FAILED), 0.5),
    (ToolUseReward(at_least=2), played(ZOOM, call(factor=2.0, x=None)), 0.5),
    *((ToolUseReward(at_least=2), played(call(_given=one), call(_given=other)), 0.5) for one, other in AGAIN),
    (ToolUseReward(at_least=1, tools=["crop"]), played(ZOOM, ZOOM), 0),
    (ToolUseReward(at_most=1), played(*[ZOOM] * 4), 0.25), (ToolUseReward(at_least=1), played(ZOOM, answer=None), 0),
    (ToolUseReward(at_most=0), played(ZOOM), 0), (FormatReward(), played(answer=None), 0),
])  # fmt: skip
def test_calls_earn_at_most_their_ceiling(reward, episode, most):
    assert reward.of_episode(episode) <= most + 1e-9


SAME_ZOOM = [
    {}, {"factor": 2}, {"factor": 2.0}, {"factor": 2, "center": None}, {"factor": 2, "center": [0.5, 0.5]},
    {"center": [0.5, 0.5]}, {"factor": None}, {"center": "null"}, '{"factor": 2}', '{ "center" : [0.50, 5e-1] }', "",
    {"factor": 2.0000000001},
]  # fmt: skip


def test_one_call_written_in_many_ways_is_one_look_and_the_record_says_with_what_it_ran():
    view, turns = View.of(np.arange(4096, dtype=np.uint8).reshape(64, 64)), []
    for number, arguments in enumerate(SAME_ZOOM):
        result = call_stateful("zoom", view, arguments)[1]
        assert result.success, result.error
        asked = SimpleNamespace(id=f"c{number}", name="zoom", arguments=arguments)
        turns += [SimpleNamespace(tool_calls=[asked], tool_results=[])]
        turns += [SimpleNamespace(tool_calls=[], tool_results=[result])]
    assert ToolUseReward(at_least=4).of_episode(SimpleNamespace(turns=turns, answer={"label": "x"})) == 0.25
    result = call_stateful("zoom", View.of(Image.new("L", (64, 64))), {"center": [32, 16]}, coordinates="pixel")[1]
    assert json.loads(result.to_json())["arguments"] == {"factor": 2.0, "center": [0.5, 0.25]}
    assert call_stateful("zoom", view, {"factor": 99})[1].arguments is None


GATED = CombinedReward({
    "label": (LABEL, 0.4),
    "report": Component(TokenF1Reward("report"), 0.3, needs={"label": 1.0}),
    "tools": Component(ToolUseReward(at_least=1), 0.3, needs={"report": 0.5}),
})  # fmt: skip


@each(("label", "report", "most"), [
    *((label, GOLD["report"], 0) for label in ("cyst", "nodule or cyst", None, ["nodule"], NAN)), (None, None, 0),
    *(("nodule", report, 0.4) for report in (None, "no nodule in the left lung", "x " * 9000)),
    ("nodule", "x nodule x y z left", 0.55), ("Nodule.", "Nodule", 0.52),
])  # fmt: skip
def test_no_gate_opens_for_a_part_that_is_wrong(label, report, most):
    answer = {name: said for name, said in (("label", label), ("report", report)) if said is not None}
    total, scores = GATED.score(answer, GOLD, SimpleNamespace(turns=played(ZOOM).turns, answer=answer or None))
    assert total <= most + 1e-9
    assert scores["tools"] == (1.0 if scores["report"] >= 0.5 else 0.0)


def test_a_gate_of_a_part_that_does_not_apply_stays_shut_and_a_bonus_needs_a_right_answer():
    used, report = ToolUseReward(at_least=1), ExactMatchReward("report")
    reward = CombinedReward({"tools": (used, 0.5), "label": Component(LABEL, 0.5, needs={"tools": 1.0})})
    assert reward(GOLD, GOLD) is None
    assert reward.score(GOLD, GOLD, played())[0] == 0.0
    bonus = CombinedReward({"label": (LABEL, 0.5), "bonus": Component(report, 0.5, needs={"label": 1.0})})
    assert [bonus({**GOLD, "label": label}, GOLD) for label in ("cyst", "nodule")] == [0.0, 1.0]


@each("returned", [NAN, INF, -1, 2, "1", [1], 10**400, 1 + 1e-6, b"1", print])
def test_a_component_that_returns_no_score_pays_nothing(returned):
    reward = CombinedReward({"a": (lambda answer, reference: returned, 0.5), "b": (EXACT, 0.5)})
    assert reward({"value": "x"}, {"value": "x"}) is None


# ---- one value of several
ONE_VALUE = {
    "exact_match": ExactMatchReward("value"), "short_answer": ShortAnswerReward("value", tolerance=0.05),
    "literature_vqa": LiteratureAnswerReward("value"),
}  # fmt: skip
OF_MORE = {  # a list, a whole text, an episode or a confidence is asked for, or it is another's
    "brier", "combined", "evidence", "format", "iou", "judge", "label_set_f1", "python", "ranking", "seen", "token_f1",
    "tool_use",
}  # fmt: skip
OPTIONS = {
    "organs": ["liver", "spleen", "kidney", "lung", "heart", "brain", "bone", "skin", "eye", "ear"],
    "planes": ["axial", "coronal", "sagittal"], "numbers": [100, 110], "sizes": ["5 mm", "7 mm", "9 mm"],
    "phrases": ["left nodule", "right nodule"],
}  # fmt: skip


def test_every_shipped_reward_is_asked_for_lists_or_asks_for_them():
    assert set(list_reward_types()) <= {*ONE_VALUE, *OF_MORE}


@each("reward", ONE_VALUE)
def test_a_list_of_equally_likely_values_pays_no_more_than_one_of_them(reward):
    for values in OPTIONS.values():
        golds = [{"value": gold, "kind": "open"} for gold in values]
        guess = max(sum(reward({"value": value}, gold) for gold in golds) for value in values)
        said = [sign.join(map(str, values)) for sign in (", ", " ", " or ", "-", " and ", " ± ")]
        for answer in (*said, values, f"{values[0]} {values[1]}"):
            assert sum(reward({"value": answer}, gold) for gold in golds) <= guess + 1e-9, answer
