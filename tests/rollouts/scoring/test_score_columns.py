"""Columns of scores: nothing that is stored changes, and a column is whole, or is not there."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import viewbox
from tests.support.saved_episodes import made, scored, written
from viewbox import CombinedReward, ConfigError, ExactMatchReward, StoreError, load
from viewbox.rollouts.scoring.rescore import score_run


def test_a_column_has_a_line_an_episode_and_says_where_it_comes_from(store):
    report = score_run(store, reward="viewbox.rewards:ExactMatchReward", where=["answer.label=b"], name="strict-1.0")
    assert Path(report.column) == store / "scores" / "strict-1.0.jsonl"
    header, *lines = [json.loads(line) for line in Path(report.column).read_text().splitlines()]
    assert header.keys() == {"viewbox", "written", "reward", "where"}
    assert (header["viewbox"], header["reward"]) == (viewbox.__version__, "viewbox.rewards:ExactMatchReward")
    assert header["where"] == ["answer.label=b"]
    assert [line["line"] for line in lines] == list(range(2, 41, 2))
    assert lines[0].keys() == {"line", "crc", "task", "total", "components"}
    assert (lines[0]["task"], lines[0]["total"], lines[0]["components"]) == ("t0", 0.0, {"exact_match": 0.0})


class Early:
    name = "early"

    def of_episode(self, episode):
        return 0.5

    def of_turns(self, episode):
        return [0.75, *[0.0] * (episode.num_turns - 1)]


def test_what_each_reply_earned_is_computed_again_and_stands_in_the_column(store):
    reward = CombinedReward({"early": (Early(), 0.5), "label": (ExactMatchReward("label"), 0.5)})
    score_run(store, reward=reward, name="early")
    for episode in load(store, scores="early"):
        assert episode.scores.turns == reward.score_episode(episode).turns
        assert sum(episode.scores.turns) == pytest.approx(episode.scores.total)


def test_episodes_that_were_left_out_or_came_later_have_no_scores_in_the_column(store):
    score_run(store, reward=ExactMatchReward(), where=["task.id=t0|t9"], name="some")
    score_run(store, reward=ExactMatchReward(), name="then")
    written(store, made(40))
    some, then = ([one is not None for one in scored(store, scores=name)] for name in ("some", "then"))
    assert some == [True] * 4 + [False] * 32 + [True] * 4 + [False]
    assert then == [True] * 40 + [False]


def test_an_existing_column_is_kept_unless_it_is_to_be_replaced_and_an_unknown_one_is_named(store):
    score_run(store, reward=lambda answer, reference: 0.5, name="mine")
    with pytest.raises(ConfigError, match=r"mine\.jsonl: scores named 'mine' exist already.*--replace"):
        score_run(store, reward=lambda answer, reference: 0.0, name="mine")
    assert {one.total for one in scored(store, scores="mine")} == {0.5}
    score_run(store, reward=lambda answer, reference: 0.0, name="mine", replace=True)
    assert {one.total for one in scored(store, scores="mine")} == {0.0}
    with pytest.raises(StoreError, match=r"unknown scores 'mien'; allowed: mine .did you mean 'mine'"):
        load(store, scores="mien")


def test_a_column_of_episodes_that_were_rewritten_is_refused(store):
    score_run(store, reward=ExactMatchReward(), name="mine")
    lines = (store / "episodes.jsonl").read_text().splitlines(keepends=True)
    (store / "episodes.jsonl").write_text("".join(lines[1:]))
    with pytest.raises(StoreError, match=r"mine\.jsonl: the episode in line 1 changed after it was scored"):
        list(load(store, scores="mine", errors="skip"))


def test_an_error_in_the_middle_leaves_no_column(store):
    def stops(answer, reference):
        raise KeyboardInterrupt if answer["label"] == "b" else ValueError

    with pytest.raises(KeyboardInterrupt):
        score_run(store, reward=stops, name="mine")
    assert list((store / "scores").iterdir()) == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1) | st.none(), min_size=1, max_size=8), st.text(max_size=5))
def test_any_scores_come_back_exactly(tmp_path_factory, values, name):
    folder = written(tmp_path_factory.mktemp("store"), *(made(n) for n in range(len(values))))
    given_ = iter(values)
    reward = CombinedReward({f"part {name}": (lambda answer, reference: next(given_), 1.0)})
    score_run(folder, reward=reward, name="mine")
    found = scored(folder, scores="mine")
    assert [one.components[f"part {name}"] for one in found] == values
    assert [one.total for one in found] == values
