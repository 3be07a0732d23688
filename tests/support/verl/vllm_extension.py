"""verl's own worker extension of vLLM, on a CPU.

vLLM on a CPU packs the weights of linear layers for oneDNN and leaves an empty tensor in their place
(`model_executor/layers/linear.py:215` of 0.24), into which verl's `load_weights` cannot write. Without it they stay.
"""

import vllm._custom_ops
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

vllm._custom_ops._supports_onednn = False


class Extension(vLLMColocateWorkerExtension): ...
