"""Families whose pictures keep their shape, as a grid of patches: Qwen-VL, GLM-V, Mistral Small 3.1 (Pixtral).

No token ends a reply of GLM but the next message's own; a row of Pixtral ends with a token.
"""

from collections.abc import Mapping
from typing import Any

import transformers as hf

from .parts import HALF, TEXT, assemble, build_tokenizer
from .parts import VISION as TOWER

PATCH = 8
VISION = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": TEXT["hidden_size"],
    "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
CALLS = "<tool_call> </tool_call> <tool_response> </tool_response>"


def build_qwen(
    name: str, seed: int, template: str, vision: Any, rope: Any, text: Mapping[str, Any] = {}, tied: bool = True
) -> tuple[Any, Any]:
    """Build a Qwen by its name in transformers' classes; pictures of up to 64 × 64 pixels keep their size."""
    is_third = name.startswith("Qwen3")
    tokenizer = build_tokenizer(
        "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
        "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>",
        "<|im_end|> <|endoftext|>",
        added=f"{CALLS} <think> </think>" if is_third else "<tool_call> </tool_call>",
    )
    size = {"shortest_edge": (2 * PATCH) ** 2, "longest_edge": 64 * 64}
    ids = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}
    return assemble(
        name,
        seed,
        tokenizer,
        hf.Qwen2VLImageProcessor(size=size, patch_size=PATCH, merge_size=2, **(HALF if is_third else {})),
        text={"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, **rope}, **text},
        vision=vision,
        ids=ids | {f"vision_{end}_token_id": f"<|vision_{end}|>" for end in ("start", "end")},
        processor={"video_processor": hf.Qwen3VLVideoProcessor() if is_third else hf.Qwen2VLVideoProcessor()},
        reads_as="Qwen3VL" if is_third else name,
        tie_word_embeddings=tied,
        template=template,
    )


def build_qwen2_vl(seed: int) -> tuple[Any, Any]:
    vision = {**VISION, "embed_dim": 32, "hidden_size": TEXT["hidden_size"], "mlp_ratio": 2}
    for name in ("intermediate_size", "out_hidden_size"):
        vision.pop(name)
    return build_qwen("Qwen2VL", seed, "qwen2_5_vl", vision, {"mrope_section": [2, 3, 3]})


def build_qwen2_5_vl(seed: int) -> tuple[Any, Any]:
    vision = {**VISION, "fullatt_block_indexes": [1], "window_size": 32}
    return build_qwen("Qwen2_5_VL", seed, "qwen2_5_vl", vision, {"mrope_section": [2, 3, 3]}, tied=False)


def build_qwen3_vl(seed: int, name: str = "Qwen3VL", **settings: Any) -> tuple[Any, Any]:
    vision = {**VISION, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    rope = {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
    return build_qwen(name, seed, "qwen3_vl", vision, rope, **settings)


def build_qwen3_vl_moe(seed: int) -> tuple[Any, Any]:
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}
    return build_qwen3_vl(seed, "Qwen3VLMoe", text=experts, tied=False)


def build_qwen3_5(seed: int) -> tuple[Any, Any]:
    rope = {"mrope_section": [2, 1, 1], "mrope_interleaved": True, "partial_rotary_factor": 0.25}
    layers = {
        "num_hidden_layers": 4, "layer_types": [*["linear_attention"] * 3, "full_attention"], "head_dim": 32,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
    }  # fmt: skip
    return build_qwen("Qwen3_5", seed, "qwen3_5_nothink", {**VISION, "num_position_embeddings": 64}, rope, layers)


def build_glm(seed: int, name: str, special: str, added: str) -> tuple[Any, Any]:
    """Build either GLM by its name in transformers' classes."""
    tokenizer = build_tokenizer(
        "<|endoftext|> [MASK] [gMASK] [sMASK] <sop> <eop> <|system|> <|user|> <|assistant|> <|observation|> "
        f"<|begin_of_image|> <|end_of_image|> <|begin_of_video|> <|end_of_video|> <|image|> <|video|> {special}",
        "<|endoftext|> <|endoftext|>",
        added=f"<think> </think> <|begin_of_box|> <|end_of_box|> {added}",
    )
    frames = 2  # the processor counts a picture's pixels once a frame
    size = {"shortest_edge": frames * (2 * PATCH) ** 2, "longest_edge": frames * 64 * 64}
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}
    ids = {f"{kind}_token_id": f"<|{kind}|>" for kind in ("image", "video")}
    for end, word in (("start", "begin"), ("end", "end")):
        ids |= {f"{kind}_{end}_token_id": f"<|{word}_of_{kind}|>" for kind in ("image", "video")}
    return assemble(
        name,
        seed,
        tokenizer,
        getattr(hf, f"{name}ImageProcessor")(size=size, patch_size=PATCH),
        # the bias as released: vLLM reads it, transformers has it in any case
        text={"attention_bias": True, "rope_parameters": rope},
        vision={**VISION, "image_size": 64},
        ids=ids,
        processor={"video_processor": getattr(hf, f"{name}VideoProcessor")()},
    )


def build_glm4v(seed: int) -> tuple[Any, Any]:
    return build_glm(seed, "Glm4v", "", "<answer> </answer>")


def build_glm46v(seed: int) -> tuple[Any, Any]:
    return build_glm(seed, "Glm46V", "/nothink", f"{CALLS} <arg_key> </arg_key> <arg_value> </arg_value>")


def build_mistral3(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] "
        "[TOOL_CALLS] [IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] "
        "[TOOL_CONTENT]",
        "</s> <pad> <s> <unk>",
        begins=True,
    )
    return assemble(
        "Mistral3",
        seed,
        tokenizer,
        hf.PixtralImageProcessor(size={"longest_edge": 64}, patch_size=PATCH),
        text={"model_type": "mistral", "sliding_window": None},
        vision={**TOWER, "model_type": "pixtral", "image_size": 64, "patch_size": PATCH, "head_dim": 16},
        ids={"image_token_index": "[IMG]"},
        processor={"patch_size": PATCH, "spatial_merge_size": 2},
        reads_as="Pixtral",
        spatial_merge_size=2,
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
