"""GRPO's settings with a real tiny model and the real TRL: importance correction, masked episodes."""

from itertools import cycle

import pytest
import torch
from msgspec.structs import replace

from tests.support.grpo_kit import compute_gradient, generate_batch, make_trainer, train_and_read_steps
from viewbox.training.grpo.trainer import EpisodeGRPOTrainer

CAP = 2.0
LIES = (0.3, -0.4, 1.5, 0.0)  # what the engine's log-probs are too low by, token for token
REUSED = {"num_iterations": 2}


class Lying(EpisodeGRPOTrainer):
    """Its engine's log-probs of sampled tokens are wrong by a known amount."""

    lies = LIES

    def _play_tasks(self, *args):
        return [replace(e, tokens=self._falsified(e.tokens)) for e in super()._play_tasks(*args)]

    def _falsified(self, tokens):
        known = zip(tokens.logprobs, tokens.mask, cycle(self.lies))
        return replace(tokens, logprobs=tuple(logp - lie if sampled else logp for logp, sampled, lie in known))


@pytest.fixture
def trainer(qwen3, tmp_path):
    def make(env, cls=EpisodeGRPOTrainer, own=None, **given):
        own = {"episodes_per_step": 8, "importance_sampling_cap": CAP} | (own or {})
        return make_trainer(qwen3, tmp_path, env, cls=cls, own=own, **given)

    return make


def sampled(inputs):
    return (inputs["completion_mask"] * inputs["tool_mask"]).bool()


def weights_of(inputs):
    """min(exp(lie), cap) on sampled tokens, 1 elsewhere, worked out from `LIES` alone."""
    lies = torch.tensor(LIES).repeat(inputs["tool_mask"].shape[1])[: inputs["tool_mask"].shape[1]]
    return torch.where(sampled(inputs), lies.exp().clamp(max=CAP), 1.0)


# ---------------------------------------------------------------------- truncated importance correction
def test_the_ratios_logged_are_those_before_the_cap(trainer, looking):
    one = trainer(looking(), Lying, **REUSED)
    inputs = generate_batch(one)
    lies = torch.tensor(LIES).repeat(100)[: inputs["tool_mask"].shape[1]].expand(inputs["tool_mask"].shape)
    ratio = lies[sampled(inputs)].exp()
    assert ratio.max() > CAP
    for name, expected in (("mean", ratio.mean()), ("min", ratio.min()), ("max", ratio.max())):
        assert one._metrics["train"][f"sampling/importance_ratio/{name}"] == [pytest.approx(expected.item(), rel=1e-4)]


LOSSES = [*((name, "token") for name in ("grpo", "cispo", "sapo", "vespo")), ("grpo", "sequence")]


def test_every_loss_is_weighted_as_trl_weights_it_under_vllm(trainer, looking):
    # a step behind the old log-probs, so that clipping and the sequence's own ratio matter
    advantages = generate_batch(trainer(looking(), own={"importance_sampling_cap": None}, **REUSED))["advantages"]
    for loss, level in LOSSES:
        one = trainer(looking(), Lying, loss_type=loss, importance_sampling_level=level, beta=0.0, **REUSED)
        inputs = generate_batch(one)
        torch.manual_seed(0)
        with torch.no_grad():
            for weight in one.model.parameters():
                weight += 0.01 * torch.randn_like(weight)
        found = one._compute_loss(one.model, inputs)
        found_gradient = compute_gradient(one, found)
        one.use_vllm = one.vllm_importance_sampling_correction = True
        as_vllm = {**inputs, "advantages": advantages, "importance_sampling_ratio": weights_of(inputs)}
        expected = one._compute_loss(one.model, as_vllm)
        expected_gradient = compute_gradient(one, expected)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
        assert expected_gradient.norm() > 0
        assert (found_gradient - expected_gradient).norm() / expected_gradient.norm() < 1e-3


def test_weights_stay_with_their_tokens_when_a_batch_is_shuffled_into_several_steps(trainer, tmp_path, looking):
    steps = []

    class Watched(Lying):
        def _compute_loss(self, model, inputs):
            ratio = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"]).exp().clamp(max=CAP)
            bare = torch.where(sampled(inputs), inputs["advantages"] / ratio, torch.nan)
            mean = bare.nanmean(1, keepdim=True).expand_as(bare)
            steps.append((bare - mean)[sampled(inputs)].abs().max().item())
            assert inputs["advantages"].abs().max() > 0.1
            return super()._compute_loss(model, inputs)

    given = {"per_device_train_batch_size": 2, "steps_per_generation": 4, "num_iterations": 2}
    train_and_read_steps(trainer(looking(), Watched, max_steps=8, **given), tmp_path)
    assert len(steps) == 8
    assert max(steps) < 1e-4


@pytest.mark.parametrize(("given", "is_corrected"), [
    ({"steps_per_generation": 2, "per_device_train_batch_size": 4}, True),
    ({"steps_per_generation": 2, "gradient_accumulation_steps": 3, "per_device_train_batch_size": 4}, True),
    ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}, False),
], ids=["steps", "steps across an update", "accumulated"])  # fmt: skip
def test_a_batch_is_corrected_only_with_an_update_inside(trainer, looking, given, is_corrected):
    one = trainer(looking(), **given)
    inputs = generate_batch(one)
    assert ("old_per_token_logps" in inputs) == is_corrected
    assert inputs["advantages"].ndim == 1 + is_corrected
    assert any("importance_ratio" in name for name in one._metrics["train"]) == is_corrected


def test_without_a_cap_nothing_is_corrected_and_no_forward_spent(trainer, looking):
    one = trainer(looking(), Lying, own={"importance_sampling_cap": None}, **REUSED)
    one.log_probs.compute_in_parts = None  # cannot be called
    inputs = generate_batch(one)
    assert inputs["advantages"].shape == (8,)
    assert torch.equal(inputs["old_per_token_logps"], inputs["sampling_per_token_logps"])
    assert not any("importance_ratio" in name for name in one._metrics["train"])


# ---------------------------------------------------------------------- masked episodes
def test_a_masked_episode_has_no_part_in_the_gradient(trainer, looking):
    # two looks and an answer do not fit the budget, fewer do
    given = {"generation": {"max_completion_tokens": 120}, "mask_truncated_completions": True}
    one = trainer(looking(), Lying, **given, **REUSED)
    inputs = generate_batch(one)
    cut = inputs["tool_mask"].sum(dim=1) == 0
    assert 0 < cut.sum() < 8
    assert cut.tolist() == [episode.truncated for episode in one.player.latest_episodes]
    whole = compute_gradient(one, one._compute_loss(one.model, inputs))
    other = torch.where(cut[:, None], 100.0, inputs["advantages"])
    assert whole.norm() > 0
    found = compute_gradient(one, one._compute_loss(one.model, {**inputs, "advantages": other}))
    torch.testing.assert_close(found, whole)
