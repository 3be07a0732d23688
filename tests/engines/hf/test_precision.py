"""Half precision: what the engine records differs from a trainer's own forward no more than two such forwards do.

The yardstick is what padding alone does: one plain forward of each episode by itself against one of all episodes
together. Differences are of the log-probs of sampled tokens; the divergence of the sampler q from the trainer p is the
k3 estimate on them, the mean of p/q − 1 − log(p/q), exact in expectation and never negative
(http://joschu.net/blog/kl-approx.html).
"""

from dataclasses import dataclass

import pytest
import torch
from peft import LoraConfig, get_peft_model

from viewbox.training.generation import use_for_generation
from viewbox.training.grpo.batch import add_pixels, build_model_inputs, collate

BAR = 2.0
HALF = [("qwen3_vl", torch.bfloat16, 1.0), ("qwen3_vl", torch.float16, 0.7), ("qwen2_5_vl", torch.bfloat16, 1.0)]


@dataclass(frozen=True)
class Mismatch:
    mean: float  # of |Δ log-prob|
    largest: float
    kl: float  # k3
    tokens: int

    @classmethod
    def of(cls, sampler, trainer):
        gap = trainer - sampler
        return cls(gap.abs().mean().item(), gap.abs().max().item(), (gap.expm1() - gap).mean().item(), len(gap))

    def within(self, yardstick):
        return self.mean <= BAR * yardstick.mean and self.kl <= BAR * yardstick.kl


def sampled(episodes, logps):
    """The log-probs of what the model itself said, all episodes one after the other."""
    masks = [torch.tensor(e.mask).bool() & (torch.tensor(e.logprobs) != 0) for e in episodes]  # a forced token has 0
    return torch.cat([one[mask] for one, mask in zip(logps, masks, strict=True)])


def recorded(episodes):
    return sampled(episodes, [torch.tensor(one.logprobs) for one in episodes])


@torch.no_grad()
def padded(model, kit, episodes, temperature=1.0):
    """Log-probs by one plain forward of all episodes together."""
    batch = add_pixels(collate(episodes, kit.tokens), episodes, kit.tokens)
    inputs = build_model_inputs(batch)
    inputs["pixel_values"] = inputs["pixel_values"].to(model.dtype)
    logits = model(**inputs, use_cache=False).logits[:, batch["prompt_ids"].shape[1] - 1 : -1].float()
    logps = torch.log_softmax(logits / temperature, dim=-1).gather(2, batch["completion_ids"][:, :, None])[:, :, 0]
    return sampled(episodes, [row[: len(one.completion_ids)] for row, one in zip(logps, episodes, strict=True)])


@pytest.fixture(scope="module")
def alone(plain_logps):
    """Log-probs by a plain forward of each episode by itself."""

    def compute(model, kit, episodes, temperature=1.0):
        return sampled(episodes, [plain_logps(model, kit, one, temperature) for one in episodes])

    return compute


@pytest.mark.parametrize(("family", "dtype", "temperature"), HALF)
def test_half_precision_costs_no_more_than_padding(kits, play_mixed, alone, family, dtype, temperature):
    kit = kits(family)
    model = kit.model().to(dtype)
    generator = kit.generator(model, slots=5, temperature=temperature)
    episodes = [episode.tokens for episode in play_mixed(generator, tasks=3)]
    plain = alone(model, kit, episodes, temperature)
    engine = Mismatch.of(recorded(episodes), plain)
    yardstick = Mismatch.of(plain, padded(model, kit, episodes, temperature))
    assert engine.tokens > 100
    assert engine.within(yardstick), (engine, yardstick)
    logps = recorded(episodes)  # worked out in float32
    assert (logps != logps.to(dtype).float()).float().mean() > 0.9


def test_under_autocast_too_log_probs_differ_no_more_than_padding_makes_them(qwen3, play_mixed, alone):
    with torch.autocast("cpu", torch.bfloat16):  # as a trainer with float32 weights and `bf16: true` runs both
        model = qwen3.model()
        episodes = [e.tokens for e in play_mixed(qwen3.generator(model, slots=5), tasks=2)]
        plain = alone(model, qwen3, episodes)
        engine, yardstick = Mismatch.of(recorded(episodes), plain), Mismatch.of(plain, padded(model, qwen3, episodes))
    assert engine.largest > 1e-4  # half precision is at work
    assert engine.within(yardstick), (engine, yardstick)


def test_merged_weights_are_as_near_float32_as_the_loss(qwen3, play_mixed, alone, bf16_accelerator):
    config = LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    model = get_peft_model(qwen3.model().to(torch.bfloat16), config).eval()
    for name, weight in model.named_parameters():
        if ".lora_B" in name:
            weight.data *= 0.01  # rounded away in a two-byte weight
    with use_for_generation(bf16_accelerator, model) as merged:
        episodes = [e.tokens for e in play_mixed(qwen3.generator(merged, slots=5))]
    with torch.autocast("cpu", torch.bfloat16):  # as the loss computes them, with adapters beside the weights
        loss = alone(model, qwen3, episodes)
    exact = alone(model.float(), qwen3, episodes)
    engine, yardstick = Mismatch.of(recorded(episodes), exact), Mismatch.of(loss, exact)
    assert engine.within(yardstick), (engine, yardstick)
