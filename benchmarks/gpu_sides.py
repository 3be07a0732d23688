"""The sides that `gpu_check.py` compares: one plan of conversations, played by the engine, the per-turn loop and vLLM.

Conversations come in groups that share a prompt image; after every reply the model gets another one. All replies have
the same length, so every side does the same work.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image

from viewbox.configs.schema import SamplingParams
from viewbox.images.ref import ImageRef
from viewbox.records import EpisodeTokens, Message
from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.engine.engine import HFGenerator
from viewbox.rollouts.engine.model_runner import use_eval_mode
from viewbox.rollouts.generator import Conversation
from viewbox.rollouts.play import sample_seed
from viewbox.training.grpo.batch import build_model_inputs, collate

GROUP, FIRST, LATER = 8, 12, 8  # members of a group; sides of the first picture and of later ones, in image tokens
BATCH = 8  # episodes of a padded forward
ROOM = 10**6  # tokens: conversations end by their turns


@dataclass(frozen=True)
class Plan:
    """The conversations: episode `i` begins with the image of its group, and each reply is answered with another."""

    episodes: int
    turns: int
    reply: int  # tokens
    unit: int  # side of an image token in pixels
    picture: ImageRef | None = None

    def opening(self, index: int) -> list[Message]:
        shown = self.picture or drawn(index // GROUP, FIRST * self.unit)
        asked = "Describe what you see, part by part. " * (1 + index // GROUP % 4) + "What is unusual?"
        return [Message("system", ("You look at pictures.",)), Message("user", (shown, asked))]

    def answer(self, index: int, turn: int) -> Message:
        side = (LATER + (index + turn) % 3) * self.unit
        text = "Here is another one. " * (1 + index % 4) + "What differs?"
        return Message("user", (drawn(1000 + index * self.turns + turn, side), text))

    def talk(self, index: int) -> Conversation:
        return Conversation(self.opening(index), (), sample_seed(0, index), index)


@cache
def drawn(seed: int, side: int) -> ImageRef:
    """A smooth colored image, different for each call."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return ImageRef.of(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))


# ---------------------------------------------------------------------- the sides
def engine(generator: HFGenerator, plan: Plan) -> list[EpisodeTokens]:
    """Plays the plan with the engine."""

    async def episode(index: int) -> EpisodeTokens:
        talk = plan.talk(index)
        generator.join(talk)
        try:
            for turn in range(plan.turns):
                said = await generator.reply(talk)
                talk.messages.append(Message("assistant", (said.text,)))
                if turn + 1 < plan.turns:
                    talk.messages.append(plan.answer(index, turn))
        finally:
            generator.leave(talk)
        found = talk.record.to_episode_tokens()
        assert found is not None
        return found

    async def play() -> list[EpisodeTokens]:
        return list(await asyncio.gather(*map(episode, range(plan.episodes))))

    return asyncio.run(play())


@torch.no_grad()
def generated(
    model: Any, tokens: ChatTokens, talks: Sequence[Conversation], count: int, temperature: float
) -> list[list[int]]:
    """`count` new tokens of every conversation by `model.generate` on the whole left-padded history."""
    rows = [[*talk.record.prompt_ids, *talk.record.completion_ids] for talk in talks]
    width, device = max(map(len, rows)), model.device
    ids = torch.tensor([[tokens.pad_id] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    pixels = [tokens.get_pixels(image) for talk in talks for image in talk.record.images]
    drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    found = model.generate(
        input_ids=ids,
        attention_mask=mask,
        mm_token_type_ids=(ids == tokens.image_id).int(),
        **tokens.architecture.build_vision_inputs(pixels, device, model.dtype),
        **({"do_sample": False} | drawing),
        repetition_penalty=1.0,
        max_new_tokens=count,
        pad_token_id=tokens.pad_id,
        suppress_tokens=list(tokens.never_sampled),
    )
    return found[:, width:].tolist()


def per_turn(model: Any, tokens: ChatTokens, plan: Plan, slots: int) -> None:
    """The loop of plain trainers, with as many episodes at once as the engine has slots."""
    for start in range(0, plan.episodes, slots):
        talks = [plan.talk(i) for i in range(start, min(start + slots, plan.episodes))]
        for turn in range(plan.turns):
            for talk in talks:
                tokens.observe(talk, ROOM)
            with use_eval_mode(model):
                said = generated(model, tokens, talks, plan.reply, 1.0)
            for talk, ids in zip(talks, said, strict=True):
                talk.record.add_sampled(ids, [0.0] * len(ids))
                talk.messages += [Message("assistant", (tokens.decode(ids),)), plan.answer(talk.index, turn)]


def vllm_speed(name: str, dtype: str, plan: Plan, slots: int) -> dict[str, Any]:
    """Seconds of vLLM for the same images, questions and lengths; or the reason why it did not run."""
    try:
        from vllm import LLM
        from vllm import SamplingParams as VLLMSamplingParams
    except ImportError:
        return {"skipped": "vllm is not installed"}

    def wire(message: Message) -> dict[str, Any]:
        parts = [
            {"type": "text", "text": part}
            if isinstance(part, str)
            else {"type": "image_pil", "image_pil": part.open().convert("RGB")}
            for part in message.content
        ]
        return {"role": message.role, "content": message.text if message.role == "system" else parts}

    limits: Any = {"image": plan.turns}
    llm = LLM(name, dtype=dtype, max_num_seqs=slots, limit_mm_per_prompt=limits, gpu_memory_utilization=0.85)
    params = VLLMSamplingParams(temperature=1.0, max_tokens=plan.reply, ignore_eos=True, logprobs=0)

    def play(first: int) -> float:
        """Plays episodes from `first` on, so that nothing is cached by a warm-up."""
        numbers = range(first, first + plan.episodes)
        talks: list[Any] = [[wire(message) for message in plan.opening(i)] for i in numbers]
        started = time.perf_counter()
        for turn in range(plan.turns):
            said = llm.chat(talks, params, use_tqdm=False)
            for i, talk, one in zip(numbers, talks, said, strict=True):
                talk += [{"role": "assistant", "content": one.outputs[0].text}, wire(plan.answer(i, turn))]
        return time.perf_counter() - started

    play(plan.episodes)
    return {"seconds": play(0)}


# ---------------------------------------------------------------------- parity
@torch.no_grad()
def plain(model: Any, tokens: ChatTokens, episodes: Sequence[EpisodeTokens], temperature: float) -> torch.Tensor:
    """Log-probs of the sampled tokens by one plain forward of these episodes, padded."""
    batch = collate(episodes, tokens, model.device)
    inputs = build_model_inputs(batch)
    if "pixel_values" in inputs:
        inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
    logits = model(**inputs, use_cache=False, logits_to_keep=batch["completion_ids"].shape[1] + 1).logits[:, :-1]
    found = []
    for row, ids, mask in zip(logits, batch["completion_ids"], batch["tool_mask"].bool(), strict=True):
        logps = torch.log_softmax(row[mask].float() / (temperature or 1.0), dim=-1)
        found.append(logps.gather(1, ids[mask][:, None])[:, 0])
    return torch.cat(found).cpu()


def gap(sampler: torch.Tensor, trainer: torch.Tensor) -> dict[str, float]:
    """Mean and largest |Δ log-prob|, and the k3 estimate of KL(sampler ‖ trainer) on the sampled tokens."""
    apart = trainer - sampler
    return {
        "mean": apart.abs().mean().item(),
        "max": apart.abs().max().item(),
        "kl": (apart.expm1() - apart).mean().item(),
    }


def parity(model: Any, tokens: ChatTokens, plan: Plan, slots: int, temperature: float) -> dict[str, Any]:
    generator = HFGenerator(
        model,
        tokens,
        slots=slots,
        sampling=SamplingParams(temperature=temperature),
        max_reply_tokens=plan.reply,
        max_completion_tokens=ROOM,
    )
    episodes = engine(generator, plan)
    recorded = [logp for one in episodes for logp, bit in zip(one.logprobs, one.mask, strict=True) if bit]
    longer = (tokens.pad_id,) * (3 * max(len(one.prompt_ids) for one in episodes) // 2)
    wide = EpisodeTokens(longer, (tokens.pad_id,), (0,), (0.0,))  # makes padding of all others, and says nothing
    parts = [[wide, *episodes[i : i + BATCH]] for i in range(0, len(episodes), BATCH)]
    with use_eval_mode(model):
        alone = torch.cat([plain(model, tokens, [one], temperature) for one in episodes])
        together = torch.cat([plain(model, tokens, part, temperature) for part in parts])
    return {"engine": gap(torch.tensor(recorded), alone), "padding": gap(alone, together)}


def greedy(model: Any, tokens: ChatTokens, plan: Plan, slots: int) -> dict[str, float]:
    """The share of greedy replies equal to `generate` up to the first difference, and the largest margin there."""
    plan, agreeing, margin = replace(plan, turns=1), 0, 0.0
    settings = {"max_reply_tokens": plan.reply, "max_completion_tokens": ROOM}
    for index, ours in enumerate(
        engine(HFGenerator(model, tokens, slots=slots, sampling=SamplingParams(temperature=0.0), **settings), plan)
    ):
        talk = plan.talk(index)
        tokens.observe(talk, ROOM)
        with use_eval_mode(model):
            (theirs,) = generated(model, tokens, [talk], plan.reply, 0.0)
            pairs = enumerate(zip(ours.completion_ids, theirs, strict=True))
            at = next((i for i, (one, other) in pairs if one != other), plan.reply)
            agreeing += at
            if at < plan.reply:
                mine, other = (_last(model, tokens, ours, said[: at + 1]) for said in (ours.completion_ids, theirs))
                margin = max(margin, abs(mine - other))
    return {"share": agreeing / (plan.episodes * plan.reply), "largest margin": margin}


def _last(model: Any, tokens: ChatTokens, episode: EpisodeTokens, said: Sequence[int]) -> float:
    """The log-prob of the last token of an episode with this completion."""
    n = len(said)
    changed = replace(episode, completion_ids=tuple(said), mask=(1,) * n, logprobs=(0.0,) * n)
    return plain(model, tokens, [changed], 0.0)[-1].item()
