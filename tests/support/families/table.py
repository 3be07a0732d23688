"""The table of families: one row each."""

from . import gemma, grids, tiles
from .parts import Family

IM_END = "<|im_end|>\n"
QWEN = ("<|im_end|>", "<|endoftext|>")
UTTERED, AYA = "<end_of_utterance>", "<|END_OF_TURN_TOKEN|>"
IDEFICS = ("<|end_of_text|>", UTTERED)
GEMMA4 = ("<eos>", "<turn|>", "<|tool_response>")
GLM = ("<|endoftext|>", "<|user|>", "<|observation|>")
ROWS = (  # name, released, build, ends, written_end
    Family("qwen2_vl", "Qwen/Qwen2-VL-2B-Instruct", grids.build_qwen2_vl, QWEN, IM_END),
    Family("qwen2_5_vl", "Qwen/Qwen2.5-VL-7B-Instruct", grids.build_qwen2_5_vl, QWEN, IM_END),
    Family("qwen3_vl", "Qwen/Qwen3-VL-4B-Instruct", grids.build_qwen3_vl, QWEN, IM_END),
    Family("qwen3_vl_moe", "Qwen/Qwen3-VL-30B-A3B-Instruct", grids.build_qwen3_vl_moe, QWEN, IM_END),
    Family("qwen3_5", "Qwen/Qwen3.5-2B", grids.build_qwen3_5, QWEN, IM_END),
    Family("gemma3", "google/gemma-3-4b-it", gemma.build_gemma3, ("<eos>", "<end_of_turn>"), "<end_of_turn>\n"),
    Family("gemma4", "google/gemma-4-E2B-it", gemma.build_gemma4, GEMMA4, "<turn|>\n"),
    Family("gemma4_31b", "google/gemma-4-31B-it", gemma.build_gemma4_31b, GEMMA4, "<turn|>\n"),
    Family("smolvlm", "HuggingFaceTB/SmolVLM2-2.2B-Instruct", tiles.build_smolvlm, (UTTERED,), f"{UTTERED}\n"),
    Family("idefics3", "HuggingFaceM4/Idefics3-8B-Llama3", tiles.build_idefics3, IDEFICS, f"{UTTERED}\n"),
    Family("internvl", "OpenGVLab/InternVL3-1B-hf", tiles.build_internvl, ("<|im_end|>",), IM_END),
    Family("llava", "llava-hf/llava-1.5-7b-hf", tiles.build_llava, ("</s>",), " "),
    Family("llava_next", "llava-hf/llava-v1.6-34b-hf", tiles.build_llava_next, ("<|im_end|>",), IM_END),
    Family("llava_onevision", "llava-hf/llava-onevision-qwen2-0.5b-ov-hf", tiles.build_llava_onevision, QWEN, QWEN[0]),
    Family("mistral3", "mistralai/Mistral-Small-3.1-24B-Instruct-2503", grids.build_mistral3, ("</s>",), "</s>"),
    Family("glm4v", "zai-org/GLM-4.1V-9B-Thinking", grids.build_glm4v, (*GLM, "</answer>"), ""),
    Family("glm46v", "zai-org/GLM-4.6V-Flash", grids.build_glm46v, GLM, ""),
    Family("aya_vision", "CohereLabs/aya-vision-8b", tiles.build_aya_vision, (AYA,), AYA),
    Family("lfm2_vl", "LiquidAI/LFM2.5-VL-3B", tiles.build_lfm2_vl, ("<|im_end|>",), IM_END),
)
FAMILIES = {row.name: row for row in ROWS}
