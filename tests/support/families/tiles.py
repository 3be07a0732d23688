"""Families that make a picture a square, or tiles of one: LLaVA, SmolVLM2, Idefics3, InternVL3, Aya Vision, LFM2.5-VL.

LLaVA 1.5 has one square, and no token ends its reply. In LLaVA-NeXT rows of tiles end in a token, and borders are cut
off; in LLaVA-OneVision a picture's tokens depend on how many pictures there are. SmolVLM2 and Idefics3 have marks of
rows and columns, InternVL3 a thumbnail. Aya Vision has Cohere's text layers (sliding ones with positions, full ones
without) and a `logit_scale`, which transformers' class for the model with pictures does not apply (the text's does).
LFM2.5-VL has convolutions between the attention layers.
"""

from typing import Any

import transformers as hf

from .parts import HALF, TEXT, VISION, assemble, build_tokenizer

TILE, PATCH = 32, 8
SQUARE = {"height": TILE, "width": TILE}
SIGLIP = {"model_type": "siglip_vision_model", "vision_use_head": False}
TOWER = {**VISION, "image_size": TILE, "patch_size": PATCH}
CLIP = {**TOWER, "model_type": "clip_vision_model", "num_hidden_layers": 3, "projection_dim": 32}
GRID = [[TILE * rows, TILE * columns] for rows in range(1, 4) for columns in range(1, 4) if rows * columns < 5]
SPLIT = {"size": {"longest_edge": 2 * TILE}, "max_image_size": {"longest_edge": TILE}, "do_image_splitting": True}


def build_llava(seed: int) -> tuple[Any, Any]:
    return assemble(
        "Llava",
        seed,
        build_tokenizer("<unk> <s> </s> <image> <pad>", "</s> <pad> <s> <unk>", begins=True),
        hf.CLIPImageProcessor(size={"shortest_edge": TILE}, crop_size=SQUARE),
        text={"model_type": "llama", "num_key_value_heads": 4},
        vision=CLIP,
        ids={"image_token_index": "<image>"},
        processor={
            "patch_size": PATCH, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1,
        },
        image_seq_length=(TILE // PATCH) ** 2,
    )  # fmt: skip


def build_llava_next(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<unk> <|startoftext|> <|endoftext|> <|im_start|> <|im_end|> <image> <pad>",
        "<|im_end|> <pad> <|startoftext|> <unk>",
    )
    return assemble(
        "LlavaNext",
        seed,
        tokenizer,
        hf.LlavaNextImageProcessor(size={"shortest_edge": TILE}, crop_size=SQUARE, image_grid_pinpoints=GRID),
        text={"model_type": "llama"},
        vision=CLIP,
        ids={"image_token_index": "<image>"},
        processor={
            "patch_size": PATCH, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1,
        },
        image_grid_pinpoints=GRID,
        image_seq_length=(TILE // PATCH) ** 2,
        template="llava_next",
    )  # fmt: skip


def build_llava_onevision(seed: int) -> tuple[Any, Any]:
    return assemble(
        "LlavaOnevision",
        seed,
        build_tokenizer("<|endoftext|> <|im_start|> <|im_end|> <image> <video>", "<|im_end|> <|endoftext|>"),
        hf.LlavaOnevisionImageProcessor(size=SQUARE, image_grid_pinpoints=GRID, **HALF),
        text={"model_type": "qwen2"},
        vision={**TOWER, **SIGLIP},
        ids={"image_token_index": "<image>", "video_token_index": "<video>"},
        processor={
            "video_processor": hf.LlavaOnevisionVideoProcessor(size=SQUARE),
            "num_image_tokens": (TILE // PATCH) ** 2, "vision_feature_select_strategy": "full",
        },
        image_grid_pinpoints=GRID,
        tie_word_embeddings=True,
        template="llava_onevision",
    )  # fmt: skip


def build_smolvlm(seed: int) -> tuple[Any, Any]:
    from transformers.models.smolvlm import processing_smolvlm

    processing_smolvlm.num2words = processing_smolvlm.num2words or str  # only prompts with videos spell a number
    marks = " ".join(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
    tokenizer = build_tokenizer(
        f"<|endoftext|> <|im_start|> <|im_end|> <global-img> {marks} <fake_token_around_image> <image> "
        "<end_of_utterance>",
        "<end_of_utterance> <|im_end|> <|im_start|> <|endoftext|>",
        names={
            "fake_image_token": "<fake_token_around_image>", "image_token": "<image>",
            "end_of_utterance_token": "<end_of_utterance>", "global_image_token": "<global-img>",
        },
    )  # fmt: skip
    return build_split("SmolVLM", seed, tokenizer, video_processor=hf.SmolVLMVideoProcessor())


def build_idefics3(seed: int) -> tuple[Any, Any]:
    # its row and column marks are no tokens of their own, as in the released vocabulary (Llama 3's and three more)
    tokenizer = build_tokenizer(
        "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> "
        "<|reserved_special_token_0|> <fake_token_around_image> <image> <end_of_utterance>",
        "<|end_of_text|> <|reserved_special_token_0|> <|begin_of_text|>",
        begins=True,
    )
    return build_split("Idefics3", seed, tokenizer)


def build_split(name: str, seed: int, tokenizer: Any, **processor: Any) -> tuple[Any, Any]:
    """Build either of the two that mark rows and columns by its name in transformers' classes."""
    return assemble(
        name,
        seed,
        tokenizer,
        getattr(hf, f"{name}ImageProcessor")(**SPLIT),
        text={"model_type": "llama", "pad_token_id": tokenizer.pad_token_id},
        vision=TOWER,
        ids={"image_token_id": "<image>"},
        processor={"image_seq_len": 4, **processor},
        scale_factor=2,
    )


def build_internvl(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
        "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
        "<img> </img> <IMG_CONTEXT> <quad> </quad> <ref> </ref> <box> </box> <video>",
        "<|im_end|> <|endoftext|>",
        added="<tool_call> </tool_call>",
        names={
            "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
    )  # fmt: skip
    images = hf.GotOcr2ImageProcessor(
        crop_to_patches=True, size=SQUARE, min_patches=1, max_patches=4, image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )  # fmt: skip
    return assemble(
        "InternVL",
        seed,
        tokenizer,
        images,
        text={"model_type": "qwen2"},
        vision={**VISION, "image_size": [TILE, TILE], "patch_size": [PATCH, PATCH]},
        ids={"image_token_id": "<IMG_CONTEXT>"},
        processor={"video_processor": hf.InternVLVideoProcessor(size=SQUARE), "image_seq_length": 4},
        image_seq_length=4,
        tie_word_embeddings=False,
    )


def build_aya_vision(seed: int) -> tuple[Any, Any]:
    tiles = " ".join(f"TILE_{number}" for number in range(1, 13))
    tokenizer = build_tokenizer(
        "<PAD> <UNK> <CLS> <SEP> <MASK_TOKEN> <BOS_TOKEN> <EOS_TOKEN> <EOP_TOKEN> <|START_OF_TURN_TOKEN|> "
        "<|END_OF_TURN_TOKEN|> <|USER_TOKEN|> <|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|> <|START_RESPONSE|> <|END_RESPONSE|> "
        f"<|START_OF_IMG|> <|END_OF_IMG|> <|IMG_LINE_BREAK|> <|IMG_PATCH|> {tiles} TILE_GLOBAL",
        "<|END_OF_TURN_TOKEN|> <PAD> <BOS_TOKEN> <UNK>",
        begins=True,
    )
    return assemble(
        "AyaVision",
        seed,
        tokenizer,
        hf.GotOcr2ImageProcessor(crop_to_patches=True, size=SQUARE, max_patches=4, **HALF),
        text={
            "model_type": "cohere2", "num_hidden_layers": 4, "sliding_window": 48, "logit_scale": 0.25,
            "layer_types": [*["sliding_attention"] * 3, "full_attention"], "head_dim": ...,
        },
        vision={**TOWER, **SIGLIP},
        ids={"image_token_index": "<|IMG_PATCH|>"},
        processor={"patch_size": PATCH, "img_size": TILE, "downsample_factor": 2},
        downsample_factor=2,
        alignment_intermediate_size=128,
        template="aya_vision",
    )  # fmt: skip


def build_lfm2_vl(seed: int) -> tuple[Any, Any]:
    marks = " ".join(f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11))
    tokenizer = build_tokenizer(
        "<|pad|> <|startoftext|> <|endoftext|> <|fim_pre|> <|fim_mid|> <|fim_suf|> <|im_start|> <|im_end|> "
        "<|tool_list_start|> <|tool_list_end|> <|tool_call_start|> <|tool_call_end|> <|tool_response_start|> "
        f"<|tool_response_end|> <image> <|image_start|> <|image_end|> <|img_thumbnail|> {marks}",
        "<|im_end|> <|pad|> <|startoftext|>",
        begins=True,
        names={
            "image_token": "<image>", "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>",
            "image_thumbnail": "<|img_thumbnail|>",
        },
    )  # fmt: skip
    images = hf.Lfm2VlImageProcessor(
        encoder_patch_size=PATCH, tile_size=TILE, size=SQUARE, min_tiles=2, max_tiles=4, min_image_tokens=1,
        max_image_tokens=4, return_row_col_info=True,
    )  # fmt: skip
    return assemble(
        "Lfm2Vl",
        seed,
        tokenizer,
        images,
        text={
            "num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"], "head_dim": ...,
            "block_auto_adjust_ff_dim": False,
            "conv_dim": TEXT["hidden_size"],  # as in the released config.json; vLLM reads it, transformers does not
        },
        vision={**VISION, "num_patches": (TILE // PATCH) ** 2, "patch_size": PATCH, "vision_use_head": False},
        ids={"image_token_id": "<image>"},
        projector_hidden_size=128,
        downsample_factor=2,
        template="lfm2_2_5_vl",
    )  # fmt: skip
