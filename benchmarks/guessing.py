"""What random guesses of the right form earn in `chest_xray`: the mean reward on 400 tasks of each form of answer.

    python benchmarks/guessing.py [TASKS]

Answers are given at once, so nothing is drawn. The last line is one JSON object; exit code 1 unless both means are
below 0.25.
"""

import json
import sys
from typing import Any

import numpy as np

from viewbox import make
from viewbox.envs.chest_xray.anatomy import SIDES
from viewbox.envs.chest_xray.cases import FOCAL, NOTHING
from viewbox.records import Episode, Task

BAR = 0.25
EVERY = [f"{side} {label}" for label in FOCAL for side in SIDES] + ["cardiomegaly"]


def guess(task: Task, rng: np.random.Generator) -> dict[str, Any]:
    """Return the fields of an answer of the right form, drawn at random."""
    kind = task.metadata["question"]
    if choices := task.prompt.get("choices"):
        return {"answer": str(rng.choice(choices))}
    if kind == "presence":
        return {"answer": str(rng.choice(["yes", "no"]))}
    if kind == "size":
        return {"answer": round(float(rng.uniform(5, 100)), 1)}
    if kind == "place":
        (x1, x2), (y1, y2) = sorted(rng.random(2)), sorted(rng.random(2))
        return {"bbox": [x1, y1, x2 + 1e-3 if x2 < 0.99 else x2, y2]}
    named = [str(one) for one in rng.permutation(EVERY)[: rng.integers(4)]]
    return {"findings": named} if kind == "findings" else {"answer": ", ".join(named) or NOTHING}


def write_text(said: dict[str, Any]) -> str:
    """Return the guess as plain text."""
    return str(said.get("answer", "")) or ", ".join(said.get("findings", [])) or NOTHING


def score_guesses(form: str, count: int) -> float:
    """Return the mean reward of a guess for each of the first tasks."""
    env = make("chest_xray", answer_form=form, boundary=False)
    rng, totals = np.random.default_rng(0), []
    for task in env.tasks[:count]:
        said = guess(task, rng)
        answer = env.read_answer(write_text(said) if form == "text" else json.dumps(said), task)
        episode = Episode(task, answer=answer, end_reason="answered", terminated=True)
        totals.append(0.0 if answer is None else env.score(episode).total or 0.0)
    return round(float(np.mean(totals)), 4)


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    means = {form: score_guesses(form, count) for form in ("json", "text")}
    print(json.dumps({"tasks": count, **means, "bar": BAR, "passed": max(means.values()) < BAR}))
    return 0 if max(means.values()) < BAR else 1


if __name__ == "__main__":
    sys.exit(main())
