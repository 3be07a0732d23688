"""Each family that vLLM computes on a CPU as transformers does: log-probs, then with weights that were sent.

vLLM's own `LLM` against transformers' plain forward; of viewbox only the weights and the extension that reads them.
"""

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
from vllm import LLM, SamplingParams
from vllm.config import WeightTransferConfig

from tests.support.families import build_wide_family
from tests.support.vllm_process import ENVIRONMENT, save_as_released
from viewbox.engines.vllm.weights import iterate_weights

TOLERANCE = 5e-5
PICTURES = [Image.radial_gradient("L").resize(size).convert("RGB") for size in ((224, 168), (60, 90))]


def save_wide(name, folder):
    model, processor = build_wide_family(name)
    if name == "aya_vision":  # vLLM applies it, transformers' class does not
        model.config.get_text_config().logit_scale = 1.0
    save_as_released(name, model, processor, folder)
    if name.startswith("llava"):  # released weights of CLIP and SigLIP have these names, without which vLLM finds none
        weights = load_file(folder / "model.safetensors")
        named = {key.replace("vision_tower.", "vision_tower.vision_model."): value for key, value in weights.items()}
        save_file(named, folder / "model.safetensors", {"format": "pt"})
    return processor


NOT_SENT = ("gemma4",)  # it was not tried
NAMES = (
    "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "smolvlm", "idefics3", "internvl", "llava",
    "llava_onevision", "mistral3", "glm4v", "aya_vision", *NOT_SENT,
)  # fmt: skip


DAILY = ("qwen3_vl", "smolvlm")  # the others repeat what these show; each costs half a minute


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in DAILY else pytest.mark.nightly) for name in NAMES]
)
def test_log_probs_are_those_of_a_plain_forward_and_follow_the_weights(name, tmp_path, monkeypatch):
    if name == "smolvlm":
        pytest.importorskip("num2words")
    for key, value in {**ENVIRONMENT, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}.items():
        monkeypatch.setenv(key, value)
    processor = save_wide(name, tmp_path)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32).eval()
    asked = [{"type": "image"}, {"type": "image"}, {"type": "text", "text": "What is it?"}]
    prompt = processor.apply_chat_template([{"role": "user", "content": asked}], add_generation_prompt=True)
    given = processor(text=[prompt], images=PICTURES, return_tensors="pt", add_special_tokens=False)
    ids = given["input_ids"]
    sent = {"prompt_token_ids": processor.tokenizer(prompt, add_special_tokens=False)["input_ids"]}
    served = LLM(
        str(tmp_path),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=2,
        limit_mm_per_prompt={"image": 2, "video": 0},
        enable_chunked_prefill=False,
        enable_prefix_caching=False,
        mm_processor_cache_gb=0,
        worker_extension_cls="viewbox.engines.vllm.vllm_extension.FileWeights",
        weight_transfer_config=WeightTransferConfig(backend="file"),
    )

    def measure():
        sampling = SamplingParams(max_tokens=1, prompt_logprobs=0)
        (reply,) = served.generate([{**sent, "multi_modal_data": {"image": PICTURES}}], sampling, use_tqdm=False)
        assert list(reply.prompt_token_ids) == ids[0].tolist()
        pairs = zip(reply.prompt_logprobs[1:], ids[0, 1:].tolist(), strict=True)
        theirs = torch.tensor([of[token].logprob for of, token in pairs])
        with torch.no_grad():
            logp = torch.log_softmax(model(**given).logits[0, :-1], -1)
        return (logp.gather(1, ids[0, 1:, None])[:, 0] - theirs).abs().max().item()

    assert measure() <= TOLERANCE
    if name in NOT_SENT:
        return
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1.05).add_(0.01)
    assert measure() > 100 * TOLERANCE
    served.init_weight_transfer_engine({"init_info": {}})
    served.start_weight_update()
    weights = {name: tensor.clone().contiguous() for name, tensor in iterate_weights(model)}
    save_file(weights, tmp_path / "sent.safetensors")
    served.update_weights({"update_info": {"path": str(tmp_path / "sent.safetensors")}})
    served.finish_weight_update()
    served.reset_prefix_cache()
    served.reset_mm_cache()
    served.llm_engine.engine_core.reset_encoder_cache()
    assert measure() <= TOLERANCE
