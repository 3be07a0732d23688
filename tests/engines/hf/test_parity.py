"""The comparison at the start of a run: what must pass it, and faults that must not."""

import pytest
import torch

from tests.support.families import build_family
from tests.support.tables import each
from viewbox.engines.hf import parity
from viewbox.engines.hf.architectures import Architecture
from viewbox.engines.hf.attention_masks import AttentionMasks
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.model_runner import ModelRunner
from viewbox.engines.hf.own_forward import PlainRunner, build_runner
from viewbox.engines.hf.scheduler import Stats
from viewbox.engines.hf.vision_cache import VisionCache
from viewbox.errors import ModelError


def open_family(name, dtype=torch.float32):
    model, processor = build_family(name)
    return model.to(dtype), ChatTokens(processor, model.config, model.generation_config)


def forget_images(self, ids, images, start):
    return torch.arange(start, start + len(ids)).expand(self.axes, -1), start + len(ids)


def forget_mutual(self, model, build_token_types):
    self._mutual = set()
    return True


def scale_logits(self, *args, _forward=ModelRunner.forward):
    return _forward(self, *args) * 1.1


def widen_window(self, *args, _split=AttentionMasks._split_by_kind):
    masks = _split(self, *args)
    return dict.fromkeys(masks, masks["full_attention"])


def swap_features(self, features, _build=Architecture.build_feature_inputs):
    return _build(self, features[::-1])


def drop_token(self, image, _preprocess=Architecture.preprocess):
    pixels = _preprocess(self, image)
    short = self.processor.tokenizer.decode([self.image_id])
    return type(pixels)(pixels.inputs, pixels.tokens - 1, pixels.text.replace(short, "", 1))


DIFFERENT = "differs from that of the model's own forward, by 0"
FEWER = r"gives \d+ features for \d+ image tokens"
FAULTS = [  # of a family: what is put in its place, and how the run ends
    ("qwen2_5_vl", Architecture, "compute_positions", forget_images, DIFFERENT),  # positions without pictures
    ("qwen3_vl", Architecture, "compute_positions", forget_images, DIFFERENT),  # the same of three axes
    ("gemma3", AttentionMasks, "learn", forget_mutual, DIFFERENT),  # pictures that do not see themselves
    ("gemma3", AttentionMasks, "_split_by_kind", widen_window, DIFFERENT),  # no sliding window
    ("smolvlm", ModelRunner, "forward", scale_logits, DIFFERENT),
    ("internvl", Architecture, "build_feature_inputs", swap_features, DIFFERENT),  # those of another picture
    ("llava", Architecture, "preprocess", drop_token, FEWER),  # a token too few
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@each("name, owner, attribute, wrong, message", FAULTS)
def test_a_fault_ends_the_run(name, owner, attribute, wrong, message, dtype):
    model, tokens = open_family(name, dtype)
    found = parity.compare(model, tokens)
    found.check(tokens)
    assert found.allowed < 0.06
    assert dtype == torch.bfloat16 or found.difference < 1e-5
    tokens.architecture.masks._mutual = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, attribute, wrong)
        with pytest.raises(ModelError, match=message):
            parity.check_parity(model, tokens)


def test_the_model_is_left_as_it_was_and_what_gives_no_numbers_or_fails_is_refused_in_words(monkeypatch):
    model, tokens = open_family("qwen2_5_vl")
    before = model.model.rope_deltas = torch.zeros(1, 1)
    model.train()
    parity.check_parity(model, tokens)
    assert model.model.rope_deltas is before
    assert model.training
    model, tokens = open_family("qwen2_5_vl")
    torch.nn.init.constant_(model.model.language_model.norm.weight, float("nan"))
    with pytest.raises(ModelError, match="by nan of the probability"):
        parity.check_parity(model, tokens)
    monkeypatch.setattr(type(model.model), "get_image_features", lambda *given, **inputs: inputs["nothing"])
    with pytest.raises(ModelError, match=r"model_type 'qwen2_5_vl' fails in a conversation of two turns: KeyError"):
        parity.check_parity(model, tokens)


def test_a_model_at_which_only_the_engine_fails_plays_by_its_own_forward(monkeypatch, caplog):
    model, tokens = open_family("qwen2_5_vl")
    monkeypatch.setattr(Architecture, "build_feature_inputs", lambda self, features: features["nothing"])
    parity.check_parity(model, tokens)
    assert "by its own forward and its own cache, slower (last resort): the engine fails" in caplog.text
    assert not tokens.architecture.has_backbone  # the loss plays it so, too
    runner = build_runner(model, tokens, VisionCache(model, tokens.architecture), 1, Stats())
    assert isinstance(runner, PlainRunner)
