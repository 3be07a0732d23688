"""`vqa`, `grounding`, `report`, `consultation`: what rows become, what answers score, and the figures of many."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

import viewbox
from tests.support.coco import coco
from tests.support.data_kit import write_images, write_jsonl
from tests.support.replies import call
from viewbox.core.answers import check_answer
from viewbox.envs.consultation import find_facts
from viewbox.errors import BadRow, ConfigError
from viewbox.rollouts.scoring.summary import summarize

PIXELS = {"format": "xywh", "unit": "pixel"}  # of images of 30 x 20
QUESTION = "What is the most likely diagnosis?"
PATIENT = "I have had a rash on both legs for three days. I took amoxicillin last week. I do not smoke."
CASE = {
    "question": QUESTION,
    "patient_info": PATIENT,
    "physical_exams": "Temperature is 38.2. The skin shows palpable purpura. The heart sounds are normal.",
    "answers": [{"text": "IgA vasculitis", "correct": True}, {"text": "Scurvy", "correct": False}],
}
DEFAULTS = {"vqa": {"question": "q"}, "grounding": {"question": "Where is it?"}, "report": {}, "consultation": CASE}


def make(folder, family, *rows, image=None, boxes=PIXELS, **settings):
    """The environment of rows that fill the fields of a family. An image is mapped where it must be, or on demand."""
    image = family in ("grounding", "report") if image is None else image
    write_images(folder, 1)
    rows = [{**DEFAULTS[family], **row} for row in rows]
    names = dict.fromkeys(name for row in rows for name in row if name != "image")
    source = write_jsonl(folder / "rows.jsonl", [{"image": "0.png", "n": n, **row} for n, row in enumerate(rows)])
    columns = {name: name for name in (*names, *(["image"] if image else []))}
    data = {"source": str(source), "columns": columns, "boxes": boxes, "bad_rows": "stop", "group": "n"}
    return viewbox.make(family, data=data, **settings)


def play(env, answer, number=0):
    return env.play(env.tasks[number], lambda messages: json.dumps({**answer, "continue": False}))


def score(env, answer, number=0):
    answer = answer if isinstance(answer, dict) else {"answer": answer}
    return play(env, answer, number).scores.total


def play_gold(env, number=0):
    return env.play(env.tasks[number], lambda messages: env.write_answer(env.tasks[number]))


def score_gold(env):
    assert viewbox.check_rewards(env) == []
    return [play_gold(env, number).scores.total for number in range(len(env.tasks))]


def read_prompt(env):
    return "\n".join(message.text for message in env.reset(env.tasks[0], seed=0).messages)


BOX, BOXES, SECTIONS = [3, 2, 6, 4], [[3, 2, 6, 4], [15, 10, 3, 2]], ["findings", "impression"]
BAD = {  # family and row -> what the error says
    "column 'image'": ("vqa", {"answer": "a", "image": None}), "column 'answer' is null": ("vqa", {"answer": None}),
    r"column 'answer' is {'a': 1}; expected: a text, a number, or a list": ("vqa", {"answer": {"a": 1}}),
    r"column 'answer' is \[\]; expected: a text, a number, or a list": ("vqa", {"answer": []}),
    "column 'answer'.*a text, a number, or a list of them": ("vqa", {"answer": ["a", None]}),
    "column 'answer'.*one of the choices": ("vqa", {"answer": "green", "choices": ["red", "blue"]}),
    "column 'choices'": ("vqa", {"answer": "green", "choices": ["green"]}),
    "column 'choices'.*different texts": ("vqa", {"answer": "green", "choices": ["green", "Green"]}),
    "closed, open or choice": ("vqa", {"answer": "a", "kind": "riddle"}),
    "column 'boxes'.*inside": ("grounding", {"boxes": [25, 2, 10, 4]}),
    "column 'boxes' is null": ("grounding", {"boxes": None}), "at most 300": ("grounding", {"boxes": [BOX] * 301}),
    "one label for each of the 1 boxes": ("grounding", {"boxes": BOX, "labels": []}),
    "column 'labels'.*one of: a": ("grounding", {"boxes": BOX, "labels": ["b"]}),
    "column 'labels' is null; expected: text": ("grounding", {"boxes": BOX, "labels": [None]}),
    "text in one of the sections findings, impression": ("report", {"findings": None, "impression": ""}),
    "column 'answers'.*a list of them": ("consultation", {"answers": [{"text": "a", "correct": False}]}),
    "column 'answers' is": ("consultation", {"answers": []}),
    "column 'patient_info' is null": ("consultation", {"patient_info": None}),
    "column 'patient_info'.*facts": ("consultation", {"patient_info": {}}),
    "column 'physical_exams'": ("consultation", {"physical_exams": "x" * 60_000}),
}  # fmt: skip


def test_bad_rows_name_the_column_and_what_was_expected(tmp_path):
    for said, (family, row) in BAD.items():
        settings = {"sections": SECTIONS} if family == "report" else {"classes": ["a"]} if "labels" in row else {}
        with pytest.raises(BadRow, match=said):
            _ = make(tmp_path, family, row, image="image" in row or None, **settings).tasks[0]


def test_a_set_of_text_alone_offers_no_tools_that_need_an_image_and_kinds_are_as_the_dataset_writes_them(tmp_path):
    env = make(tmp_path, "vqa", {"answer": "maybe"})
    state = env.reset(env.tasks[0], seed=0)
    assert (state.tools, state.view) == ((), None)
    assert "image" not in state.messages[0].text
    assert (env.tasks[0].reference["kind"], score(env, "Maybe")) == ("closed", 1.0)
    kinds = {"CLOSED": "closed", "open-ended": "open", "Single-choice question": "choice", "close_ended": "closed"}
    env = make(tmp_path, "vqa", *({"answer": "left lung", "kind": written} for written in kinds))
    assert [task.reference["kind"] for task in env.tasks] == [*kinds.values()]
    assert [score(env, "lung", number) for number in range(4)] == pytest.approx([0, 2 / 3, 0, 0])


def test_golds_of_every_type_and_numbers_within_a_tolerance(tmp_path):
    pairs = [(["lung", "the lungs"], "The lungs", 1), (7, "7", 1), (7, 7.0, 1), ("7", "8", 0), (True, "yes", 1)]
    pairs += [(False, "yes", 0), ("left lung", "lung", 2 / 3), ("0", 0, 1)]
    env = make(tmp_path, "vqa", *({"answer": gold} for gold, _, _ in pairs))
    for number, (_, answer, expected) in enumerate(pairs):
        assert score(env, answer, number) == pytest.approx(expected)
        assert play_gold(env, number).scores.total == 1.0
    env = make(tmp_path, "vqa", {"answer": "12%"}, {"answer": 0}, tolerance=0.05)
    assert [score(env, text) for text in ("0.125", "12.5", "11%", 0.12)] == [1.0, 0.0, 0.0, 1.0]
    assert [score(env, number, 1) for number in (0, 0.001)] == [1.0, 0.0]
    with pytest.raises(ConfigError, match="tolerance"):
        make(tmp_path, "vqa", {"answer": "a"}, tolerance=-1)


def test_choices_are_shown_with_letters_unless_they_are_letters_and_may_be_named_by_them(tmp_path):
    env = make(tmp_path, "vqa", {"answer": "B", "choices": ["red", "green"]})
    assert "A. red\nB. green" in read_prompt(env)
    assert env.tasks[0].reference["kind"] == "choice"
    assert [score(env, text) for text in ("green", "b", "B. green", "A", "green red")] == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert json.loads(env.write_answer(env.tasks[0]))["answer"] == "green"
    env = make(tmp_path, "vqa", {"answer": "A", "choices": ["B", "A"]})
    assert "- B\n- A" in read_prompt(env)
    assert [score(env, text) for text in "AB"] == [1.0, 0.0]


def test_the_figures_of_many_answers_equal_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    golds = [str(v) for v in rng.choice(["yes", "no", "maybe"], 60, p=[0.6, 0.3, 0.1])] + ["left lung", "heart"] * 5
    env = make(tmp_path, "vqa", *({"answer": gold, "category": "ab"[i % 2]} for i, gold in enumerate(golds)))
    given = [str(v) for v in rng.choice(["yes", "no", "maybe", "other"], 60)] + ["left lung", "lung"] * 5
    episodes = [play(env, {"answer": text}, number) for number, text in enumerate(given)]
    figures = summarize(episodes, env).get_means()
    right = [gold == text for gold, text in zip(golds, given, strict=True)]
    macro = f1_score(golds[:60], given[:60], labels=["yes", "no", "maybe"], average="macro", zero_division=0)
    known = {"closed/macro_f1": macro, "accuracy/all": np.mean(right), "accuracy/closed": np.mean(right[:60])}
    known |= {"category/a": np.mean(right[::2])}
    assert {name: figures[f"metrics/{name}"] for name in known} == pytest.approx(known)
    assert figures["metrics/accuracy/open"] == figures["metrics/open/token_f1"] == 0.5


def test_gold_scores_one_for_one_box_many_and_none_and_the_prompt_states_their_form_and_the_label(tmp_path):
    rows = [{"boxes": boxes} for boxes in (BOX, [BOX], BOXES, [])]
    for coordinates in ("unit", "per_mille", "pixel"):
        assert score_gold(make(tmp_path, "grounding", *rows, coordinates=coordinates)) == [1.0] * 4
    labeled = '{"boxes": [{"label": "cyst|mass", "box": [x1, y1, x2, y2]}], "continue": false}'
    for said, row, settings in (
        ('{"boxes": [[x1, y1, x2, y2]], "continue": false}', {}, {}),
        (labeled, {"labels": ["cyst"]}, {"classes": ["cyst", "mass"]}),
        ("effusion", {"label": "effusion", "question": None}, {}),
    ):
        assert said in read_prompt(make(tmp_path, "grounding", {"boxes": BOX, **row}, **settings))


FIRST, SECOND = [0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.6, 0.6]


def test_boxes_are_matched_one_to_one_by_their_labels_and_extra_ones_cost(tmp_path):
    env = make(tmp_path, "grounding", {"boxes": BOXES})
    given = ([SECOND, FIRST], [FIRST], [FIRST, FIRST, FIRST, SECOND], [])
    assert [score(env, {"boxes": boxes}) for boxes in given] == pytest.approx([1.0, 0.5, 0.5, 0.0])
    env = make(tmp_path, "grounding", {"boxes": BOXES, "labels": ["Cyst", "mass"]})
    assert score_gold(env) == [1.0]
    assert score(env, {"boxes": [{"label": "cyst", "box": box} for box in (FIRST, SECOND)]}) == pytest.approx(0.5)


def test_the_model_is_told_which_box_is_wrong(tmp_path):
    env = make(tmp_path, "grounding", {"boxes": BOX})
    turned, wide = [[0.3, 0.1, 0.1, 0.3]], [[0, 0, 1, 1], [0, 0, 7, 1]]
    for said, boxes in (("boxes[0] = [0.3, 0.1, 0.1, 0.3]: needs x1 < x2", turned), ("boxes[1]", wide)):
        assert said in check_answer(env, {"boxes": boxes}, env.tasks[0])[1]
    for answer in ({"boxes": [[0.1, 0.1, 0.3]]}, {"boxes": "none"}, {"boxes": [[0, 0, 1, 1]] * 301}, {}):
        assert "boxes" in check_answer(env, answer, env.tasks[0])[1]


def test_an_answer_and_a_location_count_as_in_gemex(tmp_path):
    rows = {"boxes": BOX, "answer": "yes", "location": "left lung"}, {"boxes": BOX, "answer": "no"}
    env = make(tmp_path, "grounding", *rows)
    assert [play_gold(env, number).scores.total for number in (0, 1)] == [1.0, 1.0]
    right = {"answer": "yes", "location": "left lung", "boxes": [FIRST]}
    wrong = ({"answer": "no"}, {"location": "heart"}, {"boxes": []})
    assert [score(env, right | one) for one in wrong] == pytest.approx([0.6, 0.7, 0.7])
    assert play(env, {**right, "answer": "no"}, 1).scores.components["location"] is None


def test_map_equals_pycocotools(tmp_path):
    rng = np.random.default_rng(0)

    def draw(count):
        corner, size = rng.uniform(0, 0.5, (count, 2)), rng.uniform(0.1, 0.4, (count, 2))
        return np.concatenate([corner, corner + size], axis=1)

    def label(boxes, key):
        return [{"label": "ab"[i % 2], key: box} for i, box in enumerate(boxes.tolist())]

    golds = [draw(int(rng.integers(1, 4))) for _ in range(25)]
    answers = [np.clip(gold + rng.normal(0, 0.03, gold.shape), 0, 1) for gold in golds]
    rows = [{"boxes": gold.tolist(), "labels": [*"aba"[: len(gold)]], "id": f"{n:02}"} for n, gold in enumerate(golds)]
    env = make(tmp_path, "grounding", *rows, boxes={"format": "xyxy", "unit": "unit"})
    episodes = [play(env, {"boxes": label(answer, "box")}, number) for number, answer in enumerate(answers)]
    figures, metric = summarize(episodes, env).get_means(), env.metrics["box"]
    pairs = [(episode.answer, episode.task.reference) for episode in episodes]
    pixels = [[{"found": label(1000 * boxes, "bbox")} for boxes in pair] for pair in zip(answers, golds, strict=True)]
    assert replace(metric, ties="coco")(pairs) == pytest.approx(coco(pixels))  # no answer states a confidence
    for name in ("map@0.5:0.95", "map@0.5"):
        assert figures[f"metrics/box/{name}"] == metric(pairs[::-1])[name]  # whatever their order
    assert 0.6 < figures["metrics/iou/iou"] < 1


def test_a_free_text_has_a_default_request_and_sections_are_fields_that_share_the_reward(tmp_path):
    env = make(tmp_path, "report", {"report": "No effusion. Small nodule."})
    assert "Write the report of this image." in read_prompt(env)
    assert score_gold(env) == [1.0]
    assert score(env, {"report": "Effusion. No nodule."}) < 0.5
    rows = {"findings": "clear lungs", "impression": "normal"}, {"findings": "mass", "impression": None}
    env = make(tmp_path, "report", *rows, sections=SECTIONS)
    assert env.answer_format.keys == [*SECTIONS, "continue"]
    assert score_gold(env) == [1.0, 1.0]
    assert score(env, {"findings": "clear lungs", "impression": "mass"}) == pytest.approx(0.5)
    assert play(env, {"findings": "mass", "impression": "anything"}, 1).scores.components["impression"] is None
    figures = summarize([play_gold(env), play(env, {"findings": "a", "impression": "b"}, 1)], env).get_means()
    assert [figures[f"metrics/{name}/token_f1"] for name in SECTIONS] == [0.5, 1.0]
    for sections in (["boxes"], ["a", "a"], ["Two words"]):
        with pytest.raises(ConfigError, match="sections"):
            make(tmp_path, "report", {"report": "x"}, sections=sections)


def test_caption_diagnosis_and_boxes_count_as_for_nova(tmp_path):
    rows = [{"report": "a mass", "diagnosis": "Glioma", "boxes": [BOX]}]
    rows += [{"report": "a mass", "diagnosis": ["glioma", "edema"], "boxes": []}]
    env = make(tmp_path, "report", *rows)
    assert score_gold(env) == pytest.approx([1.0, 1.0])
    right = {"report": "a mass", "diagnosis": ["glioma"], "boxes": [FIRST]}
    wrong = {"report": "no"}, {"diagnosis": ["cyst", "glioma"]}, {"boxes": []}, {"boxes": [[0.1, 0.1, 0.3, 0.25]]}
    assert [score(env, right | one) for one in wrong] == pytest.approx([0.67, 1 - 0.34 * 0.6, 0.67, 1.0])
    assert score(env, {**right, "boxes": []}, 1) == pytest.approx(1 - 0.34 * 0.4 * 0.5)
    assert check_answer(env, {**right, "diagnosis": ["a"] * 6}, env.tasks[0])[1] is not None
    figures = summarize([play_gold(env), play(env, {**right, "diagnosis": ["edema", "glioma"], "boxes": []}, 1)], env)
    for name in ("diagnosis/top1", "coverage/coverage", "box/map@0.5"):
        assert figures[f"metrics/{name}"].mean == 1.0


def consult(env, *replies):
    """An episode, and the results of its tools."""
    given = iter(replies)
    episode = env.play(env.tasks[0], lambda messages: next(given))
    return episode, [result.text for turn in episode.turns for result in turn.tool_results]


def test_patient_and_examinations_answer_from_facts_that_the_model_does_not_see(tmp_path):
    env = make(tmp_path, "consultation", {})
    state = env.reset(env.tasks[0], seed=0)
    assert state.tools == ("ask_patient", "order_exam")
    assert not any(word in read_prompt(env) for word in ("amoxicillin", "purpura", "vasculitis"))
    assert "facts" not in json.dumps([dict(schema) for schema in state.tool_schemas], default=dict)
    asked = call("ask_patient", question="Did you take any medicine or amoxicillin?"), call("order_exam", name="Skin")
    right = json.dumps({"answer": "IgA vasculitis.", "continue": False})
    episode, results = consult(env, *asked, call("order_exam", name="MRI"), right)
    for said, result in zip(("I took amoxicillin last week.", "purpura", "no result"), results, strict=True):
        assert said in result
    assert episode.scores.total == 1.0
    state = make(tmp_path, "consultation", {}, image=True).reset(env.tasks[0], seed=0)
    assert state.tools == ("ask_patient", "order_exam", "zoom", "crop")
    assert state.view is not None


def test_a_question_gets_the_sentences_with_its_words():
    rash = "I have had a rash on both legs for three days."
    found = {"Do you smoke?": "I do not smoke.", "smoking": "I do not smoke.", "Any rashes?": rash}
    found |= {"When did the rash begin?": rash, "What brings you in today?": PATIENT}
    found |= {"Any allergies?": "", "": "", "?" * 100_000: ""}
    assert {question: find_facts(PATIENT, question) for question in found} == found


def test_exact_counts_most_shared_words_a_little_and_facts_may_be_nested_and_answers_plain(tmp_path):
    env = make(tmp_path, "consultation", {})
    assert score_gold(env) == [1.0]
    assert [score(env, text) for text in ("vasculitis", "Scurvy")] == pytest.approx([0.2 * 2 / 3, 0])
    exams = {"Vital_Signs": {"Temperature": "38.2"}, "Skin": ["purpura", "no edema"]}
    row = {"physical_exams": exams, "answers": ["IgA vasculitis", "Henoch-Schönlein purpura"]}
    right = json.dumps({"answer": "henoch-schönlein purpura", "continue": False})
    episode, results = consult(make(tmp_path, "consultation", row), call("order_exam", name="vital signs"), right)
    assert "Vital Signs, Temperature: 38.2." in results[0]
    assert episode.scores.total == 1.0
