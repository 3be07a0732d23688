"""Several environments in one run: which task is whose, who plays and scores it, and each one's own metrics."""

import json
import signal
from collections import Counter
from itertools import islice, product

import pytest
import yaml

from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox import load, make, summarize
from viewbox.configs.schema import parse
from viewbox.envs.from_config import build_envs
from viewbox.envs.mixture import BLOCK, Mixture, MixtureTasks
from viewbox.errors import ConfigError
from viewbox.records import Task
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.training.plan import Plan
from viewbox.training.resume import RunLocation
from viewbox.training.run import Run

SECTIONS = {"digits": {"weight": 2, "noise": 4.0}, "hard": {"name": "digits", "noise": 30.0, "max_turns": 2}}


@pytest.fixture(scope="module")
def env():
    return make("mixture", environments=SECTIONS, max_turns=3)


def play_right(env, task):
    played = env.for_task(task)
    replies = iter([*played.oracle(task), played.write_answer(task)])
    return env.play(task, lambda messages: next(replies))


def test_tasks_come_in_proportion_to_the_weights_and_evenly_spread():
    parts = {key: [Task(f"{n}") for n in range(1000)] for key in "abc"}
    tasks = MixtureTasks(parts, {"a": 0.5, "b": 0.3, "c": 0.2})
    owners = [task.metadata["environment"] for task in islice(tasks, 2 * BLOCK)]
    assert Counter(owners) == {"a": BLOCK, "b": 0.6 * BLOCK, "c": 0.4 * BLOCK}
    assert all(Counter(owners[k : k + 10]) == {"a": 5, "b": 3, "c": 2} for k in range(0, 2 * BLOCK, 10))


@each("sizes, weights", product([(1, 1), (3, 7), (200, 1)], [(5, 1), (0.001, 1)]))
def test_every_task_comes_and_none_is_left_out(sizes, weights):
    parts = {key: [Task(f"{n}") for n in range(size)] for key, size in zip("ab", sizes, strict=True)}
    tasks = MixtureTasks(parts, dict(zip("ab", weights, strict=True)))
    assert {task.id for task in tasks} == {f"{key}/{task.id}" for key, some in parts.items() for task in some}
    assert tasks[-1] == tasks[len(tasks) - 1]
    with pytest.raises(IndexError):
        tasks[len(tasks)]
    assert tasks[-1].id not in {task.id for task in tasks[:-1]}  # it ends with the first that was missing


def test_each_task_is_played_scored_and_measured_by_its_own_environment(env):
    episodes = [play_right(env, task) for task in env.tasks[:6]]
    for task, episode in zip(env.tasks[:6], episodes, strict=True):
        key = task.metadata["environment"]
        assert episode.environment == key
        assert env.for_task(task).max_turns == episode.run_config.max_turns == SECTIONS[key].get("max_turns", 3)
        own = {name: value for name, value in SECTIONS[key].items() if name not in ("weight", "name")}
        alone = make("digits", **{"max_turns": 3, **own})
        assert episode.scores == alone.score(episode)
        assert episode.scores.total > 0.95
    scores = env.reward.score_episode(episodes[0])
    assert scores.total == pytest.approx(episodes[0].scores.total)
    assert (scores.components["digits.label"], scores.components["hard"]) == (1.0, None)
    found = summarize(episodes, env, resamples=0).get_means()
    assert "metrics/digits/label/accuracy" in found
    assert found["metrics/hard/label/accuracy"] == 1.0
    with pytest.raises(TypeError, match=r"env\.for_task"):  # the mixture itself plays nothing
        env.reset(env.tasks[0], seed=0)


def test_held_out_settings_replace_those_of_one_environment():
    held_out = {"environments": {"digits": {"split": "test"}, "hard": {"split": "test"}}}
    section = {"name": "mixture", "environments": SECTIONS, "eval": held_out}
    _, held_out = build_envs(parse({"model": {"name": "m"}, "env": section}), {"coordinates": "pixel"})
    tasks = held_out.tasks[:6]
    assert {task.metadata["split"] for task in tasks} == {"test"}
    assert [held_out.for_task(task).noise for task in tasks[:2]] == [4.0, 30.0]  # merged, not replaced
    assert held_out.for_task(tasks[0]).coordinates == "pixel"


@each("sections, why", [
    ({}, "is empty"), ({"digits": 3}, "environments.digits = 3; allowed: a mapping"),
    ({"digits": {"weight": 0}}, "weight = 0; allowed: a number above 0"), ({"digit": {}}, "did you mean 'digits'"),
    ({"digits": {"weight": True}}, "allowed: a number above 0"),
    ({"digits": {"noize": 3}}, "environments.digits.noize.*did you mean 'noise'"),
    ({"a": {"name": "mixture", "environments": SECTIONS}}, "a mixture inside a mixture"),
    ({"digits": {"reward": {"type": "exact"}}}, "environments.digits.*exact_match"),
])  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(sections, why):
    with pytest.raises(ConfigError, match=why):
        Mixture(environments=sections)


def test_an_environment_may_have_a_reward_of_its_own():
    reward = {"type": "exact_match", "field": "label"}
    env = make("mixture", environments={**SECTIONS, "hard": {**SECTIONS["hard"], "reward": reward}})
    easy, hard = (play_right(env, task) for task in env.tasks[:2])
    assert set(easy.scores.components) == {"label", "box"}
    assert hard.scores.total == 1.0
    assert "box" not in hard.scores.components


def save(env, folder, **sections):
    written(folder / "episodes", *(play_right(env, task) for task in env.tasks[:4]))
    config = {"model": {"name": "m"}, "env": {"name": "mixture", "environments": {**SECTIONS, **sections}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


def test_a_saved_run_is_scored_as_it_was_played(env, tmp_path):
    save(env, tmp_path)
    report = score_run(tmp_path)
    assert report.total.change.mean == pytest.approx(0.0)
    assert not report.problems


STRANGERS = (
    ({"name": "gift:Env"}, "own files: chest_xray, .*with --env"),
    ({"reward": {"type": "python", "function": "gift:score"}}, "with --reward"),
    ({"reward": {"type": "judge", "endpoint": "https://x.example", "model": "m"}}, "judge"),
)


@each("section, why", STRANGERS)
def test_a_strangers_mixture_runs_no_code_and_asks_no_judge(env, tmp_path, monkeypatch, section, why):
    (tmp_path / "gift.py").write_text("raise SystemExit('ran')")
    monkeypatch.chdir(tmp_path)
    save(env, tmp_path, digits=section)
    with pytest.raises(ConfigError, match=why):
        score_run(tmp_path)


@pytest.mark.slow
def test_a_mixture_trains_with_metrics_of_each_and_resumes_bit_for_bit(tiny_folder, tmp_path):
    settings = {
        "model": {"name": str(tiny_folder), "dtype": "float32"},
        "env": {"name": "mixture", "environments": SECTIONS, "max_turns": 2,
                "eval": {"environments": {"digits": {"split": "test"}, "hard": {"split": "test"}}}},
        "rollout": {"max_reply_tokens": 8, "max_completion_tokens": 64},
        "train": {"max_steps": 4, "num_generations": 2, "per_device_train_batch_size": 8, "save_steps": 2,
                  "save_total_limit": 5},
        "log": {"eval_tasks": 6, "episodes_per_step": 4},
    }  # fmt: skip

    def run(folder, checkpoint=None):
        folder.mkdir()
        handler = signal.getsignal(signal.SIGINT)
        summary = Run(Plan(parse(settings)), RunLocation(folder, checkpoint)).execute()
        assert signal.getsignal(signal.SIGINT) is handler  # of who called it
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return summary, {line["step"]: line for line in lines if "loss" in line}

    summary, whole = run(tmp_path / "whole")
    _, again = run(tmp_path / "again", tmp_path / "whole" / "checkpoints" / "checkpoint-2")
    names = ("reward", "grad_norm", "digits/reward", "hard/rewards/label/mean")
    assert all(again[step].get(name) == whole[step].get(name) for step in (3, 4) for name in names)
    assert any("hard/reward" in line for line in whole.values())
    assert {"metrics/digits/label/accuracy", "metrics/hard/label/accuracy"} <= summary["held_out"]["after"].keys()
    assert {episode.environment for episode in load(tmp_path / "whole")} == {"digits", "hard"}
