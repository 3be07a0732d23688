"""The last resort: a model plays by its own forward and its own cache, and records what a plain forward says."""

import pytest
import torch

from viewbox.engines.hf import own_forward
from viewbox.engines.hf.architectures import Architecture
from viewbox.engines.hf.kv_cache import measure_slot
from viewbox.engines.hf.model_parts import keep_state

NAMES = ["qwen2_5_vl", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("gemma3", "smolvlm", "qwen3_5"))]


@pytest.fixture(params=NAMES)
def family(request, kits, monkeypatch):
    monkeypatch.setattr(Architecture, "find_lack", lambda self: "it is a test")
    return kits(request.param)


def test_log_probs_are_right_and_groups_decode_together(family, play, words, play_mixed, measure_mismatch):
    model, rows = family.model(), []
    generator = family.generator(model, slots=4, max_completion_tokens=900)
    assert isinstance(generator.runner, own_forward.PlainRunner)
    episodes = play_mixed(generator, tasks=2)
    assert {len(episode.tokens.images) for episode in episodes} >= {1, 2}
    assert measure_mismatch(model, family, episodes) <= family.tolerance
    generator = family.generator(model, slots=4, max_reply_tokens=12)
    forward = generator.runner._forward
    generator.runner._forward = lambda batch, ids, vision: rows.append(len(ids)) or forward(batch, ids, vision)
    episodes = play(words, words.tasks[:2], generator, group=4)
    assert max(rows) == 3  # the first of them was computed before the others
    assert measure_mismatch(model, family, episodes) <= family.tolerance


def test_it_samples_and_takes_what_the_engines_cache_does(kits, play_mixed, monkeypatch):
    for name in ("qwen2_5_vl", "qwen3_5"):
        family = kits(name)
        model = family.model()
        runner = own_forward.PlainRunner(model, family.tokens, 1, family.generator(model).stats)
        assert runner.measure_slot() == measure_slot(model)
    family, said = kits("qwen2_5_vl"), []
    model = family.model()
    for _ in range(2):
        episodes = play_mixed(family.generator(model, slots=3, max_completion_tokens=900), tasks=2)
        said.append([one.tokens.completion_ids for one in episodes])
        monkeypatch.setattr(Architecture, "find_lack", lambda self: "it is a test")  # plays by its own forward then
    assert said[0] == said[1]


def test_what_a_model_leaves_on_itself_is_taken_away(kits, play, words, measure_mismatch, monkeypatch):
    monkeypatch.setattr(Architecture, "find_lack", lambda self: "it is a test")
    family = kits("qwen2_5_vl")
    model = family.model()
    left = model.model.rope_deltas = torch.full((1, 1), -8)
    with keep_state(model) as own:
        assert model.model.rope_deltas is None
        own["rope_deltas"] = 7
    assert model.model.rope_deltas is left
    episodes = play(words, words.tasks[:2], family.generator(model, slots=4), group=4)  # without a picture
    assert measure_mismatch(model, family, episodes) <= family.tolerance
