"""`chest_xray` on known datasets: the presets on small copies, their bad rows, and the presets of `vqa` moved to it."""

import json
import shutil

import pytest

from tests.support import datasets
from tests.support.replies import play
from viewbox import check_rewards
from viewbox.cli.data import open_data_envs
from viewbox.envs.chest_xray.env import ChestXray
from viewbox.errors import ConfigError

PRESETS = {"chestagentbench": "metadata.jsonl", "rexvqa": "train.jsonl"}


@pytest.fixture
def copy(tmp_path):
    """Builds the small copy of a dataset, changes its first row, and opens the preset on it."""

    def run(name, *overrides, **changes):
        folder = datasets.build(name, tmp_path / name)
        if changes:
            file = folder / PRESETS[name]
            first, *others = file.read_text().splitlines()
            file.write_text("\n".join([json.dumps({**json.loads(first), **changes}), *others]))
        return open_data_envs(name, overrides, str(folder))[0]

    return run


def score(env, task, answer):
    return play(env, task, json.dumps({"answer": answer})).scores.total


def test_the_letter_is_the_answer_and_all_images_can_be_opened_in_chestagentbench(copy):
    env = copy("chestagentbench")
    assert isinstance(env, ChestXray)
    task = env.tasks[2]
    assert "A) Pneumothorax B) Effusion" in env.user_message(task)
    assert "explanation" not in json.dumps([message.text for message in env.reset(task, seed=0).messages])
    answers = ("C", "c", "C)", "B", "B, C", "Effusion", "A B C D E F", "every one of them")
    assert [score(env, task, said) for said in answers] == [1.0, 1.0, 1.0, 0, 0, 0, 0, 0]
    look = '<tool_call>{"name": "open_image", "arguments": {"image": "image_3"}}</tool_call>'
    episode = play(env, task, look, env.write_answer(task))
    [opened] = episode.turns[2].tool_results
    assert (opened.success, episode.scores.total) == (True, 1.0), opened


def test_letter_text_and_both_are_right_and_the_report_is_not_shown_in_rexvqa(copy):
    env = copy("rexvqa", Findings="A right effusion.", Impression="A right effusion.")
    assert isinstance(env, ChestXray)
    task = env.tasks[0]
    assert "A. No\nB. Left\nC. Right\nD. Both sides" in env.user_message(task)
    assert "effusion." not in json.dumps([message.text for message in env.reset(task, seed=0).messages])
    answers = ("C", "Right", "C. Right", "B", "B C", "Left or right")
    assert [score(env, task, said) for said in answers] == [1.0, 1.0, 1.0, 0, 0, 0]
    assert len(env.images(task)) == 2


BAD = {  # what a row of a file without them is refused for
    "expected: an image": ("chestagentbench", {"images": []}),
    "column 'images' is 'figures/1/2.jpg'; expected: a file in": ("chestagentbench", {"images": ["figures/1/2.jpg"]}),
    "expected: another id": ("chestagentbench", {"full_question_id": "10001_1"}),
    "expected: one of the choices: No; Left; Right": ("rexvqa", {"correct_answer": "E"}),
    "expected: 2 to 26 different texts": ("rexvqa", {"options": ["A. No", "B. no"]}),
    "expected: a list": ("rexvqa", {"options": {"A": "No"}}),
    "column 'correct_answer' is": ("rexvqa", {"options": [], "correct_answer": {"letter": "A"}}),
}


def test_a_bad_row_is_left_out_and_named(copy, tmp_path):
    for said, (name, changes) in BAD.items():
        env = copy(name, **changes)
        assert len(env.tasks) == 3
        [error] = env.tasks.skipped.values()
        assert said in str(error)
        assert str(error).startswith(f"{PRESETS[name]}: line ")
        shutil.rmtree(tmp_path / name)


def test_the_file_of_rexvqa_as_it_is_downloaded_is_named_with_what_is_allowed(copy, tmp_path):
    copy("rexvqa")
    raw, *_ = open_data_envs("rexvqa", [f"env.data.source={tmp_path}/rexvqa/metadata/train_vqa_data.json"], None)
    with pytest.raises(ConfigError, match=r"holds a dict; allowed: a list of objects, or one object a line"):
        _ = raw.tasks


def test_only_the_radiographs_of_slake_as_on_the_page(copy):
    env = copy("slake", "env.name=chest_xray", 'env.data.where=["q_lang=en", "modality=X-Ray"]')
    assert [task.metadata["modality"] for task in env.tasks] == ["X-Ray", "X-Ray"]


@pytest.mark.parametrize("name", ["vqa_rad", "slake"])
def test_a_preset_of_vqa_runs_in_chest_xray(copy, name):
    env = copy(name, "env.name=chest_xray")
    assert isinstance(env, ChestXray)
    assert check_rewards(env) == []
    tasks = list(env.tasks)
    assert len(tasks) == 4
    assert {task.reference["kind"] for task in tasks} == {"closed", "open"}
    for task in tasks:
        gold = env.perfect_answer(task)["answer"]
        assert score(env, task, gold) == 1.0
        assert score(env, task, f"not {gold}") < 0.5
    words = copy(name, "env.name=chest_xray", "env.answer_form=text")
    assert play(words, words.tasks[0], words.write_answer(words.tasks[0])).scores.total == 1.0
