"""Adapters give the number the environment gives, under a name of their own."""

import json

import pytest

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.rewards import ExactMatchReward
from viewbox.training.grpo.trl_reward import TRLReward

ENV = Digits(max_turns=1)
TASK = ENV.tasks[4]
GOLD = json.dumps(ENV.gold_answer(TASK))
REPLIES = [
    GOLD,
    "It is there: " + GOLD,
    json.dumps(ENV.gold_answer(ENV.tasks[5])),
    json.dumps(ENV.gold_answer(TASK) | {"bbox": [0, 0, 500, 500]}),
    json.dumps(ENV.gold_answer(TASK) | {"bbox": [0, 0, 2000, 500]}),
    "hm",
    "",
    "<tool_call>{}</tool_call>",
]


WRAPS = [
    str,
    lambda text: [{"role": "user", "content": "?"}, {"role": "assistant", "content": text}],
    lambda text: [{"role": "assistant", "content": [{"type": "text", "text": text}]}],
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_the_number_is_that_of_the_environment(wrap):
    reward = TRLReward(ENV)
    for text in REPLIES:
        expected = ENV.play(TASK, lambda messages, text=text: text).scores.total
        assert reward(completions=[wrap(text)], task=[4]) == [expected]
        assert reward(completions=[wrap(text)], reference=[TASK.reference], prompts=["?"]) == [expected]


def test_tasks_by_number_work_in_pixels():
    env = Digits(max_turns=1, coordinates="pixel")
    text = json.dumps(env.gold_answer(env.tasks[4]))
    assert TRLReward(env)(completions=[text], task=[4]) == [env.play(env.tasks[4], lambda messages: text).scores.total]
    with pytest.raises(ConfigError, match="boxes in pixels need the size of the image"):
        TRLReward(env)(completions=[GOLD], reference=[TASK.reference])


def test_a_reward_in_plain_text_is_that_of_the_environment():
    class Plain(BaseMultiTurnEnv):
        name = "plain"
        tasks = (TASK,)

        def default_reward(self):
            return ExactMatchReward("text", reference_field="label")

    assert TRLReward(Plain())(completions=[TASK.reference["label"], "no"], task=[0, 0]) == [1.0, 0.0]


def test_a_batch_keeps_its_order():
    references = [ENV.tasks[number].reference for number in (5, 4)]
    first, second = TRLReward(ENV)(completions=[GOLD, GOLD], reference=references)
    assert first < second


def test_stored_scores_are_given_back_for_whole_episodes():
    episode = ENV.play(TASK, lambda messages: GOLD)
    assert TRLReward(ENV)(completions=["…"], episodes=[episode]) == [episode.scores.total]


def test_trl_finds_a_name_to_log_by():
    assert TRLReward(ENV).__name__ == "digits_reward"
    assert TRLReward(ENV, ExactMatchReward("label"), "label").__name__ == "label"


def test_a_completion_without_text_scores_as_no_answer():
    completions = [[], [{"role": "assistant", "content": None}], [{"role": "assistant", "content": []}]]
    assert TRLReward(ENV)(completions=completions, task=[4] * 3) == [0.0] * 3


def test_a_dataset_without_tasks_or_references_is_an_error_that_names_its_columns():
    with pytest.raises(ConfigError, match=r"\['prompts', 'solution'\]; needed: 'task'"):
        TRLReward(ENV)(completions=[GOLD], prompts=["?"], solution=["seven"])
