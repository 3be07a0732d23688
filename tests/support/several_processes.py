"""One of several processes that train or evaluate together, with the model's own engine.

Each `main` takes the folder of a model, what it does otherwise, and last a folder for what each process found.
"""

import json
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig

from viewbox.engines.hf import Settings
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.envs.digits import Digits
from viewbox.rewards import CombinedReward, ExactMatchReward
from viewbox.training import held_out
from viewbox.training.generation import Sampler
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer

PLAIN = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
PLAIN |= {"gradient_checkpointing": False, "remove_unused_columns": False, "dataloader_pin_memory": False}


def read_model(folder):
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)


def make_trainer(cls, folder, out, env, sizes, batch, credit="episode", **given):
    count = len(env.tasks)
    return cls(
        model=read_model(folder),
        args=GRPOConfig(out, per_device_train_batch_size=batch, num_generations=4, **PLAIN, **given),
        train_dataset=Dataset.from_dict({"prompt": [""] * count, "task": list(range(count))}),
        processing_class=AutoProcessor.from_pretrained(folder),
        env=env,
        rollout=Settings(**sizes),
        credit=credit,
    )


# ---------------------------------------------------------------------- who plays what
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
    gradients = []
    for learned in (trainer._find_learned, lambda batch: torch.ones(len(batch["advantages"]), dtype=torch.bool)):
        trainer._find_learned = learned
        model.zero_grad()
        trainer.accelerator.backward(trainer.compute_loss(model, inputs))
        gradients.append(torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()]))
    del trainer._find_learned
    return float((gradients[0] - gradients[1]).norm() / gradients[1].norm())


def train(argv):
    """Two steps of GRPO, with so many episodes in a batch."""
    folder, batch, out = argv
    sizes = {"slots": 8, "max_reply_tokens": 3, "max_completion_tokens": 200}
    env = Digits(num_tasks=60, max_turns=1)
    trainer = make_trainer(Recording, folder, out, env, sizes, int(batch), logging_steps=1, max_steps=2)
    trainer.train()
    line = trainer.state.log_history[0]
    found = {"rounds": trainer.rounds, "given": trainer.player.num_played, "played": line["episodes/played"]}
    found["apart"] = [compare_gradients(trainer, tokens) for tokens in (None, 400)]
    Path(out, f"{trainer.accelerator.process_index}.json").write_text(json.dumps(found))


# ---------------------------------------------------------------------- a group that lies on both
class Steps:
    """Each reply earns or loses a little, by the tokens of the episode."""

    name = "steps"

    def of_turns(self, episode):
        number = sum(episode.tokens.completion_ids)
        return [0.1, *((number >> turn) % 4 / 10 - 0.1 for turn in range(episode.num_turns - 1))]

    def of_episode(self, episode):
        return min(1.0, max(0.0, sum(self.of_turns(episode))))


REWARD = CombinedReward({"label": (ExactMatchReward("label"), 0.7), "steps": (Steps(), 0.3)})


def learn_by_credit(argv):
    """One step of GRPO by this credit; finds the episodes and the gradient."""
    folder, credit, out = argv
    sizes = {"slots": 4, "max_reply_tokens": 6, "max_completion_tokens": 300}
    given = {"max_steps": 1, "optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant"}
    env = Digits(num_tasks=8, max_turns=4, reward=REWARD)
    trainer = make_trainer(EpisodeGRPOTrainer, folder, out, env, sizes, 2, credit, max_grad_norm=0.0, **given)
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    after = trainer.accelerator.unwrap_model(trainer.model).parameters()
    gradient = torch.cat([(old - new.detach()).flatten() for old, new in zip(before, after, strict=True)])
    found = {"episodes": trainer.player.latest_episodes, "gradient": gradient}
    torch.save(found, f"{out}/{trainer.accelerator.process_index}.pt")


# ---------------------------------------------------------------------- the same held-out tasks
def evaluate_tasks(argv):
    folder, out = argv
    processes, model, played, play_many = PartialState(cpu=True), read_model(folder), [], held_out.play_many
    tokens = ChatTokens(AutoProcessor.from_pretrained(folder), model.config, model.generation_config)

    async def count(*args, **kwargs):
        async for episode in play_many(*args, **kwargs):
            played.append(episode.info["index"])
            yield episode

    held_out.play_many = count
    rollout = Settings(slots=4, max_reply_tokens=6, max_completion_tokens=300)
    env = Digits(num_tasks=8, max_turns=2, split="test")
    figures, episodes = held_out.evaluate(env, model, Sampler(tokens, rollout), tasks=7, seed=3)
    texts = [[turn.content for turn in episode.turns] for episode in episodes]
    found = {"played": sorted(played), "figures": figures, "texts": texts}
    Path(out, f"{processes.process_index}.json").write_text(json.dumps(found))
