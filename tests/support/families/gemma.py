"""Gemma 3: sliding layers, pictures whose tokens see each other, a placeholder that is not the image token."""

from typing import Any

import transformers as hf

from .parts import TEXT, VISION, build_tokenizer, build_weights, get_ids, get_text_ids, read_template


def build_gemma3(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<pad> <eos> <bos> <unk> <start_of_turn> <end_of_turn> <start_of_image> <end_of_image> <image_soft_token>",
        "<eos> <pad> <bos> <unk>",
        begins=True,
        names={"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
    )
    processor = hf.Gemma3Processor(
        image_processor=hf.Gemma3ImageProcessor(size={"height": 32, "width": 32}),
        tokenizer=tokenizer,
        chat_template=read_template("gemma3"),
        image_seq_length=4,
    )
    config = hf.Gemma3Config(
        text_config={
            **TEXT,
            **get_text_ids(tokenizer),
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 48,
            "query_pre_attn_scalar": 16,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            },
        },
        vision_config={**VISION, "image_size": 32, "patch_size": 8, "vision_use_head": False},
        mm_tokens_per_image=4,
        **get_ids(
            tokenizer,
            image_token_index="<image_soft_token>",
            boi_token_index="<start_of_image>",
            eoi_token_index="<end_of_image>",
        ),
        eos_token_id=tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"]),
    )
    return build_weights(hf.Gemma3ForConditionalGeneration, config, seed), processor


GEMMA4_SPECIAL = (
    "<pad> <eos> <bos> <unk> <mask> <|tool> <tool|> <|tool_call> <tool_call|> <|tool_response> <tool_response|> "
    '<|"|> <|think|> <|channel> <channel|> <|turn> <turn|> <|image> <image|> <|image|> <|audio> <audio|> <|audio|> '
    "<|video|>"
)
GEMMA4_NAMES = {
    "boi_token": "<|image>", "eoi_token": "<image|>", "image_token": "<|image|>", "boa_token": "<|audio>",
    "eoa_token": "<audio|>", "audio_token": "<|audio|>",
}  # fmt: skip


def build_gemma4_processor() -> Any:
    tokenizer = build_tokenizer(GEMMA4_SPECIAL, "<eos> <pad> <bos> <unk>", begins=True, names=GEMMA4_NAMES)
    return hf.Gemma4Processor(
        feature_extractor=hf.Gemma4AudioFeatureExtractor(),
        image_processor=hf.Gemma4ImageProcessor(patch_size=4, max_soft_tokens=70),  # it takes no fewer
        tokenizer=tokenizer,
        video_processor=hf.Gemma4VideoProcessor(patch_size=4, max_soft_tokens=70),
        chat_template=read_template("gemma4_v5"),
        image_seq_length=70,
    )


def build_gemma4_config(tokenizer: Any, vision: dict[str, Any], **text: Any) -> Any:
    return hf.Gemma4Config(
        text_config={
            **TEXT,
            **get_text_ids(tokenizer),
            "pad_token_id": 0,  # as released: vLLM takes token 0, transformers this one, where a picture has no text
            "global_head_dim": 32,  # of the full layers
            "sliding_window": 48,
            "final_logit_softcapping": 30.0,
            "vocab_size_per_layer_input": len(tokenizer),
            **text,
        },
        vision_config={
            **VISION, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4, "pooling_kernel_size": 3,
            "position_embedding_size": 256, **vision,
        },
        **get_ids(
            tokenizer,
            image_token_id="<|image|>",
            boi_token_id="<|image>",
            eoi_token_id="<image|>",
            video_token_id="<|video|>",
            audio_token_id="<|audio|>",
            boa_token_id="<|audio>",
            eoa_token_index="<audio|>",
        ),
        eos_token_id=tokenizer.convert_tokens_to_ids(["<eos>", "<turn|>"]),
    )  # fmt: skip


def build_gemma4(seed: int) -> tuple[Any, Any]:
    """As E2B and E4B: late layers take the keys of early ones, each layer has an embedding of its own (no audio)."""
    processor = build_gemma4_processor()
    sliding, full = "sliding_attention", "full_attention"
    config = build_gemma4_config(
        processor.tokenizer,
        {"use_clipped_linears": True},
        num_hidden_layers=5,
        layer_types=[sliding, sliding, full, sliding, full],
        num_kv_shared_layers=2,
        num_key_value_heads=1,
        hidden_size_per_layer_input=8,
        use_double_wide_mlp=True,
    )
    return build_weights(hf.Gemma4ForConditionalGeneration, config, seed), processor


def build_gemma4_31b(seed: int) -> tuple[Any, Any]:
    """As 31B: a picture's tokens see each other, keys are values in full layers, which have fewer of them."""
    processor = build_gemma4_processor()
    config = build_gemma4_config(
        processor.tokenizer,
        {"standardize": True},
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        hidden_size_per_layer_input=0,
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        use_bidirectional_attention="vision",
    )
    model = build_weights(hf.Gemma4ForConditionalGeneration, config, seed)
    tower = model.model.vision_tower
    tower.std_bias.zero_(), tower.std_scale.fill_(1.0)  # buffers that a checkpoint fills
    return model, processor
