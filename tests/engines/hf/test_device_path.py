"""Every family on a device of its own: nothing is left on the CPU, and the host waits once a decode step.

No GPU is needed: see `tests/support/device.py`.
"""

from functools import partial

import pytest
import torch

from tests.support.device import CUDA, DeviceTensor, PretendedDevice, get_host
from tests.support.families import list_names
from viewbox.engines.hf.architectures import Architecture
from viewbox.engines.hf.attention_masks import AttentionMasks
from viewbox.engines.hf.kv_cache import KVCache
from viewbox.engines.hf.parity import _compare, compare
from viewbox.errors import ModelError
from viewbox.training.grpo.batch import collate, collect_pixels
from viewbox.training.grpo.logprobs import EpisodeLogProbs

BY_DAY = "gemma3"  # masks by kind and token types
WITH_FAULTS = (BY_DAY, pytest.param("qwen3_vl", marks=pytest.mark.nightly))  # positions of three axes and DeepStack


@pytest.fixture(scope="module", params=list_names(BY_DAY))
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
    given = {"slots": 3, "temperature": 0.0, "max_reply_tokens": 8, "max_completion_tokens": 900}
    return family.generator(model, **given | settings)


def compute_loss(model, family, episodes):
    """Log-probs of the packed loss, of all sampled tokens, on the CPU with their graph."""
    tokens = family.tokens
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


# ---------------------------------------------------------------------- these tests can fail
def leave_on_cpu(value):
    """What a forgotten `.to(device)` leaves; also in a structure of tensors."""
    return get_host(value) if not isinstance(value, torch.Tensor) else value.cpu()


def plant(owner, name):
    """A fault: what this method returns is left on the CPU."""
    method = getattr(owner, name)
    return owner, name, lambda *given, **named: leave_on_cpu(method(*given, **named))


def lose_columns(self, slots, *given, prepare=KVCache.prepare):
    columns = prepare(self, slots, *given)
    self.index.columns = self.index.columns.cpu()
    return columns.cpu()


def build_on_cpu(*given, init=EpisodeLogProbs.__init__, **named):
    init(*given, **named)
    given[0].device = torch.device("cpu")


PLANTED = [  # positions, mask, features, token types, columns of the cache, ids of packs
    plant(Architecture, "to_position_ids"), plant(AttentionMasks, "build"), plant(Architecture, "build_feature_inputs"),
    plant(Architecture, "build_token_types"), (KVCache, "prepare", lose_columns),
    (EpisodeLogProbs, "__init__", build_on_cpu),
]  # fmt: skip


@pytest.mark.parametrize("name", WITH_FAULTS)
def test_a_tensor_that_is_left_on_the_cpu_is_found(kits, name, play_mixed):
    family = kits(name)
    model = family.model(ends=0.0)
    episodes = [one.tokens for one in play_mixed(build_generator(family, model), tasks=1, group=1)]
    for owner, attribute, fault in PLANTED:
        model = family.model(ends=0.0)
        run = partial(_compare, model, family.tokens)  # `compare` may fall back on the model's own forward
        if owner is EpisodeLogProbs:
            run = partial(compute_loss, model, family, episodes)
        with pytest.MonkeyPatch.context() as patch, PretendedDevice() as device:
            patch.setattr(owner, attribute, fault)
            device.move(model)
            with pytest.raises((RuntimeError, ModelError), match="on cpu"):
                run()


def test_the_device_counts_what_waits_and_nothing_else():
    with PretendedDevice() as device:
        values = torch.arange(4).to(CUDA)
        device.waits.clear()
        more = values + torch.ones((), dtype=torch.long)
        torch.tensor([1, 2]).pin_memory().to(CUDA, non_blocking=True)
        assert isinstance(more, DeviceTensor)
        assert not device.waits
        for read, kind in (
            (lambda: more.sum().item(), "_local_scalar_dense"), (lambda: bool(more[0] > 0), "_local_scalar_dense"),
            (lambda: more.tolist(), "copy to the host"), (lambda: more.cpu(), "copy to the host"),
            (lambda: more.nonzero(), "nonzero"), (lambda: more[more > 1], "index"),
            (lambda: more[torch.tensor([0, 1])], "index on the host"), (lambda: more[[0, 1]], "copy to the device"),
            (lambda: torch.ones(2).to(CUDA), "copy to the device"),
        ):  # fmt: skip
            read()
            assert [one for one, _ in device.waits] == [kind]
            assert device.waits.total() == 1
            device.waits.clear()
