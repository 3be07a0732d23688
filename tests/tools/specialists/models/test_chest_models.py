"""The shipped specialists are as good as their cards say; `benchmarks/train_specialists.py` made them."""

import cv2
import numpy as np
import pytest
from pydicom.data import get_testdata_file

import viewbox
from tests.support.image_files import save_film
from tests.support.replies import call
from viewbox import make
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.chest_xray.cases import draw_case, plan_case
from viewbox.envs.chest_xray.radiographs import DISPLAY, LABELS
from viewbox.rewards.iou import compute_iou

pytestmark = pytest.mark.slow


def test_the_shipped_classifier_and_segmenter_are_as_good_as_their_cards_say():
    specialists = {
        "classify": {"kind": "classification", "model": "package:chest_classifier"},
        "segment": {"kind": "segmentation", "model": "package:chest_segmenter"},
    }
    env = make("chest_xray", questions=["which"], split="test", specialists=specialists)
    right = []
    for task in env.tasks[:12]:
        gold = task.reference["answer"][0]
        asked = call("classify", image="image_1") + call("segment", image="image_1")
        said, marked = env.play(task, ScriptedPolicy([asked, "{}"])).turns[2].tool_results
        best = max(said.facts, key=said.facts.get)
        right.append((best if said.facts[best] > 0.5 else "no finding") == gold)
        assert {"left lung", "right lung", "heart"} <= {one["label"] for one in marked.facts["regions"]}
    assert sum(right) >= 9  # 57 of 60 when it was measured


def test_the_shipped_grounder_boxes_what_it_is_asked_for_as_its_card_says():
    specialists = {"ground": {"kind": "grounding", "model": "package:chest_grounder"}}
    env = make("chest_xray", questions=["place"], split="test", specialists=specialists)
    overlaps = []
    for task in env.tasks[:16]:
        label = next(label for label in LABELS if label in task.prompt["question"] or label == "cardiomegaly")
        asked = call("ground", image="image_1", phrase=label)
        (found,) = env.play(task, ScriptedPolicy([asked, "{}"])).turns[2].tool_results
        boxes = [one["box"] for one in found.facts["boxes"]]
        overlaps.append(compute_iou(boxes[0], task.reference["bbox"]) if boxes else 0.0)
    assert np.mean(overlaps) > 0.5  # 0.63 of 60 when it was measured


# ---------------------------------------------------------------------- all five kinds, and a person's own films
KINDS = {
    "classify": {"kind": "classification", "model": "package:chest_classifier"},
    "segment": {"kind": "segmentation", "model": "package:chest_segmenter"},
    "ground": {"kind": "grounding", "model": "package:chest_grounder"},
    "ask": {"kind": "text", "model": "package:chest_writer", "prompt": "{question}"},
    "report": {"kind": "text", "model": "package:chest_writer", "task": "report"},
}
UNLIKE = "uncertain, the picture is unlike those that the model knows"


def test_the_shipped_writer_reports_and_answers_as_its_card_says():
    env = make("chest_xray", questions=["findings", "presence"], split="test", specialists=KINDS, boundary=False)
    totals = {"findings": [], "presence": []}
    for task in env.tasks[:36]:
        kind = task.metadata["question"]
        tool, more = ("report", {}) if kind == "findings" else ("ask", {"question": task.prompt["question"]})

        def reply(messages, tool=tool, more=more):
            if messages[-1].role != "tool":
                return call(tool, image="image_1", **more)
            said = messages[-1].text
            return f'{{"findings": ["{said}"]}}' if tool == "report" else f'{{"answer": "{said}"}}'

        totals[kind].append(env.play(task, reply).scores.total)
    assert np.mean(totals["findings"]) > 0.6  # 0.75 of 100 when it was measured
    assert np.mean(totals["presence"]) > 0.6  # 0.72


def list_drawn(tmp_path, film):
    """Files of one film, with the place of each in it: left, top, width and height in pixels."""
    pixels, whole = film.pixels, (0, 0, 400, 400)
    window = [end / 4 for end in DISPLAY]
    cv2.imwrite(str(tmp_path / "16.png"), pixels * 4)
    yield save_film(tmp_path / "12.dcm", pixels // 4, 12, window), whole
    yield save_film(tmp_path / "12_no_window.dcm", pixels // 4, 12), whole
    yield save_film(tmp_path / "monochrome1.dcm", pixels // 4, 12, inverted=True), whole
    yield str(tmp_path / "16.png"), whole
    yield save_film(tmp_path / "portrait.dcm", pixels[:, 14:386], 14, DISPLAY), (14, 0, 372, 400)


def ask_all(file, phrase):
    """The results of every kind of specialist, from `viewbox.ask`."""
    calls = [call(name, image="image_1", **({"phrase": phrase} if name == "ground" else
             {"question": f"Is there a {phrase}?"} if name == "ask" else {})) for name in KINDS]  # fmt: skip
    policy = ScriptedPolicy(["".join(calls), '{"answer": "done"}'])
    answer = viewbox.ask("chest_xray", file, "What does it show?", policy, specialists=KINDS, max_questions=0)
    return dict(zip(KINDS, answer.episode.turns[2].tool_results, strict=True))


def test_ten_films_of_a_person_have_their_boxes_in_the_frame_of_the_file_and_what_is_none_is_said(tmp_path):
    seed = next(n for n in range(2**30, 2**30 + 99) if plan_case(n, "place").findings[0].label == "effusion")
    (film,) = draw_case(seed, "place", 0.3)
    left, top, right, bottom = (400 * end for end in film.findings[0].box)
    for file, (x, y, width, height) in list_drawn(tmp_path, film):
        found = ask_all(file, "effusion")
        assert all(one.success and not one.text.startswith(UNLIKE) for one in found.values()), file
        assert found["classify"].facts["effusion"] > 0.5
        gold = ((left - x) / width, (top - y) / height, (right - x) / width, (bottom - y) / height)
        assert compute_iou(found["ground"].facts["boxes"][0]["box"], gold) > 0.5, file
        region = next(one for one in found["segment"].facts["regions"] if one["label"] == "effusion")
        assert compute_iou(region["box"], gold) > 0.5, file
        assert "yes" in found["ask"].text
        assert "effusion" in found["report"].text
    for name in ("CT_small.dcm", "MR_small.dcm", "JPEG2000.dcm", "examples_rgb_color.dcm", "examples_overlay.dcm"):
        found = ask_all(get_testdata_file(name), "effusion")
        assert {one.text.partition(";")[0].partition(":")[0].strip(".") for one in found.values()} == {UNLIKE}, name
