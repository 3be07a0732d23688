"""`report`: one text or sections, diagnoses, boxes; what answers score and the figures that are reported."""

import json

import pytest

import viewbox
from tests.support.data_kit import write_images, write_jsonl
from viewbox.core.answers import check_answer
from viewbox.errors import BadRow, ConfigError
from viewbox.rollouts.scoring.summary import summarize

PIXELS = {"format": "xywh", "unit": "pixel"}  # of images of 30 x 20


def make(tmp_path, rows, columns=("report",), **settings):
    write_images(tmp_path, 1)
    source = write_jsonl(tmp_path / "rows.jsonl", [{"image": "0.png", **row} for row in rows])
    fields = {name: name for name in ("image", *columns)}
    data = {"source": str(source), "boxes": PIXELS, "bad_rows": "stop", "columns": fields}
    return viewbox.make("report", data=data, **settings)


def play(env, answer, number=0):
    return env.play(env.tasks[number], lambda messages: json.dumps({**answer, "continue": False}))


def play_gold(env, number=0):
    return env.play(env.tasks[number], lambda messages: env.write_answer(env.tasks[number]))


def test_a_free_text_has_a_default_request(tmp_path):
    env = make(tmp_path, [{"report": "No effusion. Small nodule."}])
    assert "Write the report of this image." in env.reset(env.tasks[0], seed=0).messages[1].text
    assert play_gold(env).scores.total == 1.0
    assert viewbox.check_rewards(env) == []
    assert play(env, {"report": "Effusion. No nodule."}).scores.total < 0.5


def test_sections_are_fields_and_share_the_reward(tmp_path):
    rows = [{"findings": "clear lungs", "impression": "normal"}, {"findings": "mass", "impression": None}]
    env = make(tmp_path, rows, ("findings", "impression"), sections=["findings", "impression"])
    assert env.answer_format.keys == ["findings", "impression", "continue"]
    assert play_gold(env).scores.total == play_gold(env, 1).scores.total == 1.0
    assert play(env, {"findings": "clear lungs", "impression": "mass"}).scores.total == pytest.approx(0.5)
    assert play(env, {"findings": "mass", "impression": "anything"}, 1).scores.components["impression"] is None
    figures = summarize([play_gold(env), play(env, {"findings": "a", "impression": "b"}, 1)], env).get_means()
    assert figures["metrics/findings/token_f1"] == 0.5
    assert figures["metrics/impression/token_f1"] == 1.0


def test_a_row_without_any_section_is_bad(tmp_path):
    env = make(
        tmp_path,
        [{"findings": None, "impression": ""}],
        ("findings", "impression"),
        sections=["findings", "impression"],
    )
    with pytest.raises(BadRow, match="text in one of the sections findings, impression"):
        _ = env.tasks


@pytest.mark.parametrize("sections", [["boxes"], ["a", "a"], ["Two words"]])
def test_sections_need_names_of_their_own(tmp_path, sections):
    with pytest.raises(ConfigError, match="sections"):
        make(tmp_path, [{"report": "x"}], sections=sections)


def test_caption_diagnosis_and_boxes_count_as_for_nova(tmp_path):
    rows = [{"report": "a mass", "diagnosis": "Glioma", "boxes": [[3, 2, 6, 4]]}]
    rows += [{"report": "a mass", "diagnosis": ["glioma", "edema"], "boxes": []}]
    env = make(tmp_path, rows, ("report", "diagnosis", "boxes"))
    assert play_gold(env).scores.total == pytest.approx(1.0)
    assert play_gold(env, 1).scores.total == pytest.approx(1.0)
    assert viewbox.check_rewards(env) == []
    right = {"report": "a mass", "diagnosis": ["glioma"], "boxes": [[0.1, 0.1, 0.3, 0.3]]}
    assert play(env, {**right, "report": "no"}).scores.total == pytest.approx(0.67)
    assert play(env, {**right, "diagnosis": ["cyst", "glioma"]}).scores.total == pytest.approx(1 - 0.34 * 0.6)
    assert play(env, {**right, "boxes": []}).scores.total == pytest.approx(0.67)
    assert play(env, {**right, "boxes": [[0.1, 0.1, 0.3, 0.25]]}).scores.total == pytest.approx(1.0)
    assert play(env, {**right, "boxes": []}, 1).scores.total == pytest.approx(1 - 0.34 * 0.4 * 0.5)
    assert check_answer(env, {**right, "diagnosis": ["a"] * 6}, env.tasks[0])[1] is not None
    figures = summarize([play_gold(env), play(env, {**right, "diagnosis": ["edema", "glioma"], "boxes": []}, 1)], env)
    assert figures["metrics/diagnosis/top1"].mean == 1.0
    assert figures["metrics/coverage/coverage"].mean == 1.0
    assert figures["metrics/box/map@0.5"].mean == 1.0
