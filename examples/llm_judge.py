"""A reward in which a language model judges the text of an answer, behind any OpenAI-compatible server.

    python examples/llm_judge.py http://127.0.0.1:8000/v1 MODEL

The label is compared exactly; only the wording of the report, which no formula reads, is left to the judge.
"""

import sys

from PIL import Image
from pydantic import BaseModel

import viewbox
from viewbox.rewards import Component
from viewbox.rollouts.judge.reward import JudgeReward


class Report(BaseModel):
    normal: bool
    findings: str


def build_reward(endpoint, model):
    """Half for the label, half for the report; the judge is asked only if the label is right."""
    judge = JudgeReward("findings", endpoint=endpoint, model=model, rubric="Do both reports state the same findings?")
    return viewbox.CombinedReward(
        {
            "label": (viewbox.ExactMatchReward("normal"), 0.5),
            "report": Component(judge, 0.5, needs={"label": 1.0}),
        }
    )


class Films(viewbox.BaseMultiTurnEnv):
    """Report the findings on a film."""

    name = "films"
    answer = Report
    max_turns = 2


def play_one(endpoint, model):
    """One episode with a scripted answer, scored by the judge."""
    env = Films(reward=build_reward(endpoint, model))
    gold = {"normal": False, "findings": "A nodule of 9 mm in the right upper lobe."}
    film = viewbox.ImageRef.of(Image.new("L", (64, 64), 90))
    task = viewbox.Task("film-1", (film,), {"question": "Report the findings."}, gold)
    return env.play(task, lambda messages: '{"normal": false, "findings": "Right upper lobe nodule, 9 mm."}')


if __name__ == "__main__":
    print(dict(play_one(*sys.argv[1:3]).scores.components))
