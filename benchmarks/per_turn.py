"""The baseline of `rollouts.py`: the loop of plain trainers. Do not change it, so that figures stay comparable.

Each turn calls `model.generate` on the whole left-padded history of all active episodes, images included, as TRL's own
loop does. Episodes whose reply has ended wait for the longest reply of the turn. The replies are scripted.
"""

import asyncio
from typing import Any

import torch
from looks import Stage, turn_of
from transformers import LogitsProcessor, LogitsProcessorList

from viewbox.records import Message, Reply
from viewbox.rollouts.engine.model_runner import use_eval_mode
from viewbox.rollouts.generator import Conversation
from viewbox.rollouts.play import sample_seed


class Force(LogitsProcessor):
    """Allows one token in each row: the next one of its reply, which begins at column `start`."""

    def __init__(self, scripts: list[list[int]], start: int, pad: int) -> None:
        self.scripts, self.start, self.pad = scripts, start, pad

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        at = input_ids.shape[1] - self.start
        forced = torch.full_like(scores, -torch.inf)
        for i, one in enumerate(self.scripts):
            forced[i, one[at] if at < len(one) else self.pad] = 0
        return forced


def per_turn(stage: Stage) -> int:
    """Plays all episodes; returns the number of sampled tokens."""
    return asyncio.run(_play(stage))


async def _play(stage: Stage) -> int:
    states, talks = [], []
    for i, task in enumerate(stage.env.tasks):
        for k in range(stage.env.group):
            index = i * stage.env.group + k
            state = stage.env.reset(task, seed=sample_seed(0, index))
            states.append(state)
            talks.append(Conversation(list(state.messages), state.tool_schemas, 0, index, task))
    active, count = list(range(len(states))), 0
    while active:
        said = [stage.scripts[i][turn_of(talks[i])] for i in active]
        _generate(stage, [talks[i] for i in active], said)
        going = []
        for i, one in zip(active, said, strict=True):
            count += len(one)
            talks[i].record.add_sampled(one, [0.0] * len(one))
            text = stage.tokens.decode(one)
            talks[i].messages.append(Message("assistant", (text,)))
            result = await stage.env.step(states[i], Reply(text))
            talks[i].messages.extend(result.messages)
            if states[i].end_reason is None:
                going.append(i)
        active = going
    return count


def _generate(stage: Stage, talks: list[Conversation], said: list[list[int]]) -> None:
    tokens = stage.tokens
    for talk in talks:
        tokens.observe(talk, 10**6)
    rows = [[*talk.record.prompt_ids, *talk.record.completion_ids] for talk in talks]
    width = max(map(len, rows))
    ids = torch.tensor([[tokens.pad_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    pixels = [tokens.get_pixels(image) for talk in talks for image in talk.record.images]
    inputs: dict[str, Any] = tokens.architecture.build_vision_inputs(pixels, "cpu", torch.float32)
    with use_eval_mode(stage.model):
        stage.model.generate(
            input_ids=ids,
            attention_mask=mask,
            mm_token_type_ids=(ids == tokens.image_id).int(),
            **inputs,
            max_new_tokens=max(map(len, said)),
            do_sample=True,
            eos_token_id=tokens.end_id,
            pad_token_id=tokens.pad_id,
            logits_processor=LogitsProcessorList([Force(said, width, tokens.pad_id)]),
        )
