"""Scores and figures of saved episodes: `rescore.score_run` scores them again, `summary.summarize` summarizes them.

`metrics` holds the rates that training logs, `table` the intervals, `filters` the language of `--where`.
"""
