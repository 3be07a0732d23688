"""QLoRA: 4-bit weights in the language layers, adapters beside them, and a saved model that is the policy itself."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.support import forks
from tests.support.families import save_family
from tests.support.grpo_kit import generate_batch, make_trainer
from viewbox.configs.schema import load
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf import loading
from viewbox.engines.hf.adapters import has_two_byte_weights, use_merged_adapters
from viewbox.engines.hf.quantization import is_quantized, merge_adapters
from viewbox.training.precision import build_lora_config

LANGUAGE = ".*language_model.*_proj"


@pytest.fixture
def load_quantized(qwen3, tmp_path):
    def load_model(dtype="float32"):
        if not (tmp_path / "base").exists():
            model = qwen3.model()
            model.lm_head.bias = None  # no model of this class has one, and such a file is refused
            model.save_pretrained(tmp_path / "base")
        return loading.load_model(ModelSection(name=str(tmp_path / "base"), dtype=dtype), "4bit")

    return load_model


def adapt(model):
    config = LoraConfig(r=4, lora_alpha=16, target_modules=LANGUAGE, init_lora_weights=False)
    return get_peft_model(model, config).eval()


def find_four_bit(model):
    return [name for name, weight in model.named_parameters() if type(weight).__name__ == "Params4bit"]


def test_the_language_layers_have_4_bits_and_nothing_else_as_a_shipped_config_adapts_them(load_quantized, tmp_path):
    model = load_quantized("bfloat16")
    assert is_quantized(model)
    assert len(find_four_bit(model)) == 2 * 7
    assert all("language_model" in name for name in find_four_bit(model))
    assert model.dtype == torch.bfloat16
    assert has_two_byte_weights(model)
    model = get_peft_model(model, build_lora_config(load("qwen3_vl_4b_qlora").lora))
    adapted = {name.partition(".lora_A")[0] for name, _ in model.named_modules() if name.endswith("lora_A.default")}
    assert {f"{name}.base_layer.weight" for name in adapted} == set(find_four_bit(model))
    for name in ("smolvlm", "gemma3"):  # parts of other names: `text_model`, `vision_tower`, `multi_modal_projector`
        model = loading.load_model(ModelSection(name=str(save_family(name, tmp_path / name))), "4bit")
        language = {f"{key}.weight" for key, layer in model.get_decoder().named_modules() if key.endswith("_proj")}
        decoder = next(key for key, module in model.named_modules() if module is model.get_decoder())
        assert {key.removeprefix(f"{decoder}.") for key in find_four_bit(model)} == language


def test_log_probs_are_those_of_the_loss_and_saved(qwen3, load_quantized, play_mixed, measure_mismatch, tmp_path):
    model = adapt(load_quantized())
    with use_merged_adapters(model):
        assert not any(getattr(module, "merged", False) for module in model.modules())
        episodes = play_mixed(qwen3.generator(model, slots=5), tasks=2)
    assert measure_mismatch(model, qwen3, episodes) <= 2e-5  # these adapters are larger than the weights they adapt
    with model.disable_adapter():
        assert measure_mismatch(model, qwen3, episodes) > 0.01  # the adapters were at work
    merge_adapters(model).save_pretrained(tmp_path / "model")
    saved = loading.load_model(ModelSection(name=str(tmp_path / "model"), dtype="float32"))
    assert not is_quantized(saved)
    assert "quantization_config" not in (tmp_path / "model" / "config.json").read_text()
    assert measure_mismatch(saved.eval(), qwen3, episodes) <= 1e-4


def test_adapters_learn_in_float32_and_as_beside_plain_weights(qwen3, load_quantized, tmp_path, strips):
    config = LoraConfig(r=4, lora_alpha=16, target_modules=LANGUAGE)
    quantized, plain = load_quantized(), load_quantized().dequantize()
    found = []
    for model, checkpointing in ((quantized, True), (plain, False)):
        torch.manual_seed(0)
        trainer = make_trainer(qwen3, tmp_path, strips, model=model, peft_config=config,
                               gradient_checkpointing=checkpointing)  # fmt: skip
        inputs = generate_batch(trainer)
        inputs["advantages"] = torch.linspace(-1, 1, 8)
        trainer._compute_loss(trainer.model, inputs).backward()
        trained = [weight for weight in trainer.model.parameters() if weight.requires_grad]
        assert {weight.dtype for weight in trained} == {torch.float32}
        found.append(torch.cat([weight.grad.flatten() for weight in trained]))
    assert found[1].norm() > 0
    assert (found[0] - found[1]).norm() / found[1].norm() < 1e-5


SCRIPT = """
import sys, torch, viewbox.training.run, peft
peft.get_peft_model(torch.nn.Sequential(torch.nn.Linear(4, 4)), peft.LoraConfig(target_modules=["0"]))
print("bitsandbytes" in sys.modules)
from viewbox.engines.hf.quantization import find_bitsandbytes
find_bitsandbytes()
print(peft.import_utils.is_bnb_4bit_available())
"""


def test_a_run_without_four_bits_does_not_import_what_asks_the_hub_for_code(tmp_path):
    pytest.importorskip("bitsandbytes")
    (tmp_path / "script.py").write_text(SCRIPT)
    status, said = forks.start_script(tmp_path / "script.py", folder=tmp_path).wait()
    assert status == 0, said
    assert [line for line in said.splitlines() if line in ("False", "True")] == ["False", "True"]
