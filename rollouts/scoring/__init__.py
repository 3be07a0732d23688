"""Scores and figures of saved episodes: `rescore.score_run` scores them again, `summary.summarize` summarizes them.

`metrics` holds the rates that training logs, `table` the intervals, `filters` the language of `--where`.
"""

RULE = "mean over tasks"  # of the mean of each task's episodes: the head of every table of means
INTERVALS = "in brackets: 95 % intervals over tasks; differences are paired"
MIN_TASKS = 20  # fewer are marked, and too few for a verdict
