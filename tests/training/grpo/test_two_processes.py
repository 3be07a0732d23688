"""GRPO in two real processes: rounds of resampling that differ between them neither wait, nor share tasks or seeds."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig

from viewbox.envs.adapters.trl import TRLReward
from viewbox.records import Reply
from viewbox.envs.digits import Digits, viewer
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer


class Thirds(Digits):
    "Half a group fails on every third task; on the others all are right."

    async def step(self, state, reply_):
        fails = state.task.metadata["seed"] % 3 == 0 and state.seed % 2
        return await super().step(state, Reply("nothing" if fails else viewer.write_answer(self, state.task)))


class Recording(EpisodeGRPOTrainer):
    rounds = ()

    def _play_tasks(self, *args):
        episodes = super()._play_tasks(*args)
        self.rounds = (*self.rounds, [(e.task.metadata["seed"], e.info["number"]) for e in episodes])
        return episodes


folder, batch, out = sys.argv[1:]
env = Thirds(num_tasks=60, max_turns=1)
settings = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}
settings |= {"logging_steps": 1, "max_steps": 2}
settings |= {"gradient_checkpointing": False, "remove_unused_columns": False, "dataloader_pin_memory": False}
trainer = Recording(
    model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
    reward_funcs=TRLReward(env),
    args=GRPOConfig(out, per_device_train_batch_size=int(batch), num_generations=4, **settings),
    train_dataset=Dataset.from_dict({"prompt": [""] * 60, "task": list(range(60))}),
    processing_class=AutoProcessor.from_pretrained(folder),
    env=env,
    generation={"slots": 8, "max_reply_tokens": 3, "max_completion_tokens": 200},
    dynamic_sampling_rounds=3,
)
trainer.train()
line = trainer.state.log_history[0]
found = {"rounds": trainer.rounds, "given": trainer._played, "played": line["episodes/played"]}
Path(out, f"{trainer.accelerator.process_index}.json").write_text(json.dumps(found))
"""


@pytest.fixture
def launched(tmp_path, tiny_folder):
    """Runs the script in two processes with so many episodes each: (what they wrote, stderr)."""

    def run(batch):
        (tmp_path / "two.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
        command += [str(tmp_path / "two.py"), str(tiny_folder), str(batch), str(tmp_path)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        return [json.loads(path.read_text()) for path in sorted(tmp_path.glob("[01].json"))], done.stderr

    return run


def test_processes_resample_their_own_groups_with_tasks_and_seeds_of_their_own(launched):
    found, said = launched(8)
    assert len(found) == 2, said
    assert found[0]["given"] == found[1]["given"] == 2 * (1 + 3) * 16
    numbers = [number for one in found for play in one["rounds"] for _, number in play]
    assert len(numbers) == len(set(numbers))
    sizes = [[len(play) for play in one["rounds"]] for one in found]
    assert sizes[0] != sizes[1]  # or this says nothing
    assert found[0]["played"] == found[1]["played"] == sum(number < 64 for number in numbers)
    tasks = [play[k][0] for one in found for play in one["rounds"] if play[0][1] < 64 for k in range(0, len(play), 4)]
    assert len(tasks) == len(set(tasks))


def test_parts_of_groups_are_refused_at_the_start(launched):
    found, said = launched(2)
    assert not found
    assert "ConfigError: train.dynamic_sampling_rounds = 3: a process plays 2 episodes" in said
