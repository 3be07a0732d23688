"""Evaluation during training: in the metrics and the line of a step, the best checkpoint, early stopping, resuming."""

import io
import json
import shutil
from contextlib import redirect_stdout
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerControl, TrainerState

from tests.support import forks, several_processes
from tests.support.runs import RUN, have_equal_weights, on_path, read_steps, read_weights, run, write_config
from tests.support.tables import each
from viewbox.records import Episode, Task
from viewbox.rollouts.scoring.compare import compare_runs, find_held_out
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import list_held_out
from viewbox.training.held_out import HeldOutEvaluation, store_episodes

EVALUATED = RUN["log"]["eval_tasks"]


# ---------------------------------------------------------------------- the callback
def follow(*evaluations, every=2, patience=None, max_steps=100, before=None):
    """Training with these evaluations (reward, share with a score): (its best step, those saved, the last step)."""
    figures = iter([{"reward": reward, "episodes/scored": scored, "intervals": {}} for reward, scored in evaluations])
    trainer, saved = SimpleNamespace(best=None, is_finished=None, add_figures=lambda figures: None), []
    trainer.save_first = lambda: saved.append(0)
    first = before and {"reward": before, "episodes/scored": 1.0}
    evaluation = HeldOutEvaluation(trainer, lambda: next(figures), every, patience, first)
    state = TrainerState(max_steps=max_steps, global_step=0)
    evaluation.on_train_begin(None, state, TrainerControl())
    for step in range(1, max_steps + 1):
        state.global_step, control = step, TrainerControl()
        evaluation.on_step_end(None, state, control)
        saved += [step] if control.should_save else []
        if control.should_training_stop:
            break
    return trainer.best and trainer.best.step, saved, step


def score(*rewards):
    return [(reward, 1.0) for reward in rewards]


FALLING, TURNING = score(0.077, 0.071), score(0.077, 0.081)
FOLLOWED = [  # evaluations, how the training is followed; the best step, those saved, and the last step
    (score(0.1, 0.3, 0.3, 0.2, 0.4), {"max_steps": 10}, 10, [2, 4, 10], 10),
    (score(0.1, 0.2, 0.3), {"max_steps": 5}, 5, [2, 4, 5], 5),  # the last step is evaluated too
    (score(*[float("nan")] * 6), {"max_steps": 12}, None, [], 12),
    # the best step may be that before training, and has no fewer scored episodes
    (FALLING, {"every": 1, "max_steps": 2, "before": 0.080}, 0, [0], 2),
    (TURNING, {"every": 1, "max_steps": 2, "before": 0.080}, 2, [0, 2], 2),
    ([(0.97, 0.48), (0.60, 1.0)], {"every": 1, "max_steps": 2, "before": 0.47}, 2, [0, 2], 2),  # fails on wrong answers
    ([(0.60, 0.99), (0.70, 0.97)], {"every": 1, "max_steps": 2, "before": 0.47}, 1, [0, 1], 2),  # 1 % is chance
    # training stops after so many evaluations without a better reward
    *((score(0.1, 0.3, 0.2, 0.4, 0.4, 0.3, 0.5), {"patience": patience, "max_steps": 14}, best, saved,
        last) for patience, best, saved, last in ((1, 4, [2, 4], 6), (2, 8, [2, 4, 8], 12), (3, 14, [2, 4, 8, 14], 14),
        (None, 14, [2, 4, 8, 14], 14),)),
]  # fmt: skip


@each("evaluations, settings, best, saved, last", FOLLOWED)
def test_the_best_checkpoints_are_saved_and_training_stops_without_a_better_one(
    evaluations, settings, best, saved, last
):
    assert follow(*evaluations, **settings) == (best, saved, last)


# ---------------------------------------------------------------------- whole runs
@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_folder):
    settings = {"train": {"max_steps": 3, "save_steps": 1, "save_total_limit": 1}, "log": {"eval_steps": 2}}
    with on_path(tmp_path_factory.mktemp("evaluated")) as folder:
        path = write_config(folder, tiny_folder, **settings)
        yield lambda name, *overrides: run(path, *overrides, name=name)


@pytest.fixture(scope="module")
def told(start):
    with redirect_stdout(io.StringIO()) as output:
        folder = start("whole")
    return folder, output.getvalue()


@pytest.fixture(scope="module")
def whole(told):
    return told[0]


@pytest.fixture(scope="module")
def rewards(whole):
    """The held-out reward of each step that was evaluated, 0 included."""
    lines = {line["step"]: line["held_out/reward"] for line in read_steps(whole) if "held_out/reward" in line}
    return {0: json.loads((whole / "before.json").read_text())["before"]["reward"], **lines}


@pytest.fixture(scope="module")
def last(start):
    """The same run, which keeps every checkpoint and saves the last weights."""
    return start("last", "log.keep_best=false", "train.save_total_limit=null")


def test_every_second_step_and_the_last_one_have_held_out_figures_and_the_best_weights_are_the_saved_ones(
    whole, told, rewards
):
    lines = read_steps(whole)
    assert [line["step"] for line in lines] == [1, 2, 3]
    assert [*rewards] == [0, 2, 3]
    assert {"held_out/tools/rate", "held_out/rewards/label/mean", "held_out/best"} <= lines[1].keys()
    assert all("reward" in line for line in lines)  # those of the step are there as ever
    said = [line for line in told[1].splitlines() if line.startswith("step ")]
    assert "held-out" not in said[0]
    assert "held-out 0." in said[1]
    assert "(best 0." in said[1]
    best = max(rewards, key=lambda step: (rewards[step], -step))
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["saved"] == {"step": best, "held_out_reward": rewards[best]}
    assert summary["held_out"]["after"]["reward"] == pytest.approx(rewards[best], abs=1e-6)
    kept = {path.name for path in (whole / "checkpoints").glob("checkpoint-*")}
    assert kept == {f"checkpoint-{best}", "checkpoint-3"}
    saved = load_file(whole / "checkpoints" / f"checkpoint-{best}" / "model.safetensors")
    assert all(torch.equal(weight, read_weights(whole)[name]) for name, weight in saved.items())


def test_the_held_out_episodes_of_the_first_the_best_and_the_last_step_are_stored(whole, rewards):
    stored = {int(folder.name): list(load(folder)) for folder in list_held_out(whole)}
    best = max(rewards.keys() - {3}, key=lambda step: (rewards[step], -step))  # before the last one was played
    assert set(stored) == {0, best, 3}
    assert [path.name for path in (whole / "held_out").iterdir() if path.name.startswith(".")] == []
    for step, episodes in stored.items():
        assert len(episodes) == EVALUATED
        totals = [episode.scores.total for episode in episodes if episode.scores.total is not None]
        assert sum(totals) / len(totals) == pytest.approx(rewards[step], abs=1e-6)
        assert {episode.info["step"] for episode in episodes} == {step}
        assert all(ref.open() for episode in episodes for turn in episode.turns for ref in turn.images)
    found = compare_runs(*find_held_out(whole))
    assert found.tasks == EVALUATED
    assert found.scores["reward"].difference.mean == pytest.approx(rewards[3] - rewards[0], abs=1e-6)


def test_of_held_out_episodes_only_those_of_three_steps_stay(tmp_path):
    for step, best in ((0, None), (2, 0), (4, 2), (6, 4), (8, 4)):
        store_episodes(tmp_path, step, [Episode(Task("t"), info={"index": 0})], best)
    assert [folder.name for folder in list_held_out(tmp_path)] == ["0", "4", "8"]
    store_episodes(tmp_path, 8, [], 4)  # stays as it is
    assert len(list(load(tmp_path / "held_out" / "8"))) == 1


def test_evaluations_do_not_change_what_is_learned(start, whole):
    folder = start("unwatched", "log.eval_steps=null", "train.max_steps=2")
    watched = [{k: v for k, v in line.items() if not k.startswith("held_out/")} for line in read_steps(whole)]
    assert read_steps(folder) == watched[:2]


def test_a_resumed_run_is_evaluated_as_an_uninterrupted_one(start, whole, last):
    """Its last weights are the saved ones, since that is asked for."""
    saved = load_file(last / "checkpoints" / "checkpoint-3" / "model.safetensors")
    assert all(torch.equal(weight, read_weights(last)[name]) for name, weight in saved.items())
    assert "saved" not in json.loads((last / "summary.json").read_text())
    folder = shutil.copytree(last, last.with_name("resumed"))
    shutil.rmtree(folder / "model")
    keep = ("log.keep_best=false", "train.save_total_limit=null")
    start(folder.name, f"--resume={folder}/checkpoints/checkpoint-1", *keep)
    assert read_steps(folder) == read_steps(whole)
    assert have_equal_weights(folder, last)


def test_a_run_that_stopped_early_is_finished_when_it_is_resumed(start, capsys):
    folder = start("early", "log.eval_steps=1", "log.eval_patience=1", "train.learning_rate=1e-12")
    lines = read_steps(folder)
    assert len(lines) < 3
    assert "best held-out reward" in capsys.readouterr().out
    (folder / "summary.json").unlink()
    start("early", f"--resume={folder}", "log.eval_steps=1", "log.eval_patience=1", "train.learning_rate=1e-12")
    assert read_steps(folder) == lines
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["saved"]["step"] == 0  # no step was better than the weights at the start


# ---------------------------------------------------------------------- several processes
def test_processes_share_the_tasks_and_all_get_the_figures_of_one(tmp_path, tiny_folder):
    played = {}
    for count in (1, 2):
        out = tmp_path / str(count)
        out.mkdir()
        said = forks.run_together(several_processes.evaluate_tasks, tiny_folder, out, folder=out, count=count)
        played[count] = [json.loads(path.read_text()) for path in sorted(out.glob("[01].json"))]
        assert len(played[count]) == count, said
    (alone,) = played[1]
    assert [process["played"] for process in played[2]] == [[0, 2, 4, 6], [1, 3, 5]]
    assert alone["played"] == [0, 1, 2, 3, 4, 5, 6]
    for process in played[2]:
        assert process["texts"] == alone["texts"]
        assert process["figures"] == alone["figures"]
