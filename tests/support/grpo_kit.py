"""What the tests of GRPO share: a trainer of a tiny random model on an environment, its batches, and gradients."""

import torch
from datasets import Dataset
from trl import GRPOConfig

from viewbox.configs.sections import RolloutSection
from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer
from viewbox.training.reporting.callbacks import MetricsFile
from viewbox.training.reporting.report import ProgressPrinter

GENERATION = {"slots": 8, "max_reply_tokens": 8, "max_completion_tokens": 400}


def make_trainer(kit, folder, env, *, cls=EpisodeGRPOTrainer, model=None, processor=None, generation=None, own=None,
                 peft_config=None, **given):  # fmt: skip
    """A trainer with 8 episodes a step in groups of 4; `own` are viewbox's settings, `given` those of `GRPOConfig`."""
    arguments = {
        "per_device_train_batch_size": 8, "num_generations": 4, "max_steps": 3, "learning_rate": 1e-3,
        "lr_scheduler_type": "constant", "beta": 0.0, "logging_steps": 1, "save_strategy": "no",
        "gradient_checkpointing": False,
    }  # fmt: skip
    fixed = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "temperature": 1.0}
    fixed |= {"remove_unused_columns": False, "dataloader_pin_memory": False}
    count = min(len(env.tasks), 64)
    return cls(
        model=kit.model() if model is None else model,
        args=GRPOConfig(output_dir=str(folder / "checkpoints"), **fixed | arguments | given),
        train_dataset=Dataset.from_dict({"prompt": [""] * count, "task": list(range(count))}),
        processing_class=kit.processor if processor is None else processor,
        peft_config=peft_config,
        callbacks=[MetricsFile(folder / "metrics.jsonl", ProgressPrinter())],
        env=env,
        rollout=RolloutSection.read(GENERATION | {"temperature": given.get("temperature", 1.0)} | (generation or {})),
        episodes_folder=folder / "episodes",
        **{"episodes_per_step": 2} | (own or {}),
    )


def train_and_read_steps(trainer, folder):
    """Trains; returns the metrics of every step."""
    trainer.train()
    return [line for line in read_metrics(folder / "metrics.jsonl") if "grad_norm" in line]


def generate_batch(trainer, tasks=(0, 1), group=4):
    """A batch as TRL asks for it; also prepares the trainer for `_compute_loss` outside its loop."""
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer._generate_and_score_completions([{"task": i, "prompt": ""} for i in tasks for _ in range(group)])


def set_loss(trainer, loss_type="dapo", importance_sampling_level="token", delta=None, off_policy_mask_threshold=None):
    """Set what the loss of a trainer is, so that several share its batch."""
    trainer.loss_type, trainer.importance_sampling_level = loss_type, importance_sampling_level
    trainer.args.delta, trainer.off_policy_mask_threshold = delta, off_policy_mask_threshold


def compute_gradient(trainer, loss):
    """The gradient of a loss as one vector over all weights. Several losses may share a forward."""
    trainer.model.zero_grad()
    loss.backward(retain_graph=True)
    return read_gradient(trainer)


def read_gradient(trainer):
    """The gradient that the weights hold, as one vector."""
    weights = trainer.model.parameters()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in weights])
