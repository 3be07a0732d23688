"""Combinations: a weighted mean whose parts are seen, explained and cannot break it; parts that need others."""

import itertools
import json
import logging
import math
import pickle
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.foreign_numbers import ALONE, HALVES, NO_NUMBERS, NOT_FINITE, ONES
from tests.support.scoring import Gives, combined, refuse
from tests.support.tables import each
from viewbox.envs import load_class, make
from viewbox.envs.data import DataEnv
from viewbox.records import Episode, Task, Turn
from viewbox.registry import ENVIRONMENTS
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
    build,
    check_rewards,
    explain_reward,
    to_combined,
)
from viewbox.rewards.declare import AnswerFunction, EpisodeFunction, load_reward
from viewbox.rewards.explain import explain_score
from viewbox.rewards.remote import count_threads, is_blocking, take_counts

NAN, INF = math.nan, math.inf
HALF, BROKEN = combined((1.0, 0.5), (0.0, 0.5)), combined((NAN, 0.5), (1.0, 0.5))


def need(**parts):
    """A combination of name=(reward or value, weight, what it needs)."""
    made = {
        name: part[0] if callable(part[0]) or hasattr(part[0], "of_episode") else Gives(part[0])
        for name, part in parts.items()
    }
    return CombinedReward({name: Component(made[name], *part[1:]) for name, part in parts.items()})


def gated(label, bonus, needs=None, weight=0.5):
    return need(bonus=(bonus, weight, {"label": 1.0} if needs is None else needs), label=(label, 1 - weight))


@each("reward, total, parts, faults", [
    (combined((None, 0.5), (0.4, 0.25), (0.8, 0.25)), 0.6, {"c0": None, "c1": 0.4, "c2": 0.8}, {}),
    # leaves its weight
    (combined((None, 1.0), (1.0, 0.0)), None, {"c0": None, "c1": 1.0}, {}),
    # a weight of zero is logged and not counted
    (combined((True, 0.5), (False, 0.5)), 0.5, {"c0": 1.0, "c1": 0.0}, {}),
    (combined(*[(1.0, 0.3333333)] * 3), 1.0, {"c0": 1.0, "c1": 1.0, "c2": 1.0}, {}),  # rounded thirds
    (combined((NAN, 0.0), (0.5, 1.0)), 0.5, {"c0": None, "c1": 0.5}, {"c0"}),
    (need(i=(BROKEN, 0.5), o=(1.0, 0.5)), None, {"i": None, "i.c0": None, "i.c1": 1.0, "o": 1.0}, {"i", "i.c0"}),
    (need(i=(combined((NAN, 0.0), (1.0, 1.0)), 1.0)), 1.0, {"i": 1.0, "i.c0": None, "i.c1": 1.0}, {"i.c0"}),
    # a part counts only where what it needs is reached; else it is not asked
    (gated(1.0, 0.8), 0.9, {"bonus": 0.8, "label": 1.0}, {}), (gated(0.9, 0.8), 0.45, {"bonus": 0.0, "label": 0.9}, {}),
    (gated(None, 0.8), None, {"bonus": None, "label": None}, {}),
    (gated(1.0, None), 1.0, {"bonus": None, "label": 1.0}, {}),
    (gated(0.0, ValueError("asked")), 0.0, {"bonus": 0.0, "label": 0.0}, {}),
    (gated(1 - 1e-12, 1.0), 1.0, {"bonus": 1.0, "label": 1 - 1e-12}, {}),  # room for rounding
    (need(tool=(1.0, 0.2, {"label": 1.0}), label=(1.0, 0.4, {"format": 0.5}), format=(0.25, 0.4)), 0.1,
     {"tool": 0.0, "label": 0.0, "format": 0.25}, {}),
    (need(i=(HALF, 0.5, {"o": 1.0}), o=(0.0, 0.5)), 0.0, {"i": 0.0, "i.c0": None, "i.c1": None, "o": 0.0}, {}),
    (need(gate=(NAN, 0.0), bonus=(1.0, 1.0, {"gate": 0.5})), None, {"gate": None, "bonus": None}, {"gate", "bonus"}),
])  # fmt: skip
def test_the_total_the_parts_and_what_failed(reward, total, parts, faults):
    found, scores, failed = reward.score_with_faults({}, {})
    assert found == (None if total is None else pytest.approx(total)) == reward({}, {})
    assert list(scores.items()) == list(parts.items())  # in the order in which they were given
    assert set(failed) == set(faults)


class Placed:
    """Scores `value`, and says (or raises) `turns`."""

    def __init__(self, value, turns):
        self.name, self.value, self.turns = "own", value, turns

    def of_episode(self, episode):
        return self.value

    def of_turns(self, episode):
        if isinstance(self.turns, BaseException):
            raise self.turns
        return self.turns


EARLY = Placed(0.5, [0.5, 0.0, 0.0])


@each("reward, turns, fault", [
    (need(a=(EARLY, 0.5), b=(1.0, 0.5)), [0.25, 0.0, 0.5], None),  # what nobody places, the last reply earns
    (need(a=(EARLY, 0.5), b=(None, 0.5)), [0.5, 0.0, 0.0], None),
    (need(a=(EARLY, 0.5), b=(Placed(0.2, [0.0, -0.3, 0.0]), 0.5)), [0.25, -0.15, 0.25], None),
    (need(o=(need(a=(EARLY, 0.5), b=(1.0, 0.5)), 0.5), c=(0.0, 0.5)), [0.125, 0.0, 0.25], None),
    (need(o=(need(o=(need(a=(EARLY, 1.0)), 1.0)), 0.5), c=(1.0, 0.5)), [0.25, 0.0, 0.5], None),
    (need(a=(Placed(0.0, [0.5, -0.5, 0.0]), 1.0)), [0.5, -0.5, 0.0], None),
    (need(a=(Placed(0.5, np.array([0.5, 0.0, 0.0])), 1.0)), [0.5, 0.0, 0.0], None),
    (need(a=(Placed(0.5, None), 1.0)), [], None),
    (need(a=(Placed(None, ValueError("asked")), 0.5), b=(1.0, 0.5)), [], None),
    (need(a=(Placed(1.0, ValueError("asked")), 0.5, {"b": 1.0}), b=(0.0, 0.5)), [], None),  # its need is unmet
    (need(a=(1.0, 1.0)), [], None),
    (need(a=(Placed(0.5, ZeroDivisionError("x")), 0.5), b=(1.0, 0.5)), [], "raised ZeroDivisionError: x"),
    (need(a=(Placed(0.5, SystemExit(3)), 1.0)), [], "raised SystemExit"),
    (need(a=(Placed(0.5, [0.5]), 1.0)), [], "of_turns returned [0.5]; allowed: None, or a number in [-1, 1]"),
    (need(a=(Placed(0.5, [0.5, NAN, 0.0]), 1.0)), [], "of_turns returned [0.5, nan, 0.0]"),
    (need(a=(Placed(0.5, 7), 1.0)), [], "raised TypeError"),
    (need(a=(Placed(0.5, itertools.repeat(0.0)), 1.0)), [], "of_turns returned repeat(0.0)"),
    (need(a=(Placed(0.5, {0: 0.5, 1: 0.0, 2: 0.0}), 1.0)), [], "of_turns returned {0: 0.5"),  # not its keys
    (need(a=(Placed(0.5, [1e39, -1e39, 0.0]), 1.0)), [], "of_turns returned [1e+39"),  # infinite in float32
])  # fmt: skip
def test_what_each_reply_earned_sums_to_the_total(reward, turns, fault):
    episode = Episode(Task("a", reference={"x": 1}), (Turn("assistant"),) * 3)
    scores = reward.score_episode(episode)
    assert list(scores.turns) == pytest.approx(turns)
    assert (scores.total is None) == (fault is not None)
    if turns:
        assert sum(scores.turns) == pytest.approx(scores.total)
    if fault:
        assert fault in scores.faults["a"]


def test_a_reward_by_another_name_places_what_it_earns(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    reward = CombinedReward({"a": (load_reward(f"{tmp_path}/mine.py:Mine", name="other"), 1.0)})
    assert reward.score_episode(Episode(Task("a"), (Turn("assistant"),) * 2)).turns == (0.5, 0.0)


MINE = """
class Mine:
    name = "mine"
    def of_episode(self, episode): return 0.5
    def of_turns(self, episode): return [0.5, 0.0]
"""


def test_a_fault_says_what_was_returned_or_which_need_failed():
    faults = need(gate=(NAN, 0.0), bonus=(1.0, 1.0, {"gate": 0.5})).score_with_faults({}, {})[2]
    assert faults == {
        "gate": "returned nan; allowed: None or a number in [0, 1]",
        "bonus": "gate, which it needs, failed",
    }


@pytest.mark.parametrize(
    "bad", [ValueError("boom"), RecursionError(), NAN, INF, -INF, 5.0, -1, "1.0", [1.0], 10**400, 1j]
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


@each("end", ["error", "timeout", "cancelled", "answered", "max_turns", "max_tokens", "malformed"])
def test_an_episode_that_a_fault_ended_has_no_score_and_any_other_end_is_scored(end):
    scores = combined((1.0, 1.0)).score_episode(Episode(Task("a"), answer={"a": 1}, end_reason=end))
    score = None if end in ("error", "timeout", "cancelled") else 1.0
    assert (scores.total, dict(scores.components), dict(scores.faults)) == (score, {"c0": score}, {})


class EvilError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


class EvilNumber:
    __repr__ = EvilError.__str__


@each("bad", [EvilError(), EvilNumber(), ValueError("\x1b]52;c;x\x07" + "x" * 10_000)])
def test_why_a_component_broke_is_one_short_printable_line(bad):
    fault = combined((bad, 1.0)).score_episode(Episode(Task("a"))).faults["c0"]
    assert len(fault) < 600
    assert fault.isprintable()


@each("make, words", [
    *((lambda weights=weights: combined(*((1.0, weight) for weight in weights)), said)
      for weights, said in [([0.5, 0.4], "0.9"), ([0.5, 0.5001], "1.0001"), ([], "no components"), ([1.5, -0.5],
       "-0.5"),
     ([NAN], "nan"), ([INF], "inf"), (["1"], "'1'"), ([True], "True")]),
    *((lambda needs=needs: gated(1.0, 1.0, needs), said)
      for needs, said in [({"lable": 1.0}, "unknown component 'lable'; allowed: bonus, label .did you mean 'label'"),
     ({"bonus": 1.0}, "components: needs form a cycle: bonus → bonus"),
     ({"label": 0}, "needs.label = 0; allowed: a number above 0 and of at most 1"),
     ({"label": 1.5}, "needs.label = 1.5"), ({"label": NAN}, "needs.label = nan"),
     ({"label": True}, "needs.label = True")]),
    (lambda: need(a=(1.0, 0.5, {"b": 1.0}), b=(1.0, 0.5, {"a": 1.0})), r"needs form a cycle: . → . → ."),
])  # fmt: skip
def test_weights_and_needs_that_cannot_be_are_refused_by_what_was_given(make, words):
    refuse(words, make)


def test_it_copies_its_components_and_survives_pickling():
    components = {"label": (ExactMatchReward(), 0.5), "box": (IoUReward(), 0.5)}
    reward = CombinedReward(components)
    components.clear()
    again = pickle.loads(pickle.dumps(reward))
    assert again == reward
    assert list(again.components) == ["label", "box"]
    assert "ExactMatchReward" in repr(again)


PARTS = st.none() | st.floats(0, 1)


@given(st.lists(st.tuples(PARTS, st.integers(0, 10)), min_size=1, max_size=6).filter(lambda p: sum(w for _, w in p)))
def test_the_total_lies_between_its_least_and_its_greatest_part(pairs):
    whole = sum(weight for _, weight in pairs)
    total = combined(*((value, weight / whole) for value, weight in pairs))({}, {})
    counted = [value for value, weight in pairs if value is not None and weight]
    assert (total is None) == (not counted)
    assert not counted or min(counted) - 1e-12 <= total <= min(1.0, max(counted) + 1e-12)


@given(
    st.floats(0, 1), st.floats(0, 1), PARTS.filter(lambda part: part is not None), st.floats(0.01, 1), st.floats(0, 1)
)
def test_a_better_part_never_gives_a_worse_total_and_a_gate_only_takes_away(one, two, bonus, least, weight):
    worse, better = sorted((one, two))
    low, high = (combined((value, weight), (bonus, 1 - weight))({}, {}) for value in (worse, better))
    assert low <= high
    shut, open = (gated(value, bonus, {"label": least}, weight)({}, {}) for value in (worse, better))
    assert shut <= open + 1e-12
    assert open <= gated(better, bonus, {}, weight)({}, {}) + 1e-12


# ---- reasons
X, LAMBDA = ExactMatchReward("x"), (lambda answer, reference: None)
BOX, TOP = [0, 0, 1, 1], [0, 0, 1, 0.5]
AT, CUBE = {"x": BOX, "slice": [11, 14]}, [0, 0, 0, 0.5, 0.5, 0.5]


@each("reward, said, gold, words", [
    (X, "Cyst", "cyst", "x: 'Cyst' is 'cyst'"), (X, None, "cyst", "x: nothing is not 'cyst'"),
    (ExactMatchReward("x", tolerance=0.5), 3, 7, "x: 3 is not 7 (± 0.5)"),
    (X, "x" * 100, "cyst", f"x: '{'x' * 60}…' is not 'cyst'"),
    (TokenF1Reward("x"), "no cyst", "cyst", "x: 0 of 1 words are among the gold's 1; contradicts the gold: not cyst"),
    (TokenF1Reward("x"), "no big cyst", "no cyst", "x: 1 of 2 words are among the gold's 1 (not cyst)"),
    (TokenF1Reward("x"), None, "cyst", "x: no answer given; wanted 'cyst'"),
    (IoUReward("x"), None, BOX, "x: the answer does not hold a box"),
    (IoUReward("x"), TOP, BOX, "1 of 1 gold boxes matched: IoU 0.50"),
    (IoUReward("x", threshold=0.6), TOP, BOX,
     "0 of 1 gold boxes matched (threshold 0.6); 1 of 1 answer boxes is unmatched"),
    (IoUReward("x"), [TOP, [0, 0.5, 1, 0.9], [0, 0, 0.1, 0.1]], [TOP, [0, 0.5, 1, 1]],
     "2 of 2 gold boxes matched: IoU 1.00, 0.80; 1 of 3 answer boxes is unmatched"),
    (IoUReward("x", format="xyzxyz"), [CUBE], [CUBE, [0.5, 0.5, 0.5, 1, 1, 1]], "1 of 2 gold boxes matched: IoU 1.00"),
    (LabelSetF1Reward("x"), ["cyst", "mass"], ["cyst", "nodule"],
     "x: 1 of 2 gold labels found; missing: nodule; wrong: mass"),
    (RankingReward("x"), ["x", "a"], ["a", "b"], "x: 1 of 2 relevant names in 2 places ('a' at 2)"),
    *((reward, None, None, "does not apply: it reads a whole episode") for reward in (FormatReward(),
     ToolUseReward(at_least=1))), (LAMBDA, None, None, "does not apply"),
    (lambda answer, reference: 1 / 0, None, None, "failed: ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_a_reward_says_why(reward, said, gold, words):
    assert explain_reward(reward, {"x": said}, {"x": gold}).startswith(words)


def test_a_reason_names_the_place_and_the_confidence_and_a_combined_reward_says_why_part_by_part():
    words = IoUReward("x", places=["slice"]).explain({"x": BOX, "slice": 3}, AT)
    assert words == "x: slice is 3, the reference says [11, 14]"
    words = BrierReward().explain({"label": "cyst", "confidence": 0.5}, {"label": "cyst"})
    assert words == "confidence 0.5 of 1, exact_match scores 1"
    reward = need(
        inner=(need(label=(ExactMatchReward("label"), 1.0)), 0.5), box=(IoUReward("bbox"), 0.4, {"inner": 1.0}),
        look=(ToolUseReward(at_least=1), 0.05, {"inner": 0.5}), tail=(ExactMatchReward("label"), 0.05, {"format": 0.5}),
        format=(FormatReward(), 0.0),
    )  # fmt: skip
    assert {row.name: row.why for row in explain_score(reward, {"label": "cyst"}, {"label": "nodule"}).components} == {
        "inner": "weighted mean of its components: 0", "inner.label": "label: 'cyst' is not 'nodule'",
        "box": "counts 0: inner is 0, needed: 1", "look": "counts 0: inner is 0, needed: 0.5",
        "tail": "does not apply, since format does not", "format": "does not apply: it reads a whole episode",
    }  # fmt: skip


GOLD = {"label": "seven", "bbox": [0, 0, 0.5, 1], "report": "a nodule", "size": 3}
SIX = {**GOLD, "label": "six"}
INNER = need(report=(TokenF1Reward("report"), 0.5), size=(ExactMatchReward("size"), 0.5))
GATED = need(size=(ExactMatchReward("size"), 0.5), report=(TokenF1Reward("report"), 0.5, {"size": 1.0}))
REWARD = need(
    label=(ExactMatchReward("label"), 0.5), format=(FormatReward(), 0.1),
    box=(IoUReward("bbox"), 0.2, {"label": 1.0}), inner=(INNER, 0.2, {"label": 1.0}),
)  # fmt: skip


@each("answer", [GOLD, SIX, {"label": "seven", "bbox": BOX}, {}, None])
def test_what_is_explained_is_what_the_reward_gives(answer):
    trial = explain_score(REWARD, answer, GOLD)
    assert (trial.total, {row.name: row.score for row in trial.components}) == REWARD.score(answer, GOLD)
    assert [row.name for row in trial.components] == ["label", "format", "box", "inner", "inner.report", "inner.size"]
    assert [row.weight for row in trial.components] == [0.5, 0.1, 0.2, 0.2, 0.5, 0.5]  # in the reward around it


def test_a_gate_is_shut_where_what_stands_beside_it_is_not_reached():
    rows = {row.name: row for row in explain_score(REWARD, SIX, GOLD).components}
    assert {name for name, row in rows.items() if row.closed} == {"box", "inner", "inner.report", "inner.size"}
    assert rows["inner.size"].why == "not evaluated: the needs of inner are unmet"
    assert not any(row.closed for row in explain_score(REWARD, GOLD, GOLD).components)
    outer = need(size=(ExactMatchReward("label"), 0.5), inner=(GATED, 0.5))
    rows = {row.name: row for row in explain_score(outer, {**GOLD, "size": 4}, GOLD).components}
    assert (rows["size"].score, rows["inner.size"].score, rows["inner.report"].closed) == (1.0, 0.0, True)


def test_a_reward_that_is_not_combined_is_its_only_component_and_a_trial_is_json():
    trial = explain_score(ExactMatchReward("label"), GOLD, GOLD)
    row = {"name": "exact_match", "weight": 1.0, "score": 1.0, "closed": False, "why": "label: 'seven' is 'seven'"}
    whole = json.loads(json.dumps(trial.to_dict()))
    assert (whole["reward"], whole["total"], whole["components"]) == ("exact_match", 1.0, [row])


def broken(answer, reference):
    return answer["nothing"]


@each("reward, fault", [
    (broken, "KeyError: 'nothing'"), (lambda answer, gold: sys.exit(3), "ForeignError: SystemExit: 3"),
])  # fmt: skip
def test_a_reward_that_raises_or_ends_the_process_gives_no_total_and_is_told(reward, fault):
    trial = explain_score(reward, {}, {})
    assert (trial.total, trial.components[0].score, trial.components[0].why) == (None, None, f"failed: {fault}")
    assert fault.split(": ")[-1] in trial.problems[0]


OWN = """
class Plain:
    def __call__(self, answer, reference): return 0.5
    def explain(self, answer, reference): return "because"
class Named(Plain):
    name = "other"
class Whole:
    def of_episode(self, episode): return 0.5
    def explain_episode(self, episode): return "because"
class Called:
    def __call__(self, episode): return 0.5
    def explain_episode(self, episode): return "because"
made = Plain()
def function(answer, reference): return 0.5
function.explain = lambda answer, reference: "because"
"""


@each("path", ["Plain", "Named", "Whole", "Called", "made", "function", "made.__call__"])
def test_an_own_reward_gives_its_reason_whatever_its_class_and_name(tmp_path, path):
    (tmp_path / "own.py").write_text(OWN)
    episode = Episode(Task("a"))
    spec = build({"type": "python", "function": f"{tmp_path}/own.py:{path}", "name": "mine"})
    for reward in (load_reward(f"{tmp_path}/own.py:{path}"), load_reward(f"{tmp_path}/own.py:{path}", "mine"), spec):
        assert [row.why for row in explain_score(reward, {}, {}, episode).components] == ["because"]


# ---- gold scores 1.0 and no answer scores 0
OTHERS = {"mixture", "literature_vqa", "software_adviser"}  # which ask it in tests of their own


@each("name", [name for name in ENVIRONMENTS if name not in OTHERS and not issubclass(load_class(name), DataEnv)])
def test_gold_scores_one_and_no_answer_scores_zero_on_every_environment(name):
    assert check_rewards(make(name)) == []


def env(reward, reference, **more):
    return SimpleNamespace(tasks=[SimpleNamespace(id="t1", reference=reference)], reward=to_combined(reward), **more)


@each("env, found", [
    *((make("digits", coordinates=frame), []) for frame in ("unit", "per_mille", "pixel")),
    (env(need(label=(ExactMatchReward("lable", "label"), 0.5), box=(IoUReward("bbox"), 0.5)), GOLD),
     ["task t1: gold scores 0.5 (label: 0.0, box: 1.0); expected 1.0"]),
    (env(lambda answer, reference: 1.0, GOLD), ["task t1: the answer None scores 1.0; expected 0"]),
    (env(ExactMatchReward("a", "g.l"), {"g": {"l": "x"}}, perfect_answer=lambda task: {"a": "x"}), []),
])  # fmt: skip
def test_a_reward_that_reads_another_field_or_gives_for_nothing_is_found(env, found):
    assert check_rewards(env)[:1] == found


def test_only_the_first_tasks_are_read():
    one = env(ExactMatchReward(), {"label": "cyst"})
    task = one.tasks[0]
    one.tasks = (task if number < 3 else 1 / 0 for number in range(9))
    assert check_rewards(one, num_tasks=3) == []


# ---- rewards that ask somebody else
@dataclass
class Asks:
    remote: str | None = "https://judge.example/v1"
    concurrency: int = 5
    name: str = "asks"
    blocking: bool = True
    counted: dict = field(default_factory=dict)

    def __call__(self, answer, reference):
        return 1.0

    def of_episode(self, episode):
        return 1.0

    def take_counts(self):
        counted, self.counted = self.counted, {}
        return counted


def inside(reward):
    return need(inner=(need(asks=(reward, 1.0)), 0.5), label=(ExactMatchReward(), 0.5))


PLACES = [Asks(), inside(Asks()), inside(AnswerFunction(Asks(), "o")), inside(EpisodeFunction(Asks().of_episode, "o"))]


@each("reward, threads", [*((place, 5) for place in PLACES), (inside(LAMBDA), 1), (None, 1)])
def test_a_blocking_reward_is_found_wherever_it_stands(reward, threads):
    assert count_threads(reward) == threads
    assert reward is None or is_blocking(reward) == (threads > 1)


def test_counts_are_summed_and_told_once():
    reward = need(a=(Asks(counted={"judge/calls": 2}), 0.5), b=(Asks(counted={"judge/calls": 3}), 0.5))
    assert [take_counts(reward), take_counts(reward), take_counts(None)] == [{"judge/calls": 5.0}, {}, {}]
