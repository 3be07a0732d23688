"""The table of families: one row each."""

from . import gemma, grids, tiles
from .parts import Family

QWEN = ("<|im_end|>", "<|endoftext|>")
UTTERED, AYA = "<end_of_utterance>", "<|END_OF_TURN_TOKEN|>"
IDEFICS = ("<|end_of_text|>", UTTERED)
GEMMA4 = ("<eos>", "<turn|>", "<|tool_response>")
GLM = ("<|endoftext|>", "<|user|>", "<|observation|>")
ROWS = (  # name, released, build, ends
    Family("qwen2_vl", "Qwen/Qwen2-VL-2B-Instruct", grids.build_qwen2_vl, QWEN),
    Family("qwen2_5_vl", "Qwen/Qwen2.5-VL-7B-Instruct", grids.build_qwen2_5_vl, QWEN),
    Family("qwen3_vl", "Qwen/Qwen3-VL-4B-Instruct", grids.build_qwen3_vl, QWEN),
    Family("qwen3_vl_moe", "Qwen/Qwen3-VL-30B-A3B-Instruct", grids.build_qwen3_vl_moe, QWEN),
    Family("qwen3_5", "Qwen/Qwen3.5-2B", grids.build_qwen3_5, QWEN),
    Family("gemma3", "google/gemma-3-4b-it", gemma.build_gemma3, ("<eos>", "<end_of_turn>")),
    Family("gemma4", "google/gemma-4-E2B-it", gemma.build_gemma4, GEMMA4),
    Family("gemma4_31b", "google/gemma-4-31B-it", gemma.build_gemma4_31b, GEMMA4),
    Family("smolvlm", "HuggingFaceTB/SmolVLM2-2.2B-Instruct", tiles.build_smolvlm, (UTTERED,)),
    Family("idefics3", "HuggingFaceM4/Idefics3-8B-Llama3", tiles.build_idefics3, IDEFICS),
    Family("internvl", "OpenGVLab/InternVL3-1B-hf", tiles.build_internvl, ("<|im_end|>",)),
    Family("llava", "llava-hf/llava-1.5-7b-hf", tiles.build_llava, ("</s>",)),
    Family("llava_next", "llava-hf/llava-v1.6-34b-hf", tiles.build_llava_next, ("<|im_end|>",)),
    Family("llava_onevision", "llava-hf/llava-onevision-qwen2-0.5b-ov-hf", tiles.build_llava_onevision, QWEN),
    Family("mistral3", "mistralai/Mistral-Small-3.1-24B-Instruct-2503", grids.build_mistral3, ("</s>",)),
    Family("glm4v", "zai-org/GLM-4.1V-9B-Thinking", grids.build_glm4v, (*GLM, "</answer>")),
    Family("glm46v", "zai-org/GLM-4.6V-Flash", grids.build_glm46v, GLM),
    Family("aya_vision", "CohereLabs/aya-vision-8b", tiles.build_aya_vision, (AYA,)),
    Family("lfm2_vl", "LiquidAI/LFM2.5-VL-3B", tiles.build_lfm2_vl, ("<|im_end|>",)),
)
FAMILIES = {row.name: row for row in ROWS}
