"""The table of families: one row each."""

from . import gemma, grids, tiles
from .parts import Family

IM_END = "<|im_end|>\n"
QWEN = ("<|im_end|>", "<|endoftext|>")
GEMMA4 = ("<eos>", "<turn|>", "<|tool_response>")
GLM = ("<|endoftext|>", "<|user|>", "<|observation|>")
# fmt: off
ROWS = (  # name, released, build, template_source, ends, written_end
    Family("qwen2_vl", "Qwen/Qwen2-VL-2B-Instruct", grids.build_qwen2_vl, "templates/qwen2_5_vl.jinja", QWEN, IM_END),
    Family("qwen2_5_vl", "Qwen/Qwen2.5-VL-7B-Instruct", grids.build_qwen2_5_vl,
           "templates/qwen2_5_vl.jinja", QWEN, IM_END),
    Family("qwen3_vl", "Qwen/Qwen3-VL-4B-Instruct", grids.build_qwen3_vl, "trl: qwen3_vl.jinja", QWEN, IM_END),
    Family("qwen3_vl_moe", "Qwen/Qwen3-VL-30B-A3B-Instruct", grids.build_qwen3_vl_moe,
           "trl: qwen3_vl.jinja", QWEN, IM_END),
    Family("qwen3_5", "Qwen/Qwen3.5-2B", grids.build_qwen3_5, "trl: qwen3_5_nothink.jinja", QWEN, IM_END),
    Family("gemma3", "google/gemma-3-4b-it", gemma.build_gemma3,
           "trl: gemma3.jinja", ("<eos>", "<end_of_turn>"), "<end_of_turn>\n"),
    Family("gemma4", "google/gemma-4-E2B-it", gemma.build_gemma4, "trl: gemma4_v5.jinja", GEMMA4, "<turn|>\n"),
    Family("gemma4_31b", "google/gemma-4-31B-it", gemma.build_gemma4_31b, "trl: gemma4_v5.jinja", GEMMA4, "<turn|>\n"),
    Family("smolvlm", "HuggingFaceTB/SmolVLM2-2.2B-Instruct", tiles.build_smolvlm,
           "trl: smolvlm.jinja", ("<end_of_utterance>",), "<end_of_utterance>\n"),
    Family("idefics3", "HuggingFaceM4/Idefics3-8B-Llama3", tiles.build_idefics3,
           "trl: idefics3.jinja", ("<|end_of_text|>", "<end_of_utterance>"), "<end_of_utterance>\n"),
    Family("internvl", "OpenGVLab/InternVL3-1B-hf", tiles.build_internvl,
           "templates/internvl.jinja", ("<|im_end|>",), IM_END),
    Family("llava", "llava-hf/llava-1.5-7b-hf", tiles.build_llava, "templates/llava.jinja", ("</s>",), " "),
    Family("llava_next", "llava-hf/llava-v1.6-34b-hf", tiles.build_llava_next,
           "templates/llava_next.jinja", ("<|im_end|>",), IM_END),
    Family("llava_onevision", "llava-hf/llava-onevision-qwen2-0.5b-ov-hf", tiles.build_llava_onevision,
           "templates/llava_onevision.jinja", QWEN, "<|im_end|>"),
    Family("mistral3", "mistralai/Mistral-Small-3.1-24B-Instruct-2503", grids.build_mistral3,
           "templates/mistral3.jinja", ("</s>",), "</s>"),
    Family("glm4v", "zai-org/GLM-4.1V-9B-Thinking", grids.build_glm4v,
           "templates/glm4v.jinja", (*GLM, "</answer>"), ""),
    Family("glm46v", "zai-org/GLM-4.6V-Flash", grids.build_glm46v, "templates/glm46v.jinja", GLM, ""),
    Family("aya_vision", "CohereLabs/aya-vision-8b", tiles.build_aya_vision,
           "templates/aya_vision.jinja", ("<|END_OF_TURN_TOKEN|>",), "<|END_OF_TURN_TOKEN|>"),
    Family("lfm2_vl", "LiquidAI/LFM2.5-VL-3B", tiles.build_lfm2_vl, "trl: lfm2_2_5_vl.jinja", ("<|im_end|>",), IM_END),
)
# fmt: on
FAMILIES = {row.name: row for row in ROWS}
