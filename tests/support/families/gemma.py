"""Gemma 3: sliding layers, pictures whose tokens see each other, a placeholder that is not the image token."""

from typing import Any

import transformers as hf

from .parts import TEXT, VISION, build_tokenizer, build_weights, get_ids, get_text_ids, read_template


def build_gemma3(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<pad> <eos> <bos> <unk> <start_of_turn> <end_of_turn> <start_of_image> <end_of_image> <image_soft_token>",
        eos="<eos>",
        pad="<pad>",
        bos="<bos>",
        unk="<unk>",
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
