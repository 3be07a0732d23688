"""One of two processes that train by GRPO with the model's own engine."""

import json
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig

from viewbox.engines.hf import Settings
from viewbox.envs.digits import Digits
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer


class Recording(EpisodeGRPOTrainer):
    rounds = ()

    def _play_tasks(self, *args):
        episodes = super()._play_tasks(*args)
        self.rounds = (*self.rounds, [(e.task.metadata["seed"], e.info["number"]) for e in episodes])
        return episodes


def compare_gradients(trainer, tokens):
    """How far the gradient is from one for which every episode goes through the model, relative to it. One process has
    two episodes that teach, the other five; they are synchronized in the last part of a batch."""
    model, rank = trainer.model_wrapped, trainer.accelerator.process_index
    trainer.model.train()
    trainer.micro_batch_tokens = tokens
    inputs = trainer._generate_and_score_completions([{"task": i // 4, "prompt": ""} for i in range(8)])
    inputs["advantages"] = torch.tensor([1.0, 0, 0, -2, 0, 0, 0, 0] if rank else [0.0, 0, 0, 1, 1, -1, 2, -3])
    found = []
    for learned in (trainer._find_learned, lambda batch: torch.ones(len(batch["advantages"]), dtype=torch.bool)):
        trainer._find_learned = learned
        model.zero_grad()
        trainer.accelerator.backward(trainer.compute_loss(model, inputs))
        found.append(torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()]))
    del trainer._find_learned
    return float((found[0] - found[1]).norm() / found[1].norm())


def main(argv):
    """`argv`: the folder of a model, the episodes of a batch, and a folder for what each process found."""
    folder, batch, out = argv
    settings = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    settings |= {"logging_steps": 1, "max_steps": 2}
    settings |= {"gradient_checkpointing": False, "remove_unused_columns": False, "dataloader_pin_memory": False}
    trainer = Recording(
        model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
        args=GRPOConfig(out, per_device_train_batch_size=int(batch), num_generations=4, **settings),
        train_dataset=Dataset.from_dict({"prompt": [""] * 60, "task": list(range(60))}),
        processing_class=AutoProcessor.from_pretrained(folder),
        env=Digits(num_tasks=60, max_turns=1),
        rollout=Settings(slots=8, max_reply_tokens=3, max_completion_tokens=200),
    )
    trainer.train()
    line = trainer.state.log_history[0]
    found = {"rounds": trainer.rounds, "given": trainer.player.num_played, "played": line["episodes/played"]}
    found["apart"] = [compare_gradients(trainer, tokens) for tokens in (None, 400)]
    Path(out, f"{trainer.accelerator.process_index}.json").write_text(json.dumps(found))
