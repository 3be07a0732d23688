"""`consultation`: what the patient and the examinations say, what the model never sees, and what answers score."""

import json

import pytest

import viewbox
from tests.support.data_kit import write_images, write_jsonl
from viewbox.envs.consultation import find_facts
from viewbox.errors import BadRow

CASE = {
    "question": "What is the most likely diagnosis?",
    "patient_info": "I have had a rash on both legs for three days. I took amoxicillin last week. I do not smoke.",
    "physical_exams": "Temperature is 38.2. The skin shows palpable purpura. The heart sounds are normal.",
    "answers": [{"text": "IgA vasculitis", "correct": True}, {"text": "Scurvy", "correct": False}],
}


def make(tmp_path, *cases, image=False, **settings):
    write_images(tmp_path, 1)
    source = write_jsonl(tmp_path / "cases.jsonl", [{**CASE, "image": "0.png", **case} for case in cases or ({},)])
    names = [*CASE, *(["image"] if image else [])]
    data = {"source": str(source), "columns": {name: name for name in names}, "bad_rows": "stop"}
    return viewbox.make("consultation", data=data, **settings)


def play(env, *replies):
    given = iter(replies)
    return env.play(env.tasks[0], lambda messages: next(given))


def call(tool, **arguments):
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def answer(text):
    return json.dumps({"answer": text, "continue": False})


def list_results(episode):
    return [result.text for turn in episode.turns for result in turn.tool_results]


def test_patient_and_examinations_answer_from_facts_that_the_model_does_not_see(tmp_path):
    env = make(tmp_path)
    state = env.reset(env.tasks[0], seed=0)
    assert state.tools == ("ask_patient", "order_exam")
    assert not any(
        word in message.text for message in state.messages for word in ("amoxicillin", "purpura", "vasculitis")
    )
    assert "facts" not in json.dumps([dict(schema) for schema in state.tool_schemas], default=dict)
    asked = call("ask_patient", question="Did you take any medicine or amoxicillin?"), call("order_exam", name="Skin")
    episode = play(env, *asked, call("order_exam", name="MRI"), answer("IgA vasculitis."))
    results = list_results(episode)
    assert "I took amoxicillin last week." in results[0]
    assert "palpable purpura" in results[1]
    assert "There is no result" in results[2]
    assert episode.scores.total == 1.0


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Do you smoke?", "I do not smoke."),
        ("Any rashes?", "I have had a rash on both legs for three days."),
        ("Any allergies?", ""),
        ("When did the rash begin?", "I have had a rash on both legs for three days."),
        ("What brings you in today?", CASE["patient_info"]),
        ("smoking", "I do not smoke."),
        ("", ""),
        ("?" * 100_000, ""),
    ],
)
def test_a_question_gets_the_sentences_with_its_words(question, found):
    assert find_facts(CASE["patient_info"], question) == found


def test_exact_counts_most_and_shared_words_a_little(tmp_path):
    env = make(tmp_path)
    assert viewbox.check_rewards(env) == []
    assert play(env, env.write_answer(env.tasks[0])).scores.total == 1.0
    assert play(env, answer("vasculitis")).scores.total == pytest.approx(0.2 * 2 / 3)
    assert play(env, answer("Scurvy")).scores.total == 0.0


def test_an_image_brings_its_tools(tmp_path):
    env = make(tmp_path, image=True)
    state = env.reset(env.tasks[0], seed=0)
    assert state.tools == ("ask_patient", "order_exam", "zoom", "crop")
    assert state.view is not None


def test_facts_may_be_nested_and_answers_plain(tmp_path):
    exams = {"Vital_Signs": {"Temperature": "38.2"}, "Skin": ["purpura", "no edema"]}
    env = make(tmp_path, {"physical_exams": exams, "answers": ["IgA vasculitis", "Henoch-Schönlein purpura"]})
    episode = play(env, call("order_exam", name="vital signs"), answer("henoch-schönlein purpura"))
    assert "Vital Signs, Temperature: 38.2." in list_results(episode)[0]
    assert episode.scores.total == 1.0


@pytest.mark.parametrize(
    ("case", "column"),
    [
        ({"answers": [{"text": "a", "correct": False}]}, "answers"),
        ({"answers": []}, "answers"),
        ({"patient_info": None}, "patient_info"),
        ({"patient_info": {}}, "patient_info"),
        ({"physical_exams": "x" * 60_000}, "physical_exams"),
    ],
)
def test_bad_rows_name_the_column(tmp_path, case, column):
    with pytest.raises(BadRow, match=f"column '{column}'"):
        _ = make(tmp_path, case).tasks
