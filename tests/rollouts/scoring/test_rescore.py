"""Offline scoring: the numbers of play come back, new ones stand beside them, and nothing that is stored changes."""

import json
import shutil
import sys
import tracemalloc

import pytest
import yaml
from msgspec.structs import replace

from tests.support.saved_episodes import SETTINGS, SPEC, made, plays, scored, written
from tests.support.tables import each
from viewbox import CombinedReward, ConfigError, ExactMatchReward, IoUReward, load
from viewbox.envs.digits import Digits
from viewbox.records import Episode, EpisodeTokens, Task
from viewbox.rollouts.scoring.rescore import score_run

EXACT = ExactMatchReward()


def test_the_own_reward_gives_the_stored_scores_exactly(run, tmp_path):
    found = list(load(run))  # they end in every way
    assert {episode.end_reason for episode in found} == {"answered", "malformed", "max_turns"}
    assert {episode.num_turns for episode in found} == {1, 2, 3, 5, 6}
    assert any(episode.tools_used() for episode in found)
    assert len({episode.scores.total for episode in found}) > 4

    def check(path):
        report = score_run(path, name="own", replace=True)
        assert scored(run, scores="own") == scored(run)
        assert (report.total.change.mean, report.changed, report.episodes, report.tasks) == (0.0, 0, 21, 3)
        assert report.total.new == report.total.stored

    (tmp_path / "link").symlink_to(run)
    for place in (run, run / "episodes", tmp_path / "link"):
        check(place)
    shutil.rmtree(run / "episodes")
    written(run / "episodes", *plays(Digits(**SETTINGS)))
    config = {"env": {"name": "digits", "eval": {"split": "test"}, **SETTINGS}}  # which names no reward
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    check(run)
    (run / "config.yaml").unlink()
    check(run)


OWN = """
import viewbox
from viewbox.rewards.metrics import Accuracy
class Dots(viewbox.BaseMultiTurnEnv):
    name = 'dots'
    strict: bool = False
    metrics = {'label': Accuracy('label')}
    def default_reward(self):
        return viewbox.ExactMatchReward(tolerance=None if self.strict else 5)
"""
NEAR = Episode(Task("t", reference={"label": 3}), answer={"label": 4}, environment="dots")


def test_an_environment_of_ones_own_is_found_by_the_settings_of_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_dots.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", list(sys.path))
    written(tmp_path / "run" / "episodes", NEAR)
    config = tmp_path / "run" / "config.yaml"
    config.write_text("env: {name: 'own_dots:Dots', strict: true, eval: {strict: false}}")
    assert score_run("run", env="own_dots:Dots").total.new.mean == 0.0
    config.write_text("env: {name: 'own_dots:Dots'}")
    assert score_run("run", env="own_dots:Dots").total.new.mean == 1.0
    config.unlink()
    with pytest.raises(ConfigError, match=r"task 't': env.name = 'dots'; allowed in a run's own files.*give your own"):
        score_run("run")


@each("content", [SPEC, {"model": {}, "reward": SPEC, "env": {"name": "digits"}}])
def test_a_reward_file_holds_the_reward_or_a_whole_config(run, tmp_path, content):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(content))
    report = score_run(run, reward=str(tmp_path / "mine.yaml"), name="mine", replace=True)
    assert (report.name, report.reward) == ("mine", SPEC)
    assert scored(run, scores="mine") == scored(run)


def test_a_python_reward_is_given_by_path_or_as_an_object(store, tmp_path):
    (tmp_path / "mine.py").write_text("def always(answer, reference):\n    return 0.5\n")
    assert score_run(store, reward=f"{tmp_path}/mine.py:always").name == "always"
    assert not (store / "scores").exists()  # nothing is written unless it is asked for
    score_run(store, reward=f"{tmp_path}/mine.py:always", name="always")
    assert score_run(store, reward=IoUReward("label")).name == "iou"
    assert score_run(store, reward=lambda answer, reference: 0.25, name="fourth").total.new.mean == 0.25
    assert [one.total for one in scored(store, scores="always")] == [0.5] * 40


TOKENS = EpisodeTokens((1,), (2,), (1,), (-0.5,))


def test_a_reward_of_the_episode_sees_all_of_it_but_its_tokens_and_token_files_are_not_needed(tmp_path):
    folder = written(tmp_path, made(0, tokens=TOKENS, flags={"salvaged"}))
    shutil.rmtree(folder / "tokens")
    seen = "float('salvaged' in episode.flags and episode.num_turns == 1 and episode.tokens is None)"
    (tmp_path / "mine.py").write_text(f"def mine(episode):\n    return {seen}\n")
    assert score_run(folder, reward=f"{tmp_path}/mine.py:mine").total.new.mean == 1.0


WRONG = [  # the file, what is given, and what is said
    ("type: exact_match\ntype: iou\n", "mine.yaml", r"mine\.yaml, line 2: .*given twice"),
    ("type: iou\n\tfield: x\n", "mine.yaml", r"mine\.yaml, line 2: .*tab"),
    ("type: [iou\n", "mine.yaml", r"mine\.yaml, line 2"), ("", "iou", "allowed: a file"),
    ("type: iuo\n", "mine.yaml", "unknown reward 'iuo'.*did you mean 'iou'"), ("", "nowhere.yaml", "nowhere"),
    ("- 1\n", "mine.yaml", r"mine\.yaml: does not hold a reward"), ("", "nowhere:f", "nowhere"),
]  # fmt: skip


def test_a_reward_that_is_wrong_or_not_there_is_named_before_anything_is_written(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for content, given, words in WRONG:
        (tmp_path / "mine.yaml").write_text(content)
        with pytest.raises(ConfigError, match=words):
            score_run(store, reward=given)
        assert not (store / "scores").exists()


def test_a_reward_that_fails_counts_nothing_and_is_counted_with_the_first_one(store, tmp_path, viewbox):
    mine = "def mine(answer, reference):\n    return {'a': 1.0, 'b': float('nan')}[answer['label']]\n"
    worse = "def worse(answer, reference):\n    return 1 / (answer['label'] == 'a')\n"
    (tmp_path / "mine.py").write_text(mine + worse)
    report = score_run(store, reward=f"{tmp_path}/mine.py:mine")
    assert (report.failures, report.total.new.mean, report.total.new.count) == (20, 1.0, 20)
    assert (report.first_failure.line, report.first_failure.task) == (2, "t0")
    assert "returned nan" in report.first_failure.error
    status, out, _ = viewbox("score", store, "--reward", f"{tmp_path}/mine.py:worse")
    assert status == 0
    assert "the reward failed on 20 episodes, which have no score; the first: line 2, task 't0'" in out
    assert "ZeroDivisionError" in out


def test_a_reward_whose_field_no_answer_has_is_refused_with_the_nearest(store):
    with pytest.raises(ConfigError, match=r"unknown answer field 'lable'; allowed: label \(did you mean 'label'\?\)"):
        score_run(store, reward=ExactMatchReward("lable"))
    combined = CombinedReward({"a": (EXACT, 0.5), "b": (IoUReward("boxx"), 0.5)})
    with pytest.raises(ConfigError, match=r"unknown answer field 'boxx'"):
        score_run(store, reward=combined)


def test_a_field_that_some_answer_or_the_schema_has_is_allowed(tmp_path, run):
    odd = replace(made(30), answer={"label": "a", "sure": True})
    folder = written(tmp_path, *(made(n) for n in range(30)), odd)
    score_run(folder, reward=ExactMatchReward("sure"))
    with pytest.raises(ConfigError, match="'sure'"):
        score_run(folder, reward=ExactMatchReward("sure"), where=["task.metadata.number<30"])
    lines = [json.loads(line) for line in (run / "episodes" / "episodes.jsonl").read_text().splitlines()]
    for line in lines:
        line["answer"] = line["answer"] and {"label": line["answer"].get("label")}
    (run / "episodes" / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    score_run(run, reward=IoUReward("bbox"))  # an answer of `digits` may have it


def test_an_environment_outside_viewbox_is_named_by_the_user_and_one_may_be_given_by_a_config(run, tmp_path, viewbox):
    (tmp_path / "dots.py").write_text(OWN)
    folder = written(tmp_path / "store", NEAR)
    with pytest.raises(ConfigError, match="--env"):
        score_run(folder)
    report = score_run(folder, env=f"{tmp_path}/dots.py:Dots")
    assert (report.total.new.mean, report.metrics["metrics/label/accuracy"].mean) == (1.0, 0.0)
    status, _, err = viewbox("score", folder, "--env", f"{tmp_path}/dots.py:Dots")
    assert (status, err) == (0, "")
    status, _, err = viewbox("score", folder, "--env", "digit")
    assert (status, "did you mean 'digits'" in err) == (2, True)
    config = {"model": {"name": "x"}, "env": {"name": "digits"}, "reward": SPEC}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(config))
    (run / "config.yaml").unlink()
    report = score_run(run, env=tmp_path / "mine.yaml")
    assert (report.total.change.mean, "metrics/label/accuracy" in report.metrics) == (0.0, True)


def test_memory_does_not_grow_with_the_episodes(tmp_path):
    written(tmp_path, *(made(n, system_prompt="x" * 20_000) for n in range(400)))
    score_run(tmp_path, reward=EXACT)
    tracemalloc.start()
    score_run(tmp_path, reward=EXACT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * (tmp_path / "episodes.jsonl").stat().st_size


def test_conditions_are_all_met_and_an_empty_selection_is_an_error_and_leaves_nothing(store):
    report = score_run(store, reward=EXACT, where=["answer.label=b", "task.metadata.number<10"])
    assert (report.episodes, report.total.stored.mean, report.total.new.mean) == (5, 0.0, 0.0)
    with pytest.raises(ConfigError, match=r"no episode meets --where 'answer.label=c' and 'num_turns>0'"):
        score_run(store, reward=EXACT, where=["answer.label=c", "num_turns>0"], name="mine")
    assert list((store / "scores").iterdir()) == []


def test_groups_have_a_row_a_value_and_too_many_are_refused(store, tmp_path):
    report = score_run(store, reward=lambda answer, reference: 0.5, group_by="answer.label")
    assert [(one.value, one.episodes, one.tasks) for one in report.groups] == [("a", 20, 10), ("b", 20, 10)]
    assert [one.total.change.mean for one in report.groups] == [-0.5, 0.5]
    with pytest.raises(ConfigError, match="unknown field 'anser'"):
        score_run(store, reward=EXACT, group_by="anser.label")
    folder = written(tmp_path / "many", *(made(n) for n in range(101)))
    with pytest.raises(ConfigError, match=r"--group-by task\.metadata\.number: more than 100 values"):
        score_run(folder, reward=EXACT, group_by="task.metadata.number")


def test_the_metrics_an_environment_declares_are_of_the_episodes_asked_for_whatever_the_reward(dots):
    rewards = (None, lambda answer, reference: 0.0)
    with_own, with_other = (score_run(dots, reward=reward, env="metric_dots:Dots") for reward in rewards)
    found = with_own.metrics
    assert found["metrics/label/accuracy"].mean == 0.5
    assert found["metrics/labels/macro_f1"].mean == pytest.approx(2 / 3)  # one class: half of it found, none wrong
    assert (found["end/answered"].mean, found["tools/rate"].mean, found["episodes/turns"].mean) == (1.0, 0.0, 1.0)
    assert found == with_other.metrics
    assert with_own.total.new != with_other.total.new
    found = score_run(dots, where=["answer.label=a"], env="metric_dots:Dots").metrics["metrics/label/accuracy"]
    assert (found.mean, found.count) == (1.0, 20)


def test_the_mean_reward_of_each_task_is_written_for_a_band_of_difficulty(run, tmp_path):
    from viewbox.envs.data.selection import read_rewards

    score_run(run, task_rewards=tmp_path / "rewards.jsonl")
    totals = {}
    for episode in load(run):
        totals.setdefault(episode.task.id, []).append(episode.scores.total)
    expected = {task: sum(values) / len(values) for task, values in totals.items()}
    assert read_rewards(tmp_path / "rewards.jsonl") == pytest.approx(expected)
