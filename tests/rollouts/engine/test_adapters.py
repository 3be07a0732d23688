"""Adapters are merged while a model generates; the weights come back bit for bit."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode

from tests.test_benchmarks import load as load_benchmark
from viewbox.rollouts.engine.adapters import use_merged_adapters
from viewbox.training.generation import use_for_generation

LAYERS = ["q_proj", "v_proj", "down_proj"]


class CountOperations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        return function(*args, **(kwargs or {}))


def adapt(model, targets=LAYERS, init=False):
    return get_peft_model(model, LoraConfig(r=4, lora_alpha=16, target_modules=targets, init_lora_weights=init)).eval()


def read_bits(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def count_operations(model, kit, play_mixed):
    """Operations of the language model in a decode step."""
    steps, layers = [], model.get_decoder() if hasattr(model, "get_decoder") else model.get_base_model().get_decoder()
    with CountOperations() as counter:

        def note(module, args, given, output=None):
            if given["inputs_embeds"].shape[1] == 1:
                steps.append(counter.count)

        hooks = [
            layers.register_forward_pre_hook(note, with_kwargs=True),
            layers.register_forward_hook(note, with_kwargs=True),
        ]
        play_mixed(kit.generator(model, slots=5), tasks=1)
    for hook in hooks:
        hook.remove()
    return min(after - before for before, after in zip(steps[::2], steps[1::2], strict=True))


def test_log_probs_of_a_merged_model_are_those_of_the_adapters_beside_it(kit, play_mixed, measure_mismatch):
    model = adapt(kit.model())
    with use_merged_adapters(model):
        episodes = play_mixed(kit.generator(model, slots=5), tasks=2)
    assert measure_mismatch(model, kit, episodes) <= 1e-5
    with model.disable_adapter():
        assert measure_mismatch(model, kit, episodes) > 0.01  # the adapters were at work


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_bit_for_bit_even_after_a_failure(kit, dtype):
    model = adapt(kit.model().to(dtype))
    before = read_bits(model)
    changed = []

    def fail():
        with use_merged_adapters(model):
            changed.extend(name for name, weight in model.named_parameters() if not torch.equal(weight, before[name]))
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    assert len(changed) == sum("lora_A" in name for name in before)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert not any(getattr(module, "merged_adapters", []) for module in model.modules())


def test_a_decode_step_with_adapters_takes_the_operations_of_the_bare_model(kit, play_mixed, bf16_accelerator):
    bare = count_operations(kit.model().to(torch.bfloat16), kit, play_mixed)
    model = bf16_accelerator.prepare_model(adapt(kit.model().to(torch.bfloat16)))  # wraps the forward in autocast
    with bf16_accelerator.autocast():
        beside = count_operations(model, kit, play_mixed)
    with use_for_generation(bf16_accelerator, model) as merged:
        assert count_operations(merged, kit, play_mixed) == bare
    assert beside > 1.2 * bare


def test_float32_weights_are_computed_with_in_the_precision_of_the_loss(qwen3, bf16_accelerator):
    for model in (qwen3.model(), adapt(qwen3.model())):
        with use_for_generation(bf16_accelerator, model):
            assert torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_enabled("cpu")


def test_a_weight_that_is_tied_to_the_embedding_keeps_its_adapter_beside_it(qwen3):
    base = qwen3.model()
    base.lm_head.weight = base.get_input_embeddings().weight
    model = adapt(base, ["lm_head", "q_proj"])
    embedding = base.get_input_embeddings().weight.detach().clone()
    with use_merged_adapters(model):
        assert torch.equal(base.get_input_embeddings().weight, embedding)
        assert not base.lm_head.merged
        assert base.model.language_model.layers[0].self_attn.q_proj.merged


def test_adapters_that_are_switched_off_stay_out(qwen3):
    model = adapt(qwen3.model())
    before = read_bits(model)
    with model.disable_adapter(), use_merged_adapters(model):
        assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())


def test_the_benchmark_counts_the_same_for_merged_adapters_as_for_the_bare_model(bf16_accelerator):
    figures = load_benchmark("decode_operations").measure(bf16_accelerator, layers=2)
    assert figures["met"]
    assert figures["before"] > 1.2 * figures["bare"]
