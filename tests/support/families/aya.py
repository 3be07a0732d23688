"""Aya Vision: Cohere's text layers (sliding ones with positions, full ones without), tiles.

Its config has a `logit_scale`, which transformers' class for the model with pictures does not apply (the text's does).
"""

from typing import Any

import transformers as hf

from .parts import TEXT, VISION, build_tokenizer, build_weights, get_text_ids, read_template

TILE, PATCH = 32, 8


def build_aya_vision(seed: int) -> tuple[Any, Any]:
    tiles = " ".join(f"TILE_{number}" for number in range(1, 13))
    tokenizer = build_tokenizer(
        "<PAD> <UNK> <CLS> <SEP> <MASK_TOKEN> <BOS_TOKEN> <EOS_TOKEN> <EOP_TOKEN> <|START_OF_TURN_TOKEN|> "
        "<|END_OF_TURN_TOKEN|> <|USER_TOKEN|> <|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|> <|START_RESPONSE|> <|END_RESPONSE|> "
        f"<|START_OF_IMG|> <|END_OF_IMG|> <|IMG_LINE_BREAK|> <|IMG_PATCH|> {tiles} TILE_GLOBAL",
        "<|END_OF_TURN_TOKEN|> <PAD> <BOS_TOKEN> <UNK>",
        begins=True,
    )
    images = hf.GotOcr2ImageProcessor(
        crop_to_patches=True, size={"height": TILE, "width": TILE}, max_patches=4, image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )  # fmt: skip
    processor = hf.AyaVisionProcessor(
        image_processor=images, tokenizer=tokenizer, patch_size=PATCH, img_size=TILE, downsample_factor=2,
        chat_template=read_template("aya_vision"),
    )  # fmt: skip
    config = hf.AyaVisionConfig(
        text_config={
            **{name: size for name, size in TEXT.items() if name != "head_dim"},
            **get_text_ids(tokenizer),
            "model_type": "cohere2",
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window": 48,
            "logit_scale": 0.25,
        },
        vision_config={
            **VISION, "model_type": "siglip_vision_model", "image_size": TILE, "patch_size": PATCH,
            "vision_use_head": False,
        },
        downsample_factor=2,
        alignment_intermediate_size=128,
        image_token_index=tokenizer.convert_tokens_to_ids("<|IMG_PATCH|>"),
    )  # fmt: skip
    return build_weights(hf.AyaVisionForConditionalGeneration, config, seed), processor
