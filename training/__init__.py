"""Turns episodes into weights: `plan.Plan` is a run before it starts, `findings.check` asks whether it will run, and
`run.Run` runs it.

`grpo` and `sft` hold the methods, `reporting` what a run tells, `memory` how much memory it will need; the other files
load, evaluate, save and resume.
"""

from ..engines.hf.quantization import hide_bitsandbytes

hide_bitsandbytes()
