"""The rollout engine against the per-turn `generate` loop, on scripted episodes: the same replies on both sides.

    python benchmarks/rollouts.py [REPEATS]        (default 2; one thread; the last line is one JSON object)

The baseline is the loop of plain trainers: every turn, `model.generate` on the whole left-padded history of all
active episodes, pictures included. Both sides sample (log-softmax, random draw) and then say what the script says.
"""

import asyncio
import json
import os
import re
import sys
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from viewbox.envs.base import BaseMultiTurnEnv, Reply
from viewbox.envs.image import View
from viewbox.envs.tools import Outcome, Tool
from viewbox.envs.types import Message, Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts import tiny
from viewbox.rollouts.conversation import Conversation
from viewbox.rollouts.driver import play_many, sample_seed
from viewbox.rollouts.forwards import inference
from viewbox.rollouts.hf import HFGenerator
from viewbox.rollouts.tokens import ChatTokens

PATCH = 8
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
CASES = {  # prompts, members of a group, side of the prompt's picture and of a tool's, in tokens; the bar
    "a": (8, 8, 12, 8, 3.0),
    "b": (4, 16, 24, 12, 5.0),
}


def look(view: View) -> Outcome:
    """Shows a part of the picture."""
    side = LOOK_SIDE
    rng = np.random.default_rng(view.source.pixels[0, 0])
    return Outcome(None, "looked", {}, image=rng.integers(0, 255, (side, side), dtype=np.uint8))


LOOK_SIDE = 128


class Looks(BaseMultiTurnEnv):
    """A picture, and a tool that shows another."""

    name = "looks"
    own_tools = (Tool.of(look),)
    tools = ("look",)
    max_turns = 6
    boundary = False

    def __init__(self, prompts: int, side: int) -> None:
        super().__init__(max_pixels=side * side)
        self.__dict__["_side"], self.__dict__["_prompts"] = side, prompts

    @property
    def tasks(self) -> list[Task]:
        return [Task(f"looks-{i}", metadata={"seed": i}, prompt={"question": QUESTION}) for i in range(self._prompts)]

    def images(self, task: Task) -> list[np.ndarray]:
        rng = np.random.default_rng(task.metadata["seed"])
        return [rng.integers(0, 255, (self._side, self._side), dtype=np.uint8)]

    def default_reward(self) -> ExactMatchReward:
        return ExactMatchReward("text")


QUESTION = "What is to be seen on this picture? Look at it as often as you like, and then say in a sentence what it is."


def script(tokens: ChatTokens, seed: int) -> list[list[int]]:
    """The replies of one episode: 1 to 4 calls in 20 to 60 tokens each, and an answer of 20 to 100."""
    rng = np.random.default_rng(seed)
    call = tokens.tokenizer(CALL, add_special_tokens=False)["input_ids"]
    plain = [i for i in range(len(tokens.tokenizer)) if re.fullmatch(r" ?[a-z]+", tokens.tokenizer.decode([i]))]
    words = lambda n: rng.choice(plain, n).tolist()  # noqa: E731
    turns = range(rng.integers(1, 5))
    calls = [[*words(int(rng.integers(20, 61)) - 1 - len(call)), *call, tokens.end_id] for _ in turns]
    return [*calls, [*words(int(rng.integers(20, 101)) - 1), tokens.end_id]]


class ScriptedEngine(HFGenerator):
    """The engine, that says what the script says; what it would have sampled is worked out all the same."""

    def _drawn(self, rows: Any, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ids, _ = super()._drawn(rows, logits)
        said = [SCRIPTS[row.conversation.index][turn_of(row.conversation)][len(row.said)] for row in rows]
        ids = torch.tensor(said, device=ids.device)
        return ids, torch.log_softmax(logits, dim=-1).gather(1, ids[:, None])[:, 0]


SCRIPTS: dict[int, list[list[int]]] = {}


def turn_of(conversation: Conversation) -> int:
    return sum(message.role == "assistant" for message in conversation.messages)


class Force(LogitsProcessor):
    def __init__(self, scripts: list[list[int]], start: int, pad: int) -> None:
        self.scripts, self.start, self.pad = scripts, start, pad

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        at = input_ids.shape[1] - self.start
        forced = torch.full_like(scores, -torch.inf)
        for i, one in enumerate(self.scripts):
            forced[i, one[at] if at < len(one) else self.pad] = 0
        return forced


def per_turn(env: Any, model: Any, tokens: ChatTokens, group: int) -> int:
    """The loop of plain trainers; sampled tokens."""

    async def play() -> int:
        states, talks = [], []
        for i, task in enumerate(env.tasks):
            for k in range(group):
                state = env.reset(task, seed=sample_seed(0, i * group + k))
                states.append(state)
                talks.append(Conversation(list(state.messages), state.tool_schemas, 0, i * group + k, task))
        active, count = list(range(len(states))), 0
        while active:
            for i in active:
                tokens.observe(talks[i], 10**6)
            rows = [[*talks[i].record.prompt_ids, *talks[i].record.completion_ids] for i in active]
            width = max(map(len, rows))
            ids = torch.tensor([[tokens.pad_id] * (width - len(row)) + row for row in rows])
            mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
            pixels = [tokens.pixels(image) for i in active for image in talks[i].record.images]
            said = [SCRIPTS[i][turn_of(talks[i])] for i in active]
            with inference(model):
                model.generate(
                    input_ids=ids,
                    attention_mask=mask,
                    mm_token_type_ids=(ids == tokens.image_id).int(),
                    **tokens.family.vision_inputs(pixels, "cpu", torch.float32),
                    max_new_tokens=max(map(len, said)),
                    do_sample=True,
                    eos_token_id=tokens.end_id,
                    pad_token_id=tokens.pad_id,
                    logits_processor=LogitsProcessorList([Force(said, width, tokens.pad_id)]),
                )
            going = []
            for i, one in zip(active, said, strict=True):
                count += len(one)
                talks[i].record.sampled(one, [0.0] * len(one))
                text = tokens.decode(one)
                talks[i].messages.append(Message("assistant", (text,)))
                result = await env.step(states[i], Reply(text))
                talks[i].messages.extend(result.messages)
                if states[i].end_reason is None:
                    going.append(i)
            active = going
        return count

    return asyncio.run(play())


def engine(env: Any, generator: ScriptedEngine, group: int) -> int:
    async def play() -> int:
        count = 0
        async for episode in play_many(env, env.tasks, generator, group=group, concurrency=generator.slots):
            assert episode.end_reason == "answered", episode.end_reason
            count += sum(episode.tokens.mask)
        return count

    return asyncio.run(play())


def main() -> None:
    global LOOK_SIDE
    torch.set_num_threads(1)
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    tokenizer = tiny.tokenizer([QUESTION, CALL, "hello world"] * 10, 896)
    figures = {}
    for name, (prompts, group, side, tool_side, bar) in CASES.items():
        LOOK_SIDE = tool_side * 2 * PATCH
        pixels = side * 2 * PATCH
        processor = tiny.processor(tokenizer, patch=PATCH, max_pixels=pixels**2)
        model = tiny.model(tokenizer, hidden=128, layers=4, vision_layers=3, positions=(pixels // PATCH) ** 2).eval()
        tokens = ChatTokens(processor, model.config)
        env = Looks(prompts, pixels)
        SCRIPTS.clear()
        SCRIPTS.update({i: script(tokens, i) for i in range(prompts * group)})
        generator = ScriptedEngine(model, tokens, slots=prompts * group, max_completion_tokens=4000)
        seconds: dict[str, list[float]] = {"engine": [], "per_turn": []}
        for _ in range(repeats):
            started = time.perf_counter()
            count = engine(env, generator, group)
            seconds["engine"].append(time.perf_counter() - started)
            generator.features.clear()
            started = time.perf_counter()
            assert per_turn(env, model, tokens, group) == count
            seconds["per_turn"].append(time.perf_counter() - started)
        stats = generator.stats
        figures[name] = {
            "ratio": min(seconds["per_turn"]) / min(seconds["engine"]),
            "bar": bar,
            "seconds": {key: min(value) for key, value in seconds.items()},
            "in_forwards": stats.forward_seconds / stats.busy_seconds,
            "steps": stats.steps / repeats,
            "prefills": stats.prefills / repeats,
            "tokens": count,
            "kv_bytes_copied_per_step": generator.cache.copied / max(1, stats.steps),
        }
        print(name, json.dumps(figures[name], indent=2), flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
