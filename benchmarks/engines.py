"""Episodes/s and sampled tokens/s of three engines on the same 64 episodes: ours, vLLM by tokens, and TRL's own loop.

    make test-vllm                                   (once: it makes .venv-vllm)
    python benchmarks/engines.py [REPEATS] [--vllm .venv-vllm/bin/python] [--small]

(default 2 repeats, the sides in turns; minutes. The last line is one JSON object.)

All sides play the environment, model and script lengths of `trl_loop.py`, at temperature 1 and in float32, with 8
prompts of 144 image tokens, 8 episodes each, 2 to 5 replies of 20 to 100 tokens, and a picture after each but the last.
Ours and TRL's sample and then take the script's tokens. A server cannot be told what to sample, so vLLM samples as many
tokens as the script has, keeps them, and the environment is stepped with the script's text.

One thread computes in each process. vLLM is three processes beside this one, so on two cores it has the advantage of a
second core; `processor_seconds` counts all of them. Its caches are emptied before each repeat.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scripted_case import CaseSize, Stage, count_replies  # first: it asks for one thread

# ruff: isort: split
import httpx
import psutil
import torch
from trl_loop import TRLSide, play_with_engine

from viewbox.engines.generator import Conversation
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.vllm import Settings
from viewbox.engines.vllm.generator import SampledTokens, TokenRequest
from viewbox.engines.vllm.vllm import Served, VLLMGenerator
from viewbox.engines.vllm.wire import NEVER, build_request, parse_generated
from viewbox.records import Reply
from viewbox.rollouts.play import play_many

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.vllm_process import VLLMProcess  # noqa: E402

CASE = CaseSize(8, 8, 12, 8)
SMALL = CaseSize(1, 2, 2, 2)
CACHES = ("/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache")


class ScriptedVLLM(VLLMGenerator):
    """Samples replies of the script's lengths, which nothing ends before, and says the script's text."""

    def __init__(self, stage: Stage, url: str, settings: Settings) -> None:
        super().__init__(Served(url), stage.tokens, settings)
        self.stage, self.ask = stage, self.ask_for_length

    def get_script(self, conversation: Conversation) -> list[int]:
        """Return the ids of the next reply."""
        index = conversation.index % len(self.stage.scripts)
        return self.stage.scripts[index][count_replies(conversation)]

    async def ask_for_length(self, request: TokenRequest) -> SampledTokens:
        if self.model is None:
            await self.check()
        request = replace(request, max_tokens=len(self.get_script(request.conversation)))
        body = build_request(str(self.model), request, self.tokens, self.settings.sampling, bans=True)
        asked = body["sampling_params"]
        asked["logit_bias"] |= {str(token): NEVER for token in self.tokens.stop_ids}
        asked |= {"stop_token_ids": [], "ignore_eos": True}
        content = json.dumps(body).encode()
        return await self.connection.post(
            lambda _: content, lambda reply: parse_generated(reply, request.ids), deadline=None, info={}
        )

    async def reply(self, conversation: Conversation) -> Reply:
        text = self.tokens.decode(self.get_script(conversation))
        sampled = await super().reply(conversation)
        return replace(sampled, text=text, finish_reason="stop")


def play_with_vllm(stage: Stage, url: str) -> tuple[float, int]:
    """Seconds of the episodes, and the tokens that were sampled."""
    stage.tokens = ChatTokens(stage.processor, stage.model.config)  # with empty caches
    for path in CACHES:
        httpx.post(url + path, trust_env=False).raise_for_status()
    settings = Settings(engine="vllm", max_reply_tokens=200, max_completion_tokens=4000)

    async def play() -> tuple[float, list[Any]]:
        generator = ScriptedVLLM(stage, url, settings)
        await generator.check()
        started = time.perf_counter()
        limits = {"group": stage.env.group, "concurrency": stage.case.episodes}
        found = [episode async for episode in play_many(stage.env, stage.env.tasks, generator, **limits)]
        seconds = time.perf_counter() - started
        await generator.close()
        return seconds, found

    seconds, episodes = asyncio.run(play())
    assert {episode.end_reason for episode in episodes} == {"answered"}, {e.info.get("error") for e in episodes}
    return seconds, sum(sum(episode.tokens.mask) for episode in episodes)


class Processor:
    """Seconds of processor time of this process and of a server's."""

    def __init__(self, pid: int | None = None) -> None:
        served = psutil.Process(pid) if pid else None
        self.processes = [psutil.Process(), *([served, *served.children(recursive=True)] if served else [])]
        self.start = self.read()

    def read(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)

    def stop(self) -> float:
        return self.read() - self.start


def compare_engines(case: CaseSize, repeats: int, python: str) -> dict[str, Any]:
    """Figures of each side; the best of `repeats` plays each."""
    stage = Stage(case)
    spent: dict[str, list[tuple[float, float]]] = {"viewbox": [], "vllm": [], "trl": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stage.model.save_pretrained(folder / "model")
        stage.processor.save_pretrained(folder / "model")
        # vLLM 0.32 on a CPU dies of a request with a seed whose prompt it reads in parts, so it must read all at once
        room = ("--max-num-seqs", str(case.episodes), "--max-num-batched-tokens", "131072")
        server = VLLMProcess(folder / "model", folder / "server.log", *room, python=python).start()
        try:
            server.wait()
            side = TRLSide(stage, str(folder / "trl"))
            play_with_vllm(stage, server.url)  # its first requests compile and allocate
            for _ in range(repeats):
                clock = Processor()
                seconds, theirs = side.play()
                spent["trl"].append((seconds, clock.stop()))
                clock = Processor()
                seconds, ours = play_with_engine(stage)
                spent["viewbox"].append((seconds, clock.stop()))
                clock = Processor(server.pid)
                seconds, tokens = play_with_vllm(stage, server.url)
                spent["vllm"].append((seconds, clock.stop()))
                sampled = sum(sum(one.mask) for one in ours)
                assert sampled == tokens == sum(sum(one.mask) for one in theirs)
        finally:
            server.kill()
    best = {side: min(found) for side, found in spent.items()}
    return {
        "episodes": case.episodes,
        "tokens": sampled,
        "seconds": {side: seconds for side, (seconds, _) in best.items()},
        "processor_seconds": {side: seconds for side, (_, seconds) in best.items()},
        "episodes_per_second": {side: case.episodes / seconds for side, (seconds, _) in best.items()},
        "tokens_per_second": {side: sampled / seconds for side, (seconds, _) in best.items()},
        "viewbox_over_vllm": best["vllm"][0] / best["viewbox"][0],
        "viewbox_over_trl": best["trl"][0] / best["viewbox"][0],
    }


def main(arguments: Sequence[str]) -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description="Measures three engines on the same episodes.")
    parser.add_argument("repeats", nargs="?", type=int, default=2)
    parser.add_argument("--vllm", default=str(ROOT / ".venv-vllm" / "bin" / "python"), help="Python that has vLLM")
    parser.add_argument("--small", action="store_true", help="tiny cases, only to see that it runs")
    given = parser.parse_args(arguments)
    if not Path(given.vllm).is_file():
        parser.error(f"--vllm {given.vllm}: no such file; `make test-vllm` makes .venv-vllm")
    print(json.dumps(compare_engines(SMALL if given.small else CASE, given.repeats, given.vllm)))


if __name__ == "__main__":
    main(sys.argv[1:])
