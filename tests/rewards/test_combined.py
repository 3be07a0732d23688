"""CombinedReward: a weighted mean whose parts are seen and cannot break it."""

import logging
import math
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.foreign_numbers import ALONE, HALVES, NO_NUMBERS, NOT_FINITE, ONES
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.records import Episode, Task
from viewbox.rewards import CombinedReward, Component, ExactMatchReward, IoUReward

PARTS = st.none() | st.floats(0, 1)


@dataclass(frozen=True)
class Gives:
    value: Any
    name: str = "gives"

    def __call__(self, answer, reference):
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def combined(*pairs):
    return CombinedReward({f"c{i}": (Gives(value), weight) for i, (value, weight) in enumerate(pairs)})


def test_the_total_is_the_weighted_mean_and_the_parts_are_named():
    assert combined((1.0, 0.25), (0.0, 0.75)).score({}, {}) == (0.25, {"c0": 1.0, "c1": 0.0})


def test_a_component_that_does_not_apply_leaves_its_weight_to_the_rest():
    assert combined((None, 0.5), (0.4, 0.25), (0.8, 0.25)).score({}, {}) == (
        pytest.approx(0.6),
        {"c0": None, "c1": 0.4, "c2": 0.8},
    )


def test_it_does_not_apply_where_no_component_with_a_weight_does():
    assert combined((None, 0.5), (None, 0.5))({}, {}) is None
    assert combined((None, 1.0), (1.0, 0.0))({}, {}) is None


def test_a_component_of_weight_zero_is_logged_and_not_counted():
    assert combined((0.5, 1.0), (1.0, 0.0)).score({}, {}) == (0.5, {"c0": 0.5, "c1": 1.0})


@pytest.mark.parametrize(
    "bad", [ValueError("boom"), RecursionError(), math.nan, math.inf, -math.inf, 5.0, -1, "1.0", [1.0], 10**400, 1j]
)
def test_a_broken_component_leaves_no_total_and_is_logged_once(bad, caplog):
    reward = combined((bad, 0.5), (1.0, 0.5))
    with caplog.at_level(logging.WARNING):
        assert reward.score({}, {}) == reward.score({}, {}) == (None, {"c0": None, "c1": 1.0})
    assert list(reward.score_episode(Episode(Task("a"))).faults) == ["c0"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "'c0'" in caplog.text


@each("value, score", [*((half, 0.5) for half in (HALVES | ALONE).values()), *((one, 1.0) for one in ONES.values())])
def test_a_number_of_another_library_is_the_number_it_is(value, score):
    total, scores, faults = combined((value, 1.0)).score_with_faults({}, {})
    assert (total, scores, faults, type(total)) == (score, {"c0": score}, {}, float)


@each("value", [*(NO_NUMBERS | NOT_FINITE).values(), torch.tensor(-0.5), np.float32(1.5)])
def test_what_is_no_number_of_the_range_is_refused_with_the_words_of_its_author(value):
    total, _, faults = combined((value, 1.0)).score_with_faults({}, {})
    assert total is None
    assert faults["c0"].startswith(f"returned {' '.join(f'{value!r:.40}'.split())[:20]}")
    assert faults["c0"].endswith("; allowed: None or a number in [0, 1]")


def test_a_broken_component_without_a_weight_changes_no_total():
    assert combined((math.nan, 0.0), (0.5, 1.0)).score({}, {}) == (0.5, {"c0": None, "c1": 0.5})


def test_what_needs_a_broken_component_fails_too_even_if_that_has_no_weight():
    needs = Component(Gives(1.0), 1.0, {"gate": 0.5})
    reward = CombinedReward({"gate": (Gives(math.nan), 0.0), "bonus": needs})
    total, scores, faults = reward.score_with_faults({}, {})
    assert (total, scores) == (None, {"gate": None, "bonus": None})
    assert faults == {
        "gate": "returned nan; allowed: None or a number in [0, 1]",
        "bonus": "gate, which it needs, failed",
    }


def test_a_broken_component_breaks_the_combinations_around_it_and_is_named_in_full():
    inner = combined((math.nan, 0.5), (1.0, 0.5))
    outer = CombinedReward({"inner": (inner, 0.5), "other": (Gives(1.0), 0.5)})
    total, scores, faults = outer.score_with_faults({}, {})
    assert (total, scores["inner"], scores["inner.c1"], scores["other"]) == (None, None, 1.0, 1.0)
    assert list(faults) == ["inner", "inner.c0"]


def test_an_inner_component_without_a_weight_may_break():
    inner = combined((math.nan, 0.0), (1.0, 1.0))
    assert CombinedReward({"inner": (inner, 1.0)}).score({}, {})[0] == 1.0


@each("end", ["error", "timeout", "cancelled"])
def test_an_episode_that_a_fault_ended_has_no_score_though_it_holds_an_answer(end):
    scores = combined((1.0, 1.0)).score_episode(Episode(Task("a"), answer={"a": 1}, end_reason=end))
    assert (scores.total, dict(scores.components), dict(scores.faults)) == (None, {"c0": None}, {})


@each("end", ["answered", "max_turns", "max_tokens", "malformed"])
def test_an_end_that_is_the_policys_own_doing_is_scored(end):
    assert combined((1.0, 1.0)).score_episode(Episode(Task("a"), end_reason=end)).total == 1.0


class EvilError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class EvilNumber:
    def __repr__(self):
        raise RuntimeError("no words")


@each("bad", [EvilError(), EvilNumber(), ValueError("\x1b]52;c;x\x07" + "x" * 10_000)])
def test_why_a_component_broke_is_one_short_printable_line(bad):
    fault = combined((bad, 1.0)).score_episode(Episode(Task("a"))).faults["c0"]
    assert len(fault) < 600
    assert fault.isprintable()


def test_a_bool_counts_as_a_number():
    assert combined((True, 0.5), (False, 0.5))({}, {}) == 0.5


def test_the_parts_of_a_nested_combination_are_seen_once():
    inner = combined((1.0, 0.5), (0.0, 0.5))
    outer = CombinedReward({"inner": (inner, 0.5), "other": (Gives(1.0), 0.5)})
    assert outer.score({}, {}) == (0.75, {"inner": 0.5, "inner.c0": 1.0, "inner.c1": 0.0, "other": 1.0})


@each(
    ("weights", "said"),
    [
        ([0.5, 0.4], "0.9"), ([0.5, 0.5001], "1.0001"), ([], "no components"), ([1.5, -0.5], "-0.5"),
        ([math.nan], "nan"), ([math.inf], "inf"), (["1"], "'1'"), ([True], "True"),
    ],
)  # fmt: skip
def test_weights_that_are_no_shares_of_one_are_refused_by_what_was_given(weights, said):
    with pytest.raises(ConfigError, match=said):
        combined(*((1.0, weight) for weight in weights))


def test_rounded_thirds_are_shares_of_one():
    assert combined((1.0, 0.3333333), (1.0, 0.3333333), (1.0, 0.3333333))({}, {}) == 1.0


def test_it_copies_its_components_and_survives_pickling():
    components = {"label": (ExactMatchReward(), 0.5), "box": (IoUReward(), 0.5)}
    reward = CombinedReward(components)
    components.clear()
    again = pickle.loads(pickle.dumps(reward))
    assert again == reward
    assert list(again.components) == ["label", "box"]
    assert "ExactMatchReward" in repr(again)


@given(st.lists(st.tuples(PARTS, st.integers(0, 10)), min_size=1, max_size=6).filter(lambda p: sum(w for _, w in p)))
def test_the_total_lies_between_its_least_and_its_greatest_part(pairs):
    whole = sum(weight for _, weight in pairs)
    total = combined(*((value, weight / whole) for value, weight in pairs))({}, {})
    counted = [value for value, weight in pairs if value is not None and weight]
    if counted:
        assert min(counted) - 1e-12 <= total <= min(1.0, max(counted) + 1e-12)
    else:
        assert total is None


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_better_part_never_gives_a_worse_total(worse, better, other, weight):
    worse, better = sorted((worse, better))
    weights = (weight, 1 - weight)
    low, high = (combined((value, weights[0]), (other, weights[1]))({}, {}) for value in (worse, better))
    assert low <= high


# ---- needs


def gated(label, bonus, needs=None, weight=0.5):
    needs = {"label": 1.0} if needs is None else needs
    return CombinedReward({"bonus": Component(Gives(bonus), weight, needs), "label": (Gives(label), 1 - weight)})


@each(
    ("label", "bonus", "expected"),
    [
        (1.0, 0.8, (0.9, {"bonus": 0.8, "label": 1.0})),
        (0.9, 0.8, (0.45, {"bonus": 0.0, "label": 0.9})),
        (None, 0.8, (None, {"bonus": None, "label": None})),
        (1.0, None, (1.0, {"bonus": None, "label": 1.0})),
        (0.9, None, (0.45, {"bonus": 0.0, "label": 0.9})),  # not asked
    ],
)
def test_a_part_counts_only_where_what_it_needs_is_reached(label, bonus, expected):
    assert gated(label, bonus).score({}, {}) == expected


def test_what_is_needed_is_compared_with_room_for_rounding():
    assert gated(1 - 1e-12, 1.0)({}, {}) == pytest.approx(1.0)


def test_parts_are_listed_as_they_were_given_whatever_needs_what():
    assert list(gated(1.0, 1.0).score({}, {})[1]) == ["bonus", "label"]


def test_a_part_that_is_out_is_not_asked():
    assert gated(0.0, ValueError("asked")).score({}, {})[1]["bonus"] == 0.0


def test_needs_go_on_through_parts_that_need_others():
    reward = CombinedReward(
        {
            "tool": Component(Gives(1.0), 0.2, {"label": 1.0}),
            "label": Component(Gives(1.0), 0.4, {"format": 0.5}),
            "format": (Gives(0.25), 0.4),
        }
    )
    assert reward.score({}, {}) == (pytest.approx(0.1), {"tool": 0.0, "label": 0.0, "format": 0.25})


def test_the_parts_of_a_combined_part_that_is_out_do_not_apply():
    inner = combined((1.0, 0.5), (1.0, 0.5))
    reward = CombinedReward({"inner": Component(inner, 0.5, {"label": 1.0}), "label": (Gives(0.0), 0.5)})
    assert reward.score({}, {})[1] == {"inner": 0.0, "inner.c0": None, "inner.c1": None, "label": 0.0}


@each(
    ("needs", "said"),
    [
        ({"lable": 1.0}, "unknown component 'lable'; allowed: bonus, label .did you mean 'label'"),
        ({"bonus": 1.0}, "components: needs form a cycle: bonus → bonus"),
        ({"label": 0}, "needs.label = 0; allowed: a number above 0 and of at most 1"),
        ({"label": 1.5}, "needs.label = 1.5"),
        ({"label": math.nan}, "needs.label = nan"),
        ({"label": True}, "needs.label = True"),
    ],
)
def test_needs_that_cannot_be_met_are_refused(needs, said):
    with pytest.raises(ConfigError, match=said):
        gated(1.0, 1.0, needs)


def test_needs_in_a_cycle_of_two_are_refused_by_name():
    parts = {"a": Component(Gives(1.0), 0.5, {"b": 1.0}), "b": Component(Gives(1.0), 0.5, {"a": 1.0})}
    with pytest.raises(ConfigError, match=r"needs form a cycle: . → . → ."):
        CombinedReward(parts)


@given(PARTS, PARTS, st.floats(0.01, 1), st.floats(0, 1))
def test_a_gate_only_takes_away(label, bonus, least, weight):
    total = gated(label, bonus, {"label": least}, weight)({}, {})
    free = gated(label, bonus, {}, weight)({}, {})
    if label is not None and total is not None and free is not None and bonus is not None:
        assert total <= free + 1e-12


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 1))
def test_a_better_label_never_gives_a_worse_total_through_a_gate(one, other, bonus, least):
    worse, better = sorted((one, other))
    assert gated(worse, bonus, {"label": least})({}, {}) <= gated(better, bonus, {"label": least})({}, {}) + 1e-12
