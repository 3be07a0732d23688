"""The right answers that a dry run and `viewbox data check` play: which mistakes they find, and what they leave."""

import json
from typing import ClassVar

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

import viewbox
from tests.support.data_kit import COLUMNS, Questions, make_env, make_rows, write_images, write_jsonl, write_table
from tests.support.tables import each
from viewbox.envs.grounding import Grounding
from viewbox.envs.mixture import Mixture
from viewbox.envs.reward_check import score_right_answers
from viewbox.errors import ConfigError
from viewbox.records import Task
from viewbox.rewards import build

WIDTH, HEIGHT = 400, 160  # of unequal sides: pixels divided by the wrong one would show
BOX = (100, 20, 300, 100)  # pixels: by hand 0.25, 0.125, 0.75, 0.625 of the image


@pytest.fixture
def folder(tmp_path):
    """Thirty images of unequal sides, with a box and a label each."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(30):
        Image.fromarray(np.zeros((HEIGHT, WIDTH), np.uint8)).save(tmp_path / f"{number}.png")
        x, y = int(rng.integers(0, 200)), int(rng.integers(0, 80))
        box = list(BOX) if number == 0 else [x, y, x + int(rng.integers(20, 150)), y + int(rng.integers(10, 60))]
        row = {"id": f"c{number}", "image": f"{number}.png", "q": "Where?"}
        rows.append({**row, "box": box, "label": "ab"[number % 2]})
    write_jsonl(tmp_path / "t.jsonl", rows)
    return tmp_path


def make(folder, reward=None, columns=(), **settings):
    data = {"source": str(folder / "t.jsonl"), **settings.pop("data", {})}
    data["columns"] = {"id": "id", "image": "image", "question": "q", "boxes": ["box"], **dict(columns)}
    reward = build(reward) if isinstance(reward, dict) else reward
    return Grounding(data=data, **({} if reward is None else {"reward": reward}), **settings)


def test_a_right_config_is_not_warned_of_and_classes_without_labels_are_refused(folder):
    for settings in ({}, {"coordinates": "per_mille"}, {"columns": {"labels": ["label"]}, "classes": ["a", "b"]}):
        [found] = score_right_answers(make(folder, **settings))
        assert found.total > 0.98
        assert (found.warnings, found.played, found.tasks) == ((), 20, 30)
    with pytest.raises(ConfigError, match=r"classes = a, b: no box has a label; allowed: with data\.columns\.labels"):
        len(make(folder, classes=["a", "b"]).tasks)


class Whole:
    """A reward of the whole episode."""

    name = "whole"

    def of_episode(self, episode):
        return float(episode.num_turns > 5)


IOU, SMALL = {"type": "iou", "field": "boxes"}, {"coordinates": "pixel", "max_pixels": 64 * 26}
MISTAKES = {  # what is said of a config
    "exact_match compares texts, and 'boxes' holds boxes": {"reward": {"type": "exact_match", "field": "boxes"}},
    "token_f1 compares texts, and 'boxes' holds boxes": {"reward": {"type": "token_f1", "field": "boxes"}},
    "no task has reference_field = 'gold'; the references have boxes": {"reward": IOU | {"reference_field": "gold"}},
    "(did you mean 'boxes'?)": {"reward": IOU | {"reference_field": "boxs"}},
    "iou finds no box in 'boxes'": {"reward": IOU, "columns": {"labels": ["label"]}},
    "data.boxes.unit = per_mille: all boxes (20) lie in the top left": {"data": {"boxes": {"unit": "per_mille"}}},
    "env.coordinates = pixel rounds boxes to whole pixels of a view of 64 x 25": SMALL,
    "fails for 20 of 20 right answers: raised KeyError": {"reward": lambda answer, reference: reference["bbox"][0]},
    "gives the right answers 0.500: task": {"reward": lambda answer, reference: 0.5},
    "it reads the episode, which is the answer after env.oracle(task)": {"reward": Whole()},
}


def test_a_mistake_is_named_with_its_component_and_its_cause(folder):
    for said, settings in MISTAKES.items():
        [found] = score_right_answers(make(folder, **settings))
        assert said in "".join(found.warnings)
    rows = [json.loads(line) for line in (folder / "t.jsonl").read_text().splitlines()]
    write_jsonl(folder / "t.jsonl", [{**row, "box": [0.1, 0.2, 0.5, 0.6]} for row in rows])
    [found] = score_right_answers(make(folder))  # boxes from 0 to 1 that are declared as pixels are bad rows
    assert "at least one pixel, as xyxy in pixel (perhaps data.boxes.unit: unit)" in found.warnings[0]
    assert score_right_answers(make(folder, data={"boxes": {"unit": "unit"}}))[0].warnings == ()


def score_vqa(path, **settings):
    columns = {"image": "image", "question": "q", "answer": "a"}
    data = {"source": str(path), "columns": columns, **settings.pop("data", {})}
    return score_right_answers(viewbox.make("vqa", data=data, **settings))[0].warnings


@each("kind, tolerance", [("csv", 0.05), ("jsonl", 0.05), ("parquet", 0.05), ("csv", 0.0)])
def test_decimal_commas_beside_a_tolerance_are_warned_of(tmp_path, kind, tolerance):
    write_images(tmp_path, 2)
    rows = [{"image": f"{n}.png", "q": "How large?", "a": f"{n},5"} for n in range(2)]
    path = write_table(tmp_path / f"t.{kind}", rows)
    warned = any("data.cells.decimal" in warning for warning in score_vqa(path, tolerance=tolerance))
    assert warned == bool(tolerance)


def test_hounsfield_units_of_pictures_without_air_are_warned_of(tmp_path):
    nib.save(nib.Nifti1Image(np.full((4, 4, 4), 90, np.int16), np.eye(4)), tmp_path / "v.nii.gz")
    path = write_jsonl(tmp_path / "t.jsonl", [{"image": "v.nii.gz", "q": "?", "a": "x"}])
    assert "no value of 1 pictures is below 0" in score_vqa(path, data={"unit": "HU"})[0]


def test_a_right_answer_that_the_environment_refuses_is_warned_of():
    class Strict(Own):
        def validate_answer(self, answer, task):
            return None if task.id == "t3" else "label: say more"

    [found] = score_right_answers(Strict())
    said = "own: 3 of 10 tasks have a right answer that the environment refuses, such as t5: label: say more"
    assert said in found.warnings
    assert found.played == 1


def test_a_judge_is_not_asked_and_looks_are_not_paid_and_it_is_said(folder):
    judge = {"type": "judge", "field": "boxes", "endpoint": "http://127.0.0.1:9/v1", "model": "m"}
    iou = {**IOU, "weight": 0.3, "needs": {"judge": 0.5}}
    tools = {"type": "tool_use", "at_least": 1, "weight": 0.2}
    reward = {"type": "combined", "components": {"judge": {**judge, "weight": 0.5}, "iou": iou, "tools": tools}}
    [found] = score_right_answers(make(folder, reward))
    assert found.total > 0.98
    assert list(found.components) == ["iou"]
    assert "judge is left out: it would ask a judge or a server" in found.describe()
    assert "tools is left out: it pays for looks" in found.describe()
    [found] = score_right_answers(make(folder, judge))
    assert (found.total, found.warnings) == (None, ())
    assert "no right answer is scored; judge is left out" in found.describe()


def test_an_answer_in_plain_text_is_the_text_of_the_reference(tmp_path):
    write_images(tmp_path)
    data = {"source": str(write_jsonl(tmp_path / "t.jsonl", make_rows())), "columns": COLUMNS}
    assert score_right_answers(make_env(**data))[0].total == 1.0
    reward = build({"type": "exact_match", "field": "text", "reference_field": "gold"})
    [found] = score_right_answers(Questions(data=data, reward=reward))
    assert "no task has reference_field = 'gold'; the references have answer" in found.warnings[0]


class Own(viewbox.BaseMultiTurnEnv):
    """Tasks of which some have no gold, and one has an image that cannot be opened."""

    name = "own"
    answer = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}  # noqa: RUF012
    reward = viewbox.ExactMatchReward("label")
    raised: ClassVar[BaseException] = RuntimeError("the disk is gone")

    @property
    def tasks(self):
        return [Task(f"t{number}", reference={"label": "a"} if number % 2 else {}) for number in range(10)]

    def images(self, task):
        if task.id == "t1":
            raise self.raised
        return [Image.new("L", (20, 10))]


def test_an_own_class_may_lack_golds_and_images_or_end_the_process_and_all_are_counted():
    said = {"RuntimeError: the disk is gone": Own.raised, "ForeignError: SystemExit: 3": SystemExit(3)}
    for error, raised in said.items():
        [found] = score_right_answers(type("Leaving", (Own,), {"raised": raised})())
        assert (found.played, found.total) == (4, 1.0)
        assert "5 of 10 tasks have no right answer that can be written, such as t0: own: the ref" in found.describe()
        assert found.warnings == (f"own: 1 of 10 tasks cannot be opened, such as t1: {error}",)


def test_each_environment_of_a_mixture_is_played_by_its_own_reward(folder):
    data = {"source": str(folder / "t.jsonl"), "columns": {"image": "image", "question": "q", "boxes": ["box"]}}
    mine = {"name": "grounding", "data": data, "reward": {"type": "exact_match", "field": "boxes"}}
    wrong, right = score_right_answers(Mixture(environments={"mine": mine, "digits": {"noise": 8}}))
    assert (wrong.environment, wrong.total) == ("mine", None)
    assert (right.environment, right.warnings) == ("digits", ())


def test_the_tasks_are_drawn_from_all():
    numbers = []

    class Counting(Own):
        tasks: ClassVar = [Task(f"t{number}", reference={"label": "a"}) for number in range(1000)]

        def images(self, task):
            numbers.append(int(task.id[1:]))
            return [Image.new("L", (20, 10))]

    score_right_answers(Counting())
    assert len(set(numbers)) == 20
    assert max(numbers) > 800
