"""Families that cut a picture into tiles: SmolVLM2, Idefics3 (marks of rows and columns), InternVL3 (a thumbnail)."""

from typing import Any

import transformers as hf

from .parts import TEXT, VISION, build_tokenizer, build_weights, get_text_ids, read_template

TILE, PATCH = 32, 8
SPLIT = {"size": {"longest_edge": 2 * TILE}, "max_image_size": {"longest_edge": TILE}, "do_image_splitting": True}
MARKS = " ".join(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))


def build_split_config(config_class: Any, tokenizer: Any, **given: Any) -> Any:
    text = {**TEXT, **get_text_ids(tokenizer), "model_type": "llama", "pad_token_id": tokenizer.pad_token_id}
    return config_class(
        text_config=text,
        vision_config={**VISION, "image_size": TILE, "patch_size": PATCH},
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        **given,
    )


def build_smolvlm(seed: int) -> tuple[Any, Any]:
    from transformers.models.smolvlm import processing_smolvlm

    processing_smolvlm.num2words = processing_smolvlm.num2words or str  # only prompts with videos spell a number
    tokenizer = build_tokenizer(
        f"<|endoftext|> <|im_start|> <|im_end|> <global-img> {MARKS} <fake_token_around_image> <image> "
        "<end_of_utterance>",
        "<end_of_utterance> <|im_end|> <|im_start|> <|endoftext|>",
        names={
            "fake_image_token": "<fake_token_around_image>",
            "image_token": "<image>",
            "end_of_utterance_token": "<end_of_utterance>",
            "global_image_token": "<global-img>",
        },
    )
    processor = hf.SmolVLMProcessor(
        image_processor=hf.SmolVLMImageProcessor(**SPLIT),
        tokenizer=tokenizer,
        video_processor=hf.SmolVLMVideoProcessor(),
        image_seq_len=4,
        chat_template=read_template("smolvlm"),
    )
    config = build_split_config(hf.SmolVLMConfig, tokenizer)
    return build_weights(hf.SmolVLMForConditionalGeneration, config, seed), processor


def build_idefics3(seed: int) -> tuple[Any, Any]:
    # its row and column marks are no tokens of their own, as in the released vocabulary (Llama 3's and three more)
    tokenizer = build_tokenizer(
        "<|begin_of_text|> <|end_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> "
        "<|reserved_special_token_0|> <fake_token_around_image> <image> <end_of_utterance>",
        "<|end_of_text|> <|reserved_special_token_0|> <|begin_of_text|>",
        begins=True,
    )
    processor = hf.Idefics3Processor(
        image_processor=hf.Idefics3ImageProcessor(**SPLIT),
        tokenizer=tokenizer,
        image_seq_len=4,
        chat_template=read_template("idefics3"),
    )
    config = build_split_config(hf.Idefics3Config, tokenizer)
    return build_weights(hf.Idefics3ForConditionalGeneration, config, seed), processor


def build_internvl(seed: int) -> tuple[Any, Any]:
    tokenizer = build_tokenizer(
        "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
        "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> "
        "<img> </img> <IMG_CONTEXT> <quad> </quad> <ref> </ref> <box> </box> <video>",
        "<|im_end|> <|endoftext|>",
        added="<tool_call> </tool_call>",
        names={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
    )
    images = hf.GotOcr2ImageProcessor(
        crop_to_patches=True, size={"height": TILE, "width": TILE}, min_patches=1, max_patches=4,
        image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225],
    )  # fmt: skip
    processor = hf.InternVLProcessor(
        image_processor=images,
        tokenizer=tokenizer,
        video_processor=hf.InternVLVideoProcessor(size={"height": TILE, "width": TILE}),
        image_seq_length=4,
        chat_template=read_template("internvl"),
    )
    config = hf.InternVLConfig(
        text_config={**TEXT, **get_text_ids(tokenizer), "model_type": "qwen2"},
        vision_config={**VISION, "image_size": [TILE, TILE], "patch_size": [PATCH, PATCH]},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    return build_weights(hf.InternVLForConditionalGeneration, config, seed), processor
