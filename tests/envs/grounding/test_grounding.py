"""`grounding`: rows with boxes in every form, what answers score, and the figures that are reported of many."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import viewbox
from tests.support.data_kit import write_images, write_jsonl
from viewbox.core.answers import check_answer
from viewbox.errors import BadRow
from viewbox.rollouts.scoring.summary import summarize

PIXELS = {"format": "xywh", "unit": "pixel"}  # of images of 30 x 20


def make(tmp_path, rows, columns=None, boxes=PIXELS, **settings):
    write_images(tmp_path, 1)
    rows = [{"image": "0.png", "question": "Where is it?", **row} for row in rows]
    fields = {"image": "image", "question": "question", "boxes": "boxes", **(columns or {})}
    fields = {name: column for name, column in fields.items() if column}
    data = {"source": str(write_jsonl(tmp_path / "rows.jsonl", rows)), "boxes": boxes, "bad_rows": "stop"}
    return viewbox.make("grounding", data={**data, "columns": fields}, **settings)


def play(env, answer, number=0):
    return env.play(env.tasks[number], lambda messages: json.dumps({**answer, "continue": False}))


def play_gold(env, number=0):
    task = env.tasks[number]
    return env.play(task, lambda messages: env.write_answer(task))


@pytest.mark.parametrize("coordinates", ["unit", "per_mille", "pixel"])
def test_gold_scores_one_for_one_box_many_and_none(tmp_path, coordinates):
    given = ([3, 2, 6, 4], [[3, 2, 6, 4]], [[3, 2, 6, 4], [15, 10, 3, 2]], [])
    env = make(tmp_path, [{"boxes": boxes} for boxes in given], coordinates=coordinates)
    assert [play_gold(env, number).scores.total for number in range(len(given))] == [1.0] * len(given)
    assert viewbox.check_rewards(env) == []


def test_the_prompt_states_the_form(tmp_path):
    state = make(tmp_path, [{"boxes": [3, 2, 6, 4]}]).reset(make(tmp_path, [{"boxes": [3, 2, 6, 4]}]).tasks[0], seed=0)
    assert '{"boxes": [[x1, y1, x2, y2]], "continue": false}' in state.messages[0].text
    env = make(tmp_path, [{"boxes": [3, 2, 6, 4], "labels": ["cyst"]}], {"labels": "labels"}, classes=["cyst", "mass"])
    text = env.reset(env.tasks[0], seed=0).messages[0].text
    assert '{"boxes": [{"label": "cyst|mass", "box": [x1, y1, x2, y2]}], "continue": false}' in text


def test_boxes_are_matched_one_to_one_and_extra_ones_cost(tmp_path):
    env = make(tmp_path, [{"boxes": [[3, 2, 6, 4], [15, 10, 3, 2]]}])
    first, second = [0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.6, 0.6]
    assert play(env, {"boxes": [second, first]}).scores.total == pytest.approx(1.0)
    assert play(env, {"boxes": [first]}).scores.total == pytest.approx(0.5)
    assert play(env, {"boxes": [first, first, first, second]}).scores.total == pytest.approx(0.5)
    assert play(env, {"boxes": []}).scores.total == 0.0


def test_labels_must_match(tmp_path):
    rows = [{"boxes": [[3, 2, 6, 4], [15, 10, 3, 2]], "labels": ["Cyst", "mass"]}]
    env = make(tmp_path, rows, {"labels": "labels"})
    assert play_gold(env).scores.total == 1.0
    assert viewbox.check_rewards(env) == []
    first, second = [0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.6, 0.6]
    answer = [{"label": "cyst", "box": first}, {"label": "cyst", "box": second}]
    assert play(env, {"boxes": answer}).scores.total == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"boxes": [[0.1, 0.1, 0.3]]}, "boxes"),
        ({"boxes": [[0.3, 0.1, 0.1, 0.3]]}, "boxes[0]: needs x1 < x2"),
        ({"boxes": [[0, 0, 1, 1], [0, 0, 7, 1]]}, "boxes[1]"),
        ({"boxes": "none"}, "boxes"),
        ({"boxes": [[0, 0, 1, 1]] * 301}, "boxes"),
        ({}, "boxes"),
    ],
)
def test_the_model_is_told_which_box_is_wrong(tmp_path, answer, says):
    env = make(tmp_path, [{"boxes": [3, 2, 6, 4]}])
    problem = check_answer(env, answer, env.tasks[0])[1]
    assert says in problem


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"boxes": [25, 2, 10, 4], "labels": ["a"]}, "column 'boxes'.*inside"),
        ({"boxes": [3, 2, 6, 4], "labels": []}, "one label for each of the 1 boxes"),
        ({"boxes": [3, 2, 6, 4], "labels": ["b"]}, "column 'labels'.*one of: a"),
        ({"boxes": [3, 2, 6, 4], "labels": [None]}, "column 'labels'"),
        ({"boxes": None, "labels": []}, "column 'boxes'"),
        ({"boxes": [[3, 2, 6, 4]] * 301, "labels": ["a"] * 301}, "at most 300"),
    ],
)
def test_bad_rows_name_the_column(tmp_path, row, says):
    env = make(tmp_path, [row], {"labels": "labels"}, classes=["a"])
    with pytest.raises(BadRow, match=says):
        _ = env.tasks[0]


def test_an_answer_and_a_location_count_as_in_gemex(tmp_path):
    rows = [{"boxes": [3, 2, 6, 4], "answer": "yes", "location": "left lung"}, {"boxes": [3, 2, 6, 4], "answer": "no"}]
    env = make(tmp_path, rows, {"answer": "answer", "location": "location"})
    box = [0.1, 0.1, 0.3, 0.3]
    assert play_gold(env).scores.total == play_gold(env, 1).scores.total == 1.0
    right = {"answer": "yes", "location": "left lung", "boxes": [box]}
    assert play(env, {**right, "answer": "no"}).scores.total == pytest.approx(0.6)
    assert play(env, {**right, "location": "heart"}).scores.total == pytest.approx(0.7)
    assert play(env, {**right, "boxes": []}).scores.total == pytest.approx(0.7)
    assert play(env, {**right, "answer": "no"}, 1).scores.components["location"] is None


def test_a_label_is_a_question(tmp_path):
    env = make(tmp_path, [{"boxes": [3, 2, 6, 4], "finding": "effusion"}], {"question": None, "label": "finding"})
    assert "effusion" in env.reset(env.tasks[0], seed=0).messages[1].text


def test_map_equals_pycocotools(tmp_path):
    rng = np.random.default_rng(0)

    def draw(count):
        corner, size = rng.uniform(0, 0.5, (count, 2)), rng.uniform(0.1, 0.4, (count, 2))
        return np.concatenate([corner, corner + size], axis=1)

    golds = [draw(int(rng.integers(1, 4))) for _ in range(25)]
    answers = [np.clip(gold + rng.normal(0, 0.03, gold.shape), 0, 1) for gold in golds]
    rows = [{"boxes": gold.tolist(), "labels": ["ab"[i % 2] for i in range(len(gold))]} for gold in golds]
    rows = [{**row, "id": f"{number:02}"} for number, row in enumerate(rows)]
    env = make(tmp_path, rows, {"labels": "labels", "id": "id"}, {"format": "xyxy", "unit": "unit"})
    episodes, given = [], []
    for number, (answer, row) in enumerate(zip(answers, rows, strict=True)):
        items = [{"label": label, "box": box} for label, box in zip(row["labels"], answer.tolist(), strict=True)]
        episodes.append(play(env, {"boxes": items}, number))
        given += [(number, item["label"], item["box"]) for item in items]
    figures = summarize(episodes, env).get_means()

    def to_coco(number, label, box, **more):
        x1, y1, x2, y2 = (1000 * side for side in box)
        shape = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
        return {"image_id": number, "category_id": "ab".index(label) + 1, **shape, **more}

    truth = COCO()
    listed = [
        (i, label, box) for i, row in enumerate(rows) for label, box in zip(row["labels"], row["boxes"], strict=True)
    ]
    truth.dataset = {
        "info": {},
        "images": [{"id": i} for i in range(len(rows))],
        "categories": [{"id": 1}, {"id": 2}],
        "annotations": [to_coco(*one, id=i) for i, one in enumerate(listed, 1)],
    }
    truth.createIndex()
    evaluation = COCOeval(truth, truth.loadRes([to_coco(*one, score=1.0) for one in given]), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    pairs = [(episode.answer, episode.task.reference) for episode in episodes]
    ordered = replace(env.metrics["box"], ties="coco")(pairs)  # no answer states a confidence: all are equal
    assert ordered["map@0.5:0.95"] == pytest.approx(evaluation.stats[0])
    assert ordered["map@0.5"] == pytest.approx(evaluation.stats[1])
    for name in ("map@0.5:0.95", "map@0.5"):
        assert figures[f"metrics/box/{name}"] == env.metrics["box"](pairs[::-1])[name]  # whatever their order
    assert 0.6 < figures["metrics/iou/iou"] < 1
