"""Qwen2-VL, Qwen2.5-VL, Qwen3-VL, its mixture of experts, and Qwen3.5."""

from typing import Any

import transformers as hf

from .parts import TEXT, build_tokenizer, build_weights, get_ids, get_text_ids, read_template

SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
)
CALLS = "<tool_call> </tool_call>"
THINKS = f"{CALLS} <tool_response> </tool_response> <think> </think>"
PATCH = 8
VISION = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": TEXT["hidden_size"],
    "patch_size": PATCH, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip


def build_processor(processor_class: Any, videos: Any, added: str, template: str, **images: Any) -> Any:
    """Build a processor; pictures of up to 64 × 64 pixels keep their size."""
    tokenizer = build_tokenizer(SPECIAL, "<|im_end|> <|endoftext|>", added=added)
    size = {"shortest_edge": (2 * PATCH) ** 2, "longest_edge": 64 * 64}
    return processor_class(
        image_processor=hf.Qwen2VLImageProcessor(size=size, patch_size=PATCH, merge_size=2, **images),
        tokenizer=tokenizer,
        video_processor=videos,
        chat_template=read_template(template),
    )


def build_config(config_class: Any, processor: Any, vision: dict[str, Any], rope: dict[str, Any], **text: Any) -> Any:
    """Build a config; `rope` and `text` are added to what all texts have."""
    tokenizer, tied = processor.tokenizer, text.pop("tie_word_embeddings", True)
    ids = get_ids(
        tokenizer, image_token_id="<|image_pad|>", video_token_id="<|video_pad|>",
        vision_start_token_id="<|vision_start|>", vision_end_token_id="<|vision_end|>",
    )  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 10000.0, **rope}
    return config_class(
        text_config={**TEXT, **get_text_ids(tokenizer), "rope_parameters": rope, **text},
        vision_config=vision,
        tie_word_embeddings=tied,
        **ids,
    )


def build_qwen2_vl(seed: int) -> tuple[Any, Any]:
    processor = build_processor(hf.Qwen2VLProcessor, hf.Qwen2VLVideoProcessor(), CALLS, "qwen2_5_vl")
    vision = {**VISION, "embed_dim": 32, "hidden_size": TEXT["hidden_size"], "mlp_ratio": 2}
    for name in ("intermediate_size", "out_hidden_size"):
        vision.pop(name)
    config = build_config(hf.Qwen2VLConfig, processor, vision, {"mrope_section": [2, 3, 3]})
    return build_weights(hf.Qwen2VLForConditionalGeneration, config, seed), processor


def build_qwen2_5_vl(seed: int) -> tuple[Any, Any]:
    processor = build_processor(hf.Qwen2_5_VLProcessor, hf.Qwen2VLVideoProcessor(), CALLS, "qwen2_5_vl")
    vision = {**VISION, "fullatt_block_indexes": [1], "window_size": 32}
    config = build_config(
        hf.Qwen2_5_VLConfig, processor, vision, {"mrope_section": [2, 3, 3]}, tie_word_embeddings=False
    )
    return build_weights(hf.Qwen2_5_VLForConditionalGeneration, config, seed), processor


def build_qwen3_processor(template: str) -> Any:
    half = [0.5, 0.5, 0.5]
    videos = hf.Qwen3VLVideoProcessor()
    return build_processor(hf.Qwen3VLProcessor, videos, THINKS, template, image_mean=half, image_std=half)


def build_qwen3_vl(seed: int) -> tuple[Any, Any]:
    processor = build_qwen3_processor("qwen3_vl")
    vision = {**VISION, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    rope = {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
    config = build_config(hf.Qwen3VLConfig, processor, vision, rope)
    return build_weights(hf.Qwen3VLForConditionalGeneration, config, seed), processor


def build_qwen3_vl_moe(seed: int) -> tuple[Any, Any]:
    processor = build_qwen3_processor("qwen3_vl")
    vision = {**VISION, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    rope = {"mrope_section": [4, 2, 2], "mrope_interleaved": True}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}
    config = build_config(hf.Qwen3VLMoeConfig, processor, vision, rope, tie_word_embeddings=False, **experts)
    return build_weights(hf.Qwen3VLMoeForConditionalGeneration, config, seed), processor


def build_qwen3_5(seed: int) -> tuple[Any, Any]:
    processor = build_qwen3_processor("qwen3_5_nothink")
    rope = {"mrope_section": [2, 1, 1], "mrope_interleaved": True, "partial_rotary_factor": 0.25}
    layers = {
        "num_hidden_layers": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    }
    config = build_config(hf.Qwen3_5Config, processor, {**VISION, "num_position_embeddings": 64}, rope, **layers)
    return build_weights(hf.Qwen3_5ForConditionalGeneration, config, seed), processor
