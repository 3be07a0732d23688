"""The benchmarks of pictures and of memory count what they say."""

import torch

from tests.test_benchmarks import load
from viewbox.engines.hf import chat_tokens, engine
from viewbox.engines.hf.architectures import Architecture
from viewbox.training.memory.measure import LiveBytes

PICTURES = load("picture_cost")


def test_a_step_prepares_each_distinct_picture_once(monkeypatch):
    for owner, name in ((Architecture, "preprocess"), (engine, "HFGenerator")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # puts back what the benchmark replaces
    for name in ("MAX_BYTES", "MIN_BYTES_EACH"):
        monkeypatch.setattr(chat_tokens, name, getattr(chat_tokens, name))
    monkeypatch.setattr(PICTURES, "CASE", PICTURES.CaseSize(prompts=2, group=2, side=2, tool_side=2))
    figures = PICTURES.measure()
    assert figures["prepared"] == figures["distinct"] == 2 + 4 * PICTURES.TURNS
    assert figures["bytes"] == figures["distinct"] * 16 * 6 * PICTURES.PATCH**2 * 2  # 16 patches, two bytes


def test_living_bytes_are_counted():
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    with LiveBytes([a, b]) as counter:
        first = a @ b
        del first
        second = a @ b
    assert counter.peak == counter.live == second.nbytes
