"""What policies earn in `literature_vqa` without a search: the mean reward of each, on tasks of both splits.

    python benchmarks/literature_without_search.py [TASKS]

`guess` answers at random in the right form. `best_constant` gives, for each kind of question, the answer that is right
most often on these tasks: more than any policy can know beforehand. `by_heart` knows every answer. Each cites the right
articles, which no tool has returned.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable

import numpy as np

from viewbox import make
from viewbox.envs.literature_vqa import LiteratureVQA
from viewbox.envs.literature_vqa.world import UNKNOWN
from viewbox.records import Episode, Task

BAR = 0.4
Policy = Callable[[Task], object]


def score(env: LiteratureVQA, tasks: list[Task], policy: Policy) -> float:
    """Return the mean reward of answers that are given at once."""
    totals = []
    for task in tasks:
        evidence = list(task.reference["evidence"])
        answer = {"answer": policy(task), "evidence": evidence}
        episode = Episode(task, answer=answer, end_reason="answered", terminated=True)
        totals.append(env.score(episode).total or 0.0)
    return round(float(np.mean(totals)), 4)


def list_policies(env: LiteratureVQA, tasks: list[Task]) -> dict[str, Policy]:
    """Return the policies by name."""
    rng = np.random.default_rng(0)
    numbers = {kind: [env.plan(one).answer for one in tasks if is_of(one, kind)] for kind in env.kinds}
    names = [answer for answer in numbers["therapy"] if answer != UNKNOWN]

    def guess(task: Task) -> object:
        kind = task.reference["kind"]
        if kind == "closed":
            return str(rng.choice(["yes", "no"]))
        if kind == "choice":
            return str(rng.choice(task.prompt["choices"]))
        return str(rng.choice(names)) if kind == "text" else int(rng.integers(5, 400))

    def count(task: Task) -> str:
        accepted = task.reference["answer"]
        return (
            "A B C D"[2 * task.prompt["choices"].index(accepted[0])] if isinstance(accepted, tuple) else str(accepted)
        )

    best = {kind: Counter(count(one) for one in tasks if is_of(one, kind)).most_common(1)[0][0] for kind in env.kinds}
    return {
        "always_unknown": lambda task: UNKNOWN,
        "guess": guess,
        "guess_or_unknown": lambda task: UNKNOWN if rng.random() < 0.2 else guess(task),
        "best_constant": lambda task: best[task.metadata["question"]],
        "by_heart": lambda task: env.plan(task).answer,
    }


def is_of(task: Task, kind: str) -> bool:
    """Return whether a task asks this kind of question."""
    return bool(task.metadata["question"] == kind)


def main() -> None:
    """Print the mean reward of each policy, and of the best one."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 700
    figures: dict[str, dict[str, float]] = {}
    for split in ("train", "test"):
        env = make("literature_vqa", split=split)
        assert isinstance(env, LiteratureVQA)
        tasks = list(env.tasks[:count])
        figures[split] = {name: score(env, tasks, policy) for name, policy in list_policies(env, tasks).items()}
    best = max(value for some in figures.values() for value in some.values())
    print(json.dumps({"tasks": count, **figures, "best": best, "bar": BAR, "met": best < BAR}))
    sys.exit(best >= BAR)


if __name__ == "__main__":
    main()
