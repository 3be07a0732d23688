"""LFM2.5-VL: convolutions between the attention layers, tiles and a thumbnail with marks around them."""

from typing import Any

import transformers as hf

from .parts import TEXT, VISION, build_tokenizer, build_weights, get_text_ids, read_template

TILE, PATCH = 32, 8
MARKS = " ".join(f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11))


def build_lfm2_vl(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<|pad|> <|startoftext|> <|endoftext|> <|fim_pre|> <|fim_mid|> <|fim_suf|> <|im_start|> <|im_end|> "
        "<|tool_list_start|> <|tool_list_end|> <|tool_call_start|> <|tool_call_end|> <|tool_response_start|> "
        f"<|tool_response_end|> <image> <|image_start|> <|image_end|> <|img_thumbnail|> {MARKS}",
        "<|im_end|> <|pad|> <|startoftext|>",
        begins=True,
        names={
            "image_token": "<image>",
            "image_start_token": "<|image_start|>",
            "image_end_token": "<|image_end|>",
            "image_thumbnail": "<|img_thumbnail|>",
        },
    )
    processor = hf.Lfm2VlProcessor(
        image_processor=hf.Lfm2VlImageProcessor(
            encoder_patch_size=PATCH, tile_size=TILE, size={"height": TILE, "width": TILE}, min_tiles=2,
            max_tiles=4, min_image_tokens=1, max_image_tokens=4, return_row_col_info=True,
        ),
        tokenizer=tokenizer,
        chat_template=read_template("lfm2_2_5_vl"),
    )  # fmt: skip
    config = hf.Lfm2VlConfig(
        text_config={
            **{name: size for name, size in TEXT.items() if name != "head_dim"},
            **get_text_ids(tokenizer),
            "num_hidden_layers": 4,
            "layer_types": ["conv", "conv", "full_attention", "conv"],
            "block_auto_adjust_ff_dim": False,
            "conv_dim": TEXT["hidden_size"],  # as in the released config.json; vLLM reads it, transformers does not
        },
        vision_config={**VISION, "num_patches": (TILE // PATCH) ** 2, "patch_size": PATCH, "vision_use_head": False},
        projector_hidden_size=128,
        downsample_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    return build_weights(hf.Lfm2VlForConditionalGeneration, config, seed), processor
