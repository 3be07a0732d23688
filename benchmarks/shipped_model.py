"""Measures the shipped model on held-out tasks of the quickstart: alone, or after a script made the right zoom.

    python benchmarks/shipped_model.py [TASKS]        (default: 400)

Both are measured with sampling and greedily (T = 0). The last line is one JSON object.
"""

import json
import sys

from viewbox.configs import schema
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.training.generation import Sampler
from viewbox.training.held_out import evaluate
from viewbox.training.plan import Plan

KEYS = ("reward", "rewards/label/mean", "rewards/box/mean", "tools/rate", "replies/well_formed")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    quickstart = schema.load("quickstart")
    policy = Plan(quickstart).load()
    env, model, processor = policy.held_out, policy.model, policy.processor
    rollout = quickstart.rollout
    found = {}
    for temperature in (1.0, 0.0):
        for oracle in (False, True):
            played = rollout.model_copy(update={"temperature": temperature})
            tokens = ChatTokens(processor, model.config, model.generation_config)
            figures, _ = evaluate(env, model, Sampler(tokens, played), tasks=count, seed=0, oracle=oracle)
            name = f"{'right zoom first' if oracle else 'alone'}, T = {temperature:g}"
            found[name] = {key: round(figures[key], 3) for key in KEYS}
            print(f"{name}: {found[name]}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
