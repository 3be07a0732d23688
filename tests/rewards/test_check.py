"""Gold scores 1.0 and no answer scores 0: on every environment that is shipped."""

from types import SimpleNamespace

from tests.support.tables import each
from viewbox.envs import load_class, make
from viewbox.envs.data import DataEnv
from viewbox.plugins import ENVIRONMENTS
from viewbox.rewards import CombinedReward, ExactMatchReward, IoUReward, check_rewards, to_combined


def has_own_tasks(name):
    return name != "mixture" and not issubclass(load_class(name), DataEnv)


@each("name", filter(has_own_tasks, ENVIRONMENTS))
def test_gold_scores_one_and_no_answer_scores_zero_on_every_environment(name):
    assert check_rewards(make(name)) == []


@each("coordinates", ["unit", "per_mille", "pixel"])
def test_the_coordinates_of_an_environment_change_nothing(coordinates):
    assert check_rewards(make("digits", coordinates=coordinates)) == []


def env(reward, reference, **more):
    task = SimpleNamespace(id="t1", reference=reference)
    return SimpleNamespace(tasks=[task], reward=to_combined(reward), **more)


def test_a_reward_that_reads_another_field_is_found():
    reward = CombinedReward({"label": (ExactMatchReward("lable", "label"), 0.5), "box": (IoUReward("bbox"), 0.5)})
    found = check_rewards(env(reward, {"label": "cyst", "bbox": (0, 0, 1, 1)}))
    assert found == ["task t1: gold scores 0.5 (label: 0.0, box: 1.0); expected 1.0"]


def test_a_reward_of_nothing_is_found():
    found = check_rewards(env(lambda answer, reference: 1.0, {"label": "cyst"}))
    assert found[0] == "task t1: the answer None scores 1.0; expected 0"


def test_an_environment_may_state_its_perfect_answer():
    reward = ExactMatchReward("answer", "gold.label")
    one = env(
        reward, {"gold": {"label": "cyst"}}, perfect_answer=lambda task: {"answer": task.reference["gold"]["label"]}
    )
    assert check_rewards(one) == []


def test_only_the_first_tasks_are_read():
    one = env(ExactMatchReward(), {"label": "cyst"})
    task = one.tasks[0]
    one.tasks = (task if number < 3 else 1 / 0 for number in range(9))
    assert check_rewards(one, num_tasks=3) == []
