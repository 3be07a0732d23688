"""One answer explained: the numbers are those of the reward itself, closed gates are named, and so are reasons."""

import json
import sys

from tests.support.tables import each
from viewbox.rewards import CombinedReward, Component, ExactMatchReward, FormatReward, IoUReward, TokenF1Reward
from viewbox.rewards.explain import explain_score

INNER = CombinedReward({"report": (TokenF1Reward("report"), 0.5), "size": (ExactMatchReward("size"), 0.5)})
REWARD = CombinedReward(
    {
        "label": (ExactMatchReward("label"), 0.5),
        "format": (FormatReward(), 0.1),
        "box": Component(IoUReward("bbox"), 0.2, needs={"label": 1.0}),
        "inner": Component(INNER, 0.2, needs={"label": 1.0}),
    }
)
GOLD = {"label": "seven", "bbox": [0, 0, 0.5, 1], "report": "a nodule", "size": 3}


def rows(answer, reward=REWARD, episode=None):
    return {row.name: row for row in explain_score(reward, answer, GOLD, episode).components}


@each("answer", [GOLD, {**GOLD, "label": "six"}, {"label": "seven", "bbox": [0, 0, 1, 1]}, {}, None])
def test_total_and_scores_are_those_of_the_reward(answer):
    trial = explain_score(REWARD, answer, GOLD)
    assert (trial.total, {row.name: row.score for row in trial.components}) == REWARD.score(answer, GOLD)


def test_components_stand_in_their_order_each_before_those_inside_it():
    names = [row.name for row in explain_score(REWARD, GOLD, GOLD).components]
    assert names == ["label", "format", "box", "inner", "inner.report", "inner.size"]


def test_a_weight_is_that_in_the_reward_around_the_component():
    weights = [row.weight for row in explain_score(REWARD, GOLD, GOLD).components]
    assert weights == [0.5, 0.1, 0.2, 0.2, 0.5, 0.5]


def test_a_gate_is_shut_where_what_is_needed_is_not_reached():
    closed = {name for name, row in rows({**GOLD, "label": "six"}).items() if row.closed}
    assert closed == {"box", "inner", "inner.report", "inner.size"}


def test_no_gate_is_shut_where_everything_is_reached():
    assert not any(row.closed for row in rows(GOLD).values())


def test_a_gate_inside_a_component_is_compared_with_what_stands_beside_it():
    inner = CombinedReward(
        {
            "size": (ExactMatchReward("size"), 0.5),
            "report": Component(TokenF1Reward("report"), 0.5, needs={"size": 1.0}),
        }
    )
    reward = CombinedReward({"size": (ExactMatchReward("label"), 0.5), "inner": (inner, 0.5)})
    found = rows({**GOLD, "size": 4}, reward)
    assert (found["size"].score, found["inner.size"].score, found["inner.report"].closed) == (1.0, 0.0, True)


def test_a_component_inside_one_that_is_out_says_which():
    assert rows({**GOLD, "label": "six"})["inner.size"].why == "not evaluated: the needs of inner are unmet"


def test_a_reward_that_is_not_combined_is_its_only_component():
    trial = explain_score(ExactMatchReward("label"), GOLD, GOLD)
    assert (trial.reward, trial.total, [row.name for row in trial.components]) == ("exact_match", 1.0, ["exact_match"])


def test_a_component_that_raises_gives_no_total_and_is_told():
    def broken(answer, reference):
        return answer["nothing"]

    trial = explain_score(broken, {}, {})
    assert trial.total is None
    assert trial.components[0].why == "failed: KeyError: 'nothing'"
    assert trial.problems == ("reward component 'broken' raised KeyError: 'nothing'",)


def test_a_trial_is_json():
    whole = json.loads(json.dumps(explain_score(REWARD, GOLD, GOLD).to_dict()))
    assert whole["total"] == 1.0
    assert whole["components"][0] == {
        "name": "label", "weight": 0.5, "score": 1.0, "closed": False, "why": "label: 'seven' is 'seven'",
    }  # fmt: skip


def leave(answer, reference):
    sys.exit(3)


def test_a_reward_that_ends_the_process_is_explained_as_failed():
    [row] = explain_score(leave, GOLD, GOLD).components
    assert (row.score, row.why) == (None, "failed: ForeignError: SystemExit: 3")
