"""The table of families: one row each."""

from .aya import build_aya_vision
from .gemma import build_gemma3, build_gemma4, build_gemma4_31b
from .glm import build_glm4v, build_glm46v
from .lfm2 import build_lfm2_vl
from .llava import build_llava, build_llava_next, build_llava_onevision
from .mistral import build_mistral3
from .parts import Family
from .qwen import build_qwen2_5_vl, build_qwen2_vl, build_qwen3_5, build_qwen3_vl, build_qwen3_vl_moe
from .tiles import build_idefics3, build_internvl, build_smolvlm

QWEN = ("<|im_end|>", "<|endoftext|>")
GEMMA4 = ("<eos>", "<turn|>", "<|tool_response>")
GLM = ("<|endoftext|>", "<|user|>", "<|observation|>")
# fmt: off
ROWS = (  # name, released, build, template_source, ends
    Family("qwen2_vl", "Qwen/Qwen2-VL-2B-Instruct", build_qwen2_vl, "templates/qwen2_5_vl.jinja", QWEN),
    Family("qwen2_5_vl", "Qwen/Qwen2.5-VL-7B-Instruct", build_qwen2_5_vl, "templates/qwen2_5_vl.jinja", QWEN),
    Family("qwen3_vl", "Qwen/Qwen3-VL-4B-Instruct", build_qwen3_vl, "trl: qwen3_vl.jinja", QWEN),
    Family("qwen3_vl_moe", "Qwen/Qwen3-VL-30B-A3B-Instruct", build_qwen3_vl_moe, "trl: qwen3_vl.jinja", QWEN),
    Family("qwen3_5", "Qwen/Qwen3.5-2B", build_qwen3_5, "trl: qwen3_5_nothink.jinja", QWEN),
    Family("gemma3", "google/gemma-3-4b-it", build_gemma3, "trl: gemma3.jinja", ("<eos>", "<end_of_turn>")),
    Family("gemma4", "google/gemma-4-E2B-it", build_gemma4, "trl: gemma4_v5.jinja", GEMMA4),
    Family("gemma4_31b", "google/gemma-4-31B-it", build_gemma4_31b, "trl: gemma4_v5.jinja", GEMMA4),
    Family("smolvlm", "HuggingFaceTB/SmolVLM2-2.2B-Instruct", build_smolvlm,
           "trl: smolvlm.jinja", ("<end_of_utterance>",)),
    Family("idefics3", "HuggingFaceM4/Idefics3-8B-Llama3", build_idefics3,
           "trl: idefics3.jinja", ("<|end_of_text|>", "<end_of_utterance>")),
    Family("internvl", "OpenGVLab/InternVL3-1B-hf", build_internvl, "templates/internvl.jinja", ("<|im_end|>",)),
    Family("llava", "llava-hf/llava-1.5-7b-hf", build_llava, "templates/llava.jinja", ("</s>",)),
    Family("llava_next", "llava-hf/llava-v1.6-34b-hf", build_llava_next, "templates/llava_next.jinja", ("<|im_end|>",)),
    Family("llava_onevision", "llava-hf/llava-onevision-qwen2-0.5b-ov-hf", build_llava_onevision,
           "templates/llava_onevision.jinja", QWEN),
    Family("mistral3", "mistralai/Mistral-Small-3.1-24B-Instruct-2503", build_mistral3,
           "templates/mistral3.jinja", ("</s>",)),
    Family("glm4v", "zai-org/GLM-4.1V-9B-Thinking", build_glm4v, "templates/glm4v.jinja", (*GLM, "</answer>")),
    Family("glm46v", "zai-org/GLM-4.6V-Flash", build_glm46v, "templates/glm46v.jinja", GLM),
    Family("aya_vision", "CohereLabs/aya-vision-8b", build_aya_vision,
           "templates/aya_vision.jinja", ("<|END_OF_TURN_TOKEN|>",)),
    Family("lfm2_vl", "LiquidAI/LFM2.5-VL-3B", build_lfm2_vl, "trl: lfm2_2_5_vl.jinja", ("<|im_end|>",)),
)
# fmt: on
FAMILIES = {row.name: row for row in ROWS}
