"""What a policy would try in `chest_xray`: tricks score below the honest right answer.

Random guesses of the right form are in benchmarks/guessing.py: below 0.25.
"""

import json

import numpy as np
import pytest

from tests.support.tables import each
from viewbox import make
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.chest_xray.cases import CHANGES, FOCAL, FOUR_SIDES, NOTHING, name_finding, plan_case
from viewbox.envs.chest_xray.radiographs import LABELS, SIDES
from viewbox.envs.chest_xray.rewards import FindingsReward
from viewbox.records import Episode
from viewbox.tools import Picture

EVERY = [f"{side} {label}" for label in FOCAL for side in SIDES] + ["cardiomegaly"]
GOLD = ["left nodule", "cardiomegaly"]
TOOL_TEXT = "effusion: 0.91, pneumothorax: 0.03, consolidation: 0.12, nodule: 0.77, cardiomegaly: 0.64"
REPORT = "FINDINGS: The left lung has a nodule. The heart is enlarged. IMPRESSION: possible nodule or artifact."

# (name, the answer's findings, the right ones, at most, why)
FINDINGS = [
    ("every finding as a list", EVERY, GOLD, 0.4, "precision falls"),
    ("every finding as a text", ", ".join(EVERY), GOLD, 0.4, "precision falls"),
    ("every finding where there is none", EVERY, [], 0.0, "nothing is there"),
    ("every finding without a side", list(LABELS), GOLD, 0.3, "a side was asked for"),
    ("both sides of each", ["left nodule", "right nodule", "cardiomegaly"], GOLD, 0.8, "one of three is wrong"),
    ("bilateral for one side", "bilateral nodules, cardiomegaly", GOLD, 0.8, "one of three is wrong"),
    ("the other side", ["right nodule", "cardiomegaly"], GOLD, 0.5, "one of two"),
    ("hedged", "possible left nodule, possible cardiomegaly", GOLD, 0.0, "nothing is affirmed"),
    ("hedged by or", "left nodule or cardiomegaly", GOLD, 0.0, "it says one of two"),
    ("hedged by cannot", "a left nodule cannot be excluded, cardiomegaly may be present", GOLD, 0.0, "not affirmed"),
    ("hedged by a question", "rule out left nodule; consider cardiomegaly", GOLD, 0.0, "not affirmed"),
    ("hedged items of a list", ["likely left nodule", "suspected cardiomegaly"], GOLD, 0.0, "not affirmed"),
    ("affirmed and denied", "Left nodule. No left nodule. Cardiomegaly. No cardiomegaly.", GOLD, 0.0, "both ways"),
    ("affirmed and denied without a side", "Left nodule. No nodule. Cardiomegaly.", GOLD, 0.5, "the nodule both ways"),
    ("affirmed and denied in a list", ["left nodule", "no left nodule", "cardiomegaly"], GOLD, 0.5, "both ways"),
    ("denied", "No left nodule, no cardiomegaly.", GOLD, 0.0, "the opposite"),
    ("denied behind the finding", "left nodule: no; cardiomegaly: absent", GOLD, 0.0, "the opposite"),
    ("everything denied where there is something", "normal, no findings", GOLD, 0.0, "the opposite"),
    ("normal beside the findings", "normal, left nodule, cardiomegaly", [], 0.0, "it affirms two"),
    ("a list of one empty text", [""], [], 0.0, "an item that names nothing is wrong"),
    ("noise where there is none", "banana", [], 0.0, "it does not say that there is none"),
    ("noise in a list", ["banana", "apple"], [], 0.0, "an item that names nothing is wrong"),
    ("the question repeated", "List every finding of the film with its side: " + ", ".join(LABELS), [], 0.0, "copied"),
    ("what the tool said", TOOL_TEXT, GOLD, 0.4, "labels without a decision"),
    ("what the tool said, where there is none", TOOL_TEXT, [], 0.0, "labels without a decision"),
    ("a report that hedges at its end", REPORT, ["left nodule", "cardiomegaly"], 0.99, "said and hedged"),
    ("each finding a hundred times", ["left nodule", "cardiomegaly"] * 100, GOLD, 0.0, "unread: too many"),
    ("padding to the limit", "left nodule. " * 400, GOLD, 0.0, "unread: too long"),
    ("numbers", [1, 2, 3], GOLD, 0.0, "no findings"),
    ("a mapping of all", dict.fromkeys(EVERY, True), GOLD, 0.0, "no list"),
    ("nested lists", [["left nodule", "cardiomegaly"]], GOLD, 0.0, "no text"),
]  # fmt: skip


def test_the_honest_answers_to_these_rows_score_one():
    reward = FindingsReward()
    honest = ["Left nodule. Cardiomegaly. No effusion or pneumothorax.", "cardiomegaly, nodule in the left lung",
              ["Cardiomegaly", "left-sided nodule"], "The heart is enlarged. A nodule on the left.", GOLD]  # fmt: skip
    assert [reward({"findings": said}, {"findings": GOLD}) for said in honest] == [1.0] * len(honest)
    none = ["No findings.", "normal", "none", [], ["none"], "No effusion, nodule or cardiomegaly."]
    assert [reward({"findings": said}, {"findings": []}) for said in none] == [1.0] * len(none)


@each(("name", "said", "gold", "most", "why"), FINDINGS)
def test_a_trick_with_findings_earns_less_than_the_right_ones(name, said, gold, most, why):
    reward = FindingsReward()
    score = reward({"findings": said}, {"findings": gold})
    assert 0.0 <= score <= most + 1e-9
    assert score < 1.0
    assert isinstance(reward.explain({"findings": said}, {"findings": gold}), str)


# ---------------------------------------------------------------------- whole policies
JSON, TEXT = make("chest_xray", boundary=False), make("chest_xray", answer_form="text", boundary=False)
TASKS = 54  # six or more of each kind


def to_reply(**fields):
    return json.dumps({**fields, "continue": False})


# (name, environment, reply to a task, mean score over all kinds at most, why)
CONSTANT = [
    ("always yes", JSON, lambda task: to_reply(answer="yes"), 0.15, "right for half of one kind"),
    ("always no finding", JSON, lambda task: to_reply(answer=NOTHING, findings=[]), 0.25, "right for normal films"),
    ("every choice at once", JSON, lambda task: to_reply(answer=", ".join(task.prompt.get("choices", ["yes, no"]))),
     0.08, "it chooses none"),
    ("every letter", JSON, lambda task: to_reply(answer="A B C D E F"), 0.02, "it chooses none"),
    ("the first choice", JSON, lambda task: to_reply(answer="A"), 0.2, "a guess"),
    ("yes and no", JSON, lambda task: to_reply(answer="yes, no"), 0.02, "both ways"),
    ("every field filled with everything", JSON, lambda task: to_reply(
        answer=", ".join(EVERY), findings=EVERY, bbox=[0, 0, 1, 1]), 0.2, "all at once"),
    ("a box over everything", JSON, lambda task: to_reply(bbox=[0, 0, 1, 1]), 0.03, "its IoU"),
    ("a box over the lungs", JSON, lambda task: to_reply(bbox=[0.15, 0.15, 0.85, 0.8]), 0.05, "its IoU"),
    ("a size in the middle", JSON, lambda task: to_reply(answer=40), 0.06, "far from most"),
    ("every size", TEXT, lambda task: " ".join(map(str, range(5, 100))), 0.0, "no number"),
    ("a range of sizes", TEXT, lambda task: "5-100 mm", 0.0, "no number"),
    ("the question", TEXT, lambda task: TEXT.user_message(task), 0.1, "copied"),
    ("what a tool said", TEXT, lambda task: TOOL_TEXT, 0.15, "it does not decide"),
    ("a question and no answer", TEXT, lambda task: "Which side?", 0.0, "a question is no answer"),
    ("all findings in words", TEXT, lambda task: ", ".join(EVERY), 0.2, "it does not decide"),
    ("right left both none", TEXT, lambda task: "right left both none", 0.06, "it does not decide"),
]  # fmt: skip


def score_policy(env, reply, count=TASKS):
    """The mean reward of answers that are given at once; nothing is drawn, because nobody looks."""
    totals = []
    for task in env.tasks[:count]:
        answer = env.read_answer(reply(task), task)
        episode = Episode(task, answer=answer, end_reason="answered", terminated=True)
        totals.append(0.0 if answer is None else env.score(episode).total or 0.0)
    return float(np.mean(totals))


@each(("name", "env", "reply", "most", "why"), CONSTANT)
def test_a_reply_that_ignores_the_film_earns_little(name, env, reply, most, why):
    assert score_policy(env, reply) <= most


def test_no_constant_answer_to_a_choice_beats_chance_by_much():
    """The right choices are spread evenly: for each kind the commonest is right in few more tasks than by chance."""
    for kind, choices in (
        ("side", FOUR_SIDES), ("compare", CHANGES), ("complaint", (*FOCAL, NOTHING)), ("which", (*LABELS, NOTHING)),
    ):  # fmt: skip
        answers = [plan_case(seed, kind).answer for seed in range(600)]
        commonest = max(answers.count(choice) for choice in choices) / len(answers)
        assert commonest < 1 / len(choices) + 0.06


# ---------------------------------------------------------------------- tools
def classify(image: Picture) -> dict:
    """Probabilities."""
    return {"nodule": 0.5}


def segment(image: Picture) -> dict:
    """Areas."""
    return {"area": 7}


USE = make("chest_xray", questions=["which"], tools=[classify, segment, "zoom"], boundary=False, max_turns=12,
           bearing={"which": ("classify",)}, tool_bonus=0.2, repeat_penalty=0.2)  # fmt: skip


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


LOOK, OTHER = call("classify", image="image_1"), call("segment", image="image_1")
ALL = "".join([LOOK, OTHER, call("zoom", factor=2), call("zoom", factor=1)])
# (name, replies before the answer, whether the answer is right, at most, why)
USES = [
    ("no tool", [], True, 0.8, "the bonus is for asking"),
    ("a tool that does not bear on it", [OTHER], True, 0.8, "the bonus is for a tool that bears on it"),
    ("a call that fails", [call("classify", image="image_9")], True, 0.8, "it was not asked"),
    ("asked, and wrong", [LOOK], False, 0.0, "the bonus needs a right answer"),
    ("everything asked, and wrong", [ALL], False, 0.0, "the bonus needs a right answer"),
    ("asked twice", [LOOK + LOOK], True, 0.9, "the same call"),
    ("asked ten times", [LOOK] * 10, True, 0.95, "the same call"),
    ("asked again under the other name of the film", [LOOK, call("classify", image="view_0")], True, 0.9, "the same"),
    ("asked again in another writing", [LOOK, call("classify", image="image_1 ")], True, 0.99, "the same call"),
    ("every tool on everything", [ALL, ALL, ALL], True, 0.95, "repeated, and more than six calls"),
    ("every tool on every picture", ["".join(call(name, image=f"view_{n}") for name in ("classify", "segment")
                                             for n in range(6))] * 2, True, 0.95, "most of it fails or repeats"),
]  # fmt: skip


@each(("name", "looks", "right", "most", "why"), USES)
def test_calls_for_the_sake_of_calls_earn_less_than_one_that_bears_on_the_question(name, looks, right, most, why):
    task = USE.tasks[0]
    gold = USE.write_answer(task)
    honest = USE.play(task, ScriptedPolicy([LOOK, gold]))
    assert honest.scores.total == pytest.approx(1.0)
    wrong = next(choice for choice in task.prompt["choices"] if choice not in task.reference["answer"])
    episode = USE.play(task, ScriptedPolicy([*looks, gold if right else to_reply(answer=wrong)]))
    assert episode.scores.total <= most
    assert USE.score(episode) == episode.scores  # from the record alone


def test_two_looks_with_the_same_zoom_are_no_repetition():
    task = USE.tasks[0]
    looks = [LOOK, call("zoom", factor=2), call("zoom", factor=2)]
    assert USE.play(task, ScriptedPolicy([*looks, USE.write_answer(task)])).scores.total == pytest.approx(1.0)


def test_the_doctor_never_says_what_the_film_shows():
    env = make("chest_xray", answer_form="text", max_questions=3)
    asked = ["What does the film show?", "Is there an effusion, nodule, pneumothorax or consolidation?", "Tell me all?"]
    for task in env.tasks[:14]:
        episode = env.play(task, ScriptedPolicy([*asked, "none"]))
        said = " ".join(turn.content for turn in episode.turns[1:] if turn.role == "user")
        assert not any(label in said for label in LABELS)
        case = plan_case(task.metadata["seed"], task.metadata["question"])
        assert not any(name_finding(one) in said for one in case.findings)


def test_there_are_more_than_thirty_rows_and_every_row_says_why():
    rows = [*FINDINGS, *CONSTANT, *USES]
    assert len(rows) > 50
    assert all(row[-1] for row in rows)
