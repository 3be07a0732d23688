"""Which saved episodes are learned from: conditions, the best of each task, and never one that a fault ended."""

import pytest

from tests.support.runs import on_path, read_steps, run, write_config
from viewbox.configs.train_sections import TrainSection
from viewbox.errors import ConfigError, StoreError
from viewbox.records import Episode, Scores, Task
from viewbox.rollouts.store.reader import load
from viewbox.training.sft.selection import require_episodes, select_episodes


def episode(task, total, end="answered"):
    return Episode(Task(task), end_reason=end, scores=Scores(total))


EPISODES = [
    episode("a", 0.2),
    episode("a", 0.9),
    episode("b", None, "error"),
    episode("a", 0.9, "max_turns"),
    episode("b", 0.0),
    episode("c", None),
]


def select(**settings):
    return select_episodes(EPISODES, TrainSection(method="sft", **settings))


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, [0, 1, 3, 4, 5]),  # a fault is never learned from
        ({"where": "scores.total>=0.9"}, [1, 3]),
        ({"where": ["scores.total>=0.9", "end_reason=answered"]}, [1]),
        ({"where": "end_reason=max_turns", "best_of_group": True}, [3]),  # conditions come before the best
    ],
)
def test_what_is_kept_meets_every_condition(settings, kept):
    assert list(select(**settings).kept) == [EPISODES[k] for k in kept]


def test_the_best_of_a_task_is_the_first_of_its_highest_scores():
    selection = select(best_of_group=True)
    assert list(selection.kept) == [EPISODES[1], EPISODES[4]]
    assert dict(selection.left_out) == {
        "a fault ended them": 1,
        "without a score": 1,
        "not the best of their task": 2,
    }


def test_a_condition_that_cannot_be_read_names_its_key_and_if_nothing_is_left_the_counts_say_why():
    with pytest.raises(ConfigError, match=r"train\.where 'scores\.totl>1': unknown field of scores 'totl'"):
        select(where="scores.totl>1")
    with pytest.raises(
        StoreError, match=r"x: 0 of 6 episodes are kept; left out: .*5 \(train\.where scores\.total>2\)"
    ):
        require_episodes(select(where="scores.total>2"), "x")


def test_a_policy_learns_from_its_own_best_episodes_in_three_commands(viewbox, tmp_path, tiny_folder, monkeypatch):
    """Rejection sampling, as docs/how_it_works.md shows it."""
    monkeypatch.chdir(tmp_path)
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, log={"eval_tasks": 0})
        few = ("--tasks", 6, "--temperature", 1.0)
        assert viewbox("rollout", "--config", path, *few, "--group", 4, "--out", "played")[0] == 0
        played = list(load("played"))
        best = {one.task.id: max(e.scores.total for e in played if e.task.id == one.task.id) for one in played}
        least = sorted(best.values())[2]  # half of the tasks or more
        choice = ("--where", f"reward>={least}", "--best", 1, "--per-task")
        assert viewbox("export", "played", "--to", "run", *choice, "--out", "kept")[0] == 0
        kept = {one.task.id: one.scores.total for one in load("kept")}
        assert (len(played), kept) == (24, {task: total for task, total in best.items() if total >= least})
        sft = (
            "train={method: sft, episodes: kept, max_steps: 4, per_device_train_batch_size: 3, learning_rate: 0.01}",
        )
        losses = [line["loss"] for line in read_steps(run(path, *sft))]
    assert losses[-1] < losses[0]
