"""The referring doctor answers what was asked, from the fields of the case, and never what the film shows."""

import pytest

from viewbox.envs.chest_xray import cases
from viewbox.envs.chest_xray.doctor import find_fields, name_fields, reply

PAIN = "The patient has pain on one side. Which finding lies on that side?"
ASKED = {
    "On which side is the pain?": "side",
    "Which hemithorax is tender?": "side",
    "Which lung are you referring to?": "",
    "Is the left costophrenic angle blunted?": "",
    "What does the film show?": "",
    "What is the right answer?": "",
    "Is the classifier right?": "",
    "How old is the patient?": "age",
    "When did the symptoms start?": "duration",
    "Any smoking history?": "smoking",
    "Past medical history?": "history",
    "Why was the film taken?": "complaint",
    "What is the blood pressure?": "",
    # written before the answers to them were seen
    "What brought the patient to hospital?": "complaint",
    "Tell me the age of the patient.": "age",
    "Since when has the patient been unwell?": "duration",
    "Did the pain start suddenly?": "duration",
    "Is it the right or the left side that hurts?": "side",
    "Has the patient ever smoked?": "smoking",
    "Is there tobacco use?": "smoking",
    "Any relevant past illnesses?": "history",
    "Has the patient been operated on?": "history",
    "Does the patient have heart failure?": "history",
    "Is the patient known to have cancer?": "history",
    "Is the patient coughing?": "complaint",
    "What are the symptoms?": "complaint",
    "What is the indication for this film?": "complaint",
    "Is the patient over 60?": "age",
    "Is the opacity on the right new?": "",
    "Which side should I look at?": "",
    "Is there anything abnormal in the right lung?": "",
    "Is the L marker correct?": "",
    "Was there a previous X-ray?": "",
    "Has the effusion been there before?": "",
    "How many weeks ago did it begin?": "duration",
    "How severe is the pain?": "",
    "Is the pain on the side of the nodule?": "side",
    "Does the patient have asthma?": "history",
    "Is the patient in pain?": "side",
}


@pytest.mark.parametrize("question", ASKED)
def test_the_fields_that_are_asked_for_and_no_others_are_answered(question):
    facts = cases.plan_case(3, "side").facts
    wanted = set(ASKED[question].split())
    assert find_fields(question) == wanted
    assert set().union(*map(name_fields, reply(facts, question).split(". ")), set()) >= wanted
    assert (reply(facts, question) == "") == (not wanted)


def test_a_bare_side_is_that_of_the_pain_only_where_the_task_is_about_pain():
    assert (find_fields("Left or right?"), find_fields("Left or right?", PAIN)) == (set(), {"side"})


def test_every_drawn_story_has_one_sentence_for_each_field():
    for seed in range(200):
        fields = [name_fields(one) for one in cases.plan_case(seed, "presence").facts.splitlines()]
        assert sorted(map(sorted, fields)) == [["age"], ["complaint"], ["duration"], ["history"], ["side"], ["smoking"]]


def test_facts_without_a_field_are_found_by_their_words():
    assert reply("Hemoglobin is 9.1. The pain is on the left side.", "What is the hemoglobin?") == "Hemoglobin is 9.1."
