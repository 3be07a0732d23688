"""LLaVA 1.5 (no token ends a reply), LLaVA-NeXT (rows of tiles end in a token; borders are cut off), LLaVA-OneVision.

In LLaVA-OneVision a picture's tokens depend on how many pictures there are.
"""

from typing import Any

import transformers as hf

from .parts import TEXT, VISION, build_tokenizer, build_weights, get_ids, get_text_ids, read_template

TILE, PATCH = 32, 8
GRID = [[TILE * rows, TILE * columns] for rows in range(1, 4) for columns in range(1, 4) if rows * columns < 5]


def build_llava(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer("<unk> <s> </s> <image> <pad>", "</s> <pad> <s> <unk>", begins=True)
    size = {"height": TILE, "width": TILE}
    processor = hf.LlavaProcessor(
        image_processor=hf.CLIPImageProcessor(size={"shortest_edge": TILE}, crop_size=size),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=read_template("llava"),
    )
    config = hf.LlavaConfig(
        text_config={**TEXT, **get_text_ids(tokenizer), "model_type": "llama", "num_key_value_heads": 4},
        vision_config={
            **VISION, "model_type": "clip_vision_model", "num_hidden_layers": 3, "image_size": TILE,
            "patch_size": PATCH, "projection_dim": 32,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(TILE // PATCH) ** 2,
    )  # fmt: skip
    return build_weights(hf.LlavaForConditionalGeneration, config, seed), processor


def build_llava_next(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<unk> <|startoftext|> <|endoftext|> <|im_start|> <|im_end|> <image> <pad>",
        "<|im_end|> <pad> <|startoftext|> <unk>",
    )
    processor = hf.LlavaNextProcessor(
        image_processor=hf.LlavaNextImageProcessor(
            size={"shortest_edge": TILE}, crop_size={"height": TILE, "width": TILE}, image_grid_pinpoints=GRID
        ),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=read_template("llava_next"),
    )
    config = hf.LlavaNextConfig(
        text_config={**TEXT, **get_text_ids(tokenizer), "model_type": "llama"},
        vision_config={
            **VISION, "model_type": "clip_vision_model", "num_hidden_layers": 3, "image_size": TILE,
            "patch_size": PATCH, "projection_dim": 32,
        },
        image_grid_pinpoints=GRID,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(TILE // PATCH) ** 2,
    )  # fmt: skip
    return build_weights(hf.LlavaNextForConditionalGeneration, config, seed), processor


def build_llava_onevision(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer("<|endoftext|> <|im_start|> <|im_end|> <image> <video>", "<|im_end|> <|endoftext|>")
    size = {"height": TILE, "width": TILE}
    half = [0.5, 0.5, 0.5]
    processor = hf.LlavaOnevisionProcessor(
        image_processor=hf.LlavaOnevisionImageProcessor(
            size=size, image_grid_pinpoints=GRID, image_mean=half, image_std=half
        ),
        tokenizer=tokenizer,
        video_processor=hf.LlavaOnevisionVideoProcessor(size=size),
        num_image_tokens=(TILE // PATCH) ** 2,
        vision_feature_select_strategy="full",
        chat_template=read_template("llava_onevision"),
    )
    config = hf.LlavaOnevisionConfig(
        text_config={**TEXT, **get_text_ids(tokenizer), "model_type": "qwen2"},
        vision_config={
            **VISION, "model_type": "siglip_vision_model", "image_size": TILE, "patch_size": PATCH,
            "vision_use_head": False,
        },
        image_grid_pinpoints=GRID,
        tie_word_embeddings=True,
        **get_ids(tokenizer, image_token_index="<image>", video_token_index="<video>"),
    )  # fmt: skip
    return build_weights(hf.LlavaOnevisionForConditionalGeneration, config, seed), processor
