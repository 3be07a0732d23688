"""One of several processes that evaluate the same held-out tasks."""

import json
from pathlib import Path

import torch
from accelerate import PartialState
from transformers import AutoModelForImageTextToText, AutoProcessor

from viewbox.engines.hf import Settings
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.envs.digits import Digits
from viewbox.training import evaluate
from viewbox.training.generation import Sampler


def main(argv):
    """`argv`: the folder of a model, and a folder for what each process found."""
    folder, out = argv
    processes = PartialState(cpu=True)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    tokens = ChatTokens(AutoProcessor.from_pretrained(folder), model.config, model.generation_config)
    played = []
    play_many = evaluate.play_many

    async def count(*args, **kwargs):
        async for episode in play_many(*args, **kwargs):
            played.append(episode.info["index"])
            yield episode

    evaluate.play_many = count
    rollout = Settings(slots=4, max_reply_tokens=6, max_completion_tokens=300)
    env = Digits(num_tasks=8, max_turns=2, split="test")
    figures, episodes = evaluate.evaluate(env, model, Sampler(tokens, rollout), tasks=7, seed=3)
    texts = [[turn.content for turn in episode.turns] for episode in episodes]
    found = {"played": sorted(played), "figures": figures, "texts": texts}
    Path(out, f"{processes.process_index}.json").write_text(json.dumps(found))
