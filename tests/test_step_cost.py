"""The benchmark of a step's cost: what it counts, and that a missed bar is named."""

import pytest
import torch

from tests.test_benchmarks import load
from viewbox.engines.hf import chat_tokens, engine
from viewbox.engines.hf.architectures import Architecture
from viewbox.training.grpo import logprobs, packing

COST, PICTURES, UPDATE = load("step_cost"), load("picture_cost"), load("update_cost")


def test_a_step_prepares_each_distinct_picture_once(monkeypatch):
    for owner, name in ((Architecture, "preprocess"), (engine, "HFGenerator")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # puts back what the benchmark replaces
    for name in ("MAX_BYTES", "MIN_BYTES_EACH"):
        monkeypatch.setattr(chat_tokens, name, getattr(chat_tokens, name))
    monkeypatch.setattr(PICTURES, "CASE", PICTURES.CaseSize(prompts=2, group=2, side=2, tool_side=2))
    figures = PICTURES.measure()
    assert figures["prepared"] == figures["distinct"] == 2 + 4 * PICTURES.TURNS
    assert figures["bytes"] == figures["distinct"] * 16 * 6 * PICTURES.PATCH**2 * 2  # 16 patches, two bytes


def test_floating_point_operations_and_living_bytes_are_counted():
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    with UPDATE.CostCounter([a, b]) as counter:
        first = a @ b
        del first
        second = a @ b
    assert counter.flops == 2 * 2 * 8 * 16 * 4
    assert counter.peak == counter.live == second.nbytes


def test_a_causal_kernel_computes_half_of_all_pairs():
    query = torch.ones(1, 1, 64, 8)
    flops = []
    for causal in (False, True):
        with UPDATE.CostCounter([query]) as counter:
            torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=causal)
        flops.append(counter.flops)
    assert flops[0] == 2 * (2 * 64 * 64 * 8)  # scores, then their product with the values
    assert flops[1] / flops[0] == pytest.approx(65 / 128)


@pytest.mark.parametrize("heads", [1, 4])
def test_the_backward_pass_of_attention_counts_five_products(heads):
    query = torch.ones(2, 4, 32, 8, requires_grad=True)
    key = torch.ones(2, heads, 32, 8)
    with UPDATE.CostCounter([query, key]) as counter:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, key, enable_gqa=heads != 4)
        forward = counter.flops
        out.sum().backward()
    assert forward == 2 * (2 * 32 * 32 * 8) * 8
    assert counter.flops - forward == 5 * (2 * 32 * 32 * 8) * 8


def test_an_attention_kernel_that_cannot_be_counted_is_an_error():
    kernel = torch.ops.aten._flash_attention_forward.default
    with pytest.raises(NotImplementedError, match="_flash_attention_forward"):
        UPDATE.count_flops(kernel, [torch.ones(1, 1, 4, 8)] * 3, {}, None)


def test_an_update_is_measured_at_a_small_size(monkeypatch):
    for owner, name in ((logprobs, "MAX_LOGITS"), (packing, "MAX_TOKENS")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(UPDATE, "GROUP", 2)
    build, layers = UPDATE.Qwen3VLConfig, {"num_hidden_layers": 2}
    monkeypatch.setattr(
        UPDATE, "Qwen3VLConfig", lambda text_config, **more: build(text_config=text_config | layers, **more)
    )
    figures = UPDATE.measure(COST.LANGUAGE_LAYERS)
    assert figures["flops"] > 1e8
    assert figures["peak_bytes"] > 1e5


@pytest.mark.parametrize(("peak", "missed"), [(50, []), (51, ["update_memory"])])
def test_a_missed_bar_is_named(peak, missed):
    update = {"before": {"peak_bytes": 100, "flops": 100}, "now": {"peak_bytes": peak, "flops": 70}}
    pictures = {"before": {"bytes": 4}, "now": {"bytes": 1, "prepared": 9, "distinct": 9}}
    assert COST.judge({"decode": {"ratio": 1.0}, "pictures": pictures, "update": update})["missed"] == missed
