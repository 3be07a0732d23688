"""The baseline of `rollouts.py`: the loop of plain trainers. Do not change it, so that figures stay comparable.

Each turn calls `model.generate` on the whole left-padded history of all active episodes, with all their images, as
TRL's own loop does. An episode whose reply has ended waits for the longest reply of the turn. Replies are scripted.
"""

import asyncio
from typing import Any

import torch
from scripted_case import Stage, count_replies
from transformers import LogitsProcessor, LogitsProcessorList

from viewbox.engines.generator import Conversation
from viewbox.engines.hf.model_runner import use_eval_mode
from viewbox.records import Message, Reply
from viewbox.rollouts.play import sample_seed


class ForceTokens(LogitsProcessor):
    """A logits processor that allows one token in each row: the next of its reply, which begins at column `start`."""

    def __init__(self, scripts: list[list[int]], start: int, pad: int) -> None:
        self.scripts, self.start, self.pad = scripts, start, pad

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        position = input_ids.shape[1] - self.start
        forced = torch.full_like(scores, -torch.inf)
        for i, one in enumerate(self.scripts):
            forced[i, one[position] if position < len(one) else self.pad] = 0
        return forced


def play_per_turn(stage: Stage) -> int:
    """Play all episodes; return the number of sampled tokens."""
    return asyncio.run(_play(stage))


async def _play(stage: Stage) -> int:
    states, conversations = [], []
    for i, task in enumerate(stage.env.tasks):
        for k in range(stage.env.group):
            index = i * stage.env.group + k
            state = stage.env.reset(task, seed=sample_seed(0, index))
            states.append(state)
            conversations.append(Conversation(list(state.messages), state.tool_schemas, 0, index, task))
    active, count = list(range(len(states))), 0
    while active:
        replies = [stage.scripts[i][count_replies(conversations[i])] for i in active]
        _generate(stage, [conversations[i] for i in active], replies)
        still_active = []
        for i, one in zip(active, replies, strict=True):
            count += len(one)
            conversations[i].record.add_sampled(one, [0.0] * len(one))
            text = stage.tokens.decode(one)
            conversations[i].messages.append(Message("assistant", (text,)))
            result = await stage.env.step(states[i], Reply(text))
            conversations[i].messages.extend(result.messages)
            if states[i].end_reason is None:
                still_active.append(i)
        active = still_active
    return count


def _generate(stage: Stage, conversations: list[Conversation], replies: list[list[int]]) -> None:
    tokens = stage.tokens
    for conversation in conversations:
        tokens.observe(conversation, 10**6)
    rows = [[*conversation.record.prompt_ids, *conversation.record.completion_ids] for conversation in conversations]
    width = max(map(len, rows))
    ids = torch.tensor([[tokens.pad_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    pixels = [tokens.get_pixels(image) for conversation in conversations for image in conversation.record.images]
    inputs: dict[str, Any] = tokens.architecture.build_vision_inputs(pixels, "cpu", torch.float32)
    inputs |= tokens.architecture.build_token_types(ids)
    with use_eval_mode(stage.model):
        stage.model.generate(
            input_ids=ids,
            attention_mask=mask,
            **inputs,
            max_new_tokens=max(map(len, replies)),
            do_sample=True,
            eos_token_id=tokens.end_id,
            pad_token_id=tokens.pad_id,
            logits_processor=LogitsProcessorList([ForceTokens(replies, width, tokens.pad_id)]),
        )
