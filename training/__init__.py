"""Turns episodes into weights: `run.Run` is one run, started by `train.py` after `preflight.check`.

`grpo` and `sft` hold the two methods; the other files resume, save, evaluate, watch and report a run.
"""
