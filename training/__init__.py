"""Turns episodes into weights: `run.Run` is one run, started by `train.py` after `checks.preflight.check`.

`grpo` and `sft` hold the methods, `checks` what is refused before a run, `reporting` what a run tells, `memory`
how much memory it will need; the other files load, evaluate, save and resume.
"""

from ..engines.hf.quantization import hide_bitsandbytes

hide_bitsandbytes()
