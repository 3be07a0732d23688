"""Every family on a device of its own: nothing is left on the CPU, and the host waits once a decode step.

No GPU is needed: see `tests/support/device.py`.
"""

import pytest
import torch

from tests.support.device import CUDA, DeviceTensor, PretendedDevice, get_host
from tests.support.families import FAMILIES
from viewbox.engines.hf.architectures import Architecture
from viewbox.engines.hf.kv_cache import KVCache
from viewbox.engines.hf.parity import measure_difference
from viewbox.training.grpo.batch import collate, collect_pixels
from viewbox.training.grpo.logprobs import EpisodeLogProbs

ALWAYS = ("qwen3_vl", "gemma3")  # positions of three axes and DeepStack; masks by kind and token types
READS = {"tolist", "copy to the host"}


def name_families(names):
    return [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.nightly) for name in names]


@pytest.fixture(scope="module", params=name_families(FAMILIES))
def family(request, kits):
    family = kits(request.param)
    if lack := family.tokens.architecture.find_lack():
        pytest.skip(lack)
    return family


@pytest.fixture(scope="module")
def on_cpu(family, play_mixed):
    """The episodes that a model plays, greedily, and its gradient of the loss on them."""
    model = family.model()
    episodes = [one.tokens for one in play_mixed(build_generator(family, model), tasks=2, group=2)]
    logps = compute_loss(model, family, episodes)
    logps.sum().backward()
    return episodes, logps.detach(), [weight.grad for weight in model.parameters()]


def build_generator(family, model, **settings):
    return family.generator(model, **{"slots": 3, "temperature": 0.0, "max_reply_tokens": 8, "max_completion_tokens": 900} | settings)


def compute_loss(model, family, episodes):
    """Log-probs of the packed loss, of all sampled tokens, on the CPU with their graph."""
    pixels = collect_pixels(episodes, family.tokens)
    batch = collate(episodes, family.tokens, model.device)
    compute = EpisodeLogProbs(
        model, family.tokens.architecture, family.tokens.image_id, family.tokens.pad_id, 1.0, pixels
    )
    return get_host(compute(batch)[0])


def test_engine_and_loss_compute_on_a_device_what_they_compute_on_the_cpu(family, play_mixed, on_cpu):
    episodes, logps, gradient = on_cpu
    model = family.model()
    with PretendedDevice() as device:
        weights = device.move(model)
        played = [one.tokens for one in play_mixed(build_generator(family, model), tasks=2, group=2)]
        found = compute_loss(model, family, episodes)
        assert measure_difference(model, family.tokens) < 1e-5
    for one, same in zip(played, episodes, strict=True):
        assert one.completion_ids == same.completion_ids
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(same.logprobs), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.detach(), logps, atol=1e-4, rtol=1e-4)
    found.sum().backward()
    for weight, same in zip(weights, gradient, strict=True):
        torch.testing.assert_close(weight.grad, same, atol=1e-3, rtol=1e-3)


def test_two_byte_weights_and_autocast_leave_nothing_on_the_cpu(family, play_mixed, on_cpu):
    half, model = family.model().to(torch.bfloat16), family.model()
    with PretendedDevice() as device:
        device.move(half)
        weights = device.move(model)
        play_mixed(build_generator(family, half, temperature=1.0), tasks=2, group=2)
        assert measure_difference(half, family.tokens) < 0.1
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logps = compute_loss(model, family, on_cpu[0])
    torch.testing.assert_close(logps.detach(), on_cpu[1], atol=1.0, rtol=0.3)
    logps.sum().backward()
    assert all(weight.grad is None or weight.grad.isfinite().all() for weight in weights)
    assert any(weight.grad is not None for weight in weights)


def test_the_host_waits_once_a_decode_step(family, play_mixed):
    model = family.model()
    with PretendedDevice() as device:
        device.move(model)
        generator = build_generator(family, model, temperature=1.0)
        decoding, drawing = device.watch(generator.runner, "decode"), device.watch(generator, "_sample")
        play_mixed(generator, tasks=2, group=2)
    steps, draws = decoding.pop(("calls", "")), drawing.pop(("calls", ""))
    assert 10 < steps < draws
    assert not decoding
    assert drawing.total() == draws
    assert {kind for kind, _ in drawing} == {"copy to the host"}
