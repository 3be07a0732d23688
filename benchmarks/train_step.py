"""Processor time of a step of GRPO in viewbox and in TRL 1.16's own trainer, which plays and learns the quickstart.

    python benchmarks/train_step.py [--steps 7] [--rounds 2] [--model FOLDER ...]
    python benchmarks/train_step.py --learn 100        (both train to the end, and play 200 held-out tasks)

Both have the same environment, model, arguments of TRL and number of threads (one). TRL's trainer plays by its own loop
(`environment_factory`, `viewbox.integrations.trl_rollouts`). The sides run in turns, each in a process of its own; a
step counts from the end of the one before, and the first two are left out: they load what later ones have. So that both
stay at one policy, they learn next to nothing, unless `--learn` is given. What a step costs depends on the policy
(`--model`): the shipped one looks seldom; one that the quickstart has trained looks always, and most of its groups are
right throughout. A side alone (`--side viewbox`) is for a comparison of two commits.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from viewbox.configs import schema
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.integrations.trl_rollouts import TRLRollouts
from viewbox.training.findings import check
from viewbox.training.generation import Sampler
from viewbox.training.held_out import evaluate
from viewbox.training.plan import Plan
from viewbox.training.resume import RunLocation
from viewbox.training.run import Run

BAR = 2.5
SIDES = ("trl", "viewbox")
WARM_UP = 2  # steps that are not counted


class StepTimer(TrainerCallback):
    """The processor time of this process at the end of every step."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append(time.process_time())


def build_trainer(side: str, run: Run) -> Any:
    """Return the trainer of a side, on the model of a run."""
    if side == "viewbox":
        return run.build_grpo_trainer()
    rollouts = TRLRollouts(run.env)
    arguments, rollout = run.plan.arguments, run.config.rollout
    arguments.max_tool_calling_iterations = rollouts.max_tool_calling_iterations
    arguments.generation_kwargs = {"max_new_tokens": rollout.max_reply_tokens}
    return GRPOTrainer(
        run.model,
        args=arguments,
        train_dataset=rollouts.build_dataset(),
        processing_class=run.processor,
        **rollouts.arguments,
    )


def run_side(side: str, steps: int, model: str, learn: bool) -> dict[str, Any]:
    """Return the processor seconds of each step, and rewards; with `learn`, also on held-out tasks at the end."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        more = [f"train.max_steps={steps}", "train.save_strategy=no", "log.eval_tasks=0", "model.threads=1"]
        if not learn:
            more.append("train.learning_rate=1e-9")
        plan = check(Plan(schema.load("quickstart", [*more, f"log.dir={folder}", f"model.name={model}"])))
        run = Run(plan, RunLocation(Path(folder), None))
        trainer, timer = build_trainer(side, run), StepTimer()
        trainer.add_callback(timer)
        trainer.train()
        seconds = [end - start for start, end in zip(timer.ends[WARM_UP - 1 :], timer.ends[WARM_UP:], strict=False)]
        rewards = [line["reward"] for line in trainer.state.log_history if "reward" in line]
        found: dict[str, Any] = {"seconds": seconds, "reward": rewards}
        if learn:
            tokens = ChatTokens(run.processor, run.model.config, run.model.generation_config)
            sampler = Sampler(tokens, plan.config.rollout)
            figures, _ = evaluate(run.held_out, trainer.model.eval(), sampler, tasks=200, seed=0)
            found["held_out"] = figures["reward"]
    return found


def run_in_process(side: str, options: argparse.Namespace, model: str) -> dict[str, Any]:
    steps, more = (options.learn, ["--learn", str(options.learn)]) if options.learn else (options.steps, [])
    command = [sys.executable, __file__, "--side", side, "--steps", str(steps), "--model", model, *more]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(options: argparse.Namespace, model: str) -> dict[str, Any]:
    """Return the figures of both sides with a model, in turns."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for number in range(options.rounds):
        for side in SIDES[:: (-1) ** number]:
            found[side].append(run_in_process(side, options, model))
    medians = {side: [statistics.median(one["seconds"]) for one in runs] for side, runs in found.items()}
    ratios = [trl / ours for trl, ours in zip(medians["trl"], medians["viewbox"], strict=True)]
    held_out = {side: [one["held_out"] for one in runs if "held_out" in one] for side, runs in found.items()}
    ratio = statistics.median(ratios)
    figures = {"ratio": ratio, "met": ratio >= BAR, "ratios": ratios, "seconds": medians}
    return figures | ({"held_out": held_out} if options.learn else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--learn", type=int, help="steps after which held-out tasks are played")
    parser.add_argument("--model", nargs="+", default=["package:tiny_viewer"])
    parser.add_argument("--side", choices=SIDES)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(run_side(options.side, options.steps, options.model[0], bool(options.learn))))
        return 0
    rows = {model: compare(options, model) for model in options.model}
    print(json.dumps(rows))
    return int(not all(row["met"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
