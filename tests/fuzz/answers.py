"""Answers and references against every reward: scores are None or in [0, 1], time is linear, none raises.

But for what is wrong with a reference: no answer can be right then.
"""

import json
import math
import random
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import ODD_TEXTS, mutate_text, mutate_value, write_json
from viewbox import rewards
from viewbox.errors import Unmeasurable
from viewbox.records import Episode, Task

CPU_SECONDS = 2.0
MAX_ANSWER = 400_000  # characters with the reference, escapes and all: a reply has at most 64 KiB
TEXTS = (
    "Nodule in the left upper lobe, not seen before.", "No evidence of pneumothorax or effusion.",
    "The left lung is clear; there isn't any nodule, but an opacity without air.", "neither tumour nor cyst", "seven",
    "-7.5 mm", "HER2(-)", "１２，５",
)  # fmt: skip
BOX = [0, 0, 1, 1]
PAIRS: tuple[tuple[Any, Any], ...] = (
    ({"label": "seven", "bbox": [0.1, 0.1, 0.5, 0.5]}, {"label": "seven", "bbox": [0.1, 0.1, 0.4, 0.5]}),
    ({"label": ["a", "no b"], "confidence": 0.7}, {"label": ["a", "c"]}),
    ({"label": "no nodule", "bbox": {"x1": 0, "y1": 0, "x2": 1, "y2": 1}}, {"label": "nodule", "bbox": BOX}),
    ({"label": ["a", "b"], "bbox": [BOX, {"box": BOX, "label": "a"}]}, {"label": {"a": 1}, "bbox": [BOX]}),
)


@cache
def get_rewards() -> tuple[Any, ...]:
    exact, overlap = rewards.ExactMatchReward("label"), rewards.IoUReward("bbox")
    needs = rewards.Component(overlap, weight=0.5, needs={"label": 0.5})
    return (
        exact, rewards.ExactMatchReward("label", tolerance=0.5), rewards.TokenF1Reward("label"),
        rewards.TokenF1Reward("label", stop_words=True), rewards.LabelSetF1Reward("label"),
        rewards.RankingReward("label"), overlap, rewards.IoUReward("bbox", threshold=0.5),
        rewards.IoUReward("bbox", box_key="box", label_key="label"), rewards.BrierReward(of=exact),
        rewards.CombinedReward({"label": rewards.Component(exact, weight=0.5), "box": needs}),
    )  # fmt: skip


def make_case(chance: random.Random) -> bytes:
    answer, reference = chance.choice(PAIRS)
    if chance.random() < 0.5:
        texts = [mutate_text(chance, chance.choice(TEXTS), (*TEXTS, *ODD_TEXTS)) for _ in range(2)]
        repeats = chance.choice([1, 1, 1, 10, 2000])
        texts = [(text * repeats)[:60_000] for text in texts]
        answer, reference = {**answer, "label": texts[0]}, {**reference, "label": texts[chance.randrange(2)]}
    if chance.random() < 0.7:
        answer = mutate_value(chance, answer)
    if chance.random() < 0.2:
        reference = mutate_value(chance, reference)
    return write_json({"answer": answer, "reference": reference}, "{}", MAX_ANSWER).encode()


def check_case(content: bytes, folder: Path) -> None:
    case = json.loads(content)
    answer, reference = case.get("answer"), case.get("reference")
    answer, reference = (value if isinstance(value, dict) else {"label": value} for value in (answer, reference))
    for reward in get_rewards():
        for given in (answer, None):
            with suppress(Unmeasurable):  # said of the reference
                check_score(reward(given, reference), reward)
        rewards.explain_reward(reward, answer, reference)
    try:
        episode = Episode(Task("t", reference=reference), answer=answer, end_reason="answered")
    except RecursionError:  # neither a reply nor a line of a run may be so deep
        return
    for whole in (rewards.FormatReward(), rewards.ToolUseReward(at_least=1)):
        check_score(whole.of_episode(episode), whole)


def check_score(score: float | None, reward: Any) -> None:
    assert score is None or (math.isfinite(score) and 0 <= score <= 1), (reward, score)
