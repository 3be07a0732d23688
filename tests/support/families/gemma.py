"""Gemma: sliding layers, pictures whose tokens see each other, a placeholder that is not the image token."""

from typing import Any

import transformers as hf

from .parts import VISION, assemble, build_tokenizer

SLIDING, FULL = "sliding_attention", "full_attention"


def build_gemma3(seed: int) -> tuple[Any, Any]:
    marks = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    tokenizer = build_tokenizer(
        f"<pad> <eos> <bos> <unk> <start_of_turn> <end_of_turn> {' '.join(marks.values())}",
        "<eos> <pad> <bos> <unk>",
        begins=True,
        names=marks,
    )
    text = {
        "layer_types": [SLIDING, FULL, SLIDING], "sliding_window": 48, "query_pre_attn_scalar": 16,
        "rope_parameters": {
            SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
            FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        },
    }  # fmt: skip
    return assemble(
        "Gemma3",
        seed,
        tokenizer,
        hf.Gemma3ImageProcessor(size={"height": 32, "width": 32}),
        text=text,
        vision={**VISION, "image_size": 32, "patch_size": 8, "vision_use_head": False},
        ids={f"{name}_index": token for name, token in marks.items()},
        processor={"image_seq_length": 4},
        mm_tokens_per_image=4,
        eos_token_id=tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"]),
    )


def build_gemma4_any(seed: int, vision: dict[str, Any], **text: Any) -> tuple[Any, Any]:
    """Build either shape of Gemma 4 (no audio)."""
    marks = {
        "boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>", "boa_token": "<|audio>",
        "eoa_token": "<audio|>", "audio_token": "<|audio|>",
    }  # fmt: skip
    tokenizer = build_tokenizer(
        "<pad> <eos> <bos> <unk> <mask> <|tool> <tool|> <|tool_call> <tool_call|> <|tool_response> <tool_response|> "
        '<|"|> <|think|> <|channel> <channel|> <|turn> <turn|> <|image> <image|> <|image|> <|audio> <audio|> '
        "<|audio|> <|video|>",
        "<eos> <pad> <bos> <unk>",
        begins=True,
        names=marks,
    )
    text = {
        "pad_token_id": 0,  # as released: vLLM takes token 0, transformers this one, where a picture has no text
        "global_head_dim": 32,  # of the full layers
        "sliding_window": 48, "final_logit_softcapping": 30.0, "vocab_size_per_layer_input": len(tokenizer), **text,
    }  # fmt: skip
    tower = {
        **VISION, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4, "pooling_kernel_size": 3,
        "position_embedding_size": 256, **vision,
    }  # fmt: skip
    ids = {f"{name}_{'index' if name == 'eoa_token' else 'id'}": token for name, token in marks.items()}
    return assemble(
        "Gemma4",
        seed,
        tokenizer,
        hf.Gemma4ImageProcessor(patch_size=4, max_soft_tokens=70),  # it takes no fewer
        text=text,
        vision=tower,
        ids={**ids, "video_token_id": "<|video|>"},
        processor={
            "feature_extractor": hf.Gemma4AudioFeatureExtractor(),
            "video_processor": hf.Gemma4VideoProcessor(patch_size=4, max_soft_tokens=70),
            "image_seq_length": 70,
        },
        template="gemma4_v5",
        eos_token_id=tokenizer.convert_tokens_to_ids(["<eos>", "<turn|>"]),
    )


def build_gemma4(seed: int) -> tuple[Any, Any]:
    """As E2B and E4B: late layers take the keys of early ones, each layer has an embedding of its own."""
    return build_gemma4_any(
        seed,
        {"use_clipped_linears": True},
        num_hidden_layers=5,
        layer_types=[SLIDING, SLIDING, FULL, SLIDING, FULL],
        num_kv_shared_layers=2,
        num_key_value_heads=1,
        hidden_size_per_layer_input=8,
        use_double_wide_mlp=True,
    )


def build_gemma4_31b(seed: int) -> tuple[Any, Any]:
    """As 31B: a picture's tokens see each other, keys are values in full layers, which have fewer of them."""
    model, processor = build_gemma4_any(
        seed,
        {"standardize": True},
        layer_types=[SLIDING, SLIDING, FULL],
        hidden_size_per_layer_input=0,
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        use_bidirectional_attention="vision",
    )
    tower = model.model.vision_tower
    tower.std_bias.zero_(), tower.std_scale.fill_(1.0)  # buffers that a checkpoint fills
    return model, processor
