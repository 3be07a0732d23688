"""The table of families: one row each."""

from .gemma import build_gemma3
from .mistral import build_mistral3
from .parts import Family
from .qwen import build_qwen2_5_vl, build_qwen2_vl, build_qwen3_5, build_qwen3_vl, build_qwen3_vl_moe
from .tiles import build_idefics3, build_internvl, build_smolvlm

QWEN_ENDS = ("<|im_end|>", "<|endoftext|>")
ROWS = (
    Family("qwen2_vl", "Qwen/Qwen2-VL-2B-Instruct", build_qwen2_vl, "trl: qwen2_5_vl.jinja", QWEN_ENDS, "<|im_end|>\n"),
    Family(
        "qwen2_5_vl",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        build_qwen2_5_vl,
        "trl: qwen2_5_vl.jinja",
        QWEN_ENDS,
        "<|im_end|>\n",
    ),
    Family("qwen3_vl", "Qwen/Qwen3-VL-4B-Instruct", build_qwen3_vl, "trl: qwen3_vl.jinja", QWEN_ENDS, "<|im_end|>\n"),
    Family(
        "qwen3_vl_moe",
        "Qwen/Qwen3-VL-30B-A3B-Instruct",
        build_qwen3_vl_moe,
        "trl: qwen3_vl.jinja",
        QWEN_ENDS,
        "<|im_end|>\n",
    ),
    Family("qwen3_5", "Qwen/Qwen3.5-2B", build_qwen3_5, "trl: qwen3_5_nothink.jinja", QWEN_ENDS, "<|im_end|>\n"),
    Family(
        "gemma3",
        "google/gemma-3-4b-it",
        build_gemma3,
        "trl: gemma3.jinja",
        ("<eos>", "<end_of_turn>"),
        "<end_of_turn>\n",
    ),
    Family(
        "smolvlm",
        "HuggingFaceTB/SmolVLM2-2.2B-Instruct",
        build_smolvlm,
        "trl: smolvlm.jinja",
        ("<end_of_utterance>",),
        "<end_of_utterance>\n",
    ),
    Family(
        "idefics3",
        "HuggingFaceM4/Idefics3-8B-Llama3",
        build_idefics3,
        "trl: idefics3.jinja",
        ("<|end_of_text|>", "<end_of_utterance>"),
        "<end_of_utterance>\n",
    ),
    Family(
        "internvl",
        "OpenGVLab/InternVL3-1B-hf",
        build_internvl,
        "templates/internvl.jinja",
        ("<|im_end|>",),
        "<|im_end|>\n",
    ),
    Family(
        "mistral3",
        "mistralai/Mistral-Small-3.1-24B-Instruct-2503",
        build_mistral3,
        "templates/mistral3.jinja",
        ("</s>",),
        "</s>",
    ),
)
FAMILIES = {row.name: row for row in ROWS}
