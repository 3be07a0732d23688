"""Every family on a device of its own: nothing is left on the CPU, and the host waits once a decode step.

No GPU is needed: see `tests/support/device.py`.
"""

import pytest
import torch

from tests.support.device import PretendedDevice, get_host
from tests.support.families import list_names
from viewbox.engines.hf.parity import compare
from viewbox.training.grpo.batch import collate, collect_pixels
from viewbox.training.grpo.logprobs import EpisodeLogProbs


@pytest.fixture(scope="module", params=list_names("gemma3"))  # masks by kind and token types
def family(request, kits):
    family = kits(request.param)
    if lack := family.tokens.architecture.find_lack():
        pytest.skip(lack)
    return family


@pytest.fixture(scope="module")
def on_cpu(family, play_mixed):
    """The episodes that a model plays, greedily, and its gradient of the loss on them."""
    model = family.model(ends=0.0)
    episodes = [one.tokens for one in play_mixed(build_generator(family, model), tasks=2, group=2)]
    logps = compute_loss(model, family, episodes)
    logps.sum().backward()
    return episodes, logps.detach(), [weight.grad for weight in model.parameters()]


def build_generator(family, model, **settings):
    given = {"slots": 3, "temperature": 0.0, "max_reply_tokens": 4, "max_completion_tokens": 900}
    return family.generator(model, **given | settings)


def compute_loss(model, family, episodes):
    """Log-probs of the packed loss, of all tokens sampled in an episode of each task, on the CPU with their graph."""
    tokens, episodes = family.tokens, episodes[::3]
    pixels, batch = collect_pixels(episodes, tokens), collate(episodes, tokens, model.device)
    compute = EpisodeLogProbs(model, tokens.architecture, tokens.image_id, tokens.pad_id, 1.0, pixels)
    return get_host(compute(batch)[0])


def test_engine_and_loss_compute_on_a_device_what_they_compute_on_the_cpu(family, play_mixed, on_cpu):
    episodes, logps, gradient = on_cpu
    model = family.model(ends=0.0)
    with PretendedDevice() as device:
        weights = device.move(model)
        generator = build_generator(family, model)
        decoding, drawing = device.watch(generator.runner, "decode"), device.watch(generator, "_sample")
        played = [one.tokens for one in play_mixed(generator, tasks=2, group=2)]
        found = compute_loss(model, family, episodes)
        assert compare(model, family.tokens).difference < 1e-5
    for one, same in zip(played, episodes, strict=True):
        assert one.completion_ids == same.completion_ids
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(same.logprobs), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.detach(), logps, atol=1e-4, rtol=1e-4)
    found.sum().backward()
    for weight, same in zip(weights, gradient, strict=True):
        assert (weight.grad is None) == (same is None)
        assert same is None or (weight.grad - same).norm() <= 1e-3 * same.norm() + 1e-5
    steps, draws = decoding.pop(("calls", "")), drawing.pop(("calls", ""))
    assert 0 < steps < draws
    assert not decoding, "a decode step waits for nothing"
    assert drawing.total() == draws, "and for one draw once"
    assert {kind for kind, _ in drawing} == {"copy to the host"}


@pytest.mark.nightly
def test_two_byte_weights_and_autocast_leave_nothing_on_the_cpu(family, play_mixed, on_cpu):
    half, model = family.model(ends=0.0).to(torch.bfloat16), family.model()
    with PretendedDevice() as device:
        device.move(half)
        weights = device.move(model)
        play_mixed(build_generator(family, half, temperature=1.0), tasks=2, group=1)
        assert compare(half, family.tokens).difference < 0.1
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logps = compute_loss(model, family, on_cpu[0])
    assert (logps.detach() - on_cpu[1]).abs().mean() < 0.2
    logps.sum().backward()
    grads = [weight.grad for weight in weights if weight.grad is not None]
    assert grads
    assert all(grad.isfinite().all() for grad in grads)
