"""How much of what LoRA adapters have learnt is in the policy that samples, and in the model that is saved.

    python benchmarks/adapters_kept.py [--steps 40]        (a minute or two on a CPU; the last line is one JSON object)

The shipped model in bfloat16, with the adapters and the learning rate of configs/qwen3_vl_4b_lora.yaml, learns from
its own episodes, one update a step. After each step, the log-probs of its tokens are compared with those before the
first: how much of the trainer's change shows in

- `engine`: the model inside `use_for_generation`;
- `server`: what `iterate_weights` sends to a server that keeps bfloat16, where sums are rounded by chance;
- `rounded`: adapters added to the weights and rounded to the nearest, as before;
- `saved`: the model that a run saves.

A share is ⟨its change, the trainer's⟩ / ⟨the trainer's, the trainer's⟩. All forwards are in float32, so that only the
weights differ. The bar is 0.95 for the engine and the saved model at every step.
"""

import argparse
import copy
import json
import sys
from typing import Any

import torch
from accelerate import Accelerator
from peft import get_peft_model

from viewbox.configs.schema import load
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.quantization import merge_adapters
from viewbox.engines.vllm.weights import iterate_weights
from viewbox.training.generation import Sampler, use_for_generation
from viewbox.training.grpo.batch import add_pixels, build_model_inputs, collate
from viewbox.training.held_out import evaluate
from viewbox.training.plan import Plan
from viewbox.training.precision import build_lora_config

BAR = 0.95
EPISODES = 32


def compute_log_probs(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Return the log-probs of the sampled tokens of a batch, one after the other."""
    start = batch["prompt_ids"].shape[1] - 1
    logits = model(**build_model_inputs(batch), use_cache=False).logits[:, start:-1].float()
    logps = logits.log_softmax(-1).gather(2, batch["completion_ids"][:, :, None])[:, :, 0]
    return logps[batch["tool_mask"].bool()]


def build_rounded(model: Any) -> Any:
    """Return the model with its adapters added, rounded to the nearest number of two bytes."""
    return copy.deepcopy(model).merge_and_unload().float()


def build_served(model: Any, accelerator: Accelerator, bare: Any, step: int) -> Any:
    """Return the model of a server that keeps two bytes."""
    served = copy.deepcopy(bare)
    with use_for_generation(accelerator, model) as player:
        served.load_state_dict(dict(iterate_weights(player, torch.bfloat16, step)), strict=False)
    return served.float()


def measure(steps: int, episodes: int = EPISODES) -> list[dict[str, float]]:
    """Return the shares after each step."""
    settings = load("qwen3_vl_4b_lora")
    run = load("quickstart", ["rollout.temperature=1.0"])
    _, env, base, processor = Plan(run).load()
    base = base.to(torch.bfloat16)
    tokens = ChatTokens(processor, base.config)
    rollout = run.rollout.model_copy(update={"slots": episodes, "max_completion_tokens": 400})
    _, played = evaluate(env, base, Sampler(tokens, rollout), tasks=episodes, seed=0)
    rows = [episode.tokens for episode in played if episode.tokens is not None]
    rewards = torch.tensor([episode.scores.total if episode.scores else 0.0 for episode in played])
    batch = add_pixels(collate(rows, tokens), rows, tokens)
    advantages = ((rewards - rewards.mean()) / rewards.std()).repeat_interleave(batch["tool_mask"].sum(1))

    torch.manual_seed(0)
    bare = copy.deepcopy(base)
    model = get_peft_model(base.requires_grad_(False), build_lora_config(settings.lora)).eval()
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    rate, warmup = (float(settings.train.arguments[name]) for name in ("learning_rate", "warmup_steps"))
    exact = copy.deepcopy(model).float()  # the trainer: its gradients, and the log-probs that are compared with
    weights = [weight for weight in exact.parameters() if weight.requires_grad]
    pairs = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=rate, weight_decay=0.0)
    with torch.no_grad():
        before = compute_log_probs(exact, batch)
    figures = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, step / warmup)
        loss = -(advantages * compute_log_probs(exact, batch)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        for weight, learnt in zip(pairs, weights, strict=True):
            weight.data.copy_(learnt.data)
        with use_for_generation(accelerator, model) as player:
            engine = copy.deepcopy(player).float()
        sides = {"engine": engine, "server": build_served(model, accelerator, bare, step)}
        sides |= {"rounded": build_rounded(model), "saved": merge_adapters(copy.deepcopy(model))}
        with torch.no_grad():
            change = compute_log_probs(exact, batch) - before
            shares = {
                name: ((compute_log_probs(side, batch) - before) @ change / (change @ change)).item()
                for name, side in sides.items()
            }
        figures.append({"step": step, "change": change.abs().mean().item()} | shares)
        print(json.dumps(figures[-1]), flush=True)
    return figures


def judge(figures: list[dict[str, float]]) -> dict[str, Any]:
    """Return the smallest share of each side, and whether those with a bar reach it."""
    least = {name: min(row[name] for row in figures) for name in ("engine", "server", "rounded", "saved")}
    most = max(max(row["engine"], row["saved"]) for row in figures)
    return {"least": least, "bar": BAR, "met": min(least["engine"], least["saved"]) >= BAR and most <= 2 - BAR}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    torch.set_num_threads(1)
    rows = measure(parser.parse_args().steps)
    verdict = judge(rows)
    print(json.dumps(verdict | {"steps": rows}))
    sys.exit(not verdict["met"])
