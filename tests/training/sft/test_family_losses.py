"""The supervised loss of every family, with pictures of several shapes in a batch, is that of its episodes alone."""

import pytest
import torch

from tests.support.families import list_names
from tests.support.family_episodes import FamilyKit
from viewbox.training.sft.trainer import build_sft_batches, compute_sft_loss, compute_token_weights

ALL = list_names("gemma3")
SPOKEN = ([31], [[8], [47]])  # a group without a picture


@pytest.mark.parametrize("name", ALL)
def test_the_loss_and_its_gradient_are_those_of_plain_forwards(name):
    kit = FamilyKit(name, torch.float64)
    model, shown, spoken = kit.model.train(), kit.make_episodes(), kit.make_episodes([SPOKEN])
    batches = build_sft_batches(shown, kit.tokens, 5.0, 4) + build_sft_batches(spoken, kit.tokens, 5.0)
    episodes = shown + spoken
    loss = compute_sft_loss(model, batches)
    loss.backward()
    ours = [weight.grad for weight in model.parameters()]
    width = max(len(episode.completion_ids) for episode in episodes)
    weights = torch.zeros(len(episodes), width)
    for row, episode in zip(weights, episodes, strict=True):
        row[: len(episode.mask)] = torch.tensor(compute_token_weights(episode, kit.tokens, 5.0))
    model.zero_grad()
    naive = -(weights * kit.score_plainly(model.eval(), episodes, width)[0]).sum() / weights.sum()
    naive.backward()
    assert loss.item() == pytest.approx(naive.item(), abs=1e-5)
    for one, weight in zip(ours, model.parameters(), strict=True):
        assert (one is None) == (weight.grad is None)
        if one is not None:
            torch.testing.assert_close(one, weight.grad, atol=1e-4 * weight.grad.abs().max().item() + 1e-9, rtol=0)
