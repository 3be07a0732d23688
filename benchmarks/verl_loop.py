"""What a turn costs in verl's agent loop beside the server: environment, pictures, tokens, verl's own part.

Run it where verl is installed: `.venv-verl/bin/python benchmarks/verl_loop.py`. The server replies at once, with two
zooms and an answer. `environment` is such an episode without tokens and without verl. `loop` is what
`ViewboxAgentLoop.run` adds to it: prompts, tokens, pictures for the server, the output. `verl` is what verl's worker
adds for an episode: it makes the loop object, and the pixels for its trainer. All are processor time, with all threads.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
from hydra import compose, initialize_config_dir
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.workers.rollout.replica import TokenOutput

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.scripted import PolicyGenerator
from viewbox.envs.digits import viewer
from viewbox.integrations.verl.agent_loop import ViewboxAgentLoop
from viewbox.integrations.verl.export import export_verl
from viewbox.integrations.verl.stage import Stage, open_stage
from viewbox.rollouts.play import play_one

BAR_MS = 5.0
TARGET = f"{__name__}.TimedLoop"
# The quickstart's pictures, and those of a real run: a canvas of 1536 x 1536 pixels, views of up to 384 x 384
SIZES = {
    "48 x 48": ("rollout.max_completion_tokens=2000",),
    "384 x 384": ("rollout.max_completion_tokens=8000", "env.canvas=1536", "env.digit=60", "env.max_pixels=147456"),
}


class InstantServer:
    """Replies at once: two zooms, then an answer. Counts the replies."""

    def __init__(self) -> None:
        self.replies: list[list[int]] = []
        self.turns: dict[str, int] = {}

    async def generate(self, request_id: str, **request: object) -> TokenOutput:
        turn = self.turns[request_id] = self.turns.get(request_id, -1) + 1
        ids = self.replies[turn]
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="completed", extra_fields={})


def build_worker(folder: Path) -> AgentLoopWorker:
    """verl's worker with the exported settings."""
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        settings = (
            f"actor_rollout_ref.model.path='{folder}/model'",
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path='{folder}/agent_loop.yaml'",
        )
        return AgentLoopWorker(compose("trainer", overrides=[*settings, "trainer.device=cpu"]), InstantServer())


class TimedLoop(ViewboxAgentLoop):
    """Keeps the processor time of each `run`, in seconds."""

    times: ClassVar[list[float]] = []

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        started = time.process_time()
        output = await super().run(sampling_params, **row)
        self.times.append(time.process_time() - started)
        return output


async def play(worker: AgentLoopWorker, number: int) -> Any:
    """Return an episode through verl's worker."""
    place = {"index": number, "split": "train", "task": f"digits-train-{number}"}
    columns = {"raw_prompt": [], "extra_info": place, "global_steps": 0, "session_id": 0, "uid": str(number)}
    trajectory = {"step": 0, "sample_index": 0, "rollout_n": 0, "validate": False}
    sampling = {"temperature": 1.0, "logprobs": True}
    return await worker._run_agent_loop(sampling, trajectory, agent_name="viewbox", trace=False, **columns)


async def measure_turns(worker: AgentLoopWorker, stage: Stage, fresh: BaseMultiTurnEnv, episodes: int) -> list[float]:
    """Milliseconds of processor time: environment a turn, loop a turn, verl an episode.

    An episode and the one of the next task without tokens take turns, so that a slow moment hits both.
    """
    alone: list[float] = []
    whole = 0.0
    texts = [stage.tokens.decode(ids) for ids in worker.llm_client.replies]
    for number in range(0, 2 * episodes, 2):
        started = time.process_time()
        output = await play(worker, number)
        whole += time.process_time() - started
        assert len(output.multi_modal_data["images"]) == len(texts)
        replies = iter(texts)
        started = time.process_time()
        await play_one(fresh, fresh.tasks[number + 1], PolicyGenerator(lambda _, replies=replies: next(replies)))
        alone.append(time.process_time() - started)
    environment, both = (statistics.median(times) / len(texts) for times in (alone, TimedLoop.times))
    return [seconds * 1e3 for seconds in (environment, both - environment, (whole - sum(TimedLoop.times)) / episodes)]


def measure(overrides: tuple[str, ...], episodes: int) -> dict[str, float]:
    """Return the figures of one size of picture."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "run"
        export_verl("quickstart", folder, [*overrides, "train.max_steps=1", "log.eval_tasks=1", "env.max_turns=4"])
        loop = folder / "agent_loop.yaml"
        loop.write_text(loop.read_text().replace("viewbox.integrations.verl.agent_loop.ViewboxAgentLoop", TARGET))
        worker = build_worker(folder)
        stage = open_stage("viewbox.yaml", worker.config, worker.processor)
        env = stage.env
        zooms = [viewer.write_zoom(env, 2, 0.4, 0.6), viewer.write_zoom(env, 2, 0.3, 0.7)]
        answer = viewer.write_answer(env, env.tasks[0])
        worker.llm_client.replies = [stage.tokens.encode_reply(text) for text in (*zooms, answer)]
        asyncio.run(play(worker, 5000))  # makes what a process makes once
        TimedLoop.times.clear()
        found = asyncio.run(measure_turns(worker, stage, stage.held_out, episodes))
    names = ("environment_ms_per_turn", "loop_ms_per_turn", "verl_ms_per_episode")
    return {name: round(value, 2) for name, value in zip(names, found, strict=True)}


def main() -> int:
    """Print the table and the JSON; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=100)
    episodes = parser.parse_args().episodes
    torch.set_num_threads(1)
    found = {}
    for name, overrides in SIZES.items():
        found[name] = figures = measure(overrides, episodes)
        print(f"{name}: {figures}", file=sys.stderr)
    met = all(figures["loop_ms_per_turn"] <= BAR_MS for figures in found.values())
    print(json.dumps({"pictures": found, "bar_ms": BAR_MS, "met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
