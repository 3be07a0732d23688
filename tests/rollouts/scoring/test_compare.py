"""Two runs are compared on the tasks that both played: pairs, differences, wins, flips and groups."""

import csv
import io
import json

import numpy as np
import pandas
import pytest
from scipy.stats import bootstrap

from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox import ConfigError, Episode, ExactMatchReward, RunConfig, Scores, StoreError, Task
from viewbox.rollouts.scoring.compare import compare_runs


def play(task, total, sample=0, *, kind="a", parts=None, end="answered"):
    scores, info = None if total is None else Scores(total, components=parts or {}), {"sample": sample, "index": 0}
    reached = {"answer": {"label": "x"}, "end_reason": end, "scores": scores, "info": info}
    own = {"run_config": RunConfig(seed=0), "environment": "dots"}
    return Episode(Task(task, reference={"kind": kind, "label": "x"}), **reached, **own)


def play_all(totals, **more):
    return [play(f"t{n}", float(total), **more) for n, total in enumerate(totals)]


@pytest.fixture
def write(tmp_path):
    return lambda name, *episodes: written(tmp_path / name, *episodes)


@each("counts", [(1, 1), (2, 2), (4, 4), (4, 1), (2, 3)])
def test_a_task_counts_once_with_the_mean_of_its_episodes(write, counts, viewbox, tmp_path):
    rng = np.random.default_rng(sum(counts))
    tasks = [(side, n) for side in "ab" for n in range(40) if (side, n) not in (("a", 3), ("b", 5))]  # one misses each
    rows = [
        {"side": side, "task": f"t{n}", "sample": sample, "reward": float(rng.integers(0, 5)) / 4}
        for side, n in tasks for sample in range(counts["ab".index(side)])
    ]  # fmt: skip
    runs = {side: write(side, *(play(r["task"], r["reward"], r["sample"]) for r in rows if r["side"] == side))
        for side in "ab"}  # fmt: skip
    means = pandas.DataFrame(rows).groupby(["side", "task"]).reward.mean().unstack(0).dropna()
    change, solved = means.b - means.a, means >= 0.5
    found = json.loads(viewbox("compare", runs["a"], runs["b"], "--format", "json")[1])
    one = found["scores"]["reward"]
    assert found["tasks"] == len(means) == 38
    assert (one["wins"], one["ties"], one["losses"]) == ((change > 0).sum(), (change == 0).sum(), (change < 0).sum())
    assert one["difference"]["mean"] == pytest.approx(change.mean())
    gained, lost = ({flip["task"] for flip in found[name]} for name in ("gained", "lost"))
    assert gained == set(means.index[solved.b & ~solved.a])
    assert lost == set(means.index[solved.a & ~solved.b])


def test_tasks_of_one_side_and_episodes_without_a_score_are_left_out_and_said(write):
    a = write("a", play("t", 0.0), play("only a", 1.0), play("u", None), play("v", 1.0, end="error"))
    b = write("b", play("t", 1.0), play("u", 1.0), play("v", 1.0), play("only b", 1.0))
    found = compare_runs(a, b)
    assert found.scores["reward"].difference.count == 1
    assert (found.a.without_score, found.a.unpaired_tasks, found.b.unpaired_tasks) == (2, 3, 3)
    said = " ".join(found.warnings)
    assert "2 episodes have no score" in said
    assert f"3 of {a}, 3 of {b}" in said
    found = compare_runs(write("c", play("t", 0.0)), write("d", play("u", 1.0)))  # no task in common
    assert (found.tasks, found.scores) == (0, {})
    assert "nothing can be compared" in found.explain()


def test_the_interval_is_that_of_a_bootstrap_over_tasks(write):
    rng = np.random.default_rng(0)
    first, second = rng.random(80), np.clip(rng.random(80) + 0.2, 0, 1)
    a, b = write("a", *play_all(first)), write("b", *play_all(second))
    one = compare_runs(a, b, resamples=4000).scores["reward"].difference
    other = bootstrap((second - first,), np.mean, method="percentile", n_resamples=4000, rng=0).confidence_interval
    assert one.mean == pytest.approx(float(np.mean(second - first)))
    assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=0.01)
    assert "0." in compare_runs(a, b).explain()
    assert "higher" in compare_runs(a, b).explain()
    assert compare_runs(a, b, resamples=0).explain().startswith("Without an interval")
    assert compare_runs(a, b, where=["task=t1"]).to_dict()["finding"].startswith("Without an interval")
    assert compare_runs(a, a).explain() == "No clear difference in reward: the interval of the difference holds 0."


def test_components_are_compared_where_both_have_them(write):
    a = write("a", play("t", 0.5, parts={"label": 0.0, "box": 1.0}), play("u", 0.5, parts={"label": None, "box": 1.0}))
    b = write("b", play("t", 0.5, parts={"label": 1.0}), play("u", 0.5, parts={"label": 1.0, "other": 1.0}))
    found = compare_runs(a, b)
    assert set(found.scores) == {"reward", "label", "tools/rate"}
    assert (found.scores["label"].difference.count, found.scores["label"].wins) == (1, 1)
    assert any("only one side has box, other" in warning for warning in found.warnings)


def test_groups_are_sorted_as_numbers_and_are_those_of_the_first(write):
    kinds = ["10", "9", "2"]
    a = write("a", *(play(f"t{kind}", 0.0, kind=kind) for kind in kinds))
    b = write("b", *(play(f"t{kind}", int(kind) / 10, kind="elsewhere") for kind in kinds))
    found = compare_runs(a, b, by="reference.kind")
    assert list(found.groups) == ["2", "9", "10"]
    assert [one.difference.mean for one in found.groups.values()] == pytest.approx([0.2, 0.9, 1.0])
    a = write("c", play("t", 0.0, 0, kind="x"), play("t", 1.0, 1, kind="y"), play("u", 1.0, kind="x"))
    found = compare_runs(a, a, by="reference.kind")  # the episodes of a task differ
    assert {name: one.difference.count for name, one in found.groups.items()} == {"(several)": 1, "x": 1}
    assert any("the episodes of 1 tasks differ" in warning for warning in found.warnings)
    a = write("d", *(play(f"t{n}", 0.0, kind=str(n)) for n in range(101)))
    with pytest.raises(ConfigError, match="more than 100 values"):
        compare_runs(a, a, by="reference.kind")


def test_tasks_that_flipped_are_named_once_with_their_lines(write):
    a = write("a", play("t", 1.0, 0), play("t", 1.0, 1), play("u", 0.2), play("same", 0.9))
    b = write("b", play("same", 0.6), play("u", 0.7), play("t", 0.4, 0), play("t", 0.0, 1))
    found = compare_runs(a, b)
    assert [(flip.task, flip.a_line, flip.b_line) for flip in found.gained] == [("u", 3, 2)]
    assert [(flip.task, flip.a_line, flip.b_line, flip.b) for flip in found.lost] == [("t", 1, 3, 0.2)]


def test_both_can_be_scored_with_a_new_reward_and_filtered(write):
    a = write("a", play("t", 0.0), play("u", 0.0, kind="b"))
    b = write("b", play("t", 1.0), play("u", 1.0, kind="b"))
    found = compare_runs(a, b, reward=ExactMatchReward())
    assert found.scores["reward"].difference.mean == 0.0
    assert not found.warnings
    assert compare_runs(a, b, where=["reference.kind=b"]).tasks == 1
    assert compare_runs(a, b, where=["reward>=0.5"]).tasks == 0


def test_odd_numbers_and_names_do_no_harm(write, tmp_path, viewbox):
    odd = ["\x1b[31mred", "a|b", "=1+1", "‮abc", "x" * 5000]
    a = write("a", *(play(name, 0.0, sample=n, kind=name) for n, name in enumerate(odd)))
    b = write("b", *(play(name, 1.0, sample=n) for n, name in enumerate(odd)))
    lines = [json.loads(line) for line in (a / "episodes.jsonl").read_text().splitlines()]
    for line, sample in zip(lines, (True, -1, 10**30, "1", [1]), strict=True):
        line["info"]["sample"] = sample
    (a / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for form in ("table", "markdown", "csv", "json"):
        status, out, err = viewbox("compare", a, b, "--by", "reference.kind", "--format", form)
        assert (status, err) == (1, "")  # four lines cannot be read, which is said
        assert not {"\x1b", "‮"} & set(out)
    rows = list(csv.reader(io.StringIO(viewbox("compare", a, b, "--by", "reference.kind", "--format", "csv")[1])))
    assert all(cell[:1] not in ("=", "+", "@") for row in rows for cell in row)


def test_what_is_no_run_is_an_error(write, tmp_path, viewbox):
    a = write("a", play("t", 0.0))
    with pytest.raises(StoreError, match="no episodes here"):
        compare_runs(a, tmp_path)
    status, _, err = viewbox("compare", a)
    assert (status, "held_out: none" in err) == (2, True)
    assert viewbox("compare", a, a, "--where", "rewrd<1")[0] == 2


def test_the_tables_say_who_wins_and_which_tasks_flipped(write, viewbox):
    a = write("a", *play_all([0] * 6, parts={"label": 0.0}))
    b = write("b", *play_all([0, 0, 1, 1, 1, 1], parts={"label": 1.0}))
    status, out, _ = viewbox("compare", a, b)
    said = "6 tasks in both", "only the second solves 4 tasks:", f"{a}#3 {b}#3"
    assert (status, [words for words in said if words not in out]) == (0, [])
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("reward", "label"))] == ["reward", "label"]
    assert "Reward is 0.667 higher in the second run. 6 tasks are too few to conclude from." in out
    reward = json.loads(viewbox("compare", a, b, "--format", "json")[1])["scores"]["reward"]
    assert (reward["wins"], reward["difference"]["mean"]) == (4, pytest.approx(2 / 3))
    markdown = viewbox("compare", a, b, "--format", "markdown")[1]
    assert "| reward | 6 (< 20) | 0.000" in markdown
    assert "| --- | ---: |" in markdown


def test_one_run_alone_is_its_held_out_episodes_first_against_last(write, tmp_path, viewbox):
    for step, total in (("0", 0.0), ("20", 0.5), ("100", 1.0)):
        write(f"run/held_out/{step}", play("t", total))
    status, out, _ = viewbox("compare", tmp_path / "run")
    assert (status, "+1.000" in out) == (0, True)
    assert f"{tmp_path / 'run' / 'held_out' / '100'} (1 episode of 1 task)" in out


def test_a_field_that_no_episode_has_is_said(write, viewbox):
    a, b = write("a", play("t", 0.0)), write("b", play("t", 1.0))
    (a / "r.yaml").write_text("type: exact_match\n")
    for typo in ("reference.lable", "task.reference.lable"):
        said = viewbox("compare", a, b, "--by", typo)[1]
        assert f"--by {typo}: no episode has the field" in said
        assert "did you mean 'label'" in said
        assert "did you mean 'label'" in viewbox("score", a, "--reward", a / "r.yaml", "--group-by", typo)[1]
    assert "no episode has" not in viewbox("compare", a, b, "--by", "task")[1]
