"""The undocumented API of transformers and torch that the engine uses: a new version that changes it fails here."""

import inspect

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from viewbox.engines.hf.kv_cache import KVCache, KVCacheLayer


def test_a_cache_layer_implements_every_abstract_method_and_gets_the_states_of_its_index():
    assert CacheLayerMixin.__abstractmethods__ <= vars(KVCacheLayer).keys() | {"is_compileable"}
    assert not KVCacheLayer.__abstractmethods__
    assert "layers" in inspect.signature(Cache.__init__).parameters
    cache, called = KVCache(layers=[KVCacheLayer] * 3, slots=1), []
    for number, layer in enumerate(cache.layers):
        layer.update = lambda keys, values, *rest, number=number: called.append(number) or (keys, values)
    states = torch.zeros(1, 1, 1, 1)
    cache.update(states, states, 2)
    assert called == [2]


def test_the_forward_takes_and_gives_features_token_types_and_positions_to_keep(kit):
    model = kit.model()
    names = inspect.signature(model.forward).parameters
    assert {"mm_token_type_ids", "logits_to_keep"} <= names.keys()
    assert "mm_encoder_outputs" in names or any(p.kind is p.VAR_KEYWORD for p in names.values())
    picture = torch.zeros(16, model.model.visual.patch_embed.proj.weight[0].numel())
    output = model.get_image_features(picture, torch.tensor([[1, 4, 4]]), return_dict=True)
    assert [tokens.shape[0] for tokens in output.pooler_output] == [4]
    assert len(getattr(output, "deepstack_features", None) or []) == (1 if kit.name == "qwen3_vl" else 0)


def test_a_config_says_which_attention_is_used_and_modules_whether_gradients_are_checkpointed(qwen3):
    model = qwen3.model()
    for attention in ("sdpa", "eager"):
        model.set_attn_implementation(attention)
        assert model.config.get_text_config()._attn_implementation == attention
    model.gradient_checkpointing_enable()
    assert any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
