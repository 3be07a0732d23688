"""What is said, and what it scores: a table of what people's models and datasets say, with the right outcome of each.

Kinds S1 to S14 are scores, R1 to R17 replies. Right values are worked out by hand, by a standard (SQuAD's script, COCO,
the JSON standard) or with the library that is named. Many rows stand for a bug report of other software.
"""

import json
from fractions import Fraction
from itertools import product
from typing import ClassVar, Literal

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel

import viewbox
from tests.support.said_cases import (
    GOOD,
    Below,
    Refusal,
    Table,
    by_request,
    either,
    make_vqa,
    play,
    question,
    read_messages,
    refused,
    roll,
    says,
    write_rows,
)
from tests.support.servers import make_completion as completion
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.records import Episode, Reply, Scores, Task, ToolCall, Turn
from viewbox.rewards import (
    BrierReward,
    CombinedReward,
    Component,
    ExactMatchReward,
    FormatReward,
    IoUReward,
    LabelSetF1Reward,
    RankingReward,
    TokenF1Reward,
)
from viewbox.rewards.metrics import Accuracy, CalibrationError, MacroF1, MeanAveragePrecision, TopK
from viewbox.rewards.token_f1 import ShortAnswerReward
from viewbox.rollouts.scoring.summary import summarize

rows = Table()
kind, add = rows.begin, rows.add


# ---------------------------------------------------------------------- what is asked of rewards and metrics
def make(reward):
    """A reward of the field x, asked of (answer, gold)."""
    return lambda field="x", **settings: lambda given, _: reward(field, **settings)({"x": given[0]}, {"x": given[1]})


exact, words, labels, ranked, iou = map(
    make, (ExactMatchReward, TokenF1Reward, LabelSetF1Reward, RankingReward, IoUReward)
)


def short(kind="open", **settings):
    """`short_answer`, the reward of `vqa`."""
    reward = ShortAnswerReward("x", **settings)
    return lambda given, folder: reward({"x": given[0]}, {"x": given[1], "kind": kind})


def total(reward, **reference):
    """The total of an episode with a reward in it; None: no score. A component that fails is none that is wrong."""
    return lambda given, _: CombinedReward({"one": (reward, 1.0)}).score_with_faults(
        {"x": given[0]}, {"x": given[1], **reference}
    )[0]


def metric(metric, figure):
    """A figure of a metric over the pairs (answer, gold) of a field."""
    return lambda given, _: metric([({"x": answer}, {"x": gold}) for answer, gold in given])[figure]


def vqa(*replies, file="rows.jsonl", number=0, **settings):
    """The scores of a task of `vqa`, whose rows are given, for each of these replies."""

    def ask(given, folder):
        write_rows(folder / file, given)
        env = make_vqa(folder, file, given[0], **settings)
        return [play(env, json.dumps({"answer": reply}), number=number).scores.total for reply in replies]

    return ask


def scores(asked, right, **settings):
    """A row of `vqa`: what each reply to a question scores."""
    given = asked if isinstance(asked, list) else [asked]
    add(vqa(*right, **settings), (given, list(right.values())))


def same(*words, score=1):
    return dict.fromkeys(words, score)


STOP = {"data": {"bad_rows": "stop"}}  # a bad row is an error, not left out
SQUAD = "SQuAD's script (Rajpurkar et al. 2016)"
SIGN = "decided: a sign stands with its number or word; the opposite sign is another value"

# fmt: off
kind("S1")  # signs are part of a word: another one is another value; a space, brackets and a bullet say nothing
scores(question("<5 mm"), {">5 mm": Below(1), **same("<5 mm", "< 5 mm", "<5mm")})  # Khan/khan-exercises#132721
add(words(), (("ER+ PR- HER2-", "ER+ PR- HER2+"), Below(1)),
    (("≥5 mm", "≤5 mm"), Below(1), "Khan/khan-exercises#157602"),
    (("<= 5 mm", "≤5 mm"), 1, "Unicode: ≤ is less-than or equal to"), (("<5 mm", "≤5 mm"), Below(1)),
    (("2021", "±2021"), Below(1), "huggingface/Math-Verify#14"), (("5 degrees", "-5 degrees"), Below(1)),
    (("\u22125 degrees", "-5 degrees"), 1, "Unicode U+2212 is minus", "deepset-ai/haystack#2508"),
    (("pre and post contrast", "pre- and post-contrast"), 1,
     "a hanging hyphen stands for a word that follows: it is no sign"), (("HER2 (-)", "HER2 (+)"), Below(1)),
    (("HER2 3", "HER2 3+"), Below(1)), (("p<0.05", "p < 0.05"), 1), (("↑ CRP", "↑CRP"), 1),
    (("- left lung\n- right lung", "left lung right lung"), 1), (("IL 6", "IL-6"), 1),
    (("sol İLTİHAP", "sol iltihap"), 1),
    (("फेफड़े में गाँठ", "फेफड़ा में गाँठ"), 2 / 3, "SQuAD: two of three words are shared"))
add(words(negation_scope=False), ((">5 mm", "<5 mm"), 1, f"{SQUAD} removes all of string.punctuation"))
add(exact(), ((">5 mm", "<5 mm"), 0), (("5 ± 1", "5±1"), 1), (("(-)", "+"), 0), *((pair, 1) for pair in (
    ("(-)", "-"), ("(\u2212)", "-"), ("[-]", "-"), ("(+/-)", "±"), ("'-'", "-"), ("İLTİHAP", "iltihap"),
    ("KIRIK", "kırık"))))  # Unicode's lower case of İ has a dot
add(labels(), ((["Rh-"], ["Rh+"]), 0), ((["İLTİHAP"], ["iltihap"]), 1))
add(ranked(), ((["HER2-", "HER2+"], ["HER2+"]), 0.5, "1 / 2: the first is another name"))
NAMED = [{"name": "a"}]
for path, gold in (("x.0.name", NAMED), ("x.name", NAMED[0]), ("x.*.name", NAMED)):
    for reward in map(make, (ExactMatchReward, TokenF1Reward) if "*" not in path else (LabelSetF1Reward,)):
        add(reward(field=path), ((gold, gold), 1, "docs/data.md: a path of a column"))

kind("S2")  # a letter with the text of its choice
scores(question("B", choices=["left lung", "right lung", "both lungs"]), {
    **same("B) right lung", "B", "(B)", "b", "Right lung.", "B. right lung", "B: right lung", "**B**"),
    # IBM/AssetOpsBench#475; Unicode NFKC: ． is .
    "B．right lung": 1,
    # another letter or text, two, one without its mark, or letters inside of words
    **same("A) right lung", "B) left lung", "C", "A right lung", "A or B", "AB", "2", "A) right lung (B)", "not A, B",
           score=0),  # antirez/ds4#321
    **same("None of the above", "Both", "I don't know", score=0),  # UKGovernmentBEIS/inspect_ai#2216
})
scores(question("A", choices=["left lung", "right lung"]), same("Answer", "a lung", "", score=0))
# aniri15/OPD-V#2, open-compass/VLMEvalKit#1701
scores(question("C. difficile", choices=["C. difficile", "E. coli", "S. aureus"]),
    {**same("C. difficile", "A", "A. C. difficile"), **same("C", "C. S. aureus", "B. E. coli", score=0)})
# choices that are letters or numbers are told by their texts
scores(question("B", choices=["B", "A"]), {"B": 1, "A": 0})
scores(question("42", choices=["11", "-84", "42"]), {"42": 1, **same("-84", "84", "14", score=0)})
# Future-House/paper-qa#693
scores(question("≥5 mm", choices=["<5 mm", "≥5 mm"]), {"B) ≥5 mm": 1, "A) <5 mm": 0, "B) <5 mm": 0})
scores(question(["left lung", "right lung"], choices=["left lung", "right lung", "heart"]),
    {"A) left lung": 1, "B: right lung": 1, "C) heart": 0})

kind("S3")  # a gold with its letter: the answer is one of the choices as the file has them
SIDES = ["A. left", "B. right"]
for gold, choices, right, wrong in (
    ("B. right", SIDES, ("B", "right", "B. right"), ("A", "left")), ("(B) right", SIDES, ("B",), ("left",)),
    *((gold, SIDES, ("right",), ("left",)) for gold in ("B", "(B)")), ("right", SIDES, ("B) right",), ("A",)),
    ("B: right", ["A: left", "B: right"], ("B",), ("A",)), ("B.right", ["A.left", "B.right"], ("B",), ("A",)),
    ("II. right", ["I. left", "II. right"], ("II. right",), ("I. left",)),
    ("B、右肺", ["A、左肺", "B、右肺"], ("B", "右肺"), ("A",)),  # Unicode: 、 is the mark of a list
    ("B．右肺", ["（A）左肺", "B．右肺"], ("B", "右肺"), ("A",)),  # Unicode NFKC: ． is .
    ("A. a", ["A. a", "B. b"], ("A. a",), ("B. b",)), (["A. left"], SIDES, ("A",), ("B",)),
    ("pleural effusion", ["pleural_effusion", "no_finding"], ("A",), ("B",)),
):
    scores(question(gold, choices=choices), {**same(*right), **same(*wrong, score=0)}, **STOP)
add(vqa("B", "A", **STOP),
    ([question("B. right", choices=["left", "right"])], either([1, 0], refused("choices"))))  # a letter, and no other
add(vqa("A", **STOP), ([question("A. right", choices=SIDES)], refused("choices|answer")))  # it contradicts itself
add(vqa("right", **STOP), *(([question(gold, choices=["left", "right"])], refused("choices|answer")) for gold in (
    1, "D")))  # a number may count from 0 or from 1; open-compass/VLMEvalKit#1697

kind("S4")  # a fault says nothing about the policy
CLOSED = [question("yes", id=f"t{i}") for i in range(4)]


def figures(*names):
    """Figures over episodes of four closed tasks: each is (answer, end reason), or with the score of its reward."""

    def ask(given, folder):
        write_rows(folder / "rows.jsonl", CLOSED)
        env = make_vqa(folder, "rows.jsonl", CLOSED[0])
        made = []
        for task, (said, reason, *score) in zip(env.tasks, given, strict=False):
            answer = None if said is None else {"answer": said}
            fault = reason in ("error", "timeout", "cancelled")
            value = score[0] if score else Scores(None if fault else float(said == "yes"))
            made.append(Episode(task, answer=answer, end_reason=reason, scores=value))
        found = summarize(made, env, resamples=0).figures
        return [found[name].mean if name in found else None for name in names]

    return ask


RIGHT, WRONG, ERROR = ("yes", "answered"), ("no", "answered"), (None, "error")
ACCURACY = figures("reward", "metrics/accuracy/all")


def boxes_of(given, folder):
    """mAP of tasks with one box: given are the boxes that were answered, None for a fault."""
    rows = [{"id": f"t{i}", "image": "0.png", "question": "find", "boxes": [[4, 4, 20, 20]]} for i in range(len(given))]
    write_rows(folder / "rows.jsonl", rows)
    make_vqa(folder, "rows.jsonl", ())
    columns = {name: name for name in rows[0]}
    data = {"source": str(folder / "rows.jsonl"), "images": str(folder / "img"), "columns": columns}
    env = viewbox.make("grounding", data=data)
    made = [
        Episode(task, answer=None if boxes is None else {"boxes": boxes}, scores=Scores(None if boxes is None else 1.0),
                end_reason="error" if boxes is None else "answered")
        for task, boxes in zip(env.tasks, given, strict=True)
    ]
    found = summarize(made, env, resamples=0).figures
    return [figure.mean for name, figure in found.items() if name.endswith("map@0.5")]


add(ACCURACY,
    ([RIGHT, RIGHT, ERROR], [1, 1], "allenai/vla-evaluation-harness#129"),
    ([RIGHT, WRONG, (None, "timeout")], [0.5, 0.5], "UKGovernmentBEIS/inspect_ai#4286"),
    ([RIGHT, ("no", "answered", Scores(None, {"judge": None}, {"judge": "is down"}))], [1, 1],
     "decided: one gate for the reward and for metrics"),
    ([RIGHT, (None, "malformed"), (None, "max_turns")], [1 / 3, 1 / 3], "UKGovernmentBEIS/inspect_ai#3707"),
    ([ERROR, ERROR], either([None, None], [np.nan, np.nan], [None, np.nan]), "vibrantlabsai/ragas#2980"),
    ([RIGHT, ("no", "error", Scores(0.0))], [1, 1]))
add(figures("metrics/accuracy/closed", "metrics/closed/macro_f1"),
    ([RIGHT, RIGHT, ERROR], [1, 1], "scikit-learn: f1_score of the two that are scored is 1",
     "UKGovernmentBEIS/inspect_ai#4412"))
add(boxes_of,
    ([[[4 / 32, 4 / 32, 20 / 32, 20 / 32]], None], [1],
     "pycocotools: one gold box, found, is an average precision of 1"))

kind("S5")  # percent
add(exact(), (("28 %", "28%"), 1, "SI Brochure 5.4.7: a space stands between the number and %"),
    (("28 %", "28"), 0, "huggingface/Math-Verify#67"),
    (("28\u202f%", "28%"), 1, "French typography: a narrow no-break space"),
    (("２８％", "28 %"), 1, "Unicode NFKC: ％ is %"), (("5 ‰", "5‰"), 1))
add(exact(tolerance=1.0), (("28 %", "28"), 0), (("28.5 %", "28%"), 1))
add(short(tolerance=0.05), (("12 %", 0.12), 1, "ChartQA, relaxed_correctness: 12% is 0.12", "m87-labs/moondream#223"))
add(short("closed", tolerance=0.05),
    (("2%", "2"), 0, "pix2struct, relaxed_correctness: 0.02 is not within 5% of 2", "open-compass/VLMEvalKit#1313"),
    (("28.1 %", "28%"), 1, "0.281 is within 5% of 0.28", "open-compass/VLMEvalKit#584"))
scores(question("28%", kind="closed"), {"28 %": 1, "28": 0, "0.28": 0})  # Khan/khan-exercises#124169

kind("S6")  # a threshold that is met exactly


def find_pairs(size, wanted):
    """Pairs of boxes of whole pixels with exactly this IoU: one is that share of the other's rows, at some places."""
    wide, high = size
    step = wanted.denominator
    heights = [step * number for number in range(2, 7)]
    for x, y, w, h in product(range(3, wide // 3, 13), range(5, high // 3, 11), range(6, wide // 3, 17), heights):
        if x + w < wide and y + h < high:
            yield (x, y, x + w, y + h), (x, y, x + w, y + int(h * wanted))


def share_reached(reward):
    """The share of such pairs, in fractions of the image, that a reward gives 1: given are size and IoU."""

    def ask(given, folder):
        (wide, high), wanted = given
        found = list(find_pairs((wide, high), wanted))
        found = found[:: len(found) // 200 or 1]
        assert len(found) > 20
        assert all(part[3] - part[1] == (whole[3] - whole[1]) * wanted for whole, part in found)
        scale = (wide, high, wide, high)
        scores = [reward(*([side / by for side, by in zip(box, scale, strict=True)] for box in one)) for one in found]
        return sum(scores) / len(scores)

    return ask


def reach(threshold, **more):
    return share_reached(lambda a, b: IoUReward("x", threshold=threshold, **more)({"x": a}, {"x": b}))


def reach_map(threshold):
    """As the mean average precision at the threshold: 1 for a pair that reaches it."""
    figure = MeanAveragePrecision("x", thresholds=(threshold,))
    return share_reached(lambda a, b: figure([({"x": a}, {"x": b})])[f"map@{threshold:g}"])


def band(given, folder):
    """The ids of tasks whose level is in a band."""
    level, (low, high) = given
    write_rows(folder / "rows.jsonl", [question("yes", level=level), question("yes", id="t1", level=0.2)])
    difficulty = {"difficulty": {"column": "level", "range": [low, high]}}
    return [task.id for task in make_vqa(folder, "rows.jsonl", ("id", "image", "question", "answer"), difficulty).tasks]


add(iou(threshold=0.5),
    (([.1, .1, .4, .4], [.1, .1, .4, .25]), 1, "450 of 900 pixels", "rafaelpadilla/review_object_detection_metrics#84"),
    (([.1, .1, .4, .249], [.1, .1, .4, .4]), 0, "447 of 900"))
for asked, size, wanted, *report in (  # counted in whole pixels, the IoU is the threshold
    (reach(0.5), (640, 480), Fraction(1, 2), "voxel51/fiftyone#1083"),
    (reach(0.9), (300, 700), Fraction(9, 10), "cocodataset/cocoapi#409"),
    (reach(float(np.linspace(0.5, 0.95, 10)[8])), (640, 480), Fraction(9, 10),
     "NumPy's linspace writes 0.9 as 0.8999999999999999", "open-mmlab/mmdetection#3997"),
    (reach(0.1 + 0.2), (640, 480), Fraction(3, 10), "0.1 + 0.2 is meant to be 0.3"),
    (reach_map(0.5), (640, 480), Fraction(1, 2), "open-mmlab/mmdetection#4037"),
):
    add(asked, ((size, wanted), 1, *report))
add(iou(threshold=0.5, format="xywh"), (([.1, .1, .3, .15], [.1, .1, .3, .3]), 1))
add(lambda given, folder: CombinedReward({"box": (IoUReward("b"), 0.5),
    "x": Component(ExactMatchReward("x"), 0.5, needs={"box": 0.5})}).score(*given)[0],
    (({"b": [.1, .1, .4, .25], "x": "a"}, {"b": [.1, .1, .4, .4], "x": "a"}), 0.75, "(0.5 + 1) / 2"))
add(band, ((0.1 + 0.2, (0.1, 0.3)), ["t0", "t1"], "docs: both ends of the band are included"),
    ((0.3001, (0.1, 0.3)), ["t1"]))

kind("S7")  # a tolerance that is met exactly
GOLDS = [str(number / 10) for number in range(1, 200)]


def share_within(factor, tolerance):
    """The share of one-decimal golds for which exactly this multiple, as a decimal, is right."""

    def ask(given, folder):
        reward = ShortAnswerReward("x", tolerance=tolerance)
        said = [str(float(Fraction(gold) * Fraction(factor))) for gold in given]
        assert all(Fraction(one) == Fraction(gold) * Fraction(factor) for one, gold in zip(said, given, strict=True))
        scores = [reward({"x": one}, {"x": gold, "kind": "closed"}) for one, gold in zip(said, given, strict=True)]
        return sum(scores) / len(scores)

    return ask


# 0.315 is 1.05 · 0.3 and 0.285 is 0.95 · 0.3; m87-labs/moondream#223
scores(question("0.3", kind="closed"), {"0.315": 1, "0.285": 1, "0.316": 0, "0.284": 0}, tolerance=0.05)
for factor, tolerance, right in (("1.05", 0.05, 1), ("0.95", 0.05, 1), ("1.1", 0.1, 1), ("1.0501", 0.05, 0)):
    add(share_within(factor, tolerance), (GOLDS, right))
add(short("closed", tolerance=0.05), (("-0.315", "-0.3"), 1), (("0.3", "-0.3"), 0), (("<0.3", "0.3"), 0),
    (("12,600", "12,000"), 1, "12,600 is 1.05 · 12,000", "asuzukosi/post-training-experiments#6"),
    (("31.5 %", "30%"), 1, "31.5 is 1.05 · 30"))
add(exact(tolerance=0.1), (("1.1", "1.0"), 1), (("2.3", 2.2), 1, "2.3 is within 0.1 of 2.2"), (("1.11", "1.0"), 0))

kind("S8")  # booleans
TRUE_SAID, FALSE_SAID = ("true", "yes", "True", "Yes.", "TRUE"), ("false", "no", "False", "No.", "nope")
FALSE, TRUE = same("no", "false", score=0), same("true", "yes")
scores(question(True), same(*TRUE_SAID) | same(*FALSE_SAID, score=0))  # huggingface/datasets#3965
scores(question(False), {"false": 1, "no": 1, "yes": 0, "true": 0})
scores(question("TRUE"), TRUE | FALSE, file="rows.csv")
scores(question("False"), {"no": 1, "false": 1, "yes": 0}, file="rows.csv")
scores(question(True), {**TRUE, "no": 0}, file="rows.parquet")
scores(question("yes"), {"true": 1, "True": 1, "false": 0})
add(exact(), (("1", True), 0), (("yes", np.bool_(True)), 1, "NumPy's true is true"))
add(lambda given, folder: make_vqa(folder, write_rows(folder / "rows.csv", given), given[0]).tasks[0].reference["kind"],
    ([question("TRUE")], "closed"))
add(metric(MacroF1("x"), "macro_f1"),
    ([("true", "yes"), ("no", "false")], 1, "scikit-learn: f1_score of two right answers in two classes",
     "pydantic/pydantic#1130"))
scores(question(True, choices=["True", "False"]), {"True": 1, "A": 1, "false": 0, "B": 0}, **STOP)
scores(question("TRUE", choices=["Yes", "No"]), {"Yes": 1, "No": 0}, **STOP)
add(words(), (("yes", True), 1), (("yes lumen", "true lumen"), Below(1)))

kind("S9")  # numbers as text
# the same whatever the file and the other rows; pandas-dev/pandas#35200, an empty cell is null: pandas-dev/pandas#14978
WITH_TEXT = [question("2"), question("left", id="t1")]
for asked in (question("2"), WITH_TEXT):
    scores(asked, {"2.0": 1, "2": 1, "2.5": 0}, file="rows.csv")
    scores(asked, {"2.0": 1, "2": 1, "3": 0})
for asked, said, file in ((WITH_TEXT, "2.0", "rows.tsv"), (question("2"), "2.0", "rows.parquet"),
    (question(2.0), "2", "rows.parquet"), ([question("2"), question("", id="t1")], "2.0", "rows.csv")):
    scores(asked, {said: 1}, file=file)
add(exact(), (("0.5", "0.50"), 1), (("7", "007"), 0, "pandas-dev/pandas#54665"), (("007", "007"), 1),
    (("1e3", "1000"), 1), (("1.5", "1,5"), 0, "decided: 1,5 is a text"), (("125", "0,125"), 0),
    (("2", "2 mm"), 0, "Doenet/DoenetML#1794"), (("2.0mm", "2 mm"), 1), (("3 + 4 = 7", "3+4=7"), 1),
    (("ER (+), PR (-)", "ER+, PR-"), 1), (("L4 - L5", "L4-L5"), 1), (("1,000.50", "1000.5"), 1),
    (("5٪", "5%"), 1, "Unicode: ARABIC PERCENT SIGN"),
    *((("Gleason 3 + 4", gold), 1) for gold in ("Gleason 3+4", "Gleason 3 +4", "Gleason 3+ 4")),
    *(((f"5{sign}", "5"), 0) for sign in "٪‱′″"))
CASE = "SI Brochure, table 7: the case of a prefix is part of it"
add(exact(), *((pair, 0, CASE) for pair in (
    ("5 MBq", "5 mBq"), ("5MSv", "5 mSv"), ("6 MV", "6 mV"), ("5 Mm", "5 mm"), ("5 Mg", "5 mg"), ("MBq", "mBq"),
    ("5 Ms", "5 ms"), ("3 mM", "3 mm"), ("3 µM", "3 µm"), ("10 mS", "10 ms"))), *((pair, 1, CASE) for pair in (
    ("12 MM", "12 mm"), ("200 MA", "200 mA"), ("5 Kg", "5 kg"), ("3 \u03bcM", "3 \u00b5M"), ("Mg", "mg"),
    ("5MBq", "5 MBq"), ("5 MBQ/KG", "5 mbq/kg"))))
add(labels(), ((["2.0"], ["2"]), 1, "decided: two values are equal if both are one number"))
add(metric(TopK("x", 2), "top2"), ([(["3", "2.0"], "2")], 1))
add(metric(Accuracy("x"), "accuracy"), ([("2.0", "2"), ("0.50", "0.5"), ("7", "007")], 2 / 3))
add(ranked(), ((["3", "2.0"], ["2"]), 0.5, "1 / 2: decided: two values are equal if both are one number"))
add(words(), (("dose 5 mBq", "dose 5 MBq"), Below(1), CASE))
add(short(), (("100-110", 100), 0, "adversarial: a range"))

kind("S10")  # a gold that no answer can meet; decided: what cannot be measured has no score
BOX = [0.1, 0.2, 0.3, 0.4]
PIXELS = {"frame": "pixel", "reference_frame": "unit", "size_field": "size"}
add(total(IoUReward("x")), ((BOX, [0.3, 0.4, 0.1, 0.2]), None, "open-mmlab/mmdetection#4037"),
    (([BOX], [BOX, [0.9, 0.9, 0.5, 0.5]]), None), (([0.3, 0.4, 0.1, 0.2], BOX), 0), ((BOX, {"box": BOX}), None),
    (([0.1, 0.2, 0.3, 0.4], np.array([0.1, 0.2, 0.3, 0.4])), either(1, None)))
add(total(IoUReward("x", format="xywh")), (([.1, .1, .2, .2], [.5, .5, -.2, .2]), None))
add(total(IoUReward("x", format="xyzxyz")), (([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]), None))
add(total(IoUReward("x", **PIXELS)), (([30, 40, 90, 80], BOX), None, "om-ai-lab/VLM-R1#288"))
add(total(IoUReward("x", **PIXELS), size=[0, 0]), (([30, 40, 90, 80], BOX), None))
add(total(IoUReward("x", **PIXELS), size=[100, 100]), (([10, 20, 30, 40], BOX), 1, "0.1 · 100 = 10, …: the same box"))
add(total(ExactMatchReward("x")), (("a", "a" * 20_000), None, "decided: a gold longer than is compared"),
    (("a", {"text": ["a"]}), None, "SQuAD's answers are objects"),
    (("a", [None]), 0, "decided: a missing gold stays 0"))
add(total(TokenF1Reward("x")), (("a b", "a b " * 6_000), None, "decided: a gold longer than is compared"),
    (("a", [["a"]]), None))
add(total(RankingReward("x", metric="ndcg")),
    ((["a"], {"a": "high", "b": "low"}), None, "decided: text gains cannot be measured"),
    ((["a", "b"], {"a": "3", "b": "1"}), either(1, None)))
add(metric(MeanAveragePrecision("x"), "map@0.5"),
    ([(BOX, BOX), (BOX, [0.3, 0.4, 0.1, 0.2])], 1, "pycocotools over the pair that can be measured: 1",
     "cocodataset/cocoapi#55"))
add(vqa("a", **STOP), ([question("\u200b\u200b")], refused("answer")))
scores(question("?"), {"?": 1, "!": 0}, **STOP)  # decided: ? equals ?
add(lambda given, folder: "x" in CombinedReward({"x": (IoUReward("x"), 1.0)}).score_with_faults(*given)[2],
    (({"x": BOX}, {"x": [0.3, 0.4, 0.1, 0.2]}), True, "decided: it is a fault of that component"))
add(total(BrierReward(IoUReward("x"))), ((BOX, [0.3, 0.4, 0.1, 0.2]), None))
add(metric(Accuracy("x"), "accuracy"), ([("a", "a"), ("a", {"text": "a"})], 1))
add(total(RankingReward("x")), ((["a"], {"a": float("nan")}), None))

kind("S11")  # letters that are stop words, but are names beside a number or at the end
STOPPED = words(stop_words=True)
add(STOPPED, (("hepatitis", "hepatitis A"), Below(1), "vaccineontology/VO#709"), (("Hepatitis A.", "hepatitis A"), 1),
    (("type dissection", "type A dissection"), Below(1)), (("influenza A and B", "influenza B"), Below(1)),
    (("hepatitis", "hepatitis a"), Below(1)), (("bronchus 1", "bronchus A 1"), Below(1)),
    (("A nodule in the left lung.", "left lung nodule"), 1, "docs/rewards.md: the article that begins a sentence"))
add(words(stop_words=["a", "the"]), (("hepatitis", "hepatitis A"), Below(1)))

kind("S12")  # powers
add(exact(), (("10⁻³", "10-3"), 0, "rasbt/reasoning-from-scratch#99"), (("10^-3", "10⁻³"), 1, "ChHecker/unify#11"),
    (("102", "10²"), 0), (("10³", "10⁻³"), 0), (("1.5×10⁹/L", "1.5×10⁻⁹/L"), 0), (("5×10⁻³", 0.005), 1),
    (("5 x 10^-3", 0.005), 1, "5 · 0.001 = 0.005"), (("21/2", "2½"), 0), (("82", "8₂"), 0),
    (("H2O", "H₂O"), 1, "Unicode NFKC: ₂ is 2 after a letter"), (("5°", "5º"), 1), (("1000", "10³"), 1),
    (("0.001", "10⁻³"), 1), (("10^3", "10³"), 1),
    (("2 1/2", "2½"), 1, "Unicode NFKC: ½ is 1/2, after a space"))
add(words(), (("10-3 mol", "10⁻³ mol"), Below(1)))
add(labels(), ((["10-3"], ["10⁻³"]), 0))
scores(question("10⁻³", kind="closed"), {"10⁻³": 1, "10-3": 0, "103": 0})

kind("S13")  # confidence in percent


def calibration(figure, **settings):
    return lambda given, _: CalibrationError("l", **settings)(
        [({"l": said, "confidence": sure}, {"l": gold}) for said, sure, gold in given])[figure]


TWO = [("a", 90, "a"), ("a", 60, "b")]
add(calibration("ece", scale=100), ([("a", 90, "a")], 0.1, "|1 - 0.9|", "niznik-dev/cruijff_kit#305"),
    (TWO, 0.35, "(0.1 + 0.6) / 2: two bins of one each"))
add(calibration("stated", scale=100),
    ([("a", 101, "a"), ("a", 90, "a")], 0.5, "101 of 100 is none", "amiable-dev/llm-council#578"))
add(calibration("brier", scale=100), (TWO, 0.185, "scikit-learn: brier_score_loss([1, 0], [0.9, 0.6])"))
add(calibration("stated"), (TWO, 0, "decided: the scale is told or 1"))
add(calibration("brier"), ([("a", 0.9, "a"), ("a", 0.6, "b")], 0.185, "scikit-learn: brier_score_loss"))
add(calibration("ece", scale=0), (TWO, refused("scale")))

kind("S14")  # underscores
add(labels(), ((["pleural_effusion"], ["pleural effusion"]), 1), ((["tumour", "no_tumour"], ["tumour"]), 0))
add(exact(), (("no_tumour", "no tumour"), 1), (("Pleural_Effusion", "pleural effusion"), 1),
    (("pleuraleffusion", "pleural effusion"), 0))
add(words(), (("pleural_effusion", "pleural effusion"), 1))
add(ranked(), ((["ground_glass", "nodule"], ["ground glass"]), 1))
add(exact(aliases={"enlarged_heart": ["cardiomegaly"]}), (("cardiomegaly", "enlarged heart"), 1))
add(metric(MacroF1("x"), "macro_f1"),
    ([("Pleural_Effusion", "pleural effusion"), ("mass", "mass")], 1, "scikit-learn: two classes, both right",
     "macabdul9/CASA-Dialogue-Act-Classifier#10"))
scores(question("ground_glass_opacity", kind="closed"), {"ground glass opacity": 1, "ground glass": 0})
# fmt: on


# ---------------------------------------------------------------------- what is asked of replies
class Finding(BaseModel):
    label: str
    bbox: tuple[float, float, float, float]
    size_mm: float | None = None
    count: int | None = None
    sure: bool | None = None
    side: Literal["left", "right"] | None = None


PICTURE = viewbox.ImageRef.of(Image.fromarray(np.zeros((200, 300), np.uint8)))
TASK = Task("t", images=(PICTURE,), prompt={"question": "q?"}, reference={"label": "nodule"})
NODULE = {"label": "nodule", "bbox": [0.1, 0.2, 0.3, 0.4]}
FINAL = json.dumps(NODULE)


class Look(BaseMultiTurnEnv):
    """An answer declared by pydantic."""

    name = "look"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    max_turns = 6
    tools = ("zoom", "crop", "reset", "rotate")
    reward = CombinedReward({"label": (ExactMatchReward("label"), 0.5), "format": (FormatReward(), 0.5)})

    def system_prompt(self, task):
        return "look"


class LookBySchema(Look):
    """The same answer, declared by JSON Schema."""

    answer: ClassVar = {
        "type": "object",
        "properties": {
            "label": {"type": "string"},
            "bbox": {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4},
            "size_mm": {"type": ["number", "null"], "maximum": 500},
            "count": {"type": ["integer", "null"]},
            "sure": {"type": ["boolean", "null"]},
            "side": {"enum": ["left", "right", None]},
        },
        "required": ["label", "bbox"],
    }


BOTH = (Look(), LookBySchema())


def read_reason(episode):
    """What the model is told after its first reply, without the format that it is shown then."""
    first = [*episode.turns, Turn("user")][2]
    told = [first.content.partition(" Reply with ")[0], *(one.text for one in first.tool_results)]
    return " ".join(filter(None, told))


def see(reply, env=BOTH[0]):
    return env.play(TASK, ScriptedPolicy([reply, *[FINAL] * 8]))


def taken(name, env=BOTH[0]):
    """The value of a field where an answer is taken at once; else what the model is told.

    Given are fields that are added to a whole answer, or a whole reply.
    """

    def ask(given, folder):
        episode = see(given if isinstance(given, str) else json.dumps({**NODULE, **given}), env)
        is_taken = episode.num_turns == 1 and episode.answer is not None
        return episode.answer.get(name) if is_taken else Refusal(read_reason(episode))

    return ask


def both(field, *cases):
    """Rows for each way to declare an answer."""
    for env in BOTH:
        add(taken(field, env), *cases)


def told(given, folder):
    """What the model is told after a reply."""
    return read_reason(see(given))


def flagged(given, folder):
    """Whether the answer was refused, or taken with the flag `ignored`, which costs the reward for the format."""
    for env in BOTH:
        episode = see(given if isinstance(given, str) else json.dumps({**NODULE, **given}), env)
        if episode.num_turns == 1 and ("ignored" not in episode.flags or episode.scores.components["format"] >= 1):
            return sorted(episode.flags)
    return True


def results(given, folder):
    """The results of the calls of the first reply: the arguments with which a tool ran, else the error."""
    turns = see(given).turns
    ran = [result for turn in turns[1:3] for result in turn.tool_results]
    return [f"error: {one.error}" if one.error else dict(one.arguments or {}) for one in ran]


def summed(given, folder):
    """The same in a text."""
    return json.dumps(results(given, folder), default=str, ensure_ascii=False) + told(given, folder)


def count_runs(given, folder):
    """How many calls of the first reply ran."""
    return sum(isinstance(one, dict) for one in results(given, folder))


def call(text="", *calls, finish="tool_calls"):
    """A native reply: its text and (name, arguments) of its calls."""
    made = tuple(ToolCall(f"c{number}", *one) for number, one in enumerate(calls))
    return Reply(text, made, finish)


def tag(**content):
    return f"<tool_call>{json.dumps(content)}</tool_call>"


ZOOM = tag(name="zoom", arguments={"factor": 2})


# ---------------------------------------------------------------------- what is asked of servers
def served(check, **settings):
    """What `check` finds in a rollout of one task against a server that gives these completions, the last for ever."""

    def ask(given, folder):
        script = given if isinstance(given, list) else [given]
        by = by_request(lambda body, number: script[min(number, len(script) - 1)])
        return check(roll(by, folder, tasks=1, **settings))

    return ask


def stored(rolled):
    """All that is stored of the episodes, as text."""
    return (rolled.folder / "episodes" / "episodes.jsonl").read_text() if rolled.episodes else ""


def nudge(rolled):
    return read_messages(rolled.episodes[0])


def sent(rolled):
    """All that was sent after the first request, as text."""
    return json.dumps([body["messages"] for body in rolled.bodies[1:]], ensure_ascii=False)


def scored(rolled):
    return rolled.episodes[0].scores.total


def ran(rolled):
    return [one.error or one.tool_name for turn in rolled.episodes[0].turns for one in turn.tool_results]


THOUGHT = "The picture is gray, I think."
NO_TEXT = ("think", str(len(THOUGHT)))

# fmt: off
kind("R1")  # text in another field
for field, value in (("reasoning_content", THOUGHT), ("thinking", THOUGHT),
                     ("reasoning", [{"type": "text", "text": THOUGHT}])):
    thought = completion(None, **{field: value})
    add(served(stored), (thought, says("The picture is gray"), "mindcraft-bots/mindcraft#789"))
    add(served(nudge), (thought, says(*NO_TEXT, without="is empty"), "vllm-project/vllm#13375"))
add(served(scored),
    (completion("", reasoning_content=GOOD), 0, "decided: thinking is not read", "vllm-project/vllm#19222"),
    (completion([{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": GOOD}]), 1),
    (completion(GOOD, reasoning_content=7, reasoning={"text": "no"}), 1))
add(served(stored),
    (completion(GOOD, reasoning_content=THOUGHT), says("The picture is gray"), "stanford-crfm/helm#3632"),
    (completion(None, refusal="I cannot help with radiographs."), says("refusal", "I cannot help with radiographs"),
     "OpenAI: `refusal` holds the text"),
    (completion(GOOD, reasoning_details=[{"type": "reasoning.text", "text": THOUGHT}]), says("The picture is gray"),
     "OpenRouter: reasoning_details has parts with text"),
    (completion([{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": GOOD}]),
     says("The picture is gray"), "Mistral, Anthropic: a part of the content that is thinking"),
    (completion([{"type": "refusal", "refusal": "I cannot help with radiographs."}]),
     says("I cannot help with radiographs"), "OpenAI: a part of the content may be a refusal"))
add(served(sent),
    ([completion("Hm.", reasoning_content=THOUGHT), completion(GOOD)], says("Hm", without="The picture is gray"),
     "decided: thinking is never sent back"))
add(served(nudge),
    (completion(None, finish="length", reasoning_content=THOUGHT), says("think", "cut|limit"),
     "vllm-project/vllm#42021"))
add(served(lambda one: len(stored(one)) < 2**18),
    (completion(GOOD, reasoning_content="a" * 2**20), True, "decided: bounded like the text, 64 KB"))
add(served(ran), ([completion("", function_call={"name": "zoom", "arguments": '{"factor": 2}'}, finish="function_call"),
    completion(GOOD)], ["zoom"], "OpenAI: function_call is the older form of a call", "QwenLM/Qwen-Agent#135"))

kind("R2")  # one table of coercions
NUMBER = refused("size_mm", "number")
both("size_mm", ({"size_mm": True}, NUMBER, "JSON Schema: true is no number", "pydantic/pydantic#7820"),
    ({"size_mm": "true"}, NUMBER), ({"size_mm": "12 mm"}, NUMBER))
both("count",
    ({"count": True}, refused("count", "integer|number"), "JSON Schema: true is no integer", "fastapi/fastapi#453"),
    ({"count": 3.0}, 3, "JSON Schema: 3.0 is an integer", "pydantic/pydantic#360"),
    ({"count": 2.5}, refused("count", "integer"), "JSON Schema: 2.5 is no integer"))
both("bbox", ({"bbox": [True, 0.2, 0.3, 0.4]}, refused("bbox", "number|box"), "JSON Schema: true is no number"))
both("sure", ({"sure": 1}, refused("sure", "bool|true"), "JSON Schema: 1 is no boolean", "pydantic/pydantic#579"))
both("label",
    ({"label": True}, refused("label", "string|text"), "JSON Schema: true is no string", "pydantic/pydantic#1130"),
    ({"label": 7}, either("7", refused("label", "string|text"))))
add(results, (ZOOM.replace("2", "true"), [says("factor", "number")]))

kind("R3")  # a key near a declared one
both("size_mm", *(({key: 12}, either(12, refused("size_mm"))) for key in (
    "sizeMm", "sizemm", "size_mm ")))
add(told, (json.dumps({"Label": "nodule", "bbox": [0.1, 0.2, 0.3, 0.4]}), says("Label", "label")),
    (ZOOM.replace("factor", "facter"), says("factor", "did you mean")))
add(flagged, ({"size_mm": 12, "size mm": 13}, True, "decided: two values, one of which is lost"),
    (f'{json.dumps({**NODULE, "label": "mass"})} No: {FINAL}', True, "decided: an object that lost against another"))
add(lambda *given: flagged(*given) and taken("label")(*given),
    ({"size_mm": None, "size mm": 12}, either("nodule", refused("size.mm", without="mean .?side"))))
add(lambda given, folder: sorted(see(json.dumps({**NODULE, **given})).flags), ({"size_mm": 12}, []))

kind("R4")  # two sets of arguments
TWO_SETS = either([says("error", "parameters|arguments")], [], [says("error", "twice|two")])
add(results,
    ('<tool_call>{"name":"zoom","arguments":{"factor":2},"arguments":{"factor":3}}</tool_call>', either([says("error",
     "arguments|twice|repeated")], []), "RFC 8259, 4: names should be unique"),
    ('<tool_call>{"name":"zoom","arguments":{"factor":2,"factor":3}}</tool_call>', either([says("error",
     "factor|twice|repeated")], []), "RFC 8259, 4: names should be unique"),
    (json.dumps({"tool": "zoom", "arguments": {"factor": 2}, "parameters": {"factor": 3}}), TWO_SETS),
    ("```tool\n" + json.dumps({"name": "zoom", "arguments": {"factor": 2}, "parameters": {"factor": 3}}) + "\n```",
     TWO_SETS))
add(count_runs, (tag(name="zoom", parameters={"factor": 2}), 1))

kind("R5")  # one call twice
NATIVE = ("zoom", {"factor": 2})
add(count_runs, (call(ZOOM, NATIVE), 1, "youssofal/MTPLX#249"), (call(ZOOM, ("zoom", '{"factor": 2}')), 1),
    (call("```tool\n" + json.dumps({"name": "zoom", "arguments": {"factor": 2}}) + "\n```", NATIVE), 1,
     "dimagi/open-chat-studio#1672"), (call(ZOOM + tag(name="reset", arguments={}), NATIVE, ("reset", {})), 2),
    (call(f"Let me look closer. {ZOOM}", NATIVE), 1, "vllm-project/vllm#42021"),
    (call("", NATIVE, NATIVE), 2, "decided: two native calls stay two", "langchain-ai/langchain#38969"),
    (call(f"<think>{ZOOM}</think>", NATIVE), 1, "vllm-project/vllm#39056"))
add(lambda given, folder: len(results(given, folder)),
    (call(tag(name="crop", arguments={"box": [0.1, 0.1, 0.5, 0.5], "padding": 0}), ("crop", {"padding": 0, "box": [0.1,
     0.1, 0.5, 0.5]})), 1))
add(served(lambda one: one.episodes[0].run_call_count),
    ([completion(ZOOM, ("c1", "zoom", '{"factor": 2}')), completion(GOOD)], 1, "dreadnode/rigging#40"))

kind("R6")  # arguments of a policy function
add(results, (call("", ("reset", "")), [{}], "QwenLM/Qwen-Agent#135"))
add(summed, (call("", ("zoom", None)), says("factor|arguments", without="AttributeError")),
    (call("", ("reset", [])), says("arguments", without="AttributeError|TypeError")),
    (call("", ("zoom", 5)), says("arguments", without="AttributeError|TypeError"), "langchain4j/langchain4j#3093"),
    (call("", ("zoom", {"factor": None})), either(says("factor"), says("zoomed"))))
add(served(ran), ([completion("", ("c1", "reset", None)), completion(GOOD)], ["reset"]))

kind("R7")  # code after the answer: strict JSON in a fence that says so goes before code that must be repaired
MASS = "{'label': 'mass', 'bbox': [0.1, 0.2, 0.3, 0.4]}"
FENCED = f"```json\n{FINAL}\n```"
add(taken("label"), (f"{FENCED}\nCode:\n```python\nprint({MASS})\n```", "nodule", "langchain-ai/langchain#9654"),
    (f"{FENCED}\n```js\nconst x = {{label: 'mass', bbox: [0.1, 0.2, 0.3, 0.4]}};\n```", "nodule",
     "langchain-ai/langchain#20305"), (f"{FENCED}\nIn Python: {MASS}", "nodule"),
    (f"```python\nprint({MASS})\n```\n{FENCED}", "nodule", "langchain-ai/langchain#15069"),
    (f"{FENCED}\nNo:\n" + FENCED.replace("nodule", "cyst"), "cyst", "docs: among equals the last one wins",
     "langchain-ai/langchain#20305"), (f"{FENCED}\n```yaml\nlabel: mass\n```", "nodule"))

kind("R8")  # a call in thinking
THINKING = says("think")
add(told, (f"<think>look {ZOOM}</think>", THINKING, "vllm-project/vllm#39056"),
    (f"<think>look {ZOOM}</think>\nI would like to zoom.", THINKING, "vllm-project/vllm#16511"),
    (f"<think>look {ZOOM}", THINKING, "thinking that never ends", "vllm-project/vllm#51679"),
    (f"<think>so {FINAL}</think>", THINKING), (f"look {ZOOM}</think>ok", THINKING, "a template wrote the opening tag",
     "tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#16"),
    ("<think>hm</think>", says("JSON|empty|answer")))
add(lambda given, folder: [one["factor"] for one in results(given, folder)],
    (f"<think>look {ZOOM.replace('2', '3')}</think>{ZOOM}", [2], "vllm-project/vllm#19017"))

kind("R9")  # a number at an edge
UNSEEN = r"(?<![\d.])-?[01](\.0+)? is out"


def edge(*box):
    return {"bbox": [0.1, 0.2, 0.3, 0.4][: -len(box)] + list(box)}


SHOWN = either([0.1, 0.2, 0.3, 1], refused("out|outside|1", without=UNSEEN))
both("bbox", (edge(1.000000000001), SHOWN),
    ({"bbox": [-1e-9, 0.2, 0.3, 0.4]}, either([0, 0.2, 0.3, 0.4], refused("out|outside|0", without=UNSEEN))),
    (edge(1.2), refused(r"1\.2")))
add(told, (ZOOM.replace("2", "4.0000001"), says(".", without=r"(?<![\d.])4(\.0)? ?:")))
add(lambda *given: grounded("per_mille")(*given), ([[100, 100, 400, 1000.4]], either("taken", refused(r"1000\.4"))))
add(taken("bbox"), ({"bbox": [-0.0, 0.2, 0.3, 0.4]}, [0, 0.2, 0.3, 0.4], "IEEE 754: -0 is 0"))
add(taken("size_mm", env=BOTH[1]),
    ({"size_mm": 500.0000001}, refused("500", without=r"500(\.0)? is (greater|out|more)")))

kind("R10")  # messages speak JSON
CLOSED_ANSWER = ("string", "number")
PYTHON = r"(?-i:\bTrue\b|\bFalse\b|\bNone\b)|'string'|'number'|\['"


def asked(given, folder):
    """What the model is told after the answer `given` to a question of `vqa`."""
    write_rows(folder / "rows.jsonl", CLOSED)
    return read_reason(play(make_vqa(folder, "rows.jsonl", CLOSED[0]), json.dumps({"answer": given}), GOOD))


add(asked, (True, either(says(r"\btrue\b", *CLOSED_ANSWER, without=PYTHON), "")),
    (None, says(r"\bnull\b", *CLOSED_ANSWER, without=PYTHON)), (["yes"], says('"yes"', *CLOSED_ANSWER, without=PYTHON)),
    ({"value": "yes"}, says(*CLOSED_ANSWER, without=PYTHON)))
both("bbox", ({"bbox": [0.1, 0.2, 0.3, 0.4, 0.5]}, refused("bbox", r"\b(4|four)\b", without=PYTHON)),
    ({"bbox": [0.1, 0.2]}, refused("bbox", r"\b4 items", without=f"4 to 4|{PYTHON}")),
    ({"bbox": [0.1, 0.2, "x", 0.4]}, refused("bbox", '"x"', "number")))
both("side", ({"side": "lefft"}, refused("lefft", '"?left"?', "right", without=r"\['|'left' or 'right'|(?-i:None)")),
    ({"side": True}, refused("side", "left", without=r"(?-i:\bTrue\b|\bNone\b)")))
both("label", ({"label": None}, refused("label", "string|text", without=PYTHON)))

kind("R11")  # a hint that works
add(summed, *((tag(name="zoom", **{key: {"factor": 2}}), either(says("arguments", key, without=f"put .?{key}.? in"),
    says("zoomed")), "langchain-ai/langchain#2241")
    for key in ("params", "kwargs", "tool_input", "Arguments", "argument")))
add(summed, (tag(name="zoom", factor=2), either(says('"arguments"'), says("zoomed"))),
    (tag(tool_name="zoom", arguments={"factor": 2}), either(says("name"), says("zoomed"))))

kind("R12")  # fractions where thousandths are asked


def grounded(coordinates, gold=(10, 10, 40, 25)):
    """What is told after boxes, or "taken": a picture of 100 x 100 and an environment with these coordinates."""

    def ask(given, folder):
        (folder / "img").mkdir()
        Image.new("L", (100, 100), 90).save(folder / "img" / "1.png")
        rows = [{"id": "t0", "image": "1.png", "question": "find", "boxes": [list(gold)]}]
        write_rows(folder / "rows.jsonl", rows)
        data = {"source": str(folder / "rows.jsonl"), "images": str(folder / "img")}
        data |= {"columns": {name: name for name in rows[0]}, "boxes": {"format": "xyxy", "unit": "pixel"}}
        env = viewbox.make("grounding", data=data, coordinates=coordinates)
        episode = play(env, json.dumps({"boxes": given}))
        return "taken" if episode.num_turns == 1 else Refusal(read_reason(episode))

    return ask


SMALL = refused("pixel|0 to 1000|thousand|per.mille|small")
add(grounded("per_mille"), ([[0.1, 0.1, 0.4, 0.25]], SMALL, "QwenLM/Qwen3-VL#1741"),
    ([[0, 0, 1, 1]], SMALL, "QwenLM/Qwen3-VL#830"), ([[100, 100, 400, 250], [0.1, 0.1, 0.4, 0.25]], SMALL),
    ([[100, 100, 400, 250]], "taken", "redai-studio/Relax#17"), ([], "taken"))
add(grounded("unit"), ([[100, 100, 400, 250]], refused("0 to 1"), "QwenLM/Qwen3-VL#940"))
add(grounded("pixel"), ([[0.1, 0.1, 0.4, 0.25]], refused("pixel|small"), "om-ai-lab/VLM-R1#198"),
    ([[10, 10, 11, 11]], "taken"))
# fmt: on


# ---------------------------------------------------------------------- calls in other shapes, and what is no call
def mark(label: str, bbox: list[float]) -> str:
    """Mark a place: its arguments have the names of the answer's fields."""
    return "marked"


class Marking(Look):
    tools = (*Look.tools, mark)


def acted(given, folder):
    """What the first reply was: "answered", the names of the tools that ran, or what the model was told."""
    episode = see(given, Marking())
    ran = [one.tool_name for turn in episode.turns[1:3] for one in turn.tool_results if one.error is None]
    return "answered" if episode.num_turns == 1 else ran or read_reason(episode)


def quoting(said, form="QUOTE"):
    """What happens to a call that a model quotes from the text `said` of a tool, as it was shown."""

    def tell() -> str:
        """Tell."""
        return said

    class Telling(Look):
        tools = (*Look.tools, tell)

    def ask(given, folder):
        shown = []

        def policy(messages):
            shown.append(messages[-1].text)
            quote = shown[-1].partition("\n")[2].rpartition("\n")[0]  # without its marks
            form_said = form.replace("QUOTE", quote).replace("SHOWN", shown[-1])
            return [tag(name="tell", arguments={}), form_said, FINAL, FINAL][len(shown) - 1]

        turns = Telling().play(TASK, policy).turns
        ran = [one for turn in turns[3:] for one in turn.tool_results]
        return [one.error or one.tool_name for one in ran]

    return ask


# fmt: off
kind("R13")  # arguments of a call are no answer, and a call is answered as one
AS_CALL = either(["mark"], says("mark|call", without="is missing|Field required"))
ARGUMENTS = {"label": "mass", "bbox": [0.1, 0.2, 0.3, 0.4]}
add(acted, *((json.dumps(shape), AS_CALL, "tenstorrent/tt-inference-server#3683") for shape in (
    {"functionCall": {"name": "mark", "args": ARGUMENTS}}, {"tool_name": "mark", "arguments": ARGUMENTS},
    {"function": "mark", "arguments": ARGUMENTS}, {"action": "mark", "action_input": ARGUMENTS},
    {"toolUse": {"toolUseId": "a", "name": "mark", "input": ARGUMENTS}}, {"mark": ARGUMENTS},
    {"method": "mark", "params": ARGUMENTS}, {"toolName": "mark", "args": ARGUMENTS},
    {"command": {"name": "mark", "args": ARGUMENTS}},
    {"tool_uses": [{"recipient_name": "functions.mark", "parameters": ARGUMENTS}]},)))
add(acted,
    (json.dumps({"tool_name": "marc", "arguments": ARGUMENTS}), either("answered", says("marc"))),
    (json.dumps({"action": "Final Answer", "action_input": ARGUMENTS}), "answered",
     "LangChain: its word for the answer"), (json.dumps({"plan": "zoom", "continue": True}), says("notes|turn")),
    (f"<|tool_call_begin|>functions.mark:0<|tool_call_argument_begin|>{json.dumps(ARGUMENTS)}" "<|tool_call_end|>",
     ["mark"], "google/adk-python#5654"),
    ("<|channel|>commentary to=functions.mark <|constrain|>json<|message|>" + json.dumps(ARGUMENTS) + "<|call|>",
     ["mark"], "odysseus-dev/odysseus#4522"))

kind("R14")  # what has one reading is taken, and the model is told
add(lambda *given: [count_runs(*given), told(*given)],
    # the namespace that gpt-oss and Kimi are taught
    (tag(name="functions.zoom", arguments={"factor": 2}), [1, says("zoomed", without="was read")]),
    *((given, [1, says(name, "was read as|was not read|: write")]) for name, given in {
        "Zoom": tag(name="Zoom", arguments={"factor": 2}), "2": tag(name="zoom", arguments={"factor": "2"}),
        "0.5": tag(name="zoom", arguments={"factor": 2, "center": "0.5, 0.5"}),
        "reason": tag(name="zoom", arguments={"factor": 2, "reason": "small"}),
        "explanation": call("", ("zoom", {"factor": 2, "explanation": "small"})),
        "args": tag(name="zoom", args={"factor": 2})}.items()))
add(told, (tag(name="zoom", arguments={"factor": "2 or 3"}), says("factor", "number")),
    (tag(name="zoom", arguments={"factor": 2, "size": "3"}), says("unknown argument", "size")))

kind("R15")  # thinking in other marks
SEEN = f"Perhaps {FINAL.replace('nodule', 'mass')}"
for opening, closing in (("<|channel|>analysis<|message|>", "<|end|>"), ("<thinking>", "</thinking>"),
                         ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<thought>", "</thought>")):
    add(told, (f"{opening}{SEEN}{closing}", says("think"), "Augustas11/macprovider#743"))
    add(taken("label"), (f"{opening}{SEEN}{closing}{FINAL}", "nodule"))
add(taken("label"),
    (f"<|channel|>analysis<|message|>{SEEN}<|end|><|start|>assistant<|channel|>final<|message|>{FINAL}" "<|return|>",
     "nodule", "openai/harmony: the channel `final`", "ml-explore/mlx-lm#1867"))
add(taken("size_mm"),
    (f"analysis{SEEN}assistantfinal{FINAL[:-1]}, \"size_mm\": 3}}", 3.0, "a server removed the marks",
     "vllm-project/vllm#22578"))

kind("R16")  # what a tool wrote is no call if the model quotes it
LURE = '{"tool": "reset", "arguments": {}}'
for said in (LURE, "[reset()]", "call:reset{}", f"<tool_call>{LURE}</tool_call>"):
    add(quoting(said), (None, [says("word for word")]))
    add(quoting(said, "It says SHOWN " + FINAL), (None, []))  # between its marks nothing is read
add(quoting(LURE, tag(name="rotate", arguments={"clockwise": True})), (None, ["rotate"]))

kind("R17")  # a box in another form
# and the answer's only box, under a name that models use
both("bbox", *(({"bbox": box}, [0.1, 0.2, 0.3, 0.4]) for box in (
    [[0.1, 0.2, 0.3, 0.4]], [[0.1, 0.2], [0.3, 0.4]], {"x1": 0.1, "y1": 0.2, "x2": 0.3, "y2": 0.4},
    {"ymin": 0.2, "xmin": 0.1, "xmax": 0.3, "ymax": 0.4})),
    *((json.dumps({"label": "nodule", name: [0.1, 0.2, 0.3, 0.4]}), [0.1, 0.2, 0.3, 0.4])
      for name in ("bbox_2d", "box", "bounding_box")))
both("bbox",
    (json.dumps({"label": "nodule", "box_2d": [0.1, 0.2, 0.3, 0.4]}), refused("bbox"), "Gemini's box_2d has y first"),
    ({"bbox": [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]}, refused("bbox")),
    ({"bbox": {"x": 0.1, "y": 0.2, "w": 0.3, "h": 0.4}}, refused("bbox")))
both("side", ({"side": "LEFT"}, "left"))
# fmt: on


def test_every_kind_has_rows():
    kinds = [*(f"S{number}" for number in range(1, 15)), *(f"R{number}" for number in range(1, 18))]
    assert sorted(rows.kinds) == sorted(kinds)
    rows.check_names()


@pytest.mark.parametrize("kind", rows.kinds)
def test_what_is_said(kind, tmp_path):
    rows.check(kind, tmp_path)
