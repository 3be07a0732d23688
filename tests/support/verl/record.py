"""Records what verl's trainer saw, by its own extension points, into the folder that VERL_RECORD names.

- `RecordingLoop`, named in an agent-loop YAML, is viewbox's agent loop; each training episode is also written to
  `episodes`, and its group to `groups.jsonl`.
- `RecordingEngine`, by `actor_rollout_ref.model.external_lib=tests.support.verl.record`, is verl's FSDP engine. Of each
  update it saves the tensors that it was given, the gradient, and the weights before and after: `update_N_rank_R.pt`.
  In update VERL_KILLED, counted from its start, it is killed.
"""

import json
import os
import signal
from contextvars import ContextVar
from pathlib import Path

import torch
import verl.workers.engine  # noqa: F401  so that the engines are registered
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from viewbox.integrations.verl import agent_loop
from viewbox.rollouts.store.writer import EpisodeWriter

FOLDER = Path(os.environ["VERL_RECORD"])
LAST = int(os.environ.get("VERL_KILLED", 0))
ROW = ContextVar("row")
play_one, writers = agent_loop.play_one, []


async def play(env, task, generator, **settings):
    episode = await play_one(env, task, generator, **settings)
    row = ROW.get()
    if row["extra_info"]["split"] == "train":
        if not writers:
            writers.append(EpisodeWriter(FOLDER / "episodes"))
        writers[0].append(episode)
        group = {"uid": str(row["uid"]), "step": int(row["global_steps"]), "number": writers[0].count}
        with open(FOLDER / "groups.jsonl", "a") as file:
            file.write(json.dumps(group) + "\n")
    return episode


agent_loop.play_one = play


class RecordingLoop(agent_loop.ViewboxAgentLoop):
    async def run(self, sampling_params, **row):
        ROW.set(row)
        return await super().run(sampling_params, **row)


def _gather(tensor):
    tensor = tensor.detach()
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()


class RecordingEngine(FSDPEngineWithLMHead):
    updates = 0
    given = None

    def forward_backward_batch(self, data, loss_function, forward_only=False):
        output = super().forward_backward_batch(data, loss_function, forward_only)
        if not forward_only:
            tensors = {key: value for key, value in data.items() if isinstance(value, torch.Tensor)}
            rows = {key: value.unbind() if value.is_nested else value for key, value in tensors.items()}
            self.given = {key: [row.clone() for row in value] for key, value in rows.items()}
            self.loss = output.get("loss")
        return output

    def optimizer_step(self):
        self.updates += 1
        if self.updates == LAST:
            os.kill(os.getpid(), signal.SIGKILL)
        parameters = dict(self.module.named_parameters())
        gradient = {name: _gather(value.grad) for name, value in parameters.items() if value.grad is not None}
        before = {name: _gather(value) for name, value in parameters.items()}
        norm = super().optimizer_step()
        after = {name: _gather(value) for name, value in parameters.items()}
        FOLDER.mkdir(exist_ok=True, parents=True)
        found = {"given": self.given, "loss": self.loss, "gradient": gradient, "before": before, "after": after}
        torch.save(found, FOLDER / f"update_{self.updates}_rank_{self.rank}.pt")
        return norm


for backend in ("fsdp", "fsdp2"):
    EngineRegistry.register(model_type="language_model", backend=backend, device="cuda", vendor="cpu")(RecordingEngine)
