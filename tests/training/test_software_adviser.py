"""The tiny configs of `software_adviser`: a warm start with bad habits, and GRPO that learns when to ask the user."""

import json

import pytest

import viewbox
from viewbox.configs import schema
from viewbox.envs.software_adviser.requests.generator import split_of
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training import command as train

SMALL = ("train.per_device_train_batch_size=8", "train.num_generations=4", "log.eval_tasks=8")


def run(folder, name, *settings):
    assert train.main([name, f"log.dir={folder}", *settings]) == 0
    return next(folder.glob(f"{name}*"))


def test_both_configs_play_the_same_environment_and_the_shipped_model_is_that_of_the_warm_start():
    first, second = schema.load("software_adviser_warmstart"), schema.load("software_adviser_tiny")
    assert first.env == second.env
    assert second.model.name == f"package:{first.log.export.removeprefix('assets/')}"


def test_held_out_requests_share_no_software_and_no_words_with_those_of_training():
    config = schema.load("software_adviser_tiny")
    env = viewbox.make(config.env.name, **config.env.settings)
    held_out = viewbox.make(config.env.name, **{**config.env.settings, **config.env.eval})
    assert (env.split, held_out.split) == ("train", "test")
    for one in (env, held_out):
        for number in range(100):
            assert {split_of(name) for name in one.tasks[number].reference["suitable"]} == {one.split}
    said = [{one.get_request(one.tasks[i]).words.split()[0] for i in range(100)} for one in (env, held_out)]
    assert not said[0] & said[1]


def test_half_of_the_tasks_take_a_question_and_it_is_worth_asking_only_there():
    config = schema.load("software_adviser_tiny")
    env = viewbox.make(config.env.name, **config.env.settings)
    tasks = [env.tasks[number] for number in range(40)]
    hidden = [bool(task.reference["hidden"]) for task in tasks]
    assert 10 < sum(hidden) < 30

    def play(task, **habits):
        replies = iter(env.demonstration(task, 0, terse=1.0, **habits))
        return env.play(task, lambda messages: next(replies)).scores

    for task, ambiguous in zip(tasks, hidden, strict=True):
        right, wrong = play(task), play(task, guess=1.0, ask=1.0)
        asked = "asked_if_ambiguous" if ambiguous else "asked_if_clear"
        assert right.components[asked] == float(ambiguous) != wrong.components[asked]
        assert right.total >= wrong.total


@pytest.mark.slow
def test_a_few_steps_of_the_shipped_policy_log_when_it_asks_and_are_the_same_again(tmp_path):
    runs = [run(tmp_path / str(n), "software_adviser_tiny", "train.max_steps=3", *SMALL) for n in range(2)]
    held_out = json.loads((runs[0] / "summary.json").read_text())["held_out"]
    for key in ("reward", "rewards/asked_if_ambiguous/mean", "rewards/asked_if_clear/mean"):
        assert 0 <= held_out["before"][key] <= 1
    names = ("loss", "reward", "grad_norm")
    first, second = (
        [[line[name] for name in names] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]
        for folder in runs
    )
    assert len(first) == 3
    assert first == second
    replies = [[turn.content for episode in load(folder) for turn in episode.turns] for folder in runs]
    assert replies[0] == replies[1]


@pytest.mark.slow
def test_thirty_steps_teach_the_shipped_policy_to_ask_if_a_fact_is_missing_and_only_then(tmp_path):
    folder = run(tmp_path, "software_adviser_tiny", "train.max_steps=30", "log.eval_tasks=100")
    held_out = json.loads((folder / "summary.json").read_text())["held_out"]
    before, after = held_out["before"], held_out["after"]
    assert after["rewards/asked_if_ambiguous/mean"] > before["rewards/asked_if_ambiguous/mean"] + 0.1
    assert after["rewards/asked_if_clear/mean"] < before["rewards/asked_if_clear/mean"] - 0.1
    assert after["reward"] > before["reward"] + 0.05
