"""How often a 95 % interval of viewbox holds the true mean: few tasks, means near 0 and 1, one or four samples a task.

    python benchmarks/coverage.py            # minutes on one core; --trials 200 for a look

`spread` is the share of the variance that lies between tasks (a beta-binomial). Rows "a → b" are paired differences.
"""

import argparse

import numpy as np

from viewbox.rollouts.scoring.table import Table

TASKS = (5, 10, 20, 30, 50, 100)


def draw(rng, mean, tasks, samples, spread):
    """Return the mean of each task, (tasks,)."""
    chance = np.full(tasks, mean)
    if spread:
        chance = rng.beta(mean * (1 - spread) / spread, (1 - mean) * (1 - spread) / spread, tasks)
    return rng.binomial(samples, chance) / samples


def measure(rng, old, new, tasks, samples, spread, trials):
    inside = 0
    for _ in range(trials):
        table = Table()
        after = draw(rng, new, tasks, samples, spread)
        before = after if old is None else draw(rng, old, tasks, samples, spread)
        for task in range(tasks):
            table.add(str(task), {"old/": before[task], "new/": after[task]})
        found = table.compute_intervals(change=("old", "new"))["new/" if old is None else "change/"]
        inside += found.low <= new - (old or 0.0) <= found.high
    return inside / trials


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2000)
    trials = parser.parse_args().trials
    rng, worst = np.random.default_rng(0), 1.0
    print("mean          samples  spread  " + "  ".join(f"{tasks:>4}t" for tasks in TASKS))
    means = [(None, 0.98), (None, 0.95), (None, 0.9), (None, 0.8), (None, 0.5)]
    for old, new in [*means, (0.95, 0.95), (0.8, 0.8), (0.95, 0.8), (0.98, 0.9), (0.5, 0.7)]:
        for samples, spread in ((1, 0.0), (4, 0.0), (4, 0.3), (4, 0.7)):
            found = [measure(rng, old, new, tasks, samples, spread, trials) for tasks in TASKS]
            worst = min(worst, *found)
            name = f"{new}" if old is None else f"{old} → {new}"
            print(f"{name:<12}  {samples:>7}  {spread:>6}  " + "  ".join(f"{one:.3f}" for one in found))
    print(f"lowest: {worst:.3f}")


if __name__ == "__main__":
    main()
