"""One of two processes that learn one step of GRPO from a group that lies on both, by the credit that is given."""

import torch
from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig

from viewbox.engines.hf import Settings
from viewbox.envs.digits import Digits
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer


class Steps:
    """Each reply earns or loses a little, by the tokens of the episode."""

    name = "steps"

    def of_turns(self, episode):
        number = sum(episode.tokens.completion_ids)
        return [0.1, *((number >> turn) % 4 / 10 - 0.1 for turn in range(episode.num_turns - 1))]

    def of_episode(self, episode):
        return min(1.0, max(0.0, sum(self.of_turns(episode))))


REWARD = CombinedReward({"label": (ExactMatchReward("label"), 0.7), "steps": (Steps(), 0.3)})


def main(argv):
    """`argv`: the folder of a model, the credit, and a folder for the episodes and the gradient."""
    folder, credit, out = argv
    settings = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
    settings |= {"gradient_checkpointing": False, "remove_unused_columns": False, "dataloader_pin_memory": False}
    settings |= {"max_steps": 1, "optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant"}
    trainer = EpisodeGRPOTrainer(
        model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
        args=GRPOConfig(out, per_device_train_batch_size=2, num_generations=4, max_grad_norm=0.0, **settings),
        train_dataset=Dataset.from_dict({"prompt": [""] * 8, "task": list(range(8))}),
        processing_class=AutoProcessor.from_pretrained(folder),
        env=Digits(num_tasks=8, max_turns=4, reward=REWARD),
        rollout=Settings(slots=4, max_reply_tokens=6, max_completion_tokens=300),
        credit=credit,
    )
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    after = trainer.accelerator.unwrap_model(trainer.model).parameters()
    gradient = torch.cat([(old - new.detach()).flatten() for old, new in zip(before, after, strict=True)])
    found = {"episodes": trainer.player.latest_episodes, "gradient": gradient}
    torch.save(found, f"{out}/{trainer.accelerator.process_index}.pt")
