"""Scores per second of a combined reward (label, token F1 of a report, IoU of a box), beside gaze-vlm 0.1.1.

    python benchmarks/scoring.py [ROUNDS]        (default: 9; the last line is one JSON object)

One thread. Every round has 1,000 new tasks with 8 replies each, all different, whose reports have one to three phrases.
Both sides compute a weighted mean of three rewards on the same replies. viewbox scores parsed answers, as it does in
use, with all checks (normalization, stop words, negations, boxes, components); a second row adds the time to parse the
reply. gaze-vlm reads the reply itself: its exact match and F1 compare the whole text, its IoU searches it for a box.
The sides take turns, 64 replies at a time, so that other load slows both; the answers of a turn are made just before
it, outside the clock. The bars are for the median round. "New sentences" are scored as if none was read before: plain
sentences that several replies share are read once.

gaze-vlm is installed into build/gaze, as `benchmarks/tools.py` does; where it cannot be had, no bar is judged.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

from viewbox.core.parsing.objects import AnswerFields
from viewbox.core.parsing.reply import ParsedAnswer, parse_reply
from viewbox.rewards import CombinedReward, ExactMatchReward, IoUReward, TokenF1Reward, negation

# Times the scores per second of gaze-vlm: 2.5 and 1 on a quiet machine, a tenth less where caches are shared.
BARS = {"viewbox": 2.25, "viewbox, from the reply": 0.9}
TASKS, GROUP, BATCH = 1000, 8, 64
GAZE = "gaze-vlm, from the reply"
LABELS = ("effusion", "pneumonia", "nodule", "cardiomegaly", "pneumothorax", "atelectasis", "fracture", "no finding")
PHRASES = (
    "small left pleural effusion",
    "no pneumothorax",
    "the heart size is normal",
    "patchy opacity in the right lower lobe",
    "no consolidation or effusion",
    "a 9 mm nodule in the left upper lobe",
    "mild cardiomegaly",
    "lungs are clear without focal consolidation",
    "the mediastinum is not widened",
    "degenerative changes of the thoracic spine",
    "linear atelectasis at the left base",
    "old healed rib fractures on the right",
)
SCHEMA = {"properties": {"label": {"type": "string"}, "report": {"type": "string"}, "bbox": {"type": "array"}}}
ANSWER_FIELDS = AnswerFields.from_schema(SCHEMA)


class ScoringCase(NamedTuple):
    """A reply, the answer that is in it, and the task's reference."""

    reply: str
    answer: dict[str, Any]
    reference: dict[str, Any]


def draw_cases(tasks: int = TASKS, group: int = GROUP, seed: int = 0) -> list[ScoringCase]:
    """`group` replies to each of `tasks` tasks: half of the labels are right, reports and boxes near the gold ones."""
    rng = random.Random(seed)
    found: list[ScoringCase] = []
    for _ in range(tasks):
        said = rng.sample(PHRASES, 2)
        gold = {"label": rng.choice(LABELS), "report": _write_report(said), "bbox": _draw_box(rng)}
        for _ in range(group):
            label = gold["label"] if rng.random() < 0.5 else rng.choice(LABELS)
            phrases = rng.sample([*said, *rng.sample(PHRASES, 2)], rng.choice((1, 2, 3)))
            box = [round(min(1, max(0, side + rng.gauss(0, 0.05))), 3) for side in gold["bbox"]]
            answer = {"label": label.capitalize(), "report": _write_report(phrases), "bbox": box}
            found.append(ScoringCase(f"```json\n{json.dumps(answer)}\n```", answer, gold))
    return found


def _write_report(phrases: Sequence[str]) -> str:
    return " ".join(f"{phrase[0].upper()}{phrase[1:]}." for phrase in phrases)


def _draw_box(rng: random.Random) -> list[float]:
    x, y = rng.uniform(0, 0.6), rng.uniform(0, 0.6)
    return [round(side, 3) for side in (x, y, x + rng.uniform(0.1, 0.4), y + rng.uniform(0.1, 0.4))]


def build_reward() -> CombinedReward:
    """Return the reward that is timed."""
    return CombinedReward(
        {
            "label": (ExactMatchReward("label"), 0.4),
            "report": (TokenF1Reward("report", stop_words=True), 0.3),
            "box": (IoUReward("bbox", area_penalty=1.0), 0.3),
        }
    )


def read_and_score(reward: CombinedReward, case: ScoringCase) -> float | None:
    """Return the score of a reply from its text, as an environment reads it."""
    found = parse_reply(case.reply, answer_fields=ANSWER_FIELDS)
    return reward.score(found.value if isinstance(found, ParsedAnswer) else None, case.reference)[0]


def score_new(reward: CombinedReward, case: ScoringCase) -> float | None:
    """Return the score of an answer whose sentences were not read before."""
    negation.read_known_sentence.cache_clear()
    return reward.score(case.answer, case.reference)[0]


def load_gaze_reward() -> Callable[[ScoringCase], float] | None:
    """Return a function that scores a case with gaze-vlm; None if it cannot be had."""
    from tools import install_gaze

    try:
        install_gaze()
        from gaze.verifiers import rewards as theirs
    except (ImportError, subprocess.CalledProcessError) as error:
        print(f"gaze-vlm cannot be installed ({error}): it is left out")
        return None
    parts = [theirs.ExactMatchReward(), theirs.TokenF1Reward(), theirs.IoUReward()]
    reward = theirs.CombinedReward(parts, [0.4, 0.3, 0.3])

    def score(case: ScoringCase) -> float:
        gold = case.reference
        return reward("", case.reply, {"gold": f"{gold['label']} {gold['report']}", "bbox": gold["bbox"]})

    return score


def measure_rates(ways: Mapping[str, Callable[[ScoringCase], Any]], rounds: int) -> dict[str, list[float]]:
    """Score per second of processor time, for each side and round; a first round is not counted."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        given, seconds = draw_cases(seed=number), dict.fromkeys(ways, 0.0)
        for start in range(0, len(given), BATCH):
            for name, way in ways.items():
                seconds[name] += _time_batch(way, given[start : start + BATCH])
        if number:
            for name in ways:
                found[name].append(len(given) / seconds[name])
    return found


def _time_batch(way: Callable[[ScoringCase], Any], given: Sequence[ScoringCase]) -> float:
    fresh = [case._replace(answer=json.loads(json.dumps(case.answer))) for case in given]
    started = time.process_time()
    for case in fresh:
        way(case)
    return time.process_time() - started


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    reward = build_reward()
    ways: dict[str, Callable[[ScoringCase], Any]] = {
        "viewbox": lambda case: reward.score(case.answer, case.reference),
        "viewbox, new sentences": lambda case: score_new(reward, case),
        "viewbox, from the reply": lambda case: read_and_score(reward, case),
    }
    theirs = load_gaze_reward()
    if theirs is not None:
        ways[GAZE] = theirs
    found = measure_rates(ways, rounds)
    print(f"{'scores per second of processor time':<36}{'median':>10}{'least':>10}{'most':>10}")
    for name, values in found.items():
        print(f"{name:<36}{statistics.median(values):>10,.0f}{min(values):>10,.0f}{max(values):>10,.0f}")
    medians = {name: round(statistics.median(values)) for name, values in found.items()}
    words = round(statistics.mean(len(case.answer["report"].split()) for case in draw_cases()), 1)
    ratios = {name: round(medians[name] / medians[GAZE], 2) for name in BARS if theirs is not None}
    passed = all(ratio >= BARS[name] for name, ratio in ratios.items()) if ratios else None
    print(json.dumps({"rounds": rounds, "words_per_report": words, **medians, "ratios": ratios, "passed": passed}))


if __name__ == "__main__":
    main()
