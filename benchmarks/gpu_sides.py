"""The sides that `gpu_check.py` compares: one plan of conversations, played by the engine, the per-turn loop and vLLM.

Conversations come in groups that share a prompt image; after every reply the model gets another image. All replies have
the same length, so every side does the same work.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import torch
from PIL import Image

from viewbox.engines.generator import Conversation
from viewbox.engines.hf import Settings, loading
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.engine import HFGenerator
from viewbox.engines.hf.model_runner import use_eval_mode
from viewbox.images.ref import ImageRef
from viewbox.records import EpisodeTokens, Message
from viewbox.rollouts.play import sample_seed
from viewbox.training.grpo.batch import collate

GROUP = 8  # conversations in a group
FIRST_SIDE, LATER_SIDE = 12, 8  # sides of the first image and of later ones, in image tokens
BATCH = 8  # episodes of a padded forward
UNIT = 28
NO_LIMIT = 10**6  # tokens; a conversation ends after its last turn


@dataclass(frozen=True)
class Plan:
    """The conversations: episode `i` begins with the image of its group, and each reply is answered with another."""

    episodes: int
    turns: int
    reply: int  # tokens of each reply
    unit: int  # side of an image token in pixels
    picture: ImageRef | None = None

    def build_prompt(self, index: int) -> list[Message]:
        image = self.picture or make_image(index // GROUP, FIRST_SIDE * self.unit)
        question = "Describe what you see, part by part. " * (1 + index // GROUP % 4) + "What is unusual?"
        return [Message("system", ("You look at pictures.",)), Message("user", (image, question))]

    def build_observation(self, index: int, turn: int) -> Message:
        side = (LATER_SIDE + (index + turn) % 3) * self.unit
        text = "Here is another one. " * (1 + index % 4) + "What differs?"
        return Message("user", (make_image(1000 + index * self.turns + turn, side), text))

    def start_conversation(self, index: int) -> Conversation:
        return Conversation(self.build_prompt(index), (), sample_seed(0, index), index)


def get_unit(model: Any, processor: Any) -> int:
    """Return the side of an image token in pixels; any will do where an image has as many tokens whatever its size."""
    return int(loading.get_view_settings(model.config, processor).get("pixel_multiple", UNIT))  # type: ignore[call-overload]


@cache
def make_image(seed: int, side: int) -> ImageRef:
    """Return a smooth colored image of `side` pixels, another one for each seed."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return ImageRef.of(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC))


# ---------------------------------------------------------------------- the sides
def play_with_engine(generator: HFGenerator, plan: Plan) -> list[EpisodeTokens]:
    """Play the plan with the engine."""

    async def episode(index: int) -> EpisodeTokens:
        conversation = plan.start_conversation(index)
        generator.join(conversation)
        try:
            for turn in range(plan.turns):
                said = await generator.reply(conversation)
                conversation.messages.append(Message("assistant", (said.text,)))
                if turn + 1 < plan.turns:
                    conversation.messages.append(plan.build_observation(index, turn))
        finally:
            generator.leave(conversation)
        found = conversation.record.to_episode_tokens()
        assert found is not None
        return found

    async def play() -> list[EpisodeTokens]:
        return list(await asyncio.gather(*map(episode, range(plan.episodes))))

    return asyncio.run(play())


@torch.no_grad()
def generate_replies(
    model: Any, tokens: ChatTokens, conversations: Sequence[Conversation], count: int, temperature: float
) -> list[list[int]]:
    """`count` new tokens of every conversation by `model.generate` on the whole left-padded history."""
    rows = [[*conversation.record.prompt_ids, *conversation.record.completion_ids] for conversation in conversations]
    width, device = max(map(len, rows)), model.device
    ids = torch.tensor([[tokens.pad_id] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    pixels = [tokens.get_pixels(image) for conversation in conversations for image in conversation.record.images]
    drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    found = model.generate(
        input_ids=ids,
        attention_mask=mask,
        **(tokens.architecture.build_token_types(ids) if pixels else {}),
        **tokens.architecture.build_vision_inputs(pixels, device, model.dtype),
        **({"do_sample": False} | drawing),
        repetition_penalty=1.0,
        max_new_tokens=count,
        pad_token_id=tokens.pad_id,
        suppress_tokens=list(tokens.never_sampled),
    )
    return found[:, width:].tolist()


def play_per_turn(model: Any, tokens: ChatTokens, plan: Plan, slots: int) -> None:
    """Play the plan turn by turn with `generate`, as plain trainers do, with as many episodes at once as slots."""
    for start in range(0, plan.episodes, slots):
        conversations = [plan.start_conversation(i) for i in range(start, min(start + slots, plan.episodes))]
        for turn in range(plan.turns):
            for conversation in conversations:
                tokens.observe(conversation, NO_LIMIT)
            with use_eval_mode(model):
                replies = generate_replies(model, tokens, conversations, plan.reply, 1.0)
            for conversation, ids in zip(conversations, replies, strict=True):
                conversation.record.add_sampled(ids, [0.0] * len(ids))
                conversation.messages += [
                    Message("assistant", (tokens.decode(ids),)),
                    plan.build_observation(conversation.index, turn),
                ]


def time_vllm(name: str, dtype: str, plan: Plan, slots: int) -> dict[str, Any]:
    """Seconds of vLLM for the same images, questions and lengths; or the reason why it did not run."""
    try:
        from vllm import LLM
        from vllm import SamplingParams as VLLMSamplingParams
    except ImportError:
        return {"skipped": "vllm is not installed"}

    def to_openai(message: Message) -> dict[str, Any]:
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
        """Play episodes from `first` on, so that nothing is cached by a warm-up."""
        numbers = range(first, first + plan.episodes)
        conversations: list[Any] = [[to_openai(message) for message in plan.build_prompt(i)] for i in numbers]
        started = time.perf_counter()
        for turn in range(plan.turns):
            said = llm.chat(conversations, params, use_tqdm=False)
            for i, conversation, one in zip(numbers, conversations, said, strict=True):
                conversation += [
                    {"role": "assistant", "content": one.outputs[0].text},
                    to_openai(plan.build_observation(i, turn)),
                ]
        return time.perf_counter() - started

    play(plan.episodes)
    return {"seconds": play(0)}


# ---------------------------------------------------------------------- parity
@torch.no_grad()
def compute_plain_logprobs(
    model: Any, tokens: ChatTokens, episodes: Sequence[EpisodeTokens], temperature: float
) -> torch.Tensor:
    """(sampled tokens of all episodes,): their log-probs after one plain, padded forward."""
    batch = collate(episodes, tokens, model.device)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    pixels = [tokens.get_pixels(image) for episode in episodes for image in episode.images]
    logits = model(
        input_ids=ids,
        attention_mask=torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1),
        use_cache=False,
        **(tokens.architecture.build_token_types(ids) if pixels else {}),
        **tokens.architecture.build_vision_inputs(pixels, model.device, model.dtype),
    ).logits[:, batch["prompt_ids"].shape[1] - 1 : -1]
    found = []
    for row, ids, mask in zip(logits, batch["completion_ids"], batch["tool_mask"].bool(), strict=True):
        logps = torch.log_softmax(row[mask].float() / (temperature or 1.0), dim=-1)
        found.append(logps.gather(1, ids[mask][:, None])[:, 0])
    return torch.cat(found).cpu()


def compare_logprobs(sampler: torch.Tensor, trainer: torch.Tensor) -> dict[str, float]:
    """Mean and largest |Δ log-prob|, and the k3 estimate of KL(sampler ‖ trainer) on the sampled tokens."""
    difference = trainer - sampler
    return {
        "mean": difference.abs().mean().item(),
        "max": difference.abs().max().item(),
        "kl": (difference.expm1() - difference).mean().item(),
    }


def measure_parity(model: Any, tokens: ChatTokens, plan: Plan, slots: int, temperature: float) -> dict[str, Any]:
    """Log-probs compared: the engine's with plain forwards of batch 1, and these with padded forwards."""
    generator = HFGenerator(
        model,
        tokens,
        Settings(slots=slots, temperature=temperature, max_reply_tokens=plan.reply, max_completion_tokens=NO_LIMIT),
    )
    episodes = play_with_engine(generator, plan)
    recorded = [logp for one in episodes for logp, bit in zip(one.logprobs, one.mask, strict=True) if bit]
    longer = (tokens.pad_id,) * (3 * max(len(one.prompt_ids) for one in episodes) // 2)
    # longer than all others, so that they are padded; none of its tokens counts
    wide = EpisodeTokens(longer, (tokens.pad_id,), (0,), (0.0,))
    parts = [[wide, *episodes[i : i + BATCH]] for i in range(0, len(episodes), BATCH)]
    with use_eval_mode(model):
        alone = torch.cat([compute_plain_logprobs(model, tokens, [one], temperature) for one in episodes])
        together = torch.cat([compute_plain_logprobs(model, tokens, part, temperature) for part in parts])
    return {"engine": compare_logprobs(torch.tensor(recorded), alone), "padding": compare_logprobs(alone, together)}


def compare_greedy(model: Any, tokens: ChatTokens, plan: Plan, slots: int) -> dict[str, float]:
    """Return the share of greedy replies equal to `generate` up to the first difference, and the largest margin
    there."""
    plan, agreeing, margin = replace(plan, turns=1), 0, 0.0
    settings = Settings(slots=slots, temperature=0.0, max_reply_tokens=plan.reply, max_completion_tokens=NO_LIMIT)
    generator = HFGenerator(model, tokens, settings)
    for index, ours in enumerate(play_with_engine(generator, plan)):
        conversation = plan.start_conversation(index)
        tokens.observe(conversation, NO_LIMIT)
        with use_eval_mode(model):
            (theirs,) = generate_replies(model, tokens, [conversation], plan.reply, 0.0)
            pairs = enumerate(zip(ours.completion_ids, theirs, strict=True))
            at = next((i for i, (one, other) in pairs if one != other), plan.reply)
            agreeing += at
            if at < plan.reply:
                mine, other = (
                    _compute_last_logprob(model, tokens, ours, said[: at + 1]) for said in (ours.completion_ids, theirs)
                )
                margin = max(margin, abs(mine - other))
    return {"share": agreeing / (plan.episodes * plan.reply), "largest margin": margin}


def _compute_last_logprob(model: Any, tokens: ChatTokens, episode: EpisodeTokens, said: Sequence[int]) -> float:
    """Return the log-prob of the last token of an episode with this completion."""
    n = len(said)
    changed = msgspec.structs.replace(episode, completion_ids=tuple(said), mask=(1,) * n, logprobs=(0.0,) * n)
    return compute_plain_logprobs(model, tokens, [changed], 0.0)[-1].item()
