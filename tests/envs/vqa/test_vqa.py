"""`vqa`: what rows become, what answers score, and the figures that are reported of many."""

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from sklearn.metrics import f1_score

import viewbox
from tests.support.data_kit import write_images, write_jsonl
from viewbox.envs.vqa import VQA
from viewbox.errors import BadRow, ConfigError
from viewbox.rollouts.scoring.summary import summarize

COLUMNS = {"question": "question", "answer": "answer"}


def make(tmp_path, rows, columns=None, **settings):
    source = write_jsonl(tmp_path / "rows.jsonl", rows)
    data = {"source": str(source), "columns": {**COLUMNS, **(columns or {})}, "bad_rows": "stop"}
    return viewbox.make("vqa", data=data, **settings)


def write_vqa_rad(path):
    """A Parquet file with the features of flaviagiammarino/vqa-rad: image, question, answer."""
    image = io.BytesIO()
    Image.fromarray(np.zeros((40, 60), np.uint8)).save(image, "PNG")
    answers = ["yes", "No", "right lung", "pleural effusion"]
    rows = [{"image": {"bytes": image.getvalue(), "path": None}, "question": f"{a}?", "answer": a} for a in answers]
    parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def score(env, answer, number=0):
    return env.play(env.tasks[number], lambda messages: json.dumps({"answer": answer, "continue": False})).scores.total


def test_a_parquet_file_of_radiology_questions(tmp_path):
    source = write_vqa_rad(tmp_path / "train.parquet")
    env = viewbox.make("vqa", data={"source": str(source), "columns": {**COLUMNS, "image": "image"}})
    assert isinstance(env, VQA)
    assert [task.reference["kind"] for task in env.tasks] == ["closed", "closed", "open", "open"]
    for task in env.tasks:
        assert env.play(task, lambda messages, task=task: env.write_answer(task)).scores.total == 1.0
    assert viewbox.check_rewards(env) == []
    assert score(env, "yes, no") == 0.0
    assert score(env, "the right lung", 2) == pytest.approx(0.8)
    assert env.reset(env.tasks[0], seed=0).view is not None


def test_a_set_of_text_alone_offers_no_tools_that_need_an_image(tmp_path):
    env = make(tmp_path, [{"question": "q", "answer": "maybe"}])
    state = env.reset(env.tasks[0], seed=0)
    assert state.tools == ()
    assert state.view is None
    assert "image" not in state.messages[0].text
    assert env.tasks[0].reference["kind"] == "closed"
    assert score(env, "Maybe") == 1.0


def test_an_image_that_is_mapped_must_be_there(tmp_path):
    write_images(tmp_path, 1)
    rows = [{"question": "q", "answer": "a", "image": "0.png"}, {"question": "q", "answer": "a", "image": None}]
    env = make(tmp_path, rows, {"image": "image"})
    with pytest.raises(BadRow, match="line 2: column 'image'"):
        _ = env.tasks


@pytest.mark.parametrize(
    ("gold", "answer", "expected"),
    [
        (["lung", "the lungs"], "The lungs", 1.0),
        (7, "7", 1.0),
        (7, 7.0, 1.0),
        ("7", "8", 0.0),
        (True, "yes", 1.0),
        (False, "yes", 0.0),
        ("left lung", "lung", pytest.approx(2 / 3)),
        ("0", 0, 1.0),
    ],
)
def test_golds_of_every_type(tmp_path, gold, answer, expected):
    env = make(tmp_path, [{"question": "q", "answer": gold}])
    assert score(env, answer) == expected
    assert score(env, json.loads(env.write_answer(env.tasks[0]))["answer"]) == 1.0


@pytest.mark.parametrize("gold", [None, "", [], {"a": 1}, ["a", None], [["a"]]])
def test_a_gold_that_is_no_answer_is_a_bad_row(tmp_path, gold):
    with pytest.raises(BadRow, match="column 'answer'"):
        _ = make(tmp_path, [{"question": "q", "answer": gold}]).tasks


def test_choices_are_shown_with_letters_and_may_be_named_by_them(tmp_path):
    rows = [{"question": "Which?", "answer": "B", "choices": ["red", "green"]}]
    env = make(tmp_path, rows, {"choices": "choices"})
    assert "A. red\nB. green" in env.reset(env.tasks[0], seed=0).messages[1].text
    assert env.tasks[0].reference["kind"] == "choice"
    assert [score(env, text) for text in ("green", "b", "B. green", "A", "green red")] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert json.loads(env.write_answer(env.tasks[0]))["answer"] == "green"


def test_choices_that_are_letters_get_none(tmp_path):
    env = make(tmp_path, [{"question": "q", "answer": "A", "choices": ["B", "A"]}], {"choices": "choices"})
    assert "- B\n- A" in env.reset(env.tasks[0], seed=0).messages[1].text
    assert [score(env, text) for text in "AB"] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("choices", "column"), [(["red", "blue"], "answer"), (["green"], "choices"), (["green", "Green"], "choices")]
)
def test_choices_that_cannot_be_used_are_bad_rows(tmp_path, choices, column):
    with pytest.raises(BadRow, match=f"column '{column}'"):
        _ = make(tmp_path, [{"question": "q", "answer": "green", "choices": choices}], {"choices": "choices"}).tasks


@pytest.mark.parametrize(
    ("written", "kind"),
    [("CLOSED", "closed"), ("open-ended", "open"), ("Single-choice question", "choice"), ("close_ended", "closed")],
)
def test_a_kind_is_read_as_the_dataset_writes_it(tmp_path, written, kind):
    env = make(tmp_path, [{"question": "q", "answer": "left lung", "kind": written}], {"kind": "kind"})
    assert env.tasks[0].reference["kind"] == kind
    assert score(env, "lung") == (0.0 if kind != "open" else pytest.approx(2 / 3))


def test_an_unknown_kind_is_a_bad_row(tmp_path):
    with pytest.raises(BadRow, match="closed, open or choice"):
        _ = make(tmp_path, [{"question": "q", "answer": "a", "kind": "riddle"}], {"kind": "kind"}).tasks


def test_a_number_within_the_tolerance_is_right(tmp_path):
    env = make(tmp_path, [{"question": "q", "answer": "12%"}, {"question": "q", "answer": 0}], tolerance=0.05)
    assert [score(env, text) for text in ("0.125", "12.5", "11%", 0.12)] == [1.0, 0.0, 0.0, 1.0]
    assert [score(env, number, 1) for number in (0, 0.001)] == [1.0, 0.0]
    with pytest.raises(ConfigError, match="tolerance"):
        make(tmp_path, [{"question": "q", "answer": "a"}], tolerance=-1)


def test_the_figures_of_many_answers_equal_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    golds = [str(v) for v in rng.choice(["yes", "no", "maybe"], 60, p=[0.6, 0.3, 0.1])] + ["left lung", "heart"] * 5
    rows = [{"question": "q", "answer": gold, "organ": "ab"[i % 2]} for i, gold in enumerate(golds)]
    env = make(tmp_path, rows, {"category": "organ"})
    given = [str(v) for v in rng.choice(["yes", "no", "maybe", "other"], 60)] + ["left lung", "lung"] * 5
    policies = [json.dumps({"answer": text, "continue": False}) for text in given]
    episodes = [
        env.play(task, lambda messages, text=text: text) for task, text in zip(env.tasks, policies, strict=True)
    ]
    figures = summarize(episodes, env).get_means()
    right = [gold == text for gold, text in zip(golds, given, strict=True)]
    macro = f1_score(golds[:60], given[:60], labels=["yes", "no", "maybe"], average="macro", zero_division=0)
    assert figures["metrics/closed/macro_f1"] == pytest.approx(macro)
    assert figures["metrics/accuracy/all"] == pytest.approx(np.mean(right))
    assert figures["metrics/accuracy/closed"] == pytest.approx(np.mean(right[:60]))
    assert figures["metrics/accuracy/open"] == 0.5
    assert figures["metrics/open/token_f1"] == 0.5
    assert figures["metrics/category/a"] == pytest.approx(np.mean(right[::2]))


def test_a_constant_answer_scores_the_share_of_its_gold(tmp_path):
    env = make(tmp_path, [{"question": "q", "answer": gold} for gold in ("yes", "no", "no", "lung")])
    assert np.mean([score(env, "no", number) for number in range(4)]) == 0.5
