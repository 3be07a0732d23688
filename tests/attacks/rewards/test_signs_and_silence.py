"""Answers that lose a minus, say both, or say nothing: none of them is paid as a right answer."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from tests.support.unmeasurable import measure
from viewbox.images.view import View
from viewbox.rewards import BrierReward, ExactMatchReward, IoUReward, LabelSetF1Reward, ToolUseReward
from viewbox.rewards.combined import CombinedReward
from viewbox.tools import call_stateful

DASHES = "-–‐‑‒—―−﹣－˗➖⁻"
EXACT = ExactMatchReward("label")


@pytest.mark.parametrize("written", ["{}7", "{} 7", "({}7)", "**{}7**", "{}7.0", " {}\u00a07 "])
@pytest.mark.parametrize("tolerance", [None, 0.5])
def test_a_number_keeps_its_minus(written, tolerance):
    for dash in DASHES:
        reward, answer = ExactMatchReward("label", tolerance=tolerance), {"label": written.format(dash)}
        assert reward(answer, {"label": 7}) == reward(answer, {"label": "7"}) == 0.0
        assert reward(answer, {"label": -7}) == 1.0
        assert reward({"label": "7"}, {"label": written.format(dash)}) == 0.0


@pytest.mark.parametrize("written", ["{}{}", "{} {}", "{}({})", "{} ({})", "{} [{}]", "**{}{}**", "{} {}."])
@pytest.mark.parametrize("name", ["HER2", "Rh", "CD20"])
def test_a_label_keeps_the_minus_at_its_end(written, name):
    for dash in DASHES:
        label = written.format(name, dash)
        assert EXACT({"label": name}, {"label": label}) == EXACT({"label": label}, {"label": name}) == 0.0
        assert EXACT({"label": label}, {"label": f"{name}-"}) == 1.0
        assert (
            EXACT({"label": label}, {"label": f"{name}+"}) == EXACT({"label": f"{name} (+)"}, {"label": label}) == 0.0
        )


@pytest.mark.parametrize("label", ["-cyst", "–cyst", "(-cyst)", "!cyst", "cyst-", "cyst (-)", "cyst –"])
def test_a_sign_makes_another_label_everywhere(label):
    box = {"box": [0, 0, 1, 1], "label": label}
    gold = {"found": [{"box": [0, 0, 1, 1], "label": "cyst"}], "label": "cyst", "labels": ["cyst"]}
    assert EXACT({"label": label}, gold) == 0.0
    assert LabelSetF1Reward("labels")({"labels": [label]}, gold) == 0.0
    assert IoUReward("found", box_key="box", label_key="label")({"found": [box]}, gold) == 0.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [("- cyst", "cyst"), ("left-sided", "left-sided"), ("left‑sided", "left-sided"), ("T2*", "T2*"), ("5–10", "5-10")],
)
def test_a_dash_that_is_no_sign_costs_nothing(answer, gold):
    assert EXACT({"label": answer}, {"label": gold}) == 1.0


@pytest.mark.parametrize("length", [10**4, 10**5])
def test_long_rows_of_signs_take_no_time(length):
    for text in ("-" * length, "a" + "-" * length, "a -" * length, "(-" * length, "- " * length + "7"):
        assert not measure(EXACT, {"label": text}, {"label": text + "x"})


BOTH = [
    "no tumour", "no_tumour", "no-tumour", "No  tumour", "tumour absent", "absent tumour", "non tumour", "non-tumour",
    "not a tumour", "negative for tumour", "without tumour", "w/o tumour", "tumour: no", "tumour (-)", "tumour-free",
    "free of tumour", "nil tumour", "no evidence of tumour", "tumour not seen", "tumour ruled out", "NO TUMOUR!",
    "❌ tumour", "tumour has not been seen", "absence of tumour", "tumour negative", "zero tumour", "neither tumour",
]  # fmt: skip


@pytest.mark.parametrize("name", ["tumour", "lung nodule"])
def test_saying_a_finding_and_its_opposite_is_no_hedge(name):
    for other in BOTH:
        opposite = other.replace("tumour", name).replace("TUMOUR", name.upper())
        reward, both = LabelSetF1Reward("labels"), {"labels": [name, opposite]}
        mean = (reward(both, {"labels": [name]}) + reward(both, {"labels": [opposite]})) / 2
        assert mean <= 0.5, opposite


def test_two_findings_that_share_words_are_no_contradiction():
    gold = {"labels": ["no effusion", "effusion on the right", "left nodule", "right nodule"]}
    assert LabelSetF1Reward("labels")(gold, gold) == 1.0
    answer = {"labels": ["left nodule", "right nodule"]}
    assert LabelSetF1Reward("labels")(answer, answer) == 1.0


NOTHING = [None, "", " ", "\u200b", "\ufe0f\n", {}, [], [""], [[], {}], {"a": None}, ["\u2060"], "\t\u3164"]
OF = [
    ExactMatchReward("label"),
    CombinedReward({"a": (ExactMatchReward("label"), 0.5), "b": (ExactMatchReward("label"), 0.5)}),
    lambda answer, reference: 0.0,
    LabelSetF1Reward("label"),
]


@pytest.mark.parametrize("of", OF, ids=["exact_match", "combined", "function", "label_set_f1"])
def test_brier_pays_nothing_for_no_answer(of):
    for nothing, confidence in itertools.product(NOTHING, (0, 0.5)):
        reward = BrierReward(of)
        assert reward({"label": nothing, "confidence": confidence}, {"label": "cyst"}) == 0.0
        assert reward({"confidence": confidence}, {"label": "cyst"}) == 0.0
        assert reward({"label": "nodule", "confidence": 0}, {"label": "cyst"}) == 0.5


SAME_ZOOM = [
    {}, {"factor": 2}, {"factor": 2.0}, {"factor": 2, "center": None}, {"factor": 2, "center": [0.5, 0.5]},
    {"center": [0.5, 0.5]}, {"factor": None}, {"center": "null"}, '{"factor": 2}', '{ "center" : [0.50, 5e-1] }', "",
    {"factor": 2.0000000001},
]  # fmt: skip


def test_one_call_written_in_many_ways_is_one_look():
    turns = []
    for number, arguments in enumerate(SAME_ZOOM):
        view = View.of(Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64)))
        _, result = call_stateful("zoom", view, arguments)
        assert result.success, result.error
        call = SimpleNamespace(id=f"c{number}", name="zoom", arguments=arguments)
        turns.append(SimpleNamespace(tool_calls=[call], tool_results=[]))
        turns.append(SimpleNamespace(tool_calls=[], tool_results=[result]))
    episode = SimpleNamespace(turns=turns, answer={"label": "x"})
    assert ToolUseReward(at_least=4).of_episode(episode) == 0.25


@pytest.mark.parametrize(
    ("one", "other"),
    [({"n": 2}, {"n": 2.0}), ({"n": 1, "m": None}, {"n": 1}), ('{"b": 1, "a": 2}', {"a": 2, "b": 1}),
     ({"box": [0, 1]}, {"box": (0.0, 1.0)}), ({"n": 0.1 + 0.2}, {"n": 0.3})],
)  # fmt: skip
def test_calls_of_old_records_are_compared_by_what_they_say(one, other):
    turns = [
        SimpleNamespace(
            tool_calls=[SimpleNamespace(id="a", name="zoom", arguments=arguments)],
            tool_results=[SimpleNamespace(tool_name="zoom", call_id="a", success=True)],
        )
        for arguments in (one, other)
    ]
    episode = SimpleNamespace(turns=turns, answer={"label": "x"})
    assert ToolUseReward(at_least=2).of_episode(episode) == 0.5


def test_the_record_of_a_call_says_with_what_it_ran():
    view = View.of(Image.new("L", (64, 64)))
    _, result = call_stateful("zoom", view, {"center": [32, 16]}, coordinates="pixel")
    assert json.loads(result.to_json())["arguments"] == {"factor": 2.0, "center": [0.5, 0.25]}
    assert call_stateful("zoom", view, {"factor": 99})[1].arguments is None
