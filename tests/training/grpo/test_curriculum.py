"""A curriculum: which environment and reward each step has, what is refused, and that a resumed run goes on alike."""

import pytest

from tests.support.runs import read_steps, run, write_config
from viewbox.configs.schema import parse
from viewbox.configs.train_sections import CurriculumSection
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.rollouts.store.reader import load
from viewbox.training.grpo.curriculum import Curriculum, build_curriculum

LEVELS = [{"env": {"noise": noise}} for noise in (4, 8, 12)]


def section(**values):
    return CurriculumSection.model_validate(values)


def build(**values):
    levels = [Digits(**level.get("env")) for level in values.get("levels", [])] or [Digits()]
    return Curriculum(section(**values), levels)


def config(curriculum, **env):
    return parse(
        {
            "model": {"name": "m"},
            "env": {"name": "digits", **env},
            "train": {"curriculum": curriculum},
        }
    )


def test_weights_change_at_their_steps():
    phases = [
        {"from_step": 0, "weights": {"label": 0.2, "box": 0.8}},
        {"from_step": 10, "weights": {"label": 0.9, "box": 0.1}},
    ]
    curriculum = build(reward_weights=phases)
    weights = [
        {name: part.weight for name, part in curriculum.get_env(step).reward.components.items()} for step in (0, 9, 10)
    ]
    assert weights == [phases[0]["weights"], phases[0]["weights"], phases[1]["weights"]]
    later = build(reward_weights=phases[1:])
    assert later.get_env(9).reward == Digits().reward  # before the first phase: as the section `reward` says
    assert curriculum.get_env(0) is curriculum.get_env(5)


def test_scheduled_levels_begin_at_their_steps():
    levels = [{**level, "from_step": 5 * number} for number, level in enumerate(LEVELS)]
    curriculum = build(levels=levels)
    assert [curriculum.get_env(step).noise for step in (0, 4, 5, 9, 10, 99)] == [4, 4, 8, 8, 12, 12]
    curriculum.add_reward(1.0)
    assert curriculum.get_level(0) == 0  # success changes nothing


def test_success_decides_on_the_level_and_no_level_is_left_after_one_lucky_step():
    curriculum = build(levels=LEVELS, window=2, raise_above=0.7, lower_below=0.3)
    seen = []
    for reward in (0.9, 0.9, 0.5, 0.95, 0.5, float("nan"), 1.0, 1.0, 1.0, 1.0, 0.1, 0.1):
        curriculum.add_reward(reward)
        seen.append(curriculum.level)
    assert seen == [0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1]
    for _ in range(9):
        curriculum.add_reward(0.0)
    assert curriculum.level == 0


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, "is empty"),
        ({"levels": LEVELS, "raise_above": 0.2}, "lower_below must be less than raise_above"),
        ({"levels": [LEVELS[0], {**LEVELS[1], "from_step": 3}]}, "in all of them or in none"),
        ({"levels": [{**LEVELS[0], "from_step": 3}]}, "must begin at step 0"),
        ({"reward_weights": [{"from_step": 3, "weights": {}}, {"from_step": 3, "weights": {}}]}, "must grow"),
        ({"levels": LEVELS, "window": 0}, "window"),
    ],
)
def test_a_curriculum_that_makes_no_sense_is_refused(values, why):
    with pytest.raises(ConfigError, match=why):
        config(values)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"levels": [{"env": {"noize": 3}}]}, r"levels\.0.*noize.*did you mean 'noise'"),
        ({"levels": [LEVELS[0], {"env": {"canvas": 3}}]}, r"levels\.1.*canvas = 3"),
        ({"reward_weights": [{"from_step": 0, "weights": {"label": 0.5, "bax": 0.5}}]}, "bax.*did you mean 'box'"),
        ({"reward_weights": [{"from_step": 0, "weights": {"label": 1.0}}]}, "has no weight of box"),
        ({"reward_weights": [{"from_step": 0, "weights": {"label": 0.6, "box": 0.6}}]}, "weights sum to 1.2"),
    ],
)
def test_what_does_not_fit_the_environment_is_refused_and_named(values, why):
    with pytest.raises(ConfigError, match=why):
        build_curriculum(config(values), Digits(), {})


def test_a_run_changes_level_and_a_resumed_one_goes_on_alike(tiny_folder, tmp_path):
    phases = [{"from_step": 3, "weights": {"label": 1.0, "box": 0.0}}]
    limits = {"levels": LEVELS, "window": 1, "raise_above": 0.0005, "lower_below": 0.0001}
    content = {
        "env": {"name": "digits", "max_turns": 2, "num_tasks": 50, "eval": {"split": "test"}},
        "rollout": {"max_reply_tokens": 8, "max_completion_tokens": 64},
        "train": {"max_steps": 4, "num_generations": 2, "per_device_train_batch_size": 4, "save_steps": 2},
        "log": {"eval_tasks": 0, "episodes_per_step": 4},
    }
    path = write_config(
        tmp_path, tiny_folder, "run", content, train={"curriculum": {"reward_weights": phases, **limits}}
    )
    folder = run(path)
    whole = read_steps(folder)
    assert whole[0]["curriculum/level"] == 0
    last = [e for e in load(folder / "episodes") if e.info["step"] == 4]
    assert all(e.scores.total == (e.scores.components["label"] or 0.0) for e in last)
    run(path, f"--resume={folder}/checkpoints/checkpoint-2")
    assert read_steps(folder) == whole
