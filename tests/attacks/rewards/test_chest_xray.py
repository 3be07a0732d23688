"""What a policy would try in `chest_xray`: tricks score below the honest right answer.

Random guesses of the right form are in benchmarks/guessing.py: below 0.25.
"""

import json

import numpy as np
import pytest

from tests.support.tables import each
from viewbox import make
from viewbox.core.messages import write_call
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.chest_xray.cases import CHANGES, FOCAL, FOUR_SIDES, NOTHING, name_finding, plan_case
from viewbox.envs.chest_xray.radiographs import LABELS, SIDES
from viewbox.envs.chest_xray.rewards import FindingsReward
from viewbox.envs.report import CoverageReward
from viewbox.errors import ConfigError
from viewbox.records import Episode
from viewbox.rewards import ExactMatchReward, LabelSetF1Reward, RankingReward, TokenF1Reward
from viewbox.rewards.token_f1 import ShortAnswerReward
from viewbox.tools import Picture

EVERY = [f"{side} {label}" for label in FOCAL for side in SIDES] + ["cardiomegaly"]
GOLD = ["left nodule", "cardiomegaly"]
TOOL_TEXT = "effusion: 0.91, pneumothorax: 0.03, consolidation: 0.12, nodule: 0.77, cardiomegaly: 0.64"
REPORT = "FINDINGS: The left lung has a nodule. The heart is enlarged. IMPRESSION: possible nodule or artifact."
FINDINGS = [  # (the answer's findings, the right ones, at most)
    *((said, GOLD, 0.0) for said in (
        # hedged: nothing is affirmed
        "possible left nodule, possible cardiomegaly", "left nodule or cardiomegaly",
            ["likely left nodule", "suspected cardiomegaly"],
        "a left nodule cannot be excluded, cardiomegaly may be present", "rule out left nodule; consider cardiomegaly",
        # both ways, or the opposite
        "Left nodule. No left nodule. Cardiomegaly. No cardiomegaly.", "No left nodule, no cardiomegaly.",
            "normal, no findings",
        "left nodule: no; cardiomegaly: absent",
        # unread, or no list of texts
        GOLD * 100, "left nodule. " * 400, [1, 2, 3], dict.fromkeys(EVERY, True), [GOLD])),
    *((said, [], 0.0) for said in (
        EVERY, "normal, left nodule, cardiomegaly", [""], "banana", ["banana", "apple"], TOOL_TEXT,
        "List every finding of the film with its side: " + ", ".join(LABELS))),
    (EVERY, GOLD, 0.4), (", ".join(EVERY), GOLD, 0.4), (TOOL_TEXT, GOLD, 0.4), (list(LABELS), GOLD, 0.3),
        # precision falls
    (["left nodule", "right nodule", "cardiomegaly"], GOLD, 0.8), ("bilateral nodules, cardiomegaly", GOLD, 0.8),
    (["right nodule", "cardiomegaly"], GOLD, 0.5), ("Left nodule. No nodule. Cardiomegaly.", GOLD, 0.5),
    (["left nodule", "no left nodule", "cardiomegaly"], GOLD, 0.5), (REPORT, GOLD, 0.99),
]  # fmt: skip


@each("said, gold", [
    *((said, GOLD) for said in (
        "Left nodule. Cardiomegaly. No effusion or pneumothorax.", "cardiomegaly, nodule in the left lung",
        ["Cardiomegaly", "left-sided nodule"], "The heart is enlarged. A nodule on the left.", GOLD)),
    *((said, []) for said in ("No findings.", "normal", "none", [], ["none"], "No effusion, nodule or cardiomegaly.")),
])  # fmt: skip
def test_the_honest_answers_to_these_rows_score_one(said, gold):
    assert FindingsReward()({"findings": said}, {"findings": gold}) == 1.0


@each("said, gold, most", FINDINGS)
def test_a_trick_with_findings_earns_less_than_the_right_ones(said, gold, most):
    assert 0.0 <= FindingsReward()({"findings": said}, {"findings": gold}) <= most + 1e-9
    assert isinstance(FindingsReward().explain({"findings": said}, {"findings": gold}), str)


@each("reward, said, gold", {  # (reward, answer, gold) of every shipped reward that reads words
    "token_f1": (TokenF1Reward("x"), "consolidation of the right lower lobe", "Consolidation, left lower lobe."),
    "short_answer": (ShortAnswerReward("x"), "right-sided pleural effusion", "left pleural effusion"),
    "exact_match": (ExactMatchReward("x"), "right effusion", "left effusion"),
    "label_set_f1": (LabelSetF1Reward("x"), ["right effusion"], ["left effusion"]),
    "ranking": (RankingReward("x"), ["right effusion"], ["left effusion"]),
    "coverage": (CoverageReward("x"), ["right effusion"], ["left effusion"]),
    "findings": (FindingsReward("x"), ["right pleural effusion"], ["left effusion"]),
})  # fmt: skip
def test_a_finding_at_the_wrong_side_earns_at_most_what_no_answer_earns(reward, said, gold):
    assert reward({"x": said}, {"x": gold}) <= reward(None, {"x": gold})
    assert reward({"x": gold}, {"x": gold}) == 1.0


def test_other_words_for_a_finding_name_it_and_a_file_adds_findings(tmp_path):
    reward = FindingsReward()
    gold = {"findings": ["left nodule", "cardiomegaly"]}
    assert reward({"findings": "Coin lesion on the left. Enlarged cardiac silhouette."}, gold) == 1.0
    assert reward({"findings": "No enlarged heart. Left pulmonary nodule."}, gold) == pytest.approx(2 / 3)
    which = next(task for task in JSON.tasks if task.reference.get("answer", [""])[0] == "effusion")
    assert JSON.reward.score({"answer": "pleural effusion"}, which.reference)[0] == 1.0
    words = tmp_path / "words.yaml"
    words.write_text("sided: {Rib Fracture: [broken Rib]}\nunsided: {cardiomegaly: [cor bovinum]}")
    scores = make("chest_xray", aliases=str(words)).reward.score
    gold = {"findings": ["left rib fracture", "cardiomegaly"]}
    assert scores({"findings": ["broken rib on the left", "Cor bovinum"]}, gold)[0] == 1.0
    assert scores({"findings": ["left Rib fracture", "no broken rib", "cor bovinum"]}, gold)[0] == 0.5
    assert scores({"findings": ["broken rib on the right"]}, gold)[0] == 0.0
    for text in ("sided: {effusion: [coin lesion]}", "left: {effusion: []}", "sided: {effusion: hydrothorax}",
                 "unsided: {nodule: [spot]}", "sided: {rib: ['']}", "sided: {rib: [(rib)]}",
                 "sided: {t1 rib: [], t2 rib: []}"):  # fmt: skip
        words.write_text(text)
        with pytest.raises(ConfigError, match=r"^aliases = .*; allowed: "):
            make("chest_xray", aliases=str(words)).default_reward()


# ---- whole policies
JSON, TEXT = make("chest_xray", boundary=False), make("chest_xray", answer_form="text", boundary=False)
TASKS = JSON.tasks[:54]  # six or more of each kind
CONSTANT = {  # (environment, reply to a task, mean score over all kinds at most)
    "always yes: right for half of one kind": (JSON, {"answer": "yes"}, 0.15),
    "no finding: right for normal films": (JSON, {"answer": NOTHING, "findings": []}, 0.25),
    "every choice": (JSON, lambda task: {"answer": ", ".join(task.prompt.get("choices", ["yes, no"]))}, 0.08),
    "every letter": (JSON, {"answer": "A B C D E F"}, 0.02), "a guess": (JSON, {"answer": "A"}, 0.2),
    "yes and no": (JSON, {"answer": "yes, no"}, 0.02),
    "every field": (JSON, {"answer": ", ".join(EVERY), "findings": EVERY, "bbox": [0, 0, 1, 1]}, 0.2),
    "a box over everything": (JSON, {"bbox": [0, 0, 1, 1]}, 0.03),
        "the lungs": (JSON, {"bbox": [0.15, 0.15, 0.85, 0.8]}, 0.05),
    "a size in the middle": (JSON, {"answer": 40}, 0.06), "every size": (TEXT, " ".join(map(str, range(5, 100))), 0.0),
    "a range": (TEXT, "5-100 mm", 0.0), "the question": (TEXT, lambda task: TEXT.user_message(task), 0.1),
    "what a tool said": (TEXT, TOOL_TEXT, 0.15), "a question is no answer": (TEXT, "Which side?", 0.0),
    "all findings in words": (TEXT, ", ".join(EVERY), 0.2), "all sides": (TEXT, "right left both none", 0.06),
}  # fmt: skip


@each("env, reply, most", CONSTANT)
def test_a_reply_that_ignores_the_film_earns_little(env, reply, most):
    """Nothing is drawn, because nobody looks."""
    totals = []
    for task in TASKS:
        said = reply(task) if callable(reply) else reply
        answer = env.read_answer(said if env is TEXT else json.dumps({**said, "continue": False}), task)
        episode = Episode(task, answer=answer, end_reason="answered", terminated=True)
        totals.append(0.0 if answer is None else env.score(episode).total or 0.0)
    assert np.mean(totals) <= most


@each("kind, choices", [
    ("side", FOUR_SIDES), ("compare", CHANGES), ("complaint", (*FOCAL, NOTHING)), ("which", (*LABELS, NOTHING)),
])  # fmt: skip
def test_no_constant_answer_to_a_choice_beats_chance_by_much(kind, choices):
    """The right choices are spread evenly: for each kind the commonest is right in few more tasks than by chance."""
    answers = [plan_case(seed, kind).answer for seed in range(600)]
    assert max(answers.count(choice) for choice in choices) / len(answers) < 1 / len(choices) + 0.06


# ---- tools
def classify(image: Picture) -> dict:
    """Probabilities."""
    return {"nodule": 0.5}


def segment(image: Picture) -> dict:
    """Areas."""
    return {"area": 7}


USE = make("chest_xray", questions=["which"], tools=[classify, segment, "zoom"], boundary=False, max_turns=12,
           bearing={"which": ("classify",)}, tool_bonus=0.2, repeat_penalty=0.2)  # fmt: skip
TASK = USE.tasks[0]
CHOICE = next(choice for choice in TASK.prompt["choices"] if choice not in TASK.reference["answer"])
WRONG = json.dumps({"answer": CHOICE, "continue": False})
LOOK, OTHER = (write_call(name, {"image": "image_1"}) for name in ("classify", "segment"))
ZOOM = write_call("zoom", {"factor": 2})
ALL = "".join([LOOK, OTHER, ZOOM, write_call("zoom", {"factor": 1})])
EVERYWHERE = "".join(write_call(name, {"image": f"view_{n}"}) for name in ("classify", "segment") for n in range(6))


@each(("looks", "right", "most"), [
    ([LOOK], True, 1.0), ([LOOK, ZOOM, ZOOM], True, 1.0),  # honest: two looks with the same zoom are no repetition
    # the bonus is for a tool that bears on the question, and needs a right answer
    ([], True, 0.8), ([OTHER], True, 0.8), ([write_call("classify", {"image": "image_9"})], True, 0.8),
    ([LOOK], False, 0.0), ([ALL], False, 0.0),
    # the same call again, also in another writing, and too many calls
    ([LOOK + LOOK], True, 0.9), ([LOOK] * 10, True, 0.95),
    ([LOOK, write_call("classify", {"image": "view_0"})], True, 0.9),
    ([LOOK, write_call("classify", {"image": "image_1 "})], True, 0.99), ([ALL] * 3, True, 0.95),
    ([EVERYWHERE] * 2, True, 0.95),
])  # fmt: skip
def test_calls_for_the_sake_of_calls_earn_less_than_one_that_bears_on_the_question(looks, right, most):
    episode = USE.play(TASK, ScriptedPolicy([*looks, USE.write_answer(TASK) if right else WRONG]))
    assert episode.scores.total <= most + 1e-9
    assert most < 1 or episode.scores.total == pytest.approx(1.0)
    assert USE.score(episode) == episode.scores  # from the record alone


def test_the_doctor_never_says_what_the_film_shows():
    env = make("chest_xray", answer_form="text", max_questions=3)
    asked = ["What does the film show?", "Is there an effusion, nodule, pneumothorax or consolidation?", "Tell me all?"]
    for task in env.tasks[:14]:
        episode = env.play(task, ScriptedPolicy([*asked, "none"]))
        said = " ".join(turn.content for turn in episode.turns[1:] if turn.role == "user")
        case = plan_case(task.metadata["seed"], task.metadata["question"])
        assert not any(word in said for word in (*LABELS, *map(name_finding, case.findings)))
