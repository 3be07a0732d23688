"""What is said, and what it scores: a table of what people's models and datasets say, with the right outcome of each.

Kinds S1 to S14 are scores, R1 to R12 replies. Right values are worked out by hand, by a standard (SQuAD's script, COCO,
the JSON standard) or with the library that is named. Many rows stand for a bug report of other software.
"""

import json
import re
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel

import viewbox
from tests.support.said_cases import (
    Below,
    Table,
    either,
    make_vqa,
    play,
    question,
    read_messages,
    refused,
    says,
    write_rows,
)
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Episode, Reply, Scores, Task, ToolCall
from viewbox.rewards import (
    CombinedReward,
    ExactMatchReward,
    IoUReward,
    LabelSetF1Reward,
    RankingReward,
    TokenF1Reward,
)
from viewbox.rewards.metrics import (
    Accuracy,
    BoxRates,
    CalibrationError,
    MacroF1,
    MeanAveragePrecision,
    TopK,
)
from viewbox.rewards.short_answer import ShortAnswerReward
from viewbox.rollouts.scoring.summary import summarize

row = Table()


# ---------------------------------------------------------------------- what is asked of rewards and metrics
def pair(make):
    """A reward of the field x, asked of (answer, gold)."""

    def ask_of(**settings):
        def ask(given, folder):
            answer, gold = given
            return make(**settings)({"x": answer}, {"x": gold})

        return ask

    return ask_of


def make(reward):
    return pair(lambda **settings: reward("x", **settings))


exact, words, labels, ranked, iou = map(
    make, (ExactMatchReward, TokenF1Reward, LabelSetF1Reward, RankingReward, IoUReward)
)


def short(kind="open", **settings):
    """`short_answer`, the reward of `vqa`."""
    reward = ShortAnswerReward("x", **settings)
    return lambda given, folder: reward({"x": given[0]}, {"x": given[1], "kind": kind})


def total(reward, **reference):
    """The total of an episode with a reward in it; None: no score. A component that fails is none that is wrong."""

    def ask(given, folder):
        whole = CombinedReward({"one": (reward, 1.0)})
        answer, gold = given
        return whole.score_with_faults({"x": answer}, {"x": gold, **reference})[0]

    return ask


def metric(metric, figure):
    """A figure of a metric over the pairs (answer, gold) of a field."""

    def ask(given, folder):
        pairs = [
            (answer if isinstance(answer, dict) else {"x": answer}, gold if isinstance(gold, dict) else {"x": gold})
            for answer, gold in given
        ]
        return metric(pairs)[figure]

    return ask


def vqa(*replies, file="rows.jsonl", number=0, **settings):
    """The score of a task of `vqa`, whose rows are given, for a reply; each of several replies."""

    def ask(given, folder):
        write_rows(folder / file, given)
        env = make_vqa(folder, file, given[0], **settings)
        scores = [play(env, json.dumps({"answer": reply}), number=number).scores.total for reply in replies]
        return scores if len(scores) > 1 else scores[0]

    return ask


def stop(*replies, **settings):
    """The same; a bad row is an error, not left out."""
    return vqa(*replies, data={"bad_rows": "stop"}, **settings)


SQUAD = "SQuAD's script (Rajpurkar et al. 2016)"
SIGN = "decided: a sign stands with its number or word; the opposite sign is another value"

# fmt: off
# ---- S1: signs are part of a word
row("S1-vqa", [question("<5 mm")], vqa(">5 mm"), Below(1), "< and > are opposite", "Khan/khan-exercises#132721")
row("S1-vqa-itself", [question("<5 mm")], vqa("<5 mm", "< 5 mm", "<5mm"), [1, 1, 1], "the gold; a space says nothing")
row("S1-blood-group", ("Rh-", "Rh+"), words(), Below(1), SIGN)
row("S1-blood-group-itself", ("Rh +", "Rh+"), words(), 1, "a space says nothing")
row("S1-blood-group-in-a-text", ("blood group A Rh-", "blood group A Rh+"), words(), Below(1), SIGN)
row("S1-stage", ("T2 N0 M0", "T2 N+ M0"), words(), Below(1), SIGN)
row("S1-receptor", ("ER+ PR- HER2-", "ER+ PR- HER2+"), words(), Below(1), SIGN)
row("S1-receptors-in-another-order", ("HER2- ER+ PR-", "ER+ PR- HER2-"), words(), 1, "a multiset of words")
row("S1-at-most", ("≥5 mm", "≤5 mm"), words(), Below(1), "≥ and ≤ are opposite", "Khan/khan-exercises#157602")
row("S1-at-most-in-ascii", ("<= 5 mm", "≤5 mm"), words(), 1, "Unicode: ≤ is less-than or equal to")
row("S1-at-most-is-not-less", ("<5 mm", "≤5 mm"), words(), Below(1), "5 is in one and not in the other")
row("S1-arrow", ("↓ CRP", "↑ CRP"), words(), Below(1), "risen is not fallen")
row("S1-arrow-itself", ("↑ CRP", "↑CRP"), words(), 1, "a space says nothing")
row("S1-plus-minus", ("2021", "±2021"), words(), Below(1), "two values are not one", "huggingface/Math-Verify#14")
row("S1-minus", ("5 degrees", "-5 degrees"), words(), Below(1), "-5 is not 5")
row("S1-minus-sign", ("\u22125 degrees", "-5 degrees"), words(), 1, "Unicode U+2212 is minus", "deepset-ai/haystack#2508")
row("S1-percent", ("28 mm", "28% mm"), words(), Below(1), "28% is not 28")
row("S1-in-a-sentence", ("Nodule >8 mm in the left lung", "Nodule <8 mm in the left lung"), words(), Below(1), SIGN)
row("S1-hanging-hyphen", ("pre and post contrast", "pre- and post-contrast"), words(), 1,
    "a hanging hyphen stands for a word that follows: it is no sign")
row("S1-range", ("5-10 mm", "5-10 mm"), words(), 1, "the gold itself")
row("S1-squad", (">5 mm", "<5 mm"), words(negation_scope=False), 1, f"{SQUAD} removes all of string.punctuation")
row("S1-exact", (">5 mm", "<5 mm"), exact(), 0, SIGN)
row("S1-labels", (["Rh-"], ["Rh+"]), labels(), 0, SIGN)
row("S1-ranking", (["HER2-", "HER2+"], ["HER2+"]), ranked(), 0.5, "1 / 2: the first is another name")

# ---- S2: a letter with the text of its choice
LUNGS = [question("B", choices=["left lung", "right lung", "both lungs"])]
row("S2-vqa", LUNGS, vqa("B) right lung"), 1, "the letter and the text are those of one choice", "IBM/AssetOpsBench#475")
row("S2-spellings", LUNGS, vqa("B", "(B)", "B)", "B.", "b", "right lung", "Right lung.", "B. right lung",
    "(B) right lung", "B: right lung", "**B**"), [1] * 11, "spellings of one choice")
row("S2-others", LUNGS, vqa("A) right lung", "B) left lung", "A", "left lung", "C"), [0] * 5,
    "another letter, another text, or two that contradict each other")
row("S2-no-mark", LUNGS, vqa("A right lung"), 0, "a letter needs a mark, and A is another choice")
row("S2-none-of-them", LUNGS, vqa("None of the above", "Both", "I don't know"), [0] * 3,
    "letters inside of words are none", "UKGovernmentBEIS/inspect_ai#2216")
row("S2-answer", [question("A", choices=["left lung", "right lung"])], vqa("Answer", "a lung"), [0, 0],
    "the first letter of a word is none", "aniri15/OPD-V#2")
row("S2-empty", [question("A", choices=["left lung", "right lung"])], vqa(""), 0, "nothing is no choice",
    "open-compass/VLMEvalKit#1701")
row("S2-two-letters", LUNGS, vqa("A, B", "A or B", "AB"), [0] * 3, "two choices are not one")
row("S2-distractor", LUNGS, vqa("not A, B"), 0, "the whole answer is compared", "antirez/ds4#321")
GERMS = [question("C. difficile", choices=["C. difficile", "E. coli", "S. aureus"])]
row("S2-names-with-a-letter", GERMS, vqa("C. difficile", "A", "A. C. difficile", "C", "C. S. aureus", "B. E. coli"),
    [1, 1, 1, 0, 0, 0], "C. difficile is the first choice; the letter C is the third")
row("S2-choices-that-are-letters", [question("B", choices=["B", "A"])], vqa("B", "A"), [1, 0],
    "choices that are letters are told by their texts")
row("S2-numbers", [question("42", choices=["11", "-84", "42"])], vqa("42", "-84", "84", "14"), [1, 0, 0, 0],
    "choices that are numbers are told by their texts", "Future-House/paper-qa#693")
row("S2-signs", [question("≥5 mm", choices=["<5 mm", "≥5 mm"])], vqa("B) ≥5 mm", "A) <5 mm", "B) <5 mm"), [1, 0, 0],
    "letters and signs at once")
row("S2-two-right", [question(["left lung", "right lung"], choices=["left lung", "right lung", "heart"])],
    vqa("A) left lung", "B: right lung", "C) heart"), [1, 1, 0], "either of the accepted choices")

# ---- S3: a gold with its letter
SIDES = ["A. left", "B. right"]
row("S3-vqa", [question("B. right", choices=SIDES)], stop("B", "right", "B. right", "A", "left"), [1, 1, 1, 0, 0],
    "the answer is one of the choices as the file has them")
row("S3-another-mark", [question("(B) right", choices=SIDES)], stop("B", "left"), [1, 0], "(B) is B.")
row("S3-letter", [question("B", choices=SIDES)], stop("right", "left"), [1, 0], "B is the second choice")
row("S3-letter-with-mark", [question("(B)", choices=SIDES)], stop("right", "left"), [1, 0], "B is the second choice")
row("S3-text", [question("right", choices=SIDES)], stop("B) right", "A"), [1, 0], "the text of the second choice")
row("S3-bare-choices", [question("B. right", choices=["left", "right"])], stop("B", "A"),
    either([1, 0], refused("choices")), "letters are taken off the gold as off the choices")
row("S3-contradiction", [question("A. right", choices=SIDES)], stop("A"), refused("choices|answer"),
    "no answer can be A and right")
row("S3-round-brackets", [question("(b) right", choices=["(a) left", "(b) right"])], stop("(b) right", "(a) left"),
    [1, 0], "the answer is one of the choices as the file has them")
row("S3-numbered", [question("2. right", choices=["1. left", "2. right"])], stop("2. right", "1. left"), [1, 0],
    "the answer is one of the choices as the file has them")
row("S3-place", [question(1, choices=["left", "right"])], stop("right"), refused("choices|answer"),
    "a number that is no choice: it may count from 0 or from 1")
row("S3-beyond", [question("D", choices=["left", "right"])], stop("right"), refused("choices|answer"),
    "there are two choices", "open-compass/VLMEvalKit#1697")
row("S3-stop-word", [question("A. a", choices=["A. a", "B. b"])], stop("A. a", "B. b"), [1, 0],
    "the text of a choice may be a letter")
row("S3-underscore", [question("pleural effusion", choices=["pleural_effusion", "no_finding"])], stop("A", "B"), [1, 0],
    "an underscore is a space")

# ---- S4: a fault says nothing about the policy
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
GATE = "docs/rewards.md: a fault says nothing about the policy"
row("S4-error", [RIGHT, RIGHT, ERROR], ACCURACY, [1, 1], GATE, "allenai/vla-evaluation-harness#129")
row("S4-timeout", [RIGHT, WRONG, (None, "timeout")], ACCURACY, [0.5, 0.5], GATE, "UKGovernmentBEIS/inspect_ai#4286")
row("S4-cancelled", [RIGHT, (None, "cancelled"), (None, "cancelled")], ACCURACY, [1, 1], GATE)
row("S4-kind", [RIGHT, RIGHT, ERROR], figures("metrics/accuracy/closed", "metrics/closed/macro_f1"), [1, 1],
    "scikit-learn: f1_score of the two that are scored is 1", "UKGovernmentBEIS/inspect_ai#4412")
row("S4-failed-component", [RIGHT, RIGHT, ("yes", "answered", Scores(None, {"judge": None}, {"judge": "is down"}))],
    ACCURACY, [1, 1], "decided: an episode whose component failed has no score, and counts nowhere")
row("S4-failed-and-wrong", [RIGHT, ("no", "answered", Scores(None, {"judge": None}, {"judge": "is down"}))],
    ACCURACY, [1, 1], "decided: one gate for the reward and for metrics")
row("S4-own-failure", [RIGHT, (None, "malformed"), (None, "max_turns")], ACCURACY, [1 / 3, 1 / 3],
    "no answer is the policy's own doing: it is wrong", "UKGovernmentBEIS/inspect_ai#3707")
row("S4-nothing-left", [ERROR, ERROR], ACCURACY, either([None, None], [np.nan, np.nan], [None, np.nan]),
    "a mean of nothing is none", "vibrantlabsai/ragas#2980")
row("S4-error-with-an-answer", [RIGHT, ("no", "error")], ACCURACY, [1, 1], GATE)


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


row("S4-map", [[[4 / 32, 4 / 32, 20 / 32, 20 / 32]], None], boxes_of, [1],
    "pycocotools: one gold box, found, is an average precision of 1")

# ---- S5: percent
row("S5-space", ("28 %", "28%"), exact(), 1, "SI Brochure 5.4.7: a space stands between the number and %")
row("S5-not-the-number", ("28 %", "28"), exact(), 0, "28% is 0.28", "huggingface/Math-Verify#67")
row("S5-gold-with-space", ("28%", "28 %"), exact(), 1, "SI Brochure 5.4.7")
row("S5-number-for-percent", ("28", "28 %"), exact(), 0, "28 is not 28%")
row("S5-no-break-space", ("28\u00a0%", "28%"), exact(), 1, "French typography: a no-break space")
row("S5-thin-space", ("28\u202f%", "28%"), exact(), 1, "French typography: a narrow no-break space")
row("S5-full-width", ("２８％", "28 %"), exact(), 1, "Unicode NFKC: ％ is %")
row("S5-per-mille", ("5 ‰", "5%"), exact(), 0, "per mille is not per cent")
row("S5-per-mille-itself", ("5 ‰", "5‰"), exact(), 1, "a space says nothing")
row("S5-number-gold", ("28 %", 28), exact(), 0, "28% is not 28")
row("S5-tolerance", ("28 %", "28"), exact(tolerance=1.0), 0, "a tolerance never crosses a unit")
row("S5-tolerance-in-percent", ("28.5 %", "28%"), exact(tolerance=1.0), 1, "half a percent point apart")
row("S5-chart", ("12 %", 0.12), short(tolerance=0.05), 1, "ChartQA, relaxed_correctness: 12% is 0.12",
    "m87-labs/moondream#223")
row("S5-chart-as-number", ("2%", "2"), short("closed", tolerance=0.05), 0,
    "pix2struct, relaxed_correctness: 0.02 is not within 5% of 2", "open-compass/VLMEvalKit#1313")
row("S5-chart-gold", ("28.1 %", "28%"), short("closed", tolerance=0.05), 1, "0.281 is within 5% of 0.28",
    "open-compass/VLMEvalKit#584")
row("S5-labels", (["28 %", "mild"], ["28%", "mild"]), labels(), 1, "a space says nothing")
row("S5-words", ("ejection fraction 28 %", "ejection fraction 28%"), words(), 1, "a space says nothing")
row("S5-vqa", [question("28%", kind="closed")], vqa("28 %", "28", "0.28"), [1, 0, 0],
    "without a tolerance only spellings of the gold are right", "Khan/khan-exercises#124169")

# ---- S6: a threshold that is met exactly


def iou_of(a, b):
    """The IoU of two boxes of whole pixels, exactly."""
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(0, wide) * max(0, high)
    return Fraction(shared, sum((x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in (a, b)) - shared)


def find_pairs(size, wanted):
    """Pairs of boxes of whole pixels with exactly this IoU: one inside the other, at some places."""
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
        assert len(found) > 20 and all(iou_of(*one) == wanted for one in found)
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


EXACTLY = "counted in whole pixels, the IoU is the threshold"
row("S6-half", ([.1, .1, .4, .4], [.1, .1, .4, .25]), iou(threshold=0.5), 1, "450 of 900 pixels of 100 x 100",
    "rafaelpadilla/review_object_detection_metrics#84")
row("S6-half-640", ((640, 480), Fraction(1, 2)), reach(0.5), 1, EXACTLY, "voxel51/fiftyone#1083")
row("S6-half-100", ((100, 100), Fraction(1, 2)), reach(0.5), 1, EXACTLY)
row("S6-three-quarters", ((640, 480), Fraction(3, 4)), reach(0.75), 1, EXACTLY)
row("S6-nine-tenths", ((300, 700), Fraction(9, 10)), reach(0.9), 1, EXACTLY, "cocodataset/cocoapi#409")
row("S6-computed-threshold", ((640, 480), Fraction(9, 10)), reach(float(np.linspace(0.5, 0.95, 10)[8])), 1,
    "NumPy's linspace writes 0.9 as 0.8999999999999999", "open-mmlab/mmdetection#3997")
row("S6-sum", ((640, 480), Fraction(3, 10)), reach(0.1 + 0.2), 1, "0.1 + 0.2 is meant to be 0.3")
row("S6-map", ((640, 480), Fraction(1, 2)), reach_map(0.5), 1, EXACTLY, "open-mmlab/mmdetection#4037")
row("S6-map-three-quarters", ((100, 100), Fraction(3, 4)), reach_map(0.75), 1, EXACTLY)
row("S6-rates", [([.1, .1, .4, .25], [.1, .1, .4, .4])] * 2, metric(BoxRates("x"), "recall@0.5"), 1, EXACTLY)
row("S6-many", ([[.1, .1, .4, .25], [.5, .5, .8, .65]], [[.1, .1, .4, .4], [.5, .5, .8, .8]]), iou(threshold=0.5), 1,
    "both pairs reach the threshold: F1 = 2·2 / 4")
row("S6-xywh", ([.1, .1, .3, .15], [.1, .1, .3, .3]), iou(threshold=0.5, format="xywh"), 1, EXACTLY)
row("S6-missed", ([.1, .1, .4, .249], [.1, .1, .4, .4]), iou(threshold=0.5), 0, "447 of 900 is less than a half")
row("S6-missed-by-a-pixel", ([0, 0, 1, 0.4999], [0, 0, 1, 1]), iou(threshold=0.5), 0, "0.4999 is less than a half")

# ---- S7: a tolerance that is met exactly
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


CHART = [question("0.3", kind="closed")]
DIFFERS = "differs by exactly this share"
row("S7-vqa", CHART, vqa("0.315", tolerance=0.05), 1, "0.315 is 1.05 · 0.3", "m87-labs/moondream#223")
row("S7-below", CHART, vqa("0.285", tolerance=0.05), 1, "0.285 is 0.95 · 0.3")
row("S7-number", [question(0.3, kind="closed")], vqa("0.315", tolerance=0.05), 1, "0.315 is 1.05 · 0.3")
row("S7-beyond", CHART, vqa("0.316", "0.284", tolerance=0.05), [0, 0], "more than 5% from 0.3")
row("S7-all-above", GOLDS, share_within("1.05", 0.05), 1, DIFFERS)
row("S7-all-below", GOLDS, share_within("0.95", 0.05), 1, DIFFERS)
row("S7-all-a-tenth", GOLDS, share_within("1.1", 0.1), 1, DIFFERS)
row("S7-all-beyond", GOLDS, share_within("1.0501", 0.05), 0, "beyond 5%")
row("S7-negative", ("-0.315", "-0.3"), short("closed", tolerance=0.05), 1, "0.015 is 5% of 0.3")
row("S7-sign", ("0.3", "-0.3"), short("closed", tolerance=0.05), 0, "the opposite sign is another value")
row("S7-less-than", ("<0.3", "0.3"), short("closed", tolerance=0.05), 0, "a tolerance never crosses a sign")
row("S7-thousands", ("12,600", "12,000"), short("closed", tolerance=0.05), 1, "12,600 is 1.05 · 12,000",
    "asuzukosi/post-training-experiments#6")
row("S7-thousands-beyond", ("12,601", "12,000"), short("closed", tolerance=0.05), 0, "more than 5% from 12,000")
row("S7-percent", ("31.5 %", "30%"), short("closed", tolerance=0.05), 1, "31.5 is 1.05 · 30")
row("S7-absolute", ("1.1", "1.0"), exact(tolerance=0.1), 1, "1.1 is within 0.1 of 1.0")
row("S7-absolute-other", ("2.3", 2.2), exact(tolerance=0.1), 1, "2.3 is within 0.1 of 2.2")
row("S7-absolute-beyond", ("1.11", "1.0"), exact(tolerance=0.1), 0, "1.11 is not within 0.1 of 1.0")

# ---- S8: booleans
TRUE_SAID, FALSE_SAID = ("true", "yes", "True", "Yes.", "TRUE"), ("false", "no", "False", "No.", "nope")
row("S8-json", [question(True)], vqa(*TRUE_SAID, *FALSE_SAID), [1] * 5 + [0] * 5, "true and yes are one answer",
    "huggingface/datasets#3965")
row("S8-json-false", [question(False)], vqa("false", "no", "yes", "true"), [1, 1, 0, 0], "false and no are one answer")
for spelling in ("True", "TRUE", "true"):
    row(f"S8-csv-{spelling}", [question(spelling)], vqa("true", "yes", "no", "false", file="rows.csv"), [1, 1, 0, 0],
        "whatever way the file stores it")
row("S8-csv-false", [question("False")], vqa("no", "false", "yes", file="rows.csv"), [1, 1, 0], "the same for false")
row("S8-parquet", [question(True)], vqa("true", "yes", "no", file="rows.parquet"), [1, 1, 0], "a column of booleans")
row("S8-yes", [question("yes")], vqa("true", "True", "false"), [1, 1, 0], "on both sides")
row("S8-exact", ("yes", True), exact(), 1, "true and yes are one answer")
row("S8-exact-one", ("1", True), exact(), 0, "JSON: 1 is no boolean")
row("S8-labels", (["true"], ["yes"]), labels(), 1, "on both sides")
row("S8-kind", [question("TRUE")], lambda given, folder: [
    write_rows(folder / "rows.csv", given) and make_vqa(folder, "rows.csv", given[0]).tasks[0].reference["kind"]],
    ["closed"], "a question that is answered by true is closed")
row("S8-classes", [("true", "yes"), ("no", "false")], metric(MacroF1("x"), "macro_f1"), 1,
    "scikit-learn: f1_score of two right answers in two classes", "pydantic/pydantic#1130")
row("S8-choices", [question(True, choices=["True", "False"])], stop("True", "A", "false", "B"), [1, 1, 0, 0],
    "the answer is one of the choices")
row("S8-choices-yes", [question("TRUE", choices=["Yes", "No"])], stop("Yes", "No", file="rows.jsonl"), [1, 0],
    "true is yes on both sides")

# ---- S9: numbers as text
for name, rows in (("alone", [question("2")]), ("with-text", [question("2"), question("left", id="t1")])):
    row(f"S9-csv-{name}", rows, vqa("2.0", "2", "2.5", file="rows.csv"), [1, 1, 0],
        "the score hangs on no other row", "pandas-dev/pandas#35200")
    row(f"S9-jsonl-{name}", rows, vqa("2.0", "2", "3"), [1, 1, 0], "the same whatever the file")
row("S9-tsv", [question("2"), question("left", id="t1")], vqa("2.0", file="rows.tsv"), 1, "the same whatever the file")
row("S9-parquet-text", [question("2")], vqa("2.0", file="rows.parquet"), 1, "the same whatever the file")
row("S9-parquet-float", [question(2.0)], vqa("2", file="rows.parquet"), 1, "the same whatever the file")
row("S9-with-null", [question("2"), question("", id="t1")], vqa("2.0", file="rows.csv"), 1, "an empty cell is null",
    "pandas-dev/pandas#14978")
row("S9-trailing-zero", ("0.5", "0.50"), exact(), 1, "one number")
row("S9-leading-zeros", ("7", "007"), exact(), 0, "007 is a label", "pandas-dev/pandas#54665")
row("S9-leading-zeros-itself", ("007", "007"), exact(), 1, "the gold itself")
row("S9-power", ("1e3", "1000"), exact(), 1, "one number")
row("S9-thousands", ("12,000", "12000"), exact(), 1, "English: twelve thousand")
row("S9-decimal-comma", ("1.5", "1,5"), exact(), 0, "decided: 1,5 is a text")
row("S9-decimal-comma-itself", ("1,5", "1,5"), exact(), 1, "the gold itself")
row("S9-three-decimals", ("125", "0,125"), exact(), 0, "0,125 is no hundred and twenty-five")
row("S9-unit", ("2", "2 mm"), exact(), 0, "units must be equal", "Doenet/DoenetML#1794")
row("S9-unit-beside", ("2.0mm", "2 mm"), exact(), 1, "one number with one unit")
row("S9-other-unit", ("2 cm", "2 mm"), exact(), 0, "units must be equal")
row("S9-sign", ("<2", "2"), exact(), 0, "signs must be equal")
row("S9-labels", (["2.0"], ["2"]), labels(), 1, "decided: two values are equal if both are one number")
row("S9-top", [(["3", "2.0"], "2")], metric(TopK("x", 2), "top2"), 1, "compared as in ExactMatchReward")
row("S9-accuracy", [("2.0", "2"), ("0.50", "0.5"), ("7", "007")], metric(Accuracy("x"), "accuracy"), 2 / 3,
    "two of three")

# ---- S10: a gold that no answer can meet
BOX = [0.1, 0.2, 0.3, 0.4]
UNMEASURED = "decided: what cannot be measured has no score"
PIXELS = {"frame": "pixel", "reference_frame": "unit", "size_field": "size"}
row("S10-reversed", (BOX, [0.3, 0.4, 0.1, 0.2]), total(IoUReward("x")), None, UNMEASURED, "open-mmlab/mmdetection#4037")
row("S10-no-area", (BOX, [0.1, 0.2, 0.1, 0.4]), total(IoUReward("x")), None, UNMEASURED)
row("S10-negative-width", ([.1, .1, .2, .2], [.5, .5, -.2, .2]), total(IoUReward("x", format="xywh")), None, UNMEASURED)
row("S10-volume", ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 0]), total(IoUReward("x", format="xyzxyz")), None, UNMEASURED)
row("S10-not-finite", (BOX, [0.1, 0.2, float("nan"), 0.4]), total(IoUReward("x")), None, UNMEASURED)
row("S10-text", (BOX, "upper left"), total(IoUReward("x")), None, UNMEASURED)
row("S10-no-size", ([30, 40, 90, 80], BOX), total(IoUReward("x", **PIXELS)), None, UNMEASURED,
    "om-ai-lab/VLM-R1#288")
row("S10-empty-size", ([30, 40, 90, 80], BOX), total(IoUReward("x", **PIXELS), size=[0, 0]), None, UNMEASURED)
row("S10-size", ([10, 20, 30, 40], BOX), total(IoUReward("x", **PIXELS), size=[100, 100]), 1,
    "0.1 · 100 = 10, …: the same box")
row("S10-one-of-many", ([BOX], [BOX, [0.9, 0.9, 0.5, 0.5]]), total(IoUReward("x")), None, UNMEASURED)
row("S10-nothing-there", ([], []), total(IoUReward("x")), 1, "an empty list says that nothing is there")
row("S10-long", ("a", "a" * 20_000), total(ExactMatchReward("x")), None, "decided: a gold longer than is compared")
row("S10-long-words", ("a b", "a b " * 6_000), total(TokenF1Reward("x")), None, "decided: a gold longer than is compared")
row("S10-no-gold", ("a", None), total(ExactMatchReward("x")), 0, "decided: a missing gold stays 0")
row("S10-wrong-answer", ([0.3, 0.4, 0.1, 0.2], BOX), total(IoUReward("x")), 0, "the answer's own box is reversed")
row("S10-gains", (["a"], {"a": "high", "b": "low"}), total(RankingReward("x", metric="ndcg")), None,
    "issue 43: text gains cannot be measured")
row("S10-gains-as-text", (["a", "b"], {"a": "3", "b": "1"}), total(RankingReward("x", metric="ndcg")), either(1, None),
    "the best order, if text that is a number is one")
row("S10-map", [(BOX, BOX), (BOX, [0.3, 0.4, 0.1, 0.2])], metric(MeanAveragePrecision("x"), "map@0.5"), 1,
    "pycocotools over the pair that can be measured: 1", "cocodataset/cocoapi#55")
row("S10-rates", [(BOX, BOX), (BOX, [0.3, 0.4, 0.1, 0.2])], metric(BoxRates("x"), "recall@0.5"), 1,
    "one gold box of one is found")
row("S10-invisible", [question("\u200b\u200b")], stop("a"), refused("answer"), "nothing that can be seen can be said")
row("S10-punctuation", [question("?")], stop("?", "!"), [1, 0], "decided: ? equals ?")
row("S10-fault", None, lambda given, folder: "x" in CombinedReward({"x": (IoUReward("x"), 1.0)}).score_with_faults(
    {"x": BOX}, {"x": [0.3, 0.4, 0.1, 0.2]})[2], True, "decided: it is a fault of that component")

# ---- S11: letters that are stop words
STOPPED = words(stop_words=True)
NAME = "the letter is the name"
row("S11-hepatitis", ("hepatitis", "hepatitis A"), STOPPED, Below(1), NAME, "vaccineontology/VO#709")
row("S11-hepatitis-itself", ("Hepatitis A.", "hepatitis A"), STOPPED, 1, "the gold itself")
row("S11-vitamin", ("vitamin", "vitamin A"), STOPPED, Below(1), NAME)
row("S11-vitamin-beside-another", ("vitamin D", "vitamin A and vitamin D"), STOPPED, Below(1), NAME)
row("S11-type", ("type dissection", "type A dissection"), STOPPED, Below(1), NAME)
row("S11-other-type", ("type B dissection", "type A dissection"), STOPPED, Below(1), NAME)
row("S11-blood", ("blood group O", "blood group A"), STOPPED, Below(1), NAME)
row("S11-influenza", ("influenza A and B", "influenza B"), STOPPED, Below(1), NAME)
row("S11-lower-case", ("hepatitis", "hepatitis a"), STOPPED, Below(1), "it stands at the end: no article does")
row("S11-class-with-number", ("bronchus 1", "bronchus A 1"), STOPPED, Below(1), "it stands beside a number")
row("S11-article", ("nodule in left lung", "a nodule in the left lung"), STOPPED, 1, "an article says nothing")
row("S11-article-first", ("A nodule in the left lung.", "left lung nodule"), STOPPED, 1,
    "docs/rewards.md: the article that begins a sentence")
row("S11-own-list", ("hepatitis", "hepatitis A"), words(stop_words=["a", "the"]), Below(1), NAME)
row("S11-only-letter", ("A", "A"), STOPPED, 1, "a gold of nothing but stop words is compared as it is")
row("S11-only-other-letter", ("B", "A"), STOPPED, 0, "B is not A")

# ---- S12: powers
row("S12-negative", ("10⁻³", "10-3"), exact(), 0, "0.001 is not 7", "rasbt/reasoning-from-scratch#99")
row("S12-negative-itself", ("10^-3", "10⁻³"), exact(), 1, "two ways to write 0.001", "ChHecker/unify#11")
row("S12-positive", ("102", "10²"), exact(), 0, "100 is not 102")
row("S12-positive-itself", ("10^3", "10³"), exact(), 1, "two ways to write 1000")
row("S12-sign", ("10³", "10⁻³"), exact(), 0, "1000 is not 0.001")
row("S12-factor", ("1.5×10⁹/L", "1.5×10⁻⁹/L"), exact(), 0, "the powers are opposite")
row("S12-number", ("5×10⁻³", 0.005), exact(), 1, "5 · 0.001 = 0.005")
row("S12-number-in-ascii", ("5 x 10^-3", 0.005), exact(), 1, "5 · 0.001 = 0.005")
row("S12-half", ("21/2", "2½"), exact(), 0, "10.5 is not 2.5")
row("S12-index", ("82", "8₂"), exact(), 0, "an index is no digit")
row("S12-water", ("H2O", "H₂O"), exact(), 1, "Unicode NFKC: ₂ is 2 after a letter")
row("S12-area", ("12 cm2", "12 cm²"), exact(), 1, "Unicode NFKC: ² is 2 after a letter")
row("S12-words", ("10-3 mol", "10⁻³ mol"), words(), Below(1), "0.001 is not 7")
row("S12-labels", (["10-3"], ["10⁻³"]), labels(), 0, "0.001 is not 7")
row("S12-vqa", [question("10⁻³", kind="closed")], vqa("10⁻³", "10-3", "103"), [1, 0, 0], "only the gold itself")
row("S12-degrees", ("5°", "5º"), exact(), 1, "an ordinal sign after a number is meant as degrees")

# ---- S13: confidence in percent


def calibration(figure, **settings):
    def ask(given, folder):
        pairs = [({"l": said, "confidence": sure}, {"l": gold}) for said, sure, gold in given]
        return CalibrationError("l", **settings)(pairs)[figure]

    return ask


TWO = [("a", 90, "a"), ("a", 60, "b")]
row("S13-ece", [("a", 90, "a")], calibration("ece", scale=100), 0.1, "|1 - 0.9|", "niznik-dev/cruijff_kit#305")
row("S13-stated", [("a", 90, "a")], calibration("stated", scale=100), 1, "it is stated")
row("S13-two", TWO, calibration("ece", scale=100), 0.35, "(0.1 + 0.6) / 2: two bins of one each")
row("S13-brier", TWO, calibration("brier", scale=100), 0.185, "scikit-learn: brier_score_loss([1, 0], [0.9, 0.6])")
row("S13-ten", [("a", 9, "a"), ("a", 6, "b")], calibration("brier", scale=10), 0.185, "the same out of 10")
row("S13-whole", [("a", 100, "a")], calibration("brier", scale=100), 0, "certain and right")
row("S13-beyond", [("a", 101, "a"), ("a", 90, "a")], calibration("stated", scale=100), 0.5, "101 of 100 is none",
    "amiable-dev/llm-council#578")
row("S13-untold", TWO, calibration("stated"), 0, "decided: the scale is told or 1")
row("S13-fractions", [("a", 0.9, "a"), ("a", 0.6, "b")], calibration("brier"), 0.185, "scikit-learn: brier_score_loss")
row("S13-bad-scale", TWO, calibration("ece", scale=0), refused("scale"), "nothing can be divided by 0")

# ---- S14: underscores
row("S14-labels", (["pleural_effusion"], ["pleural effusion"]), labels(), 1, "an underscore between words is a space")
row("S14-labels-reversed", (["pleural effusion"], ["pleural_effusion"]), labels(), 1, "on both sides")
row("S14-exact", ("no_tumour", "no tumour"), exact(), 1, "an underscore between words is a space")
row("S14-case", ("Pleural_Effusion", "pleural effusion"), exact(), 1, "CheXpert's names")
row("S14-words", ("pleural_effusion", "pleural effusion"), words(), 1, "an underscore between words is a space")
row("S14-ranking", (["ground_glass", "nodule"], ["ground glass"]), ranked(), 1, "the first name is relevant")
row("S14-aliases", ("cardiomegaly", "enlarged heart"), exact(aliases={"enlarged_heart": ["cardiomegaly"]}), 1,
    "in a key of aliases, too")
row("S14-classes", [("Pleural_Effusion", "pleural effusion"), ("mass", "mass")], metric(MacroF1("x"), "macro_f1"), 1,
    "scikit-learn: two classes, both right", "macabdul9/CASA-Dialogue-Act-Classifier#10")
row("S14-denied", (["tumour", "no_tumour"], ["tumour"]), labels(), 0, "affirmed and denied at once")
row("S14-vqa", [question("ground_glass_opacity", kind="closed")], vqa("ground glass opacity", "ground glass"), [1, 0],
    "an underscore between words is a space")
row("S14-other", ("pleuraleffusion", "pleural effusion"), exact(), 0, "a space is not nothing")
# fmt: on


@pytest.mark.parametrize("kind", row.kinds)
def test_what_is_said(kind, tmp_path):
    row.check(kind, tmp_path)
