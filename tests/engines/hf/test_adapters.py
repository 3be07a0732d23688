"""Adapters are columns of the weights while a model generates: nothing of them is lost, and the weights come back."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode

from viewbox.engines.hf.adapters import use_merged_adapters
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_come_back_bit_for_bit_even_after_a_failure(qwen3, dtype):
    model = adapt(qwen3.model().to(dtype))
    before, wide = read_bits(model), []

    def fail():
        with use_merged_adapters(model):
            wide.extend(name for name, _ in model.named_buffers() if name.endswith("wide_weight"))
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    assert len(wide) == sum("lora_A" in name for name in before)
    assert not [name for name, _ in model.named_buffers() if "wide_weight" in name or "adapter_down" in name]
    assert all(weight.is_contiguous() for weight in model.parameters())
    assert not any("forward" in vars(module) for module in model.modules())
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    assert not any(getattr(module, "merged_adapters", []) for module in model.modules())


def test_a_decode_step_takes_two_operations_more_for_each_adapted_layer(qwen3, play_mixed, bf16_accelerator):
    bare = count_operations(qwen3.model().to(torch.bfloat16), qwen3, play_mixed)
    model = bf16_accelerator.prepare_model(adapt(qwen3.model().to(torch.bfloat16)))  # wraps the forward in autocast
    with bf16_accelerator.autocast():
        beside = count_operations(model, qwen3, play_mixed)
    with use_for_generation(bf16_accelerator, model) as merged:
        after = count_operations(merged, qwen3, play_mixed)
    adapted = sum(name.endswith(".lora_A.default") for name, _ in model.named_modules())
    assert after - bare <= 5 * adapted  # A x and its place beside x, and views of both
    assert after - bare < 0.5 * (beside - bare)


def test_a_tied_weight_and_float32_weights_are_computed_with_in_the_precision_of_the_loss(qwen3, bf16_accelerator):
    for model in (qwen3.model(), adapt(qwen3.model())):
        with use_for_generation(bf16_accelerator, model):
            assert torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_enabled("cpu")
    base = qwen3.model()
    base.lm_head.weight = base.get_input_embeddings().weight
    model = adapt(base, ["lm_head", "q_proj"])
    embedding = base.get_input_embeddings().weight.detach().clone()
    with use_merged_adapters(model):
        assert torch.equal(base.get_input_embeddings().weight, embedding)
        assert not base.lm_head.merged
        assert base.model.language_model.layers[0].self_attn.q_proj.merged


def test_adapters_that_are_switched_off_stay_out_and_all_active_ones_count(qwen3):
    model = adapt(qwen3.model())
    before = read_bits(model)
    with model.disable_adapter(), use_merged_adapters(model):
        assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
    model.add_adapter("second", LoraConfig(r=3, target_modules=LAYERS, init_lora_weights=False))
    model.base_model.set_adapter(["default", "second"])
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        beside = model(input_ids=ids).logits
        with use_merged_adapters(model):
            assert torch.allclose(model(input_ids=ids).logits, beside, atol=1e-4)


@pytest.mark.parametrize(("dtype", "rank"), [(torch.bfloat16, 1), (torch.float16, 32), (torch.float32, 4)])
def test_an_output_shows_a_change_that_is_far_below_the_rounding_of_the_weight(dtype, rank):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(256, 256)).to(dtype)
    model = get_peft_model(net, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=["0"])).eval()
    layer = model.base_model.model[0]
    layer.lora_B["default"].weight.data.normal_()
    down, up = layer.lora_A["default"].weight.double(), layer.lora_B["default"].weight.double()
    scale = 1e-4 * layer.weight.double().norm() / (up @ down).norm()
    layer.lora_B["default"].weight.data *= scale / 2
    x = torch.randn(8192, 256).to(dtype)
    exact = x.double() @ (up * scale @ down).T  # scale / 2, times alpha / r = 2
    with torch.no_grad(), model.disable_adapter():
        bare = model(x).double()
    with torch.no_grad(), use_merged_adapters(model):
        share = (((model(x).double() - bare) * exact).sum() / exact.square().sum()).item()
    assert share == pytest.approx(1, abs=0.05)
